"""Settings → Credentials: all bearer tokens, issuing one, and one credential with what can be done to it.

A token is in the reply to its own form and nowhere else. Sent once more by the browser, the form is refused: it says
which credential its author had issued last. Revoking asks for no password, since it takes power away.

Source: wire.md, "Credentials"; security.md T04 to T06, S12.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from flask import Response, url_for

from app import htmx
from app.auth.admission import admits, admitted
from app.auth.credential_list import LISTED, Credential, CredentialQuestion, NameState, State
from app.auth.credentials import Issued
from app.auth.identity import auth
from app.auth.requests import ISSUED, GrantRequest
from app.auth.settings import DAY_S, CredentialSettings
from app.extensions import wiring
from app.pages import forms as form_fields
from app.pages.notes import WORDS, leave_note
from app.pages.settings import forms
from app.pages.settings.area import ADMINISTRATORS, blueprint, page, seconds
from app.pages.settings.forms import NOTHING_SENT, Sent, act
from app.pages.settings.kinds import KINDS, Kind
from app.pages.settings.refusals import Refusal
from app.query import read_query
from continuity.errors import MalformedError
from continuity.services.callers import Caller, CallerKind

__all__ = ["blueprint"]

WORDS.update({
    "credential_revoked": "The credential is revoked. Its token is refused from the next request on.",
    "credential_over": "The credential was revoked already.",
    "principal_revoked": "Every credential of this principal is revoked, from the next request on.",
})  # fmt: skip
_LIMITS: Final = CredentialSettings()
_DAYS_MOST: Final = _LIMITS.longest_s // DAY_S
_DAYS: Final = _LIMITS.default_s // DAY_S
_BETWEEN: Final = re.compile(r"[\s,;]+")
_POSITION: Final = re.compile(r"([0-9]{1,18})\.(crd_[0-9a-f]{20})")
_FIELDS: Final = {
    "principal_id": "principal_id", "role": "kind", "run_id": "workflow_id", "workspace_id": "workspace",
    "observation_scope": "scope",
    "agents": "agents",
}  # fmt: skip
"""Fields of the form by those of the wire, in whose words a rule is told."""


@dataclass(frozen=True, slots=True)
class CredentialView:
    """A credential for templates. Times in Unix seconds."""

    credential_id: str
    kind: Kind
    principal_id: str
    name_state: NameState
    key_id: int | None
    workspace: str | None
    workflow_id: str | None
    scope: str | None
    issuer: str
    issued: float | None
    expires: float | None
    revoked: float | None
    used: float | None
    state: State
    may_be_renewed: bool


@blueprint.get("/settings/credentials")
@admits(people=ADMINISTRATORS)
def credentials() -> Response:
    given = read_query("kind", "state", "workspace", "issuer", "principal", "before")
    question, problem = _question(given), ""
    if question.principal_id and wiring().vault.is_locked:
        question, problem = CredentialQuestion(), "Principals cannot be looked for while the vault is locked."
    found = auth().credential_list.page(question)
    return page(
        "credentials",
        credentials=[_view(each) for each in found.credentials],
        given=given,
        problem=problem,
        kinds=KINDS,
        states=LISTED,
        workspaces=auth().people.workspaces(),
        next_before=None if found.next_before is None else "{}.{}".format(*found.next_before),
        is_locked=wiring().vault.is_locked,
    )


@blueprint.get("/settings/credentials/new")
@admits(people=ADMINISTRATORS)
def credentials_new() -> Response:
    kind = read_query("kind").get("kind", CallerKind.OPERATOR.value)
    if kind not in _issued():
        raise MalformedError(f"kind: must be one of {', '.join(_issued())}.")
    return _new(admitted(), kind=kind)


@blueprint.post("/settings/credentials/new")
@admits(people=ADMINISTRATORS)
def credentials_issue() -> Response:
    sent = _issuing()

    def issue(caller: Caller) -> Issued:
        return auth().credentials.issue(caller, _grant(sent), newest=sent.values["newest"])

    return act(sent, issue, show=_new, done=_token)


@blueprint.get("/settings/credentials/<credential_id>")
@admits(people=ADMINISTRATORS)
def credentials_show(credential_id: str) -> Response:
    read_query()
    return _one(admitted(), credential_id)


@blueprint.get("/settings/credentials/<credential_id>/renew")
@blueprint.get("/settings/credentials/<credential_id>/revoke")
@blueprint.get("/settings/credentials/<credential_id>/revoke-principal")
@admits(people=ADMINISTRATORS)
def credentials_instead(credential_id: str) -> Response:
    """Lead to the credential's page: a refusal leaves the address of a control in the browser."""
    return htmx.see_other(url_for("settings.credentials_show", credential_id=credential_id))


@blueprint.post("/settings/credentials/<credential_id>/renew")
@admits(people=ADMINISTRATORS)
def credentials_renew(credential_id: str) -> Response:
    sent = _renewing()

    def renew(caller: Caller) -> Issued:
        expires_in_s = int(sent.values["days"]) * DAY_S
        return auth().credentials.renew(caller, credential_id, expires_in_s=expires_in_s, newest=sent.values["newest"])

    return act(sent, renew, show=partial(_one, credential_id=credential_id), done=_token)


@blueprint.post("/settings/credentials/<credential_id>/revoke")
@admits(people=ADMINISTRATORS)
def credentials_revoke(credential_id: str) -> Response:
    form_fields.fields()
    is_done = auth().credentials.revoke_one(admitted(), credential_id)
    answer = htmx.see_other(url_for("settings.credentials_show", credential_id=credential_id))
    leave_note(answer, "credential_revoked" if is_done else "credential_over")
    return answer


@blueprint.post("/settings/credentials/<credential_id>/revoke-principal")
@admits(people=ADMINISTRATORS)
def credentials_revoke_principal(credential_id: str) -> Response:
    form_fields.fields()
    auth().credentials.revoke_principal_of(admitted(), credential_id)
    answer = htmx.see_other(url_for("settings.credentials_show", credential_id=credential_id))
    leave_note(answer, "principal_revoked")
    return answer


def _question(given: dict[str, str]) -> CredentialQuestion:
    kind, state = given.get("kind", ""), given.get("state", "")
    if kind and kind not in KINDS:
        raise MalformedError(f"kind: must be one of {', '.join(KINDS)}.")
    if state and state not in LISTED:
        raise MalformedError(f"state: must be one of {', '.join(LISTED)}.")
    position = _POSITION.fullmatch(given.get("before", ""))
    if "before" in given and position is None:
        raise MalformedError("before: must be one that this list has named.")
    return CredentialQuestion(
        kind=kind, state=State(state) if state else None, workspace=given.get("workspace", ""),
        issuer=given.get("issuer", ""), principal_id=given.get("principal", ""),
        before=(int(position[1]), position[2]) if position else None,
    )  # fmt: skip


def _issuing() -> Sent:
    names = ("principal_id", "kind", "workflow_id", "workspace", "scope", "agents", "days", "newest")
    sent = forms.read("issue", *names)
    given = sent.values
    sent = sent.lacking(
        principal_id="" if given["principal_id"] else "Name who holds it.",
        kind="" if given["kind"] in _issued() else "Choose one of them.",
        workflow_id=_needed(given, "workflow_id", CallerKind.WORKER, "the workflow that the worker runs"),
        scope=_needed(given, "scope", CallerKind.OBSERVER, "the scope into which it reports"),
        agents=_needed(given, "agents", CallerKind.THREAD_WORKER, "the agents whose runs it may claim"),
        workspace="An observer has no workspace." if given["workspace"] and _is(given, CallerKind.OBSERVER) else "",
        days=_days_problem(given["days"]),
    )
    return sent if sent.problems else _checked(sent)


def _renewing() -> Sent:
    sent = forms.read("renew", "days", "newest")
    return sent.lacking(days=_days_problem(sent.values["days"]))


def _checked(sent: Sent) -> Sent:
    """Return the form with the rule of the wire that it breaks, if any, beside its field."""
    try:
        _grant(sent)
    except MalformedError as error:
        name, _, rest = error.message.partition(" ")
        return sent.lacking(**{_FIELDS.get(name.rstrip(":"), "principal_id"): f"This {rest}"})
    return sent


def _grant(sent: Sent) -> GrantRequest:
    given = sent.values
    asked: dict[str, Any] = {
        "principal_id": given["principal_id"], "role": given["kind"], "run_id": given["workflow_id"] or None,
        "workspace_id": given["workspace"] or None, "observation_scope": given["scope"] or None,
        "expires_in_seconds": int(given["days"]) * DAY_S,
    }  # fmt: skip
    if given["agents"]:
        asked["agents"] = [name for name in _BETWEEN.split(given["agents"]) if name]
    return GrantRequest.from_json(asked)


def _is(given: Any, kind: CallerKind) -> bool:
    return bool(given["kind"] == kind.value)


def _needed(given: Any, name: str, kind: CallerKind, what: str) -> str:
    """Say what a field lacks that one kind needs and no other may have."""
    if _is(given, kind):
        return "" if given[name] else f"Name {what}."
    return f"Only {KINDS[kind.value].plural} have this; leave it empty." if given[name] else ""


def _days_problem(text: str) -> str:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_DAYS_MOST))
    return "" if is_number and 1 <= int(text) <= _DAYS_MOST else f"A whole number of days, 1 to {_DAYS_MOST}."


def _issued() -> tuple[str, ...]:
    return tuple(kind.value for kind in ISSUED)


def _token(issued: Issued) -> Response:
    """Show a token, this once."""
    return page("token", credential=_view(auth().credential_list.one(issued.credential_id)), token=issued.token)


def _new(
    caller: Caller, *, sent: Sent = NOTHING_SENT, refused: Refusal | None = None, status: int = 200, kind: str = ""
) -> Response:
    return page(
        "new_credential", status, sent=sent, refused=refused, is_fresh=caller.is_fresh, chosen=kind,
        kinds=[KINDS[each] for each in _issued()], workspaces=auth().people.workspaces(),
        newest=auth().credentials.newest(caller), days=str(_DAYS), days_most=_DAYS_MOST,
        is_locked=wiring().vault.is_locked,
    )  # fmt: skip


def _one(
    caller: Caller, credential_id: str, *, sent: Sent = NOTHING_SENT, refused: Refusal | None = None, status: int = 200
) -> Response:
    return page(
        "credential", status, credential=_view(auth().credential_list.one(credential_id)), sent=sent, refused=refused,
        is_fresh=caller.is_fresh, newest=auth().credentials.newest(caller), days=str(_DAYS), days_most=_DAYS_MOST,
        is_locked=wiring().vault.is_locked,
    )  # fmt: skip


def _view(credential: Credential) -> CredentialView:
    return CredentialView(
        credential_id=credential.credential_id,
        kind=KINDS[credential.kind],
        principal_id=credential.principal_id,
        name_state=credential.name_state,
        key_id=credential.key_id,
        workspace=credential.workspace,
        workflow_id=credential.workflow_id,
        scope=credential.scope,
        issuer=credential.issuer,
        issued=seconds(credential.issued_at_us),
        expires=seconds(credential.expires_at_us),
        revoked=seconds(credential.revoked_at_us),
        used=seconds(credential.last_used_at_us),
        state=credential.state,
        may_be_renewed=credential.kind in _issued() and credential.name_state is NameState.SHOWN,
    )


forms.keep("settings.credentials_issue", _new, _issuing)
forms.keep("settings.credentials_renew", _one, _renewing)
