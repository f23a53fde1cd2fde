"""What all screens of Settings share: the blueprint, who is admitted, and the way from one screen to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from flask import Blueprint, Flask, Response, current_app, render_template, request, url_for

from app import htmx
from app.auth.accounts import By
from app.auth.admission import admits
from app.pages import shell
from app.pages.problems import HTML_TYPE
from continuity.services.callers import Caller, Role

blueprint = Blueprint("settings", __name__)

ADMINISTRATORS: Final = (Role.ADMINISTRATOR,)
SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Screen:
    """A line of the navigation inside Settings."""

    title: str
    endpoint: str
    is_here: bool = False


SCREENS: Final = (
    Screen("People", "settings.people"),
    Screen("Sessions", "settings.sessions"),
    Screen("Credentials", "settings.credentials"),
    Screen("Vault", "settings.vault"),
    Screen("Audit", "audit_pages.index"),
    Screen("About", "settings.about"),
)
"""Every screen there may be. One is shown when its page exists and admits the person."""


def install(app: Flask) -> None:
    """Let templates of any blueprint show the navigation."""
    app.context_processor(lambda: {"settings_screens": screens})


def screens() -> list[Screen]:
    """Return the screens that the person who is signed in may open."""
    return [
        Screen(each.title, each.endpoint, is_here=_is_here(each.endpoint))
        for each in SCREENS
        if each.endpoint in current_app.view_functions and shell.may_open(each.endpoint)
    ]


def seconds(time_us: int | None) -> float | None:
    """Return Unix seconds for a template."""
    return None if time_us is None else time_us / SECOND_US


def by(caller: Caller) -> By:
    """Return who does it, for the audit log."""
    return By(caller.actor, caller.request_id)


def page(name: str, status: int = 200, **context: Any) -> Response:
    """Answer with a page of Settings."""
    return Response(render_template(f"pages/settings/{name}.html", **context), status, content_type=HTML_TYPE)


def _is_here(endpoint: str) -> bool:
    """Say whether the page belongs to a screen: its own views are named after it, others' have a blueprint."""
    here, blueprint_name = request.endpoint or "", endpoint.partition(".")[0]
    if blueprint_name != blueprint.name:
        return request.blueprint == blueprint_name
    return here == endpoint or here.startswith(f"{endpoint}_")


@blueprint.get("/settings")
@admits(people=ADMINISTRATORS)
def index() -> Response:
    return htmx.see_other(url_for("settings.people"))
