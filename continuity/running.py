"""One run of one operation: begin, one callback at a time, receipt, result.

Rules:

* The server decides. A callback is called only for a grant in hand, in the mode that was granted.
* `execute` is called only while less than 30 s have passed since begin was **sent**, on a clock that
  counts suspension; later the attempt is reported ``not_dispatched``. With a timeout of at most 90 s the
  callback ends before the server's lease of 120 s can, so that nothing renews it here.
* begin is never sent twice for one attempt id, and a lost reply ends the run: the grant may be in use.
* A result is returned only after the server has taken the receipt. There is no journal at the host.
* A run asks at most `BEGINS_MOST` times. After a query that found nothing it asks again only when the
  workflow declares when absence is final and that moment had passed; it never waits for it.
* Whatever interrupts a callback, Ctrl-C too, is reported before it goes on its way.

Source: operations.md "begin", "outcome"; security.md L07, L15.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from continuity import limits
from continuity.callbacks import Callback, Callbacks, Report, report_not_dispatched, report_raised, report_returned
from continuity.decisions.states import Mode, Outcome, Status
from continuity.delivery import Patience, deliver
from continuity.errors import ContinuityError, TransportError
from continuity.stops import OutcomeNotRecorded, RecoveryBlocked
from observations.client import WAIT_S, ObservedAttempt, Reporting, charging
from observations.events import EventName

BEGINS_MOST: Final = 3
"""A query, the execute it allows, and one more for the receipt that another worker saved meanwhile."""

INTERRUPTED_FOR_S: Final = 5.0
"""How long an interrupted run tries to deliver its receipt before the interrupt goes on."""

_EVENTS: Final = {
    Outcome.SUCCEEDED: EventName.COMPLETED,
    Outcome.UNKNOWN: EventName.UNKNOWN,
    Outcome.ABSENT: EventName.UNKNOWN,
    Outcome.REFUSED: EventName.BLOCKED,
    Outcome.NOT_DISPATCHED: EventName.BLOCKED,
}
_STOPS: Final = {
    Outcome.UNKNOWN: "outcome_unknown",
    Outcome.REFUSED: "refused_by_destination",
    Outcome.NOT_DISPATCHED: "not_dispatched",
}
_NOTHING_DONE: Final = frozenset({Outcome.NOT_DISPATCHED.value, Outcome.REFUSED.value})


class ToolUnavailableError(ContinuityError):
    """The host has no tool or callback for what was granted. Nothing was called."""

    code = "tool_unavailable"


class Calls(Protocol):
    """What a run asks of its client."""

    def begin(self, workflow_id: str, name: str, *, run_id: str, attempt_id: str) -> dict[str, Any]:
        """Ask for an attempt, once."""

    def send_outcome(
        self, workflow_id: str, name: str, *, run_id: str, attempt_id: str, lease_token: str, receipt: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Send a receipt, once."""

    def get_workflow(self, workflow_id: str, *, reply_timeout_s: float | None = None) -> dict[str, Any]:
        """Read the workflow's view, within so many seconds if given."""

    def page(self, workflow_id: str) -> str:
        """Say where people see the workflow."""


@dataclass(frozen=True, slots=True)
class Seams:
    """What a test may put in the place of the world.

    Attributes:
        clock: Seconds that never go back and count suspension.
        wall: Unix seconds by the host's clock; used only to word how long to wait.
        sleep: Waits that many seconds.
        trace: Told the name of each point that a run passes: ``begin.before_send``,
            ``begin.after_reply``, ``effect.before``, ``effect.after``, ``outcome.before_send`` and
            ``outcome.after_reply``.
    """

    clock: Callable[[], float]
    wall: Callable[[], float]
    sleep: Callable[[float], None]
    trace: Callable[[str], None]


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
    """

    reply: Mapping[str, Any] = field(repr=False)
    attempt_id: str
    sent_at_s: float
    retry: bool | None = None
    recovery: bool | None = None


def new_id(prefix: str) -> str:
    """Return a new identifier: the prefix, ``_`` and 32 hex digits."""
    return f"{prefix}_{uuid.uuid4().hex}"


class OperationRun:
    """One run of the operation `name` of one workflow. Used once, by one thread."""

    def __init__(
        self,
        calls: Calls,
        workflow_id: str,
        name: str,
        *,
        tools: Mapping[str, Callbacks],
        run_id: str,
        reporting: Reporting,
        seams: Seams,
    ) -> None:
        """Keep what the run needs; nothing is asked yet."""
        self._calls = calls
        self._workflow_id = workflow_id
        self._name = name
        self._tools = tools
        self._run_id = run_id
        self._reporting = reporting
        self._seams = seams

    def result(self, first: Begun | None = None) -> Any:
        """Go on until there is a result or a reason to stop.

        Args:
            first: A begin that has been sent already; None to send one.

        Returns:
            The ``result`` of the receipt that the server holds.

        Raises:
            RecoveryBlocked: Stopped safely; `code` says why.
            OutcomeNotRecorded: A callback has ended, its receipt is in hand.
            ContinuityError: begin failed; no callback was called.
        """
        for _ in range(BEGINS_MOST):
            begun, first = first or self._begin(), None
            reply = begun.reply
            if reply.get("action") == "completed":
                return _saved_result(reply)
            if reply.get("action") == "blocked":
                raise self._blocked(reply)
            grant = _grant(begun, run_id=self._run_id)
            report, answer = self._attempt(grant, self._observed(begun, grant))
            if report.outcome is Outcome.SUCCEEDED and answer.get("accepted") is True:
                return report.receipt["result"]
            self._stop_unless_more_is_known(grant, report, answer)
        raise self._stopped("effect_not_found")

    # --- begin ---

    def _begin(self) -> Begun:
        retry, recovery = self._history() if self._reporting.is_on else (None, None)
        attempt_id = new_id("at")
        self._seams.trace("begin.before_send")
        sent_at_s = self._seams.clock()
        reply = self._calls.begin(self._workflow_id, self._name, run_id=self._run_id, attempt_id=attempt_id)
        self._seams.trace("begin.after_reply")
        return Begun(reply, attempt_id, sent_at_s, retry, recovery)

    def _blocked(self, reply: Mapping[str, Any]) -> RecoveryBlocked:
        reason = reply.get("reason")
        if not isinstance(reason, str):
            raise TransportError("The begin reply says blocked and not why.")
        lease_until = reply.get("lease_until")
        if isinstance(lease_until, bool) or not isinstance(lease_until, int | float):
            return self._stopped(reason)
        # The two clocks may differ; a lease never lasts longer than this from now.
        wait_s = min(max(lease_until - self._seams.wall(), 0.0), float(limits.LEASE_S))
        return self._stopped(reason, lease_until=float(lease_until), retry_after_s=wait_s)

    # --- attempt ---

    def _attempt(self, grant: Grant, observed: ObservedAttempt) -> tuple[Report, dict[str, Any]]:
        """Call what was granted and deliver what came of it; an interrupt goes on afterwards."""
        report = self._call(grant, observed)
        interrupt = report.cause if not isinstance(report.cause, Exception) else None
        if interrupt is not None:
            with suppress(ContinuityError):
                self._deliver(grant, report, for_s=INTERRUPTED_FOR_S)
            raise interrupt
        try:
            return report, self._deliver(grant, report)
        finally:
            observed.send(_EVENTS[report.outcome])

    def _call(self, grant: Grant, observed: ObservedAttempt) -> Report:
        is_called = False
        try:
            observed.send(EventName(grant.mode.value))
            self._seams.trace("effect.before")
            callback = self._callback(grant)
            waited_s = self._seams.clock() - grant.sent_at_s
            if grant.mode is Mode.EXECUTE and not 0 <= waited_s < limits.LANDING_MARGIN_S:
                return report_not_dispatched("The grant is too old to be used.", operation_id=grant.operation_id)
            with charging(observed):
                is_called = True
                value = callback(grant.arguments, grant.operation_id, grant.idempotency_key, grant.timeout_s)
            self._seams.trace("effect.after")
        except BaseException as error:  # noqa: BLE001 - whatever ends a callback, the attempt must be reported
            if is_called or grant.mode is Mode.QUERY:
                return report_raised(error, operation_id=grant.operation_id, mode=grant.mode)
            return report_not_dispatched(
                f"Nothing was called: {type(error).__name__}.", operation_id=grant.operation_id, cause=error
            )
        return report_returned(value, operation_id=grant.operation_id, mode=grant.mode)

    def _callback(self, grant: Grant) -> Callback:
        tool = self._tools.get(grant.tool)
        callback = None if tool is None else (tool.execute if grant.mode is Mode.EXECUTE else tool.query)
        if callback is None:
            names = ", ".join(repr(name) for name in sorted(self._tools)) or "none"
            raise ToolUnavailableError(
                f"This host has no {grant.mode.value} callback for the tool {grant.tool!r}. Its tools: {names}."
            )
        return callback

    def _deliver(self, grant: Grant, report: Report, *, for_s: float | None = None) -> dict[str, Any]:
        def send() -> dict[str, Any]:
            self._seams.trace("outcome.before_send")
            reply = self._calls.send_outcome(
                self._workflow_id, self._name, run_id=self._run_id, attempt_id=grant.attempt_id,
                lease_token=grant.lease_token, receipt=report.receipt,
            )  # fmt: skip
            self._seams.trace("outcome.after_reply")
            return reply

        patience = Patience(self._seams.clock, self._seams.sleep)
        if for_s is not None:
            patience = Patience(self._seams.clock, self._seams.sleep, for_s)
        try:
            return deliver(send, patience)
        except ContinuityError as error:
            raise OutcomeNotRecorded(
                report.receipt, workflow_id=self._workflow_id, attempt_id=grant.attempt_id,
                page=self._calls.page(self._workflow_id),
            ) from error  # fmt: skip

    # --- afterwards ---

    def _stop_unless_more_is_known(self, grant: Grant, report: Report, answer: Mapping[str, Any]) -> None:
        """Return if the next begin can only complete or execute; else raise `RecoveryBlocked`."""
        if answer.get("accepted") is not True:
            if answer.get("status") == Status.COMPLETED.value:
                return
            reason = answer.get("reason")
            code = reason if isinstance(reason, str) else "stale_lease"
            raise self._stopped(code, because=report.because) from report.cause
        if isinstance(report.cause, ToolUnavailableError):
            raise self._stopped(report.cause.code, because=report.cause.message) from report.cause
        if report.outcome is not Outcome.ABSENT:
            code = _STOPS.get(report.outcome, "outcome_unknown")
            raise self._stopped(code, because=report.because) from report.cause
        wait_s = self._absence_final_in_s(grant)
        if wait_s is None or wait_s > 0:
            raise self._stopped("effect_not_found", retry_after_s=wait_s)

    def _absence_final_in_s(self, grant: Grant) -> float | None:
        """Say how many seconds too early the query was granted; None if absence is never final, or nobody can say.

        The query's outcome is recorded: whatever is wrong with the view, stopping here is safe.
        """
        try:
            return self._early_by_s(self._operation(), grant)
        except (ContinuityError, KeyError, TypeError, AttributeError):
            return None

    def _early_by_s(self, operation: Mapping[str, Any], grant: Grant) -> float | None:
        final_after_s = operation.get("absence_final_after_seconds")
        attempts = {attempt.get("attempt_id"): attempt for attempt in operation.get("attempts", ())}
        query = attempts.get(grant.attempt_id)
        if final_after_s is None or query is None:
            return None
        landed_by = [_lands_by(attempt, grant.timeout_s) for attempt in attempts.values() if _may_land(attempt)]
        return float(max(landed_by, default=0.0) + final_after_s - query["started"])

    def _history(self) -> tuple[bool | None, bool | None]:
        """Say whether the next execute is a retry and the next attempt a recovery; for observers only."""
        try:
            operation = self._operation(reply_timeout_s=WAIT_S)
            executes = [attempt["mode"] == Mode.EXECUTE.value for attempt in operation["attempts"]]
            return any(executes), operation["status"] == Status.UNCERTAIN.value
        except Exception as error:  # noqa: BLE001 - what is for observers must not be able to disturb the work
            self._reporting.count(error)
            return None, None

    def _operation(self, *, reply_timeout_s: float | None = None) -> Mapping[str, Any]:
        view = self._calls.get_workflow(self._workflow_id, reply_timeout_s=reply_timeout_s)
        operations = view.get("operations")
        found = [op for op in operations or () if isinstance(op, dict) and op.get("name") == self._name]
        if not found:
            raise TransportError("The workflow's view does not hold the operation.")
        return found[0]

    def _observed(self, begun: Begun, grant: Grant) -> ObservedAttempt:
        return ObservedAttempt(
            reporting=self._reporting, workflow_id=self._workflow_id, operation_id=grant.operation_id,
            run_id=self._run_id, attempt_id=grant.attempt_id,
            retry=begun.retry if grant.mode is Mode.EXECUTE else False, recovery=begun.recovery,
        )  # fmt: skip

    def _stopped(
        self, code: str, *, because: str = "", lease_until: float | None = None, retry_after_s: float | None = None
    ) -> RecoveryBlocked:
        return RecoveryBlocked(
            code, self._workflow_id, page=self._calls.page(self._workflow_id), because=because,
            lease_until=lease_until, retry_after_s=retry_after_s,
        )  # fmt: skip


def _may_land(attempt: Mapping[str, Any]) -> bool:
    return attempt.get("mode") == Mode.EXECUTE.value and attempt.get("outcome") not in _NOTHING_DONE


def _lands_by(attempt: Mapping[str, Any], timeout_s: float) -> float:
    started: float = attempt["started"]
    if attempt.get("ended") is not None:
        return started + timeout_s + limits.LANDING_MARGIN_S
    leases = 1 + (attempt.get("renewals") or 0)
    return started + max(timeout_s + limits.LANDING_MARGIN_S, leases * limits.LEASE_S)


def _saved_result(reply: Mapping[str, Any]) -> Any:
    receipt = reply.get("receipt")
    if not isinstance(receipt, dict):
        raise TransportError("The begin reply says completed and holds no receipt.")
    return receipt.get("result")


def _grant(begun: Begun, *, run_id: str) -> Grant:
    """Read what was granted.

    Raises:
        TransportError: The reply is not one to this begin. Nothing was called; the operation is uncertain.
    """
    reply = begun.reply
    timeout_s = reply.get("timeout_seconds")
    holds = (
        reply.get("action") in tuple(Mode)
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
