"""Receipts of request_ids: the same request again is answered as the first time, another body under its id is refused.

A receipt is scoped to the principal and the thread; that of a creation to the principal and the workspace. It is sealed
under the thread's key, and goes with the thread.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from continuity.errors import ConflictError
from continuity.jsontext import canonical_bytes
from continuity.services.sealing import seal_json
from continuity.services.threads_rights import principal_key
from continuity.services.threads_sealing import OpenedThread, receipt_place
from continuity.store import threads as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.decisions.model import VaultFacts
    from continuity.services.callers import Caller
    from continuity.store.workflows import AnyRow
    from continuity.vault.vault import Vault


@dataclass(frozen=True, slots=True)
class Slip:
    """One request_id in its scope, with what it asks for.

    Attributes:
        scope_ix: Blind index of principal and thread or workspace.
        request_id: As the client chose it.
        body_ix: Blind index of action and body.
    """

    scope_ix: bytes
    request_id: str
    body_ix: bytes


def slip(vault: Vault, caller: Caller, scope: str, request_id: str, *, action: str, body: Mapping[str, Any]) -> Slip:
    """Return the slip of a request; `scope` is a thread_id, or ``workspace:<workspace_pk>``."""
    return Slip(
        vault.index("thread_request", principal_key(caller), scope),
        request_id,
        vault.index("thread_request_body", action, canonical_bytes(body)),
    )


def find(connection: Connection, asked: Slip) -> AnyRow | None:
    """Return the row of a receipt, None when there is none.

    Raises:
        ConflictError: ``request_conflict``: the request_id stands for another request. Nothing has happened.
    """
    row = connection.execute(
        statements.RECEIPT, {"scope_ix": asked.scope_ix, "request_id": asked.request_id}
    ).one_or_none()
    if row is not None and not hmac.compare_digest(row.body_ix, asked.body_ix):
        raise ConflictError(
            "This request_id was used for another request. Nothing was changed.", code="request_conflict"
        )
    return row


def read(opened: OpenedThread, asked: Slip, row: AnyRow) -> dict[str, Any]:
    """Open a receipt. Raises `VaultError`."""
    place = receipt_place(opened.thread_id, asked.scope_ix, asked.request_id)
    receipt: dict[str, Any] = json.loads(opened.key.open(row.sealed_receipt, place=place))
    return receipt


def found(connection: Connection, opened: OpenedThread, asked: Slip) -> dict[str, Any] | None:
    """Return the receipt of a request, None when it is new. Raises as `find` and `read`."""
    row = find(connection, asked)
    return None if row is None else read(opened, asked, row)


def keep(connection: Connection, opened: OpenedThread, asked: Slip, receipt: Mapping[str, Any]) -> None:
    """Write the receipt of a request, in the transaction of what it is about."""
    place = receipt_place(opened.thread_id, asked.scope_ix, asked.request_id)
    statements.insert_receipt(connection, {
        "scope_ix": asked.scope_ix, "request_id": asked.request_id, "thread_pk": opened.thread_pk,
        "body_ix": asked.body_ix, "sealed_receipt": seal_json(opened.key, receipt, place),
    })  # fmt: skip


def new(opened: OpenedThread, request_id: str, action: str) -> dict[str, Any]:
    """Return what every receipt of a client says: the thread as it is after the request, and the journal's position."""
    return {
        "request_id": request_id,
        "action": action,
        "thread_id": opened.thread_id,
        "position": opened.position(),
        "revision": opened.head.revision,
        "state": opened.head.state.value,
    }


def require_capture(facts: VaultFacts) -> None:
    """Refuse what starts or feeds work while exact content is not kept.

    Raises:
        ConflictError: ``capture_not_full``. Nothing has happened.
    """
    if not facts.is_capture_full:
        raise ConflictError(
            "The vault's capture mode must be full before a thread goes on. Nothing was changed.",
            code="capture_not_full",
        )
