"""begin, outcome and renew: the hot path.

Each call is one transaction: lock the workflow, read the clock, let the core decide, record, commit. A
reply that grants work leaves only after the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from continuity.decisions import clocks
from continuity.decisions.beginning import Action, Question, Reason, Verdict, decide_begin
from continuity.decisions.events import AttemptGranted
from continuity.decisions.model import Reply
from continuity.decisions.outcomes import Replayed, Report, decide_outcome, decide_renewal
from continuity.decisions.receipts import classify
from continuity.jsontext import canonical_bytes
from continuity.services import identifiers, run_links
from continuity.services.documents import assurance, seconds
from continuity.services.identifiers import new_lease_token, token_hash
from continuity.services.tally import Tally

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.decisions.model import Operation, Workflow
    from continuity.services.callers import Caller
    from continuity.services.ledger import Ledger
    from continuity.services.opened import Opened, OpenedOperation
    from continuity.store.store import Store
    from continuity.wire import BeginRequest, OutcomeRequest, RenewRequest


@dataclass(frozen=True, slots=True)
class Begun:
    """What a begin has come to.

    Attributes:
        reply: For whoever asked.
        workflow: The workflow after it.
        operation: The operation after it.
    """

    reply: dict[str, Any]
    workflow: Workflow
    operation: Operation


@dataclass(frozen=True, slots=True)
class Attempts:
    """Use cases of workers and coordinators.

    Attributes:
        store: Where everything is written.
        ledger: Opens and records workflows.
        tally: Counts what was answered.
    """

    store: Store
    ledger: Ledger
    tally: Tally = field(default_factory=Tally)

    def begin(self, caller: Caller, workflow_id: str, request: BeginRequest) -> dict[str, Any]:
        """Ask for the right to attempt an operation.

        Returns:
            ``action, reason, operation_id, revision``; for a grant also ``tool, arguments,
            idempotency_key, timeout_seconds, lease_token, lease_until, run_id, attempt_id``; for
            ``completed`` and ``refused_by_destination`` the receipt; for ``attempt_in_progress``
            ``lease_until``. Times are Unix seconds. A grant is durable when this returns.

        Raises:
            NotFoundError: No such workflow or operation for this caller. Nothing has happened.
            ConflictError: ``workflow_deleted``, ``clock_moved_backwards`` or
                ``coordinator_history_limit``. Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
            StorageLowError: The disk is nearly full. Nothing has happened.
            UnavailableError: Storage cannot answer; whether an attempt was granted is unknown, and
                asking again with the same attempt_id grants nothing twice.
        """

        def work(connection: Connection) -> dict[str, Any]:
            opened = self.ledger.lock(connection, caller, workflow_id)
            return self.begin_opened(connection, caller, opened, request).reply

        return self.tally.begun(self.store.write(work))

    def begin_opened(self, connection: Connection, caller: Caller, opened: Opened, request: BeginRequest) -> Begun:
        """Decide a begin on a workflow that is locked and open. For `Workflows.create` as well."""
        found = self.ledger.operation_with_definition(connection, opened, request.name)
        reading = self.ledger.read_clock(found.database_us)
        now_us = clocks.dispatch_time_us(reading, opened.workflow.clock_high_water_us, opened.vault.clock_high_water_us)
        question = Question(opened.workflow, found.operation, opened.vault, request.attempt_id, now_us, reading)
        verdict = decide_begin(question)
        if verdict.mode is None:
            return Begun(self._refusal(connection, opened, question, verdict), opened.workflow, found.operation)
        self.ledger.require_room()
        token = new_lease_token()
        event = AttemptGranted(
            at_us=now_us, actor=caller.actor, ordinal=found.operation.ordinal, attempt_id=request.attempt_id,
            run_id=request.run_id, mode=verdict.mode, lease_hash=token_hash(token),
        )  # fmt: skip
        workflow, operation = self.ledger.record(connection, opened, found, event)
        run_links.note(connection, self.ledger.vault, opened, found.operation, run_id=request.run_id)
        return Begun(_grant(workflow, operation, verdict, found, token), workflow, operation)

    def _refusal(self, connection: Connection, opened: Opened, question: Question, verdict: Verdict) -> dict[str, Any]:
        operation = question.operation
        reply = _verdict(opened.workflow, operation, verdict)
        if verdict.action is Action.COMPLETED or verdict.reason is Reason.REFUSED:
            reply["receipt"] = self.ledger.accepted_receipt(connection, opened, operation.ordinal)
            reply["assurance"] = assurance(operation)
        if verdict.reason is Reason.IN_PROGRESS and operation.last is not None:
            reply["lease_until"] = seconds(operation.last.lease_until_us)
        return reply

    def outcome(self, caller: Caller, workflow_id: str, request: OutcomeRequest) -> dict[str, Any]:
        """Record what became of an attempt.

        Returns:
            ``accepted, status, revision``, with ``reason`` for late evidence and ``replayed`` for an exact
            repeat. Durable when this returns.

        Raises:
            NotFoundError: No such workflow or operation for this caller. Nothing has happened.
            ConflictError: ``workflow_deleted`` or ``late_receipt_limit_reached``. Nothing has happened.
            SealedError: The vault is locked: send the same receipt again later. Nothing has happened.
            UnavailableError: Storage cannot answer; send the same receipt again.
        """
        lease_hash = token_hash(request.lease_token)
        body = canonical_bytes(request.receipt)

        def work(connection: Connection) -> dict[str, Any]:
            opened = self.ledger.lock(connection, caller, workflow_id)
            found = self.ledger.operation(connection, opened, request.name)
            report = _report(found.operation, request, caller, lease_hash=lease_hash, body=body)
            reading = self.ledger.read_clock(found.database_us)
            at_us = clocks.stamp_us(reading, opened.workflow.clock_high_water_us, opened.vault.clock_high_water_us)
            decision = decide_outcome(found.operation, report, epoch=opened.vault.epoch, at_us=at_us)
            if isinstance(decision, Replayed):
                return {**_reply(decision.reply), "replayed": True}
            workflow, operation = self.ledger.record(connection, opened, found, decision, receipt=body)
            return _reply(_new_reply(workflow, operation, is_late=decision.kind.value == "late_receipt_kept"))

        return self.tally.reported(self.store.write(work))

    def renew(self, caller: Caller, workflow_id: str, request: RenewRequest) -> dict[str, Any]:
        """Keep a live lease for another 120 s.

        Returns:
            ``lease_until`` (Unix seconds) and ``revision``, which a renewal does not change.

        Raises:
            NotFoundError: No such workflow or operation for this caller. Nothing has happened.
            ConflictError: ``stale_lease, lease_expired, workflow_paused, renewal_limit_reached,
                clock_moved_backwards`` or ``workflow_deleted``. Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
            UnavailableError: Storage cannot answer; the lease may or may not have been renewed.
        """
        lease_hash = token_hash(request.lease_token)

        def work(connection: Connection) -> dict[str, Any]:
            opened = self.ledger.lock(connection, caller, workflow_id)
            found = self.ledger.operation(connection, opened, request.name)
            reading = self.ledger.read_clock(found.database_us)
            now_us = clocks.dispatch_time_us(
                reading, opened.workflow.clock_high_water_us, opened.vault.clock_high_water_us
            )
            attempt = decide_renewal(
                opened.workflow, found.operation, opened.vault, attempt_id=request.attempt_id,
                run_id=request.run_id, lease_hash=lease_hash, now_us=now_us,
            )  # fmt: skip
            operation = replace(found.operation, attempts=(*found.operation.attempts[:-1], attempt))
            self.ledger.save_operation(connection, opened, operation)
            return {"lease_until": seconds(attempt.lease_until_us), "revision": opened.workflow.revision}

        return self.store.write(work)


def _verdict(workflow: Workflow, operation: Operation, verdict: Verdict) -> dict[str, Any]:
    return {
        "action": verdict.action.value,
        "reason": verdict.reason.value,
        "operation_id": operation.operation_id,
        "revision": workflow.revision,
    }


def _grant(
    workflow: Workflow, operation: Operation, verdict: Verdict, found: OpenedOperation, token: str
) -> dict[str, Any]:
    attempt = operation.attempts[-1]
    definition = found.definition or {}
    return {
        **_verdict(workflow, operation, verdict),
        "tool": definition["tool"],
        "arguments": definition["arguments"],
        "timeout_seconds": definition["timeout_seconds"],
        "idempotency_key": operation.idempotency_key,
        "lease_token": token,
        "lease_until": seconds(attempt.lease_until_us),
        "run_id": attempt.run_id,
        "attempt_id": attempt.attempt_id,
    }


def _report(operation: Operation, request: OutcomeRequest, caller: Caller, *, lease_hash: str, body: bytes) -> Report:
    attempt = operation.find(request.attempt_id)
    return Report(
        attempt_id=request.attempt_id,
        run_id=request.run_id,
        lease_hash=lease_hash,
        outcome=classify(
            request.receipt, operation_id=operation.operation_id, mode=None if attempt is None else attempt.mode
        ),
        digest=identifiers.body_digest(body),
        actor=caller.actor,
    )


def _new_reply(workflow: Workflow, operation: Operation, *, is_late: bool) -> Reply:
    reason = "stale_lease" if is_late else None
    return Reply(accepted=not is_late, status=operation.status, revision=workflow.revision, reason=reason)


def _reply(reply: Reply) -> dict[str, Any]:
    value: dict[str, Any] = {
        "accepted": reply.accepted,
        "status": reply.status.value,
        "revision": reply.revision,
    }
    if reply.reason is not None:
        value["reason"] = reply.reason
    return value
