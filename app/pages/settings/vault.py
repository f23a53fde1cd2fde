"""Settings → Vault: where its keys stand, locking and unlocking, rotating, the capture mode, the recovery window.

All of it can be looked at while the vault is locked: this is where somebody unlocks it. What changes something is
bound to what its author saw, so that a form which is sent twice rotates once.

Source: vault.md; security.md V11, V14, S12.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from flask import Response, url_for

from app import htmx
from app.auth.admission import admits, admitted
from app.auth.identity import auth, poll
from app.extensions import wiring
from app.pages.notes import WORDS, leave_note
from app.pages.settings import forms
from app.pages.settings.area import ADMINISTRATORS, blueprint
from app.pages.settings.forms import NOTHING_SENT, PASSPHRASE, Sent, act, secret
from app.pages.settings.refusals import Refusal
from app.pages.settings.vault_view import MODES, VaultView, vault_view
from app.query import read_query
from app.vault_life import VaultStatus
from continuity.errors import ConflictError, ForbiddenError, SealedError
from continuity.services.callers import Caller

__all__ = ["blueprint"]

WORDS.update({
    "vault_locked": "The vault is locked. Every process drops its keys within two seconds.",
    "vault_unlocked": "The vault is unlocked. Work goes on where it stood.",
    "rotation_begun": "A rotation has begun. It goes on by itself, also when you leave this page.",
    "capture_changed": "The capture mode is changed, from the next record on.",
    "recovery_closed": "The recovery window is closed. Work may be created enabled again.",
})  # fmt: skip
_AGAIN: Final = "again"
_MARK_CHARS: Final = 16
_NO_CONTENT: Final = 204


@blueprint.get("/settings/vault")
@admits(people=ADMINISTRATORS)
def vault() -> Response:
    read_query()
    return _page(admitted())


@blueprint.get("/settings/vault/live")
@admits(people=ADMINISTRATORS)
@poll
def vault_live() -> Response:
    """Answer the poll of the keys' state: 204 while it would look the same."""
    mark = read_query("mark").get("mark")
    seen = _view(admitted())
    if mark == seen.mark and htmx.wants_fragment():
        return Response(status=_NO_CONTENT)
    return htmx.render(
        page="pages/settings/vault_keys.html", fragment="fragments/settings/vault_keys.html", vault=seen,
        is_answer=htmx.wants_fragment(),
    )  # fmt: skip


@blueprint.get("/settings/vault/lock")
@blueprint.get("/settings/vault/unlock")
@blueprint.get("/settings/vault/rotate")
@blueprint.get("/settings/vault/capture")
@blueprint.get("/settings/vault/close-recovery")
@admits(people=ADMINISTRATORS)
def vault_instead() -> Response:
    """Lead to the page: a refusal leaves the address of a control in the browser."""
    return htmx.see_other(url_for("settings.vault"))


@blueprint.post("/settings/vault/lock")
@admits(people=ADMINISTRATORS)
def vault_lock() -> Response:
    sent = _locking()
    if wiring().vault_life.status().needs_passphrase_to_lock:
        is_same = secret(PASSPHRASE) == secret(_AGAIN)
        problem = "" if secret(PASSPHRASE) else "Choose one. Nothing else unlocks the vault."
        sent = sent.lacking(
            **{PASSPHRASE: problem}, again="" if is_same else "This is not the same as the passphrase above."
        )

    def lock(caller: Caller) -> None:
        try:
            wiring().vault_life.lock(caller, secret(PASSPHRASE) or None)
        except ForbiddenError as error:
            if error.code != forms.WRONG_PASSPHRASE:
                raise
            # The page of a vault that is locked has no field of this form to say it beside.
            raise ConflictError(error.message) from None

    return _act(sent, lock, done="vault_locked")


@blueprint.post("/settings/vault/unlock")
@admits(people=ADMINISTRATORS)
def vault_unlock() -> Response:
    sent = _unlocking()
    if wiring().vault_life.status().needs_passphrase_to_unlock and not secret(PASSPHRASE):
        sent = sent.lacking(**{PASSPHRASE: "Give the passphrase."})

    def unlock(caller: Caller) -> None:
        wiring().vault_life.unlock(caller, secret(PASSPHRASE) or None)

    return _act(sent, unlock, done="vault_unlocked")


@blueprint.post("/settings/vault/rotate")
@admits(people=ADMINISTRATORS)
def vault_rotate() -> Response:
    sent = _rotating()

    def rotate(caller: Caller) -> None:
        if sent.values["seen"] != _seen(wiring().vault_life.status()):
            raise ConflictError("The keys are others since.", code="stale_revision")
        wiring().vault_life.start_rotation(caller, secret(PASSPHRASE) or None)

    return _act(sent, rotate, done="rotation_begun")


@blueprint.post("/settings/vault/capture")
@admits(people=ADMINISTRATORS)
def vault_capture() -> Response:
    sent = _capturing()
    if sent.values["mode"] not in MODES:
        sent = sent.lacking(mode="Choose one of the three.")

    def change(caller: Caller) -> None:
        if sent.values["seen"] != wiring().vault_life.status().capture_mode:
            raise ConflictError("The mode is another since.", code="stale_revision")
        wiring().services.capture.set_mode(caller, sent.values["mode"])

    return _act(sent, change, done="capture_changed")


@blueprint.post("/settings/vault/close-recovery")
@admits(people=ADMINISTRATORS)
def vault_close_recovery() -> Response:
    return _act(_closing(), wiring().recovery.close, done="recovery_closed")


def _act(sent: Sent, work: Callable[[Caller], Any], *, done: str) -> Response:
    def go_on(_: Any) -> Response:
        answer = htmx.see_other(url_for("settings.vault"))
        leave_note(answer, done)
        return answer

    return act(sent, work, show=_page, done=go_on)


_locking = partial(forms.read, "lock", secrets=(PASSPHRASE, _AGAIN))
_unlocking = partial(forms.read, "unlock", secrets=(PASSPHRASE,))
_rotating = partial(forms.read, "rotate", "seen", secrets=(PASSPHRASE,))
_capturing = partial(forms.read, "capture", "seen", "mode")
_closing = partial(forms.read, "close-recovery")


def _page(caller: Caller, *, sent: Sent = NOTHING_SENT, refused: Refusal | None = None, status: int = 200) -> Response:
    return htmx.render(
        page="pages/settings/vault.html", fragment="pages/settings/vault.html", status=status, vault=_view(caller),
        sent=sent, refused=refused, is_fresh=caller.is_fresh,
    )  # fmt: skip


def _view(caller: Caller) -> VaultView:
    status, recovery = wiring().vault_life.status(), wiring().recovery.status()
    locked_by = auth().names.of([status.locked_by])[status.locked_by] if status.locked_by else ""
    blocking = None
    if status.state == "open" and status.is_open_here:
        try:
            blocking = wiring().services.capture.status(caller)["blocking"]
        except SealedError:
            # Locked between two looks; the next one shows it.
            blocking = None
    seen = _seen(status)
    mark = hashlib.sha256(repr((status, recovery, locked_by)).encode()).hexdigest()[:_MARK_CHARS]
    return vault_view(status, recovery, blocking=blocking, locked_by=locked_by, seen=seen, mark=mark)


def _seen(status: VaultStatus) -> str:
    """Return what the author of a rotation sees: whether the vault is open, the key, and the last rotation."""
    last = "none" if status.rotation is None else f"{status.rotation.rotation_pk}-{status.rotation.state}"
    return f"{status.state}.{status.key_id}.{last}"


forms.keep("settings.vault_lock", _page, _locking)
forms.keep("settings.vault_unlock", _page, _unlocking)
forms.keep("settings.vault_rotate", _page, _rotating)
forms.keep("settings.vault_capture", _page, _capturing)
forms.keep("settings.vault_close_recovery", _page, _closing)
