"""What a begin reply says: the grant in it, the saved result, and when its effect can no longer land. Pure.

Source: operations.md "begin: the decision table".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from continuity import limits
from continuity.decisions.states import Mode, Outcome
from continuity.errors import TransportError

_NOTHING_DONE: Final = frozenset({Outcome.NOT_DISPATCHED.value, Outcome.REFUSED.value})


@dataclass(frozen=True, slots=True)
class Grant:
    """What a begin reply allows, and when begin was sent by the host's clock."""

    mode: Mode
    operation_id: str
    attempt_id: str
    tool: str
    arguments: dict[str, Any] = field(repr=False)
    idempotency_key: str = field(repr=False)
    timeout_s: float
    lease_token: str = field(repr=False)
    sent_at_s: float


@dataclass(frozen=True, slots=True)
class Begun:
    """A begin reply as it came.

    Attributes:
        reply: The object of the reply.
        attempt_id: The attempt id that was asked with.
        sent_at_s: The host's clock before it was sent.
        retry: For observers; None when not known.
        recovery: For observers; None when not known.
        interrupt: What wanted to end the run while the reply was under way, None for nothing.
    """

    reply: Mapping[str, Any] = field(repr=False)
    attempt_id: str
    sent_at_s: float
    retry: bool | None = None
    recovery: bool | None = None
    interrupt: BaseException | None = None

    @property
    def is_granted(self) -> bool:
        """Whether the reply claims to grant an attempt, whatever else it holds."""
        return self.reply.get("action") in tuple(Mode)


def read_grant(begun: Begun, *, run_id: str) -> Grant:
    """Read what was granted.

    Args:
        begun: The reply and what was asked with.
        run_id: The run that asked.

    Returns:
        The grant.

    Raises:
        TransportError: The reply is not one to this begin. Nothing was called; the operation is uncertain.
    """
    reply = begun.reply
    timeout_s = reply.get("timeout_seconds")
    holds = (
        begun.is_granted
        and reply.get("run_id") == run_id
        and reply.get("attempt_id") == begun.attempt_id
        and isinstance(reply.get("arguments"), dict)
        and all(isinstance(reply.get(name), str) for name in ("operation_id", "tool", "lease_token"))
        and isinstance(reply.get("idempotency_key"), str | None)
        and isinstance(timeout_s, int | float)
        and not isinstance(timeout_s, bool)
        and 0 < timeout_s <= limits.TIMEOUT_MAX_S
    )
    if not holds or timeout_s is None:
        raise TransportError("The begin reply is not one to this begin.")
    return Grant(
        mode=Mode(reply["action"]), operation_id=reply["operation_id"], attempt_id=begun.attempt_id,
        tool=reply["tool"], arguments=reply["arguments"], idempotency_key=reply.get("idempotency_key") or "",
        timeout_s=timeout_s, lease_token=reply["lease_token"], sent_at_s=begun.sent_at_s,
    )  # fmt: skip


def refused_because(reply: Mapping[str, Any]) -> str:
    """Return the reason of a saved refusal that a blocked reply holds, empty if it holds none."""
    receipt = reply.get("receipt")
    reason = receipt.get("reason") if isinstance(receipt, dict) else None
    return reason if isinstance(reason, str) else ""


def saved_result(reply: Mapping[str, Any]) -> Any:
    """Return the result of the receipt in a completed begin reply.

    Raises:
        TransportError: There is none.
    """
    receipt = reply.get("receipt")
    if not isinstance(receipt, dict):
        raise TransportError("The begin reply says completed and holds no receipt.")
    return receipt.get("result")


def absence_early_by_s(operation: Mapping[str, Any], grant: Grant) -> float | None:
    """Say how many seconds too early a query was granted for its absence to be final.

    Args:
        operation: The operation of the workflow's view.
        grant: The query that found nothing.

    Returns:
        Seconds, not above 0 if it was not too early; None if absence is never final.

    Raises:
        KeyError, TypeError, AttributeError: The view is not one of the contract.
    """
    final_after_s = operation.get("absence_final_after_seconds")
    attempts = {attempt.get("attempt_id"): attempt for attempt in operation.get("attempts", ())}
    query = attempts.get(grant.attempt_id)
    if final_after_s is None or query is None:
        return None
    landed_by = [_lands_by(attempt, grant.timeout_s) for attempt in attempts.values() if _may_land(attempt)]
    return float(max(landed_by, default=0.0) + final_after_s - query["started"])


def _may_land(attempt: Mapping[str, Any]) -> bool:
    return attempt.get("mode") == Mode.EXECUTE.value and attempt.get("outcome") not in _NOTHING_DONE


def _lands_by(attempt: Mapping[str, Any], timeout_s: float) -> float:
    started: float = attempt["started"]
    if attempt.get("ended") is not None:
        return started + timeout_s + limits.LANDING_MARGIN_S
    leases = 1 + (attempt.get("renewals") or 0)
    return started + max(timeout_s + limits.LANDING_MARGIN_S, leases * limits.LEASE_S)
