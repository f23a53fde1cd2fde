"""Admission of coordinators: how much unfinished work and history one of them may hold.

The counters are kept in the same transaction as what they count, one row a coordinator and workspace; no
decision scans. Reads and the receipts of attempts already granted are never refused here.

Source: operations.md "Limits".
"""

from __future__ import annotations

from dataclasses import dataclass

from continuity import limits
from continuity.errors import ConflictError, MalformedError


@dataclass(frozen=True, slots=True)
class Counters:
    """What a coordinator holds in its workspace.

    Attributes:
        unfinished: Workflows whose work is not over.
        retained_bytes: Stored bytes of sealed columns.
        reserved_bytes: Kept free for receipts of granted attempts.
    """

    unfinished: int
    retained_bytes: int
    reserved_bytes: int

    def plus(self, *, unfinished: int = 0, retained_bytes: int = 0, reserved_bytes: int = 0) -> Counters:
        """Return the counters after a change; differences may be negative."""
        return Counters(
            self.unfinished + unfinished,
            self.retained_bytes + retained_bytes,
            self.reserved_bytes + reserved_bytes,
        )


def require_one_operation(count: int) -> None:
    """Refuse a coordinator's workflow of more than one operation.

    Raises:
        MalformedError: Nothing has happened.
    """
    if count > limits.COORDINATOR_OPERATIONS:
        raise MalformedError("operations must hold exactly one operation when a coordinator creates the workflow.")


def require_open_place(counters: Counters) -> None:
    """Refuse another workflow to a coordinator that holds 500 unfinished ones.

    Raises:
        ConflictError: ``coordinator_open_limit``. Nothing has happened.
    """
    if counters.unfinished >= limits.COORDINATOR_UNFINISHED:
        raise ConflictError(
            f"{limits.COORDINATOR_UNFINISHED} workflows of this coordinator are unfinished. "
            "Finish or stop some; nothing was created.",
            code="coordinator_open_limit",
        )


def require_history(counters: Counters, *, budget_bytes: int) -> None:
    """Refuse what would exceed the budget; `counters` already include it.

    Raises:
        ConflictError: ``coordinator_history_limit``. Nothing has happened.
    """
    if counters.retained_bytes + counters.reserved_bytes > budget_bytes:
        raise ConflictError(
            f"The retained history of this coordinator would exceed {budget_bytes} bytes. "
            "Export and delete finished workflows; nothing was started.",
            code="coordinator_history_limit",
        )
