"""Admission of coordinators: how much unfinished work and history one of them may hold.

The counters are kept in the same transaction as what they count, one row a coordinator and workspace; the
statement that raises them holds the conditions, so that no decision scans and none is made on an old
count. Here is what a refusal means. Reads and the receipts of attempts already granted are never refused.

Source: operations.md "Limits".
"""

from __future__ import annotations

from continuity import limits
from continuity.errors import ConflictError, MalformedError


def require_one_operation(count: int) -> None:
    """Refuse a coordinator's workflow of more than one operation.

    Raises:
        MalformedError: Nothing has happened.
    """
    if count > limits.COORDINATOR_OPERATIONS:
        raise MalformedError("operations must hold exactly one operation when a coordinator creates the workflow.")


def refusal(*, unfinished: int, budget_bytes: int) -> ConflictError:
    """Say why a coordinator was not admitted.

    Args:
        unfinished: How many unfinished workflows it holds already.
        budget_bytes: Its budget of retained history.

    Returns:
        ``coordinator_open_limit`` when all its places are taken, else ``coordinator_history_limit``.
        Nothing has happened once the transaction has been left.
    """
    if unfinished >= limits.COORDINATOR_UNFINISHED:
        return ConflictError(
            f"{limits.COORDINATOR_UNFINISHED} workflows of this coordinator are unfinished. "
            "Finish or stop some; nothing was created.",
            code="coordinator_open_limit",
        )
    return ConflictError(
        f"The retained history of this coordinator would exceed {budget_bytes} bytes. "
        "Export and delete finished workflows; nothing was started.",
        code="coordinator_history_limit",
    )
