"""What people do to a workflow from its page: plain forms, each bound to what its author saw.

Done: the browser is sent back to the page, which says so. Refused (409), incomplete (422), or without a password
where one is needed (403): the page comes again with the reason, the new state, and what was written into the form.
The same where the form itself has grown old: see `app.pages.keeping`.

Source: operations.md, "People's controls".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from flask import Response, url_for

from app import htmx
from app.auth.admission import admits, admitted
from app.extensions import wiring
from app.pages import forms, keeping
from app.pages.conflicts import already, conflict
from app.pages.explanations import Control
from app.pages.forms import Filled
from app.pages.notes import WORDS, leave_note
from app.pages.reauthentication import Unproved, proved
from app.pages.resume_work import DECIDING_ROLES, EVERY_ROLE, blueprint, workflow_page
from continuity.errors import ConflictError, MalformedError
from continuity.services.callers import Caller
from continuity.wire import IDENTIFIER, AbandonRequest, ConfigureRequest, ConfirmRequest

__all__ = ["blueprint"]

DONE: Final = {
    "work_enabled": "Recovery is enabled. Workers may go on.",
    "work_paused": "New attempts are paused. The receipt of an attempt that was granted before is still taken.",
    "work_stopped": "This work is stopped. It is not called completed, and nothing at the destination was undone.",
    "work_happened": "Your word is recorded: it happened. The operation is completed and is never done again.",
    "work_did_not_happen": "Your word is recorded: it did not happen. It may be executed exactly once more.",
    "work_deleted": "The workflow is deleted. Its content is destroyed and its key cannot be used again.",
}
WORDS.update(DONE)
_YES: Final = "yes"
_NO: Final = "no"
_ANSWERS: Final = (_YES, _NO)
_TICKED: Final = "yes"


@blueprint.get("/resume-work/<workflow:workflow_id>/enable")
@blueprint.get("/resume-work/<workflow:workflow_id>/pause")
@blueprint.get("/resume-work/<workflow:workflow_id>/stop")
@blueprint.get("/resume-work/<workflow:workflow_id>/confirm")
@blueprint.get("/resume-work/<workflow:workflow_id>/delete")
@admits(people=EVERY_ROLE)
def instead(workflow_id: str) -> Response:
    """Lead to the work's page: a refusal leaves the address of a control in the browser, which may ask for it again."""
    return htmx.see_other(url_for("resume_work.show", workflow_id=workflow_id))


@blueprint.post("/resume-work/<workflow:workflow_id>/enable")
@admits(people=DECIDING_ROLES)
def enable(workflow_id: str) -> Response:
    return _configure(workflow_id, Control.ENABLE, "work_enabled")


@blueprint.post("/resume-work/<workflow:workflow_id>/pause")
@admits(people=DECIDING_ROLES)
def pause(workflow_id: str) -> Response:
    return _configure(workflow_id, Control.PAUSE, "work_paused")


@blueprint.post("/resume-work/<workflow:workflow_id>/stop")
@admits(people=DECIDING_ROLES)
def stop(workflow_id: str) -> Response:
    filled = _stopping()
    asked = AbandonRequest(filled.operation, filled.values["reason"], forms.number(filled.values, "revision"))

    def act(caller: Caller) -> None:
        wiring().services.controls.abandon(caller, workflow_id, asked)

    return _act(workflow_id, filled, act, done="work_stopped")


@blueprint.post("/resume-work/<workflow:workflow_id>/confirm")
@admits(people=DECIDING_ROLES)
def confirm(workflow_id: str) -> Response:
    filled = _confirming()
    given, happened = filled.values, filled.answer == _YES
    seen = {name: forms.number(given, name) for name in ("revision", "late_receipts")}

    def act(caller: Caller) -> None:
        effect = {"effect_id": given["effect_id"], "result": forms.json_value(given["result"])} if happened else {}
        asked = ConfirmRequest(
            name=filled.operation,
            happened=happened,
            reason=given["reason"],
            **seen,
            **effect,  # type: ignore[arg-type]
        )
        wiring().services.controls.confirm(caller, workflow_id, asked)

    done = "work_happened" if happened else "work_did_not_happen"
    return _act(workflow_id, filled, act, done=done, password=forms.password())


@blueprint.post("/resume-work/<workflow:workflow_id>/delete")
@admits(people=DECIDING_ROLES)
def delete(workflow_id: str) -> Response:
    filled = _deleting()

    def act(caller: Caller) -> None:
        # A late receipt takes no revision; what must not be destroyed unseen is in the mark.
        wiring().services.deletions.delete(caller, workflow_id, seen=filled.values["mark"])

    return _act(workflow_id, filled, act, done="work_deleted", password=forms.password())


def _stopping() -> Filled:
    given = forms.fields("name", "reason", "revision")
    return Filled(Control.STOP, _name(given), values=given, problems=forms.reason_problem(given["reason"]))


def _confirming() -> Filled:
    given = forms.fields(
        "name",
        "happened",
        "revision",
        "late_receipts",
        "reason",
        "effect_id",
        "result",
        "looked",
        secret=forms.PASSWORD,
    )
    if given["happened"] not in _ANSWERS:
        raise MalformedError("happened must be yes or no.")
    answers = _answer_problems(given, happened=given["happened"] == _YES)
    problems = {**forms.reason_problem(given["reason"]), **answers}
    return Filled(Control.CONFIRM, _name(given), given["happened"], given, problems)


def _deleting() -> Filled:
    given = forms.fields("mark", "sure", secret=forms.PASSWORD)
    problems = {} if given["sure"] == _TICKED else {"sure": "Tick this first: what is deleted is gone for good."}
    return Filled(Control.DELETE, values=given, problems=problems)


def _configure(workflow_id: str, control: Control, done: str) -> Response:
    revision = forms.number(forms.fields("revision"), "revision")
    asked = ConfigureRequest(enabled=control is Control.ENABLE, revision=revision)

    def act(caller: Caller) -> None:
        wiring().services.controls.configure(caller, workflow_id, asked)

    return _act(workflow_id, Filled(control), act, done=done)


def _act(
    workflow_id: str, filled: Filled, act: Callable[[Caller], Any], *, done: str, password: str | None = None
) -> Response:
    """Do it unless the form lacks something, and go on as the module says.

    `password` is what the form brings of one; None for a control that needs none.
    """
    caller = admitted()
    if password is not None:
        proof = proved(caller, password)
        if isinstance(proof, Unproved):
            return _ask_for_password(workflow_id, filled, proof)
        caller = proof
    if filled.problems:
        return workflow_page(caller, workflow_id, filled=filled)
    control = filled.control or Control.DELETE
    try:
        act(caller)
    except ConflictError as error:
        why = already(control) if _is_so(caller, workflow_id, control, error.code) else conflict(control, error.code)
        return workflow_page(caller, workflow_id, conflict=why, filled=filled)
    is_gone = control is Control.DELETE
    back = url_for("resume_work.index") if is_gone else url_for("resume_work.show", workflow_id=workflow_id)
    answer = htmx.see_other(back)
    leave_note(answer, done)
    return answer


def _is_so(caller: Caller, workflow_id: str, control: Control, code: str) -> bool:
    """Say whether somebody else has meanwhile enabled, or paused, what was to be."""
    if code != "stale_revision" or control not in {Control.ENABLE, Control.PAUSE}:
        return False
    is_enabled: bool = wiring().services.workflows.view(caller, workflow_id)["enabled"]
    return is_enabled is (control is Control.ENABLE)


def _ask_for_password(workflow_id: str, filled: Filled, proof: Unproved) -> Response:
    """Show the form again with all that was written into it and a field for the password."""
    asking = replace(filled, problems={**filled.problems, forms.PASSWORD: proof.problem})
    answer = workflow_page(admitted(), workflow_id, filled=asking, status=proof.status)
    if proof.retry_after_s is not None:
        answer.headers["Retry-After"] = str(proof.retry_after_s)
    return answer


def _name(given: dict[str, str]) -> str:
    if not IDENTIFIER.fullmatch(given["name"]):
        raise MalformedError("name must be that of an operation.")
    return given["name"]


def _answer_problems(given: dict[str, str], *, happened: bool) -> dict[str, str]:
    if happened:
        return forms.effect_problems(given)
    if given["looked"] != _TICKED:
        return {"looked": "Look at the destination now, then tick this."}
    return {}


def _show_again(caller: Caller, workflow_id: str, filled: Filled) -> Response:
    return workflow_page(caller, workflow_id, filled=replace(filled, problems={}, is_outdated=True), status=403)


keeping.FORMS.update({
    "resume_work.stop": lambda caller, workflow_id: _show_again(caller, workflow_id, _stopping()),
    "resume_work.confirm": lambda caller, workflow_id: _show_again(caller, workflow_id, _confirming()),
    "resume_work.delete": lambda caller, workflow_id: _show_again(caller, workflow_id, _deleting()),
    "resume_work.enable": lambda caller, workflow_id: _show_again(caller, workflow_id, Filled(Control.ENABLE)),
    "resume_work.pause": lambda caller, workflow_id: _show_again(caller, workflow_id, Filled(Control.PAUSE)),
})  # fmt: skip
