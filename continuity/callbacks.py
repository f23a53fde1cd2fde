"""What a host's tool is, and how one callback becomes one receipt.

Rules:

* A tool says for certain that nothing happened by raising `NotDispatched` (the attempt never reached the
  destination) or `Refused` (the destination answered that it did nothing). Any other exception, a timeout
  above all, means that nobody knows.
* What a callback returns is a receipt only if it is one of `continuity.decisions.receipts` and names its
  operation. Anything else becomes ``unknown`` and is kept for a person to look at.
* The text of an exception is not sent, its type is: a message may hold what the tool was told in secret.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from continuity import limits
from continuity.decisions.receipts import classify
from continuity.decisions.states import Mode, Outcome
from continuity.errors import ContinuityError, MalformedError
from continuity.jsontext import canonical_bytes, loads_strict

Callback = Callable[[dict[str, Any], str, str, float], Mapping[str, Any]]
"""``(arguments, operation_id, idempotency_key, timeout_seconds) -> receipt``."""

AsyncCallback = Callable[[dict[str, Any], str, str, float], Awaitable[Mapping[str, Any]]]
"""The same, awaited."""

_ENVELOPE: Final = {"name": "", "run_id": "", "attempt_id": "", "lease_token": ""}
"""What travels around a receipt and counts for the limits of the request."""

_OUTCOMES: Final = frozenset(outcome.value for outcome in Outcome)
_RETURNED: Final[Mapping[Outcome, str]] = {
    Outcome.UNKNOWN: "The tool reported that it does not know what happened.",
    Outcome.REFUSED: "The tool reported that its destination refused.",
    Outcome.NOT_DISPATCHED: "The tool reported that it did not reach its destination.",
    Outcome.ABSENT: "The destination was asked and knows nothing of it.",
}
"""What a receipt that is no success says; its own words stay in it."""


class NotDispatched(ContinuityError):
    """Raised by a tool that knows for certain that this attempt never reached its destination.

    The operation may be attempted again. Never raise it after the request may have left, and never for
    a timeout.
    """

    code = "not_dispatched"

    def __init__(self, reason: str = "The tool did not reach its destination.") -> None:
        """Keep the reason: one sentence for a person, without secrets."""
        super().__init__(reason)


class Refused(ContinuityError):
    """Raised by a tool whose destination answered for certain that it did nothing and will not.

    The operation ends refused when no earlier attempt is in doubt.
    """

    code = "refused_by_destination"

    def __init__(self, reason: str = "The destination refused.") -> None:
        """Keep the reason: one sentence for a person, without secrets."""
        super().__init__(reason)


class Callbacks(Protocol):
    """What can stand for a tool: `Tool` itself, or anything with its two callbacks."""

    @property
    def execute(self) -> Callback:
        """Performs the effect; see `Tool`."""

    @property
    def query(self) -> Callback | None:
        """Asks what became of it, None where that is not possible; see `Tool`."""


@dataclass(frozen=True, slots=True)
class Tool:
    """What a host can do at one destination.

    Both callbacks are called with ``(arguments, operation_id, idempotency_key, timeout_seconds)``: the
    reviewed arguments as a fresh dict, two strings, and seconds. They enforce destination and timeout
    themselves and return a receipt.

    Attributes:
        execute: Performs the effect. Returns ``{"outcome": "confirmed_succeeded", "operation_id": …,
            "effect_id": …, "result": …}`` or ``{"outcome": "unknown"}``; may raise `NotDispatched` or
            `Refused`.
        query: Asks the destination what became of an earlier attempt and never performs the effect.
            Returns a success as above, ``{"outcome": "absent", "operation_id": …}`` or ``unknown``.
    """

    execute: Callback
    query: Callback | None = None

    def __post_init__(self) -> None:
        """Refuse callbacks that cannot return a receipt.

        Raises:
            TypeError: A coroutine function, which returns no receipt to a caller that does not wait for it.
        """
        for callback in (self.execute, self.query):
            if callback is not None and inspect.iscoroutinefunction(callback):
                raise TypeError("A tool's callbacks must be ordinary functions that return a receipt.")


class AsyncCallbacks(Protocol):
    """What can stand for a tool here: `AsyncTool`, `Tool`, or anything with its two callbacks."""

    @property
    def execute(self) -> Callback | AsyncCallback:
        """Performs the effect; see `Tool`."""

    @property
    def query(self) -> Callback | AsyncCallback | None:
        """Asks what became of it, None where that is not possible."""


@dataclass(frozen=True, slots=True)
class AsyncTool:
    """What a host can do at one destination, by coroutine functions or ordinary ones.

    A coroutine callback that is cancelled may raise `NotDispatched` if it knows for certain that nothing
    left; otherwise nobody knows.

    Attributes:
        execute: As of `Tool`.
        query: As of `Tool`.
    """

    execute: Callback | AsyncCallback
    query: Callback | AsyncCallback | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One receipt ready to be sent, and what it came from.

    Attributes:
        receipt: JSON object of at most 64 KiB.
        outcome: What it claims, as the server will read it.
        cause: What the callback raised, None when it returned.
        because: One sentence on why it is no success, empty for one.
    """

    receipt: Mapping[str, Any]
    outcome: Outcome
    cause: BaseException | None = None
    because: str = ""

    def __repr__(self) -> str:
        return f"Report({self.outcome.value})"


def report_returned(value: object, *, operation_id: str, mode: Mode) -> Report:
    """Make the report of what a callback returned.

    Args:
        value: Anything.
        operation_id: The operation that was attempted.
        mode: Which callback was called.

    Returns:
        The receipt itself if it is one; else an ``unknown`` that keeps `value` as ``returned`` where it
        can be written.
    """
    receipt = _as_sent(value)
    if receipt is None:
        return _unknown(operation_id, "The tool returned nothing that can be kept as a receipt.")
    outcome = classify(receipt, operation_id=operation_id, mode=mode)
    if outcome is not Outcome.UNKNOWN or receipt.get("outcome") == Outcome.UNKNOWN.value:
        return Report(receipt=receipt, outcome=outcome, because=_RETURNED.get(outcome, ""))
    fault = _fault(receipt, operation_id=operation_id, mode=mode)
    unknown = _unknown(operation_id, f"The tool returned something that is no receipt of this attempt: {fault}.")
    kept = _as_sent({**unknown.receipt, "returned": receipt})
    return unknown if kept is None else replace(unknown, receipt=kept)


def _fault(receipt: Mapping[str, Any], *, operation_id: str, mode: Mode) -> str:
    """Name the first thing that is wrong with what `classify` takes for no receipt. No value of it is repeated."""
    claim = receipt.get("outcome")
    if not isinstance(claim, str) or claim not in _OUTCOMES:
        return f"its outcome is none of {', '.join(sorted(_OUTCOMES))}"
    if receipt.get("operation_id") != operation_id:
        return "its operation_id is not the one that the callback was given"
    if claim == Outcome.SUCCEEDED.value:
        return "a success needs a non-empty effect_id, a string, and a result"
    if claim == Outcome.REFUSED.value and mode is Mode.EXECUTE:
        return "a refusal needs a reason"
    return f"{claim} is not for {mode.value}"


def report_raised(error: BaseException, *, operation_id: str, mode: Mode) -> Report:
    """Make the report of what a callback raised.

    `NotDispatched` and `Refused` count for execute alone; of a query they prove nothing, and their words are kept.
    """
    if mode is Mode.EXECUTE and isinstance(error, NotDispatched):
        return report_not_dispatched(error.message, operation_id=operation_id, cause=error)
    if mode is Mode.EXECUTE and isinstance(error, Refused):
        reason = _sentence(error.message)
        receipt = {"outcome": Outcome.REFUSED.value, "operation_id": operation_id, "reason": reason}
        return Report(receipt=receipt, outcome=Outcome.REFUSED, cause=error, because=reason)
    said = error.message if isinstance(error, NotDispatched | Refused) else f"The tool raised {type(error).__name__}."
    return _unknown(operation_id, said, cause=error)


def report_not_dispatched(reason: str, *, operation_id: str, cause: BaseException | None = None) -> Report:
    """Make the report of an execute whose callback was never called, or says that it sent nothing."""
    reason = _sentence(reason)
    receipt = {"outcome": Outcome.NOT_DISPATCHED.value, "operation_id": operation_id, "reason": reason}
    return Report(receipt=receipt, outcome=Outcome.NOT_DISPATCHED, cause=cause, because=reason)


def _unknown(operation_id: str, detail: str, *, cause: BaseException | None = None) -> Report:
    detail = _sentence(detail)
    receipt = {"outcome": Outcome.UNKNOWN.value, "operation_id": operation_id, "detail": detail}
    return Report(receipt=receipt, outcome=Outcome.UNKNOWN, cause=cause, because=detail)


def _sentence(text: str) -> str:
    """Return at most `limits.REASON_CHARS` characters that any database can store."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[: limits.REASON_CHARS]


def _as_sent(value: object) -> dict[str, Any] | None:
    """Return `value` as the server will read it, so that first result and saved result are the same.

    None when it is no JSON object, breaks a rule of requests, or is larger than a receipt may be.
    """
    if not isinstance(value, Mapping):
        return None
    try:
        if len(canonical_bytes(value)) > limits.RECEIPT_BYTES:
            return None
        request = loads_strict(canonical_bytes({**_ENVELOPE, "receipt": value}))
    except MalformedError:
        return None
    receipt: dict[str, Any] = request["receipt"]
    return receipt
