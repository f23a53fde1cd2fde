"""The capture mode: what the vault keeps of what agents do. Changed by administrators alone.

``full`` keeps exact content, ``metadata`` its size, SHA-256 and type, ``off`` nothing. Governed operations need
``full``: leaving it is refused while any enabled workflow is unfinished or any operation is uncertain. The mode stands
in the vault's row, which every decision reads and holds until it has committed; the change takes that row for itself,
so that no work is created or begun between the look and the change.

What is in the way is read from clear columns. If a hand has changed them, work may be paused by the change; it is not
begun without exact content, as its begin asks the mode too.

Source: vault.md "Formats and capture".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from continuity import limits
from continuity.decisions import clocks
from continuity.errors import CaptureInUseError, ForbiddenError, MalformedError
from continuity.evidence import CAPTURE_MODES
from continuity.services import proofs
from continuity.services.audit import AuditEntry
from continuity.services.callers import Caller, CallerKind, Role
from continuity.store import capture as statements
from continuity.store import workflows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.audit import AuditLog
    from continuity.services.ledger import Ledger
    from continuity.store.store import Store

FULL: Final = "full"
LISTED_AT_MOST: Final = 20


@dataclass(frozen=True, slots=True)
class Capture:
    """Use cases around the capture mode.

    Attributes:
        store: Where everything is written.
        ledger: Reads the vault's row and the clock.
        audit: The audit log.
    """

    store: Store
    ledger: Ledger
    audit: AuditLog

    def status(self, caller: Caller) -> dict[str, Any]:
        """Return the mode, and what stands in the way of leaving ``full``.

        Returns:
            ``capture_mode`` and ``blocking``: ``count`` (to 1,000), ``is_more`` and ``workflows``, oldest first, at
            most `LISTED_AT_MOST`, each with ``because``: ``enabled`` or ``uncertain``.

        Raises:
            ForbiddenError: The caller is no administrator.
            SealedError: The vault is locked.
            IntegrityError: The vault's row is not what was written last.
        """
        _require_administrator(caller)

        def work(connection: Connection) -> dict[str, Any]:
            row = connection.execute(workflows.VAULT).one()
            self.ledger.facts(row)
            return {"capture_mode": row.capture_mode, "blocking": _blocking(connection)}

        return self.store.read(work)

    def set_mode(self, caller: Caller, mode: str) -> dict[str, Any]:
        """Change the mode; the one that it has already changes nothing.

        Returns:
            As `status`, afterwards.

        Raises:
            ForbiddenError: The caller is no administrator. Nothing has happened.
            MalformedError: There is no such mode. Nothing has happened.
            CaptureInUseError: Unfinished work needs ``full``; it says which. Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
            IntegrityError: The vault's row is not what was written last. Nothing has happened.
        """
        _require_administrator(caller)
        if mode not in CAPTURE_MODES:
            raise MalformedError(f"capture_mode must be one of {', '.join(CAPTURE_MODES)}.")
        return self.store.write(lambda connection: self._set_mode(connection, caller, mode))

    def _set_mode(self, connection: Connection, caller: Caller, mode: str) -> dict[str, Any]:
        row = connection.execute(statements.ALONE).one()
        facts = self.ledger.facts(row)
        before: str = row.capture_mode
        blocking = _blocking(connection)
        if mode == before:
            return {"capture_mode": mode, "blocking": blocking}
        if before == FULL and blocking["count"]:
            raise CaptureInUseError(_refusal(blocking), blocking=blocking)
        proof = proofs.of_vault_row(self.ledger.vault, row, capture_mode=mode)
        statements.write_mode(connection, mode, proof=proof)
        entry = AuditEntry(
            action="vault.capture_changed", actor=caller.actor, result="done", request_id=caller.request_id,
            detail={"from": before, "to": mode},
        )  # fmt: skip
        now_us = clocks.stamp_us(self.ledger.read_clock(row.now_us), facts.clock_high_water_us)
        self.audit.append(connection, entry, now_us=now_us)
        return {"capture_mode": mode, "blocking": blocking}


def _blocking(connection: Connection) -> dict[str, Any]:
    rows = statements.in_the_way(connection, count=limits.EXACT_COUNT_MAX + 1)
    return {
        "count": min(len(rows), limits.EXACT_COUNT_MAX),
        "is_more": len(rows) > limits.EXACT_COUNT_MAX,
        "workflows": [
            {"workflow_id": row.workflow_id, "because": "enabled" if row.enabled else "uncertain"}
            for row in rows[:LISTED_AT_MOST]
        ],
    }


def _refusal(blocking: Mapping[str, Any]) -> str:
    count = f"More than {blocking['count']:,}" if blocking["is_more"] else f"{blocking['count']:,}"
    needing = "unfinished workflow needs" if count == "1" else "unfinished workflows need"
    first = ", ".join(each["workflow_id"] for each in blocking["workflows"][:3])
    return (
        f"{count} {needing} exact content: pause what is enabled, resolve what is uncertain. "
        f"The first: {first}. Nothing was changed."
    )


def _require_administrator(caller: Caller) -> None:
    if caller.kind is not CallerKind.PERSON or caller.role is not Role.ADMINISTRATOR:
        raise ForbiddenError("Administrators alone may do this.")
