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
* Whatever interrupts a callback, Ctrl-C or the cancellation of a task, is reported before it goes on its
  way. A grant whose reply was interrupted is reported ``not_dispatched``: nothing was called.
* Everything here is a coroutine that waits for its `World` alone: the clients that block and those that do
  not run the same lines.

Source: operations.md "begin", "outcome"; security.md L07, L15; docs/adr/0012.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from continuity import limits
from continuity.callbacks import AsyncCallbacks, Report, report_not_dispatched, report_raised, report_returned
from continuity.decisions.states import Mode, Outcome, Status
from continuity.delivery import RESEND_FOR_S, Patience, deliver
from continuity.errors import ConflictError, ContinuityError, MalformedError, TransportError
from continuity.grants import Begun, Grant, absence_early_by_s, read_grant, refused_because, saved_result
from continuity.stops import OutcomeNotRecorded, RecoveryBlocked
from continuity.wire import IDENTIFIER
from continuity.worlds import Calls, NotCalledError, World
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


class ToolUnavailableError(ContinuityError):
    """The host has no tool or callback for what was granted. Nothing was called."""

    code = "tool_unavailable"


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


def new_id(prefix: str) -> str:
    """Return a new identifier: the prefix, ``_`` and 32 hex digits."""
    return f"{prefix}_{uuid.uuid4().hex}"


def identifier(field: str, value: object) -> str:
    """Return `value` if it is an identifier of a host.

    Raises:
        MalformedError: It is not; the message names `field`.
    """
    if not isinstance(value, str) or not IDENTIFIER.fullmatch(value):
        raise MalformedError(f"{field} must be 1 to 128 characters of A-Z a-z 0-9 _ -")
    return value


async def begin_new(
    calls: Calls, workflow_key: str, operation: Mapping[str, Any], *, run_id: str, world: World, seams: Seams
) -> tuple[str, Begun]:
    """Create a workflow of one operation, enabled, and begin it in the same request.

    Args:
        calls: As for `OperationRun`.
        workflow_key: Of the new work.
        operation: Its definition, with a ``name``.
        run_id: As for `OperationRun`.
        world: As for `OperationRun`.
        seams: As for `OperationRun`.

    Returns:
        The workflow's id and what begin answered, for `OperationRun.result`.

    Raises:
        TransportError: The reply is not one to such a request.
        ContinuityError: The server refused; nothing has happened.
    """
    attempt_id = new_id("at")
    begin = {"name": identifier("name", operation.get("name")), "run_id": run_id, "attempt_id": attempt_id}
    seams.trace("begin.before_send")
    sent_at_s = seams.clock()
    view, interrupt = await world.settle(calls.create_workflow, workflow_key, [operation], activate=True, begin=begin)
    seams.trace("begin.after_reply")
    workflow_id, reply = view.get("workflow_id"), view.get("begin")
    if not isinstance(workflow_id, str) or not isinstance(reply, dict):
        raise TransportError("The reply to a creation with begin does not hold both.") from interrupt
    return workflow_id, Begun(reply, attempt_id, sent_at_s, interrupt=interrupt)


class OperationRun:
    """One run of the operation `name` of one workflow. Used once, by one thread or task."""

    def __init__(
        self,
        calls: Calls,
        workflow_id: str,
        name: str,
        *,
        tools: Mapping[str, AsyncCallbacks],
        run_id: str,
        reporting: Reporting,
        world: World,
        seams: Seams,
    ) -> None:
        """Keep what the run needs; nothing is asked yet.

        Raises:
            MalformedError: The workflow's id is none.
        """
        self._calls = calls
        self._workflow_id = identifier("workflow_id", workflow_id)
        self._name = name
        self._tools = tools
        self._run_id = run_id
        self._reporting = reporting
        self._world = world
        self._seams = seams

    async def result(self, first: Begun | None = None) -> Any:
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
            begun, first = first or await self._begin(), None
            if begun.interrupt is not None and not begun.is_granted:
                raise begun.interrupt
            if begun.reply.get("action") == "completed":
                return saved_result(begun.reply)
            if begun.reply.get("action") == "blocked":
                raise self._blocked(begun.reply)
            grant = read_grant(begun, run_id=self._run_id)
            report, answer = await self._attempt(begun, grant)
            if report.outcome is Outcome.SUCCEEDED and answer.get("accepted") is True:
                return report.receipt["result"]
            await self._stop_unless_more_is_known(grant, report, answer)
        raise self._stopped("effect_not_found")

    # --- begin ---

    async def _begin(self) -> Begun:
        retry, recovery = await self._history() if self._reporting.is_on else (None, None)
        attempt_id = new_id("at")
        self._seams.trace("begin.before_send")
        sent_at_s = self._seams.clock()
        try:
            reply, interrupt = await self._world.settle(
                self._calls.begin, self._workflow_id, self._name, run_id=self._run_id, attempt_id=attempt_id
            )
        except ConflictError as error:
            error.workflow_id = self._workflow_id
            raise
        self._seams.trace("begin.after_reply")
        return Begun(reply, attempt_id, sent_at_s, retry, recovery, interrupt)

    def _blocked(self, reply: Mapping[str, Any]) -> RecoveryBlocked:
        reason = reply.get("reason")
        if not isinstance(reason, str):
            raise TransportError("The begin reply says blocked and not why.")
        lease_until = reply.get("lease_until")
        if isinstance(lease_until, bool) or not isinstance(lease_until, int | float):
            return self._stopped(reason, because=refused_because(reply))
        # The two clocks may differ; a lease never lasts longer than this from now.
        wait_s = min(max(lease_until - self._seams.wall(), 0.0), float(limits.LEASE_S))
        return self._stopped(reason, lease_until=float(lease_until), retry_after_s=wait_s)

    # --- attempt ---

    async def _attempt(self, begun: Begun, grant: Grant) -> tuple[Report, dict[str, Any]]:
        """Call what was granted and deliver what came of it; an interrupt goes on afterwards."""
        observed = self._observed(begun, grant)
        report, interrupt = await self._call(begun, grant, observed)
        if interrupt is not None:
            try:
                await self._deliver(grant, report, for_s=INTERRUPTED_FOR_S)
            except ContinuityError as error:
                raise interrupt from error
            raise interrupt
        try:
            answer, interrupt = await self._deliver(grant, report)
        finally:
            await self._tell(observed, _EVENTS[report.outcome])
        if interrupt is not None:
            raise interrupt
        return report, answer

    async def _call(self, begun: Begun, grant: Grant, observed: ObservedAttempt) -> tuple[Report, BaseException | None]:
        """Call the callback; return the report of it and what interrupted the run, None for nothing."""
        if begun.interrupt is not None:
            return self._uncalled(grant, begun.interrupt), begun.interrupt
        is_called, interrupt = False, None
        try:
            await self._tell(observed, EventName(grant.mode.value))
            self._seams.trace("effect.before")
            callback = self._callback(grant)
            with charging(observed):
                is_called = True
                ended = await self._world.call(
                    partial(self._check_age, grant), callback,
                    grant.arguments, grant.operation_id, grant.idempotency_key, grant.timeout_s,
                )  # fmt: skip
            interrupt = ended.interrupt
            value = ended.result()
            self._seams.trace("effect.after")
        except NotCalledError as error:
            return self._uncalled(grant, interrupt, error.message), interrupt
        except BaseException as error:  # noqa: BLE001 - whatever ends a callback, the attempt must be reported
            interrupt = interrupt if isinstance(error, Exception) else error
            if is_called:
                return report_raised(error, operation_id=grant.operation_id, mode=grant.mode), interrupt
            return self._uncalled(grant, error), interrupt
        return report_returned(value, operation_id=grant.operation_id, mode=grant.mode), interrupt

    def _uncalled(self, grant: Grant, cause: BaseException | None, reason: str = "") -> Report:
        """Report what was never called; a query can only say that it found out nothing."""
        if grant.mode is Mode.QUERY and cause is not None:
            return report_raised(cause, operation_id=grant.operation_id, mode=grant.mode)
        reason = reason or f"Nothing was called: {type(cause).__name__}."
        return report_not_dispatched(reason, operation_id=grant.operation_id, cause=cause)

    def _check_age(self, grant: Grant) -> None:
        waited_s = self._seams.clock() - grant.sent_at_s
        if grant.mode is Mode.EXECUTE and not 0 <= waited_s < limits.LANDING_MARGIN_S:
            raise NotCalledError("The grant is too old to be used.")

    def _callback(self, grant: Grant) -> Callable[..., Any]:
        tool = self._tools.get(grant.tool)
        callback = None if tool is None else (tool.execute if grant.mode is Mode.EXECUTE else tool.query)
        if callback is None:
            names = ", ".join(repr(name) for name in sorted(self._tools)) or "none"
            raise ToolUnavailableError(
                f"This host has no {grant.mode.value} callback for the tool {grant.tool!r}. Its tools: {names}."
            )
        if not self._world.can_await and inspect.iscoroutinefunction(callback):
            raise ToolUnavailableError(
                f"The {grant.mode.value} callback of {grant.tool!r} is a coroutine function: use AsyncContinuityClient."
            )
        return callback

    async def _deliver(
        self, grant: Grant, report: Report, *, for_s: float = RESEND_FOR_S
    ) -> tuple[dict[str, Any], BaseException | None]:
        patience = Patience(self._seams.clock, self._seams.sleep, for_s)
        return await self._world.deliver(partial(self._delivered, grant, report), patience)

    def _delivered(self, grant: Grant, report: Report, patience: Patience) -> dict[str, Any]:
        def send() -> dict[str, Any]:
            self._seams.trace("outcome.before_send")
            reply = self._calls.send_outcome(
                self._workflow_id, self._name, run_id=self._run_id, attempt_id=grant.attempt_id,
                lease_token=grant.lease_token, receipt=report.receipt,
            )  # fmt: skip
            self._seams.trace("outcome.after_reply")
            return reply

        try:
            return deliver(send, patience)
        except ContinuityError as error:
            raise OutcomeNotRecorded(
                report.receipt, workflow_id=self._workflow_id, attempt_id=grant.attempt_id,
                page=self._calls.page(self._workflow_id),
            ) from error  # fmt: skip

    # --- afterwards ---

    async def _stop_unless_more_is_known(self, grant: Grant, report: Report, answer: Mapping[str, Any]) -> None:
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
            # That this attempt did nothing says nothing of one before it that nobody knows about.
            is_open = answer.get("status") == Status.UNCERTAIN.value
            code = "outcome_unknown" if is_open else _STOPS.get(report.outcome, "outcome_unknown")
            raise self._stopped(code, because=report.because) from report.cause
        wait_s = await self._absence_final_in_s(grant)
        if wait_s is None or wait_s > 0:
            raise self._stopped("effect_not_found", retry_after_s=wait_s)

    async def _absence_final_in_s(self, grant: Grant) -> float | None:
        """Say how many seconds too early the query was granted; None if absence is never final, or nobody can say.

        The query's outcome is recorded: whatever is wrong with the view, stopping here is safe.
        """
        try:
            return absence_early_by_s(await self._operation(), grant)
        except (ContinuityError, KeyError, TypeError, AttributeError):
            return None

    async def _history(self) -> tuple[bool | None, bool | None]:
        """Say whether the next execute is a retry and the next attempt a recovery; for observers only."""
        try:
            operation = await self._operation(reply_timeout_s=WAIT_S)
            executes = [attempt["mode"] == Mode.EXECUTE.value for attempt in operation["attempts"]]
            return any(executes), operation["status"] == Status.UNCERTAIN.value
        except Exception as error:  # noqa: BLE001 - what is for observers must not be able to disturb the work
            self._reporting.count(error)
            return None, None

    async def _operation(self, *, reply_timeout_s: float | None = None) -> Mapping[str, Any]:
        view = await self._world.ask(self._calls.get_workflow, self._workflow_id, reply_timeout_s=reply_timeout_s)
        operations = view.get("operations")
        found = [op for op in operations or () if isinstance(op, dict) and op.get("name") == self._name]
        if not found:
            raise TransportError("The workflow's view does not hold the operation.")
        return found[0]

    async def _tell(self, observed: ObservedAttempt, event: EventName) -> None:
        if self._reporting.is_on:
            await self._world.ask(observed.send, event)

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
