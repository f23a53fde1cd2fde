"""The first page: where the decisions are."""

from __future__ import annotations

from flask import Blueprint, Response, current_app, url_for

from app import htmx
from app.auth.admission import admits
from continuity.services.callers import Role

blueprint = Blueprint("home", __name__)

_START = "resume_work.index"


@blueprint.get("/")
@admits(people=tuple(Role))
def index() -> Response:
    return htmx.see_other(url_for(_START if _START in current_app.view_functions else "account.index"))
