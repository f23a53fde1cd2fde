"""The vault's keys: where they stand, lock, unlock, rotate. Administrators alone, also while the vault is locked.

What changes something wants a password check of the last ten minutes.
"""

from __future__ import annotations

from typing import Any, Final

from flask import Blueprint, Response

from app.auth.admission import admits, admitted
from app.body import SMALL_BODY_BYTES, read_json
from app.extensions import wiring
from app.query import read_query
from app.replies import json_response
from app.vault_life import VaultStatus
from continuity.key_requests import LockVault, RotateVault, UnlockVault
from continuity.services.callers import Role

blueprint = Blueprint("keys", __name__)

_SECOND_US: Final = 1_000_000


@blueprint.get("/v1/evidence/settings")
@admits(people=(Role.ADMINISTRATOR,))
def show() -> Response:
    """Show where the vault's keys stand, and the last rotation."""
    read_query()
    return _told()


@blueprint.post("/v1/evidence/settings/lock")
@admits(people=(Role.ADMINISTRATOR,), fresh=True)
def lock() -> Response:
    """Lock the vault in every process: sealed work stops with the next transaction, keys are dropped within 2 s."""
    asked = LockVault.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    wiring().vault_life.lock(admitted(), asked.passphrase)
    return _told()


@blueprint.post("/v1/evidence/settings/unlock")
@admits(people=(Role.ADMINISTRATOR,), fresh=True)
def unlock() -> Response:
    """Unlock the vault in every process, within 2 s."""
    asked = UnlockVault.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    wiring().vault_life.unlock(admitted(), asked.passphrase)
    return _told()


@blueprint.post("/v1/evidence/settings/rotate")
@admits(people=(Role.ADMINISTRATOR,), fresh=True)
def rotate() -> Response:
    """Begin a rotation of the master key, or show the one under way; servers go on with it by themselves."""
    asked = RotateVault.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    wiring().vault_life.start_rotation(admitted(), asked.passphrase)
    return _told()


def _told() -> Response:
    found = wiring().vault_life.status()
    return json_response({
        "format": found.format,
        "capture_mode": found.capture_mode,
        "locked": found.state == "locked",
        "locked_since": _seconds(found.locked_at_us),
        "key_source": found.key_source,
        "key_id": found.key_id,
        "passphrase_needed": {
            "lock": found.needs_passphrase_to_lock,
            "unlock": found.needs_passphrase_to_unlock,
            "rotate": found.key_source == "passphrase",
        },
        "servers_with_keys": found.holders,
        "servers_without_keys": found.waiting,
        "rotation": _rotation(found),
    })  # fmt: skip


def _rotation(found: VaultStatus) -> dict[str, Any] | None:
    progress = found.rotation
    return (
        None
        if progress is None
        else {
            "state": progress.state,
            "old_key_id": progress.old_key_id,
            "new_key_id": progress.new_key_id,
            "total": progress.total,
            "done": progress.done,
            "unreadable": progress.unreadable,
            "started": _seconds(progress.started_at_us),
            "finished": _seconds(progress.finished_at_us),
        }
    )


def _seconds(at_us: int | None) -> float | None:
    return None if at_us is None else at_us / _SECOND_US
