"""Settings → People: all accounts, a new one, and one person with what can be done to their account.

A temporary password is in the reply to its own form and nowhere else. Sent once more by the browser, the form is
refused: the account is no longer what it was made from.

Source: security.md A05, A15, S04, S12.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from flask import Response, url_for

from app import htmx
from app.auth.accounts import Temporary
from app.auth.admission import admits, admitted
from app.auth.identity import auth
from app.auth.people import PeopleQuestion, Person
from app.pages.notes import WORDS, leave_note
from app.pages.settings import forms
from app.pages.settings.area import ADMINISTRATORS, blueprint, by, page, seconds
from app.pages.settings.forms import NOTHING_SENT, TICKED, Sent, act
from app.pages.settings.refusals import Refusal
from app.query import read_query
from continuity.errors import MalformedError
from continuity.services.callers import Caller, Role

__all__ = ["blueprint"]

DONE: Final = {
    "role_changed": "The role is changed. Every session of this person has ended.",
    "workspaces_changed": "The workspaces are changed. They hold from this person's next request on.",
    "account_disabled": "The account is disabled. Every session has ended, and credentials issued by it are refused.",
    "account_enabled": "The account is enabled. This person can sign in again.",
    "second_factor_removed": "The second factor is removed. Every session of this person has ended.",
    "second_factor_absent": "This person had no second factor. Nothing was changed.",
    "second_factor_required": "Administrators need a second factor from now on.",
    "second_factor_optional": "A second factor is everybody's own choice again.",
}
WORDS.update(DONE)
_BETWEEN: Final = re.compile(r"[\s,;]+")
_NAME_CHARS: Final = 64
_NOT_WANTED: Final = "no"
_ROLES: Final = tuple(role.value for role in Role)


@dataclass(frozen=True, slots=True)
class PersonView:
    """A person for templates. Times in Unix seconds; `state` is a key of the template's table of badges."""

    user_id: str
    username: str
    role: str
    workspaces: tuple[str, ...]
    state: str
    has_second_factor: bool
    created: float | None
    signed_in: float | None
    temporary_until: float | None
    mark: str
    is_you: bool

    @property
    def is_enabled(self) -> bool:
        return self.state != "disabled"


@blueprint.get("/settings/people")
@admits(people=ADMINISTRATORS)
def people() -> Response:
    return _list(admitted())


@blueprint.get("/settings/people/new")
@admits(people=ADMINISTRATORS)
def people_new() -> Response:
    read_query()
    return _new(admitted())


@blueprint.post("/settings/people/new")
@admits(people=ADMINISTRATORS)
def people_create() -> Response:
    sent = _creating()

    def create(caller: Caller) -> Temporary:
        given, names = sent.values, _split(sent.values["workspaces"])
        return auth().accounts.create(given["username"], role=Role(given["role"]), workspace_names=names, by=by(caller))

    return act(sent, create, show=_new, done=partial(_temporary, is_new=True))


@blueprint.get("/settings/people/<user_id>")
@admits(people=ADMINISTRATORS)
def people_show(user_id: str) -> Response:
    read_query()
    return _person(admitted(), user_id)


@blueprint.get("/settings/people/<user_id>/role")
@blueprint.get("/settings/people/<user_id>/workspaces")
@blueprint.get("/settings/people/<user_id>/reset")
@blueprint.get("/settings/people/<user_id>/disable")
@blueprint.get("/settings/people/<user_id>/enable")
@blueprint.get("/settings/people/<user_id>/second-factor")
@admits(people=ADMINISTRATORS)
def people_instead(user_id: str) -> Response:
    """Lead to the person's page: a refusal leaves the address of a control in the browser."""
    return htmx.see_other(url_for("settings.people_show", user_id=user_id))


@blueprint.post("/settings/people/<user_id>/role")
@admits(people=ADMINISTRATORS)
def people_role(user_id: str) -> Response:
    sent = _seen("role", "role")
    if sent.values["role"] not in _ROLES:
        sent = sent.lacking(role="Choose one of the three.")

    def change(caller: Caller, person: Person) -> None:
        auth().accounts.set_role(person.username, Role(sent.values["role"]), by=by(caller), seen=sent.values["seen"])

    return _change(user_id, sent, change, done="role_changed")


@blueprint.post("/settings/people/<user_id>/workspaces")
@admits(people=ADMINISTRATORS)
def people_workspaces(user_id: str) -> Response:
    sent = _seen("workspaces", "workspaces")
    if not _split(sent.values["workspaces"]):
        sent = sent.lacking(workspaces="Name one at least. Somebody who shall see nothing is disabled.")

    def change(caller: Caller, person: Person) -> None:
        names = _split(sent.values["workspaces"])
        auth().accounts.set_workspaces(person.username, names, by=by(caller), seen=sent.values["seen"])

    return _change(user_id, sent, change, done="workspaces_changed")


@blueprint.post("/settings/people/<user_id>/disable")
@admits(people=ADMINISTRATORS)
def people_disable(user_id: str) -> Response:
    sent = _seen("disable")

    def change(caller: Caller, person: Person) -> None:
        auth().accounts.disable(person.username, by=by(caller), seen=sent.values["seen"])

    return _change(user_id, sent, change, done="account_disabled")


@blueprint.post("/settings/people/<user_id>/enable")
@admits(people=ADMINISTRATORS)
def people_enable(user_id: str) -> Response:
    sent = _seen("enable")

    def change(caller: Caller, person: Person) -> None:
        auth().accounts.enable(person.username, by=by(caller), seen=sent.values["seen"])

    return _change(user_id, sent, change, done="account_enabled")


@blueprint.post("/settings/people/<user_id>/reset")
@admits(people=ADMINISTRATORS)
def people_reset(user_id: str) -> Response:
    sent = _seen("reset")

    def reset(caller: Caller) -> Temporary:
        person = auth().people.one(user_id)
        return auth().accounts.reset_password(person.username, by=by(caller), seen=sent.values["seen"])

    return act(sent, reset, show=_shown(user_id), done=partial(_temporary, is_new=False))


@blueprint.post("/settings/people/<user_id>/second-factor")
@admits(people=ADMINISTRATORS)
def people_second_factor(user_id: str) -> Response:
    sent = _seen("second-factor")

    def remove(caller: Caller) -> bool:
        person = auth().people.one(user_id)
        return auth().accounts.reset_second_factor(person.username, by=by(caller), seen=sent.values["seen"])

    def done(was_there: bool) -> Response:  # noqa: FBT001 - what `act` hands on
        answer = htmx.see_other(url_for("settings.people_show", user_id=user_id))
        leave_note(answer, "second_factor_removed" if was_there else "second_factor_absent")
        return answer

    return act(sent, remove, show=_shown(user_id), done=done)


@blueprint.get("/settings/people/policy")
@admits(people=ADMINISTRATORS)
def people_elsewhere() -> Response:
    """Lead to the list, where the policy stands."""
    return htmx.see_other(url_for("settings.people"))


@blueprint.post("/settings/people/policy")
@admits(people=ADMINISTRATORS)
def people_policy() -> Response:
    sent = _deciding()
    is_wanted = sent.values["wanted"] == TICKED
    answer = htmx.see_other(url_for("settings.people"))
    leave_note(answer, "second_factor_required" if is_wanted else "second_factor_optional")

    def decide(caller: Caller) -> None:
        auth().policy.set_administrators_need_second_factor(is_wanted, by=by(caller))

    return act(sent, decide, show=_list, done=lambda _: answer)


def _change(user_id: str, sent: Sent, change: Callable[[Caller, Person], None], *, done: str) -> Response:
    """Change an account and go back to its page, which says so."""
    answer = htmx.see_other(url_for("settings.people_show", user_id=user_id))
    leave_note(answer, done)
    return act(
        sent, lambda caller: change(caller, auth().people.one(user_id)), show=_shown(user_id), done=lambda _: answer
    )


def _creating() -> Sent:
    sent = forms.read("create", "username", "role", "workspaces")
    given = sent.values
    return sent.lacking(
        username="" if given["username"] else "Give the account a name.",
        role="" if given["role"] in _ROLES else "Choose one of the three.",
        workspaces="" if _split(given["workspaces"]) else "Name one at least: default, if there is no other.",
    )


def _deciding() -> Sent:
    sent = forms.read("policy", "wanted")
    if sent.values["wanted"] not in {TICKED, _NOT_WANTED}:
        raise MalformedError("wanted must be yes or no.")
    return sent


def _seen(form: str, *names: str) -> Sent:
    """Read a form of a person's page, with the mark of what its author saw."""
    return forms.read(form, "seen", *names)


def _split(text: str) -> list[str]:
    return [name for name in _BETWEEN.split(text) if name]


def _temporary(made: Temporary, *, is_new: bool) -> Response:
    """Show a temporary password, this once."""
    person = _view(auth().people.named(made.username), admitted())
    return page("temporary", person=person, password=made.password, is_new=is_new)


def _list(caller: Caller, *, sent: Sent = NOTHING_SENT, refused: Refusal | None = None, status: int = 200) -> Response:
    given = read_query("role", "q", "after")
    role = given.get("role", "")
    if role and role not in _ROLES:
        raise MalformedError(f"role: must be one of {', '.join(_ROLES)}.")
    question = PeopleQuestion(Role(role) if role else None, given.get("q", "")[:_NAME_CHARS], given.get("after", ""))
    found = auth().people.page(question)
    own = auth().people.one(caller.actor.removeprefix("user:"))
    return page(
        "people", status, people=[_view(person, caller) for person in found.people], role=role, q=question.q,
        roles=_ROLES, next_after=found.next_after, is_first=not question.after,
        is_filtered=bool(role or question.q), sent=sent, refused=refused, is_fresh=caller.is_fresh,
        is_needed=auth().policy.administrators_need_second_factor(), has_own=own.has_second_factor,
    )  # fmt: skip


def _new(caller: Caller, *, sent: Sent = NOTHING_SENT, refused: Refusal | None = None, status: int = 200) -> Response:
    return page(
        "new_person", status, sent=sent, refused=refused, is_fresh=caller.is_fresh,
        workspaces=auth().people.workspaces(),
    )  # fmt: skip


def _shown(user_id: str) -> Any:
    return partial(_person, user_id=user_id)


def _person(
    caller: Caller, user_id: str, *, sent: Sent = NOTHING_SENT, refused: Refusal | None = None, status: int = 200
) -> Response:
    return page(
        "person", status, person=_view(auth().people.one(user_id), caller), sent=sent, refused=refused,
        is_fresh=caller.is_fresh, workspaces=auth().people.workspaces(), roles=_ROLES,
    )  # fmt: skip


def _view(person: Person, caller: Caller) -> PersonView:
    return PersonView(
        user_id=person.user_id, username=person.username, role=person.role.value, workspaces=person.workspaces,
        state=_state(person), has_second_factor=person.has_second_factor, created=seconds(person.created_at_us),
        signed_in=seconds(person.signed_in_at_us), temporary_until=seconds(person.temporary_until_us),
        mark=person.mark, is_you=caller.actor == f"user:{person.user_id}",
    )  # fmt: skip


def _state(person: Person) -> str:
    if not person.is_enabled:
        return "disabled"
    if person.temporary_until_us is None:
        return "active"
    return "must-change" if person.temporary_until_us > auth().people.now_us() else "expired"


forms.keep("settings.people_create", _new, _creating)
forms.keep("settings.people_role", _person, partial(_seen, "role", "role"))
forms.keep("settings.people_workspaces", _person, partial(_seen, "workspaces", "workspaces"))
forms.keep("settings.people_disable", _person, partial(_seen, "disable"))
forms.keep("settings.people_enable", _person, partial(_seen, "enable"))
forms.keep("settings.people_reset", _person, partial(_seen, "reset"))
forms.keep("settings.people_second_factor", _person, partial(_seen, "second-factor"))
forms.keep("settings.people_policy", _list, _deciding)
