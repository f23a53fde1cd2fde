"""What people and applications do with threads: create, message, steer, follow-up, stop, resume, reply.

Each call is one transaction: lock the thread, check the right, look for the receipt, let a claim that has run out end,
let the core decide, write, keep the receipt, commit. The same request again gets its first receipt and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from sqlalchemy.exc import IntegrityError as ConstraintError

from continuity.decisions.threads import controls, schemas
from continuity.decisions.threads.changes import refuse
from continuity.decisions.threads.model import Change, Head
from continuity.decisions.threads.states import RequestState
from continuity.errors import MalformedError, NotFoundError
from continuity.jsontext import canonical_bytes
from continuity.services import threads_creation, threads_receipts
from continuity.services import threads_rights as rights
from continuity.services.audit import AuditEntry
from continuity.services.callers import Caller, CallerKind
from continuity.services.identifiers import body_digest, new_id
from continuity.services.threads_ledger import Contents, ThreadLedger
from continuity.services.threads_rights import Right
from continuity.services.threads_sealing import OpenedThread
from continuity.services.workflows import WORKFLOW_FORMAT
from continuity.store import threads as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.audit import AuditLog
    from continuity.services.threads_receipts import Slip
    from continuity.store.store import Store
    from continuity.store.workflows import AnyRow
    from continuity.thread_requests import (
        AgentDeclaration,
        ControlRequest,
        NewThread,
        ReplyRequest,
        SayRequest,
    )

_AUDITED: Final[dict[str, str]] = {
    "create": "thread.created",
    "steer": "thread.steered",
    "follow_up": "thread.followed_up",
    "stop": "thread.stopped",
    "resume": "thread.resumed",
    "reply": "thread.replied",
}
"""What people do that the audit log tells of; what they say stands in the thread's own journal."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """A thread under its lock, and what is needed to decide about it now."""

    connection: Connection
    opened: OpenedThread
    agent: AgentDeclaration
    at_us: int

    @property
    def head(self) -> Head:
        return self.opened.head

    @property
    def epoch(self) -> int:
        return self.opened.vault.epoch


class _Asked(Protocol):
    """What every request of a client about a thread has."""

    @property
    def request_id(self) -> str: ...
    def body(self) -> dict[str, Any]: ...


_Decided = tuple[Change | None, Contents, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Threads:
    """Use cases of people and applications.

    Attributes:
        store: Where everything is written.
        ledger: Opens and records threads.
        audit: The audit log.
    """

    store: Store
    ledger: ThreadLedger
    audit: AuditLog

    # ---- creating

    def create(self, caller: Caller, request: NewThread) -> dict[str, Any]:
        """Create a thread, or find the caller's own of the same name and agent.

        Returns:
            The receipt: ``request_id, action, thread_id, name, agent, position, revision, state``. Durable.

        Raises:
            ForbiddenError: Callers of this kind own no threads. Nothing has happened.
            MalformedError: An application that names no subject. Nothing has happened.
            NotFoundError: No such agent for this caller. Nothing has happened.
            ConflictError: ``request_conflict, thread_deleted, capture_not_full`` or ``clock_moved_backwards``.
            SealedError: The vault is locked. Nothing has happened.
            UnavailableError: Storage cannot answer; asking again is safe.
        """

        def work(connection: Connection) -> dict[str, Any]:
            created = threads_creation.create(connection, self.ledger, caller, request)
            if created.is_new:
                self._note(connection, caller, "create", created.thread_id, at_us=created.at_us)
            if created.has_opted_in:
                entry = AuditEntry(
                    action="vault.format_raised", actor=caller.actor, result="done", request_id=caller.request_id,
                    detail={"format": WORKFLOW_FORMAT},
                )  # fmt: skip
                self.audit.append(connection, entry, now_us=created.at_us)
            return created.receipt

        try:
            return self.store.write(work)
        except ConstraintError:
            # Somebody used the same name or request_id between our look and our insert: look again.
            return self.store.write(work)

    # ---- saying

    def message(self, caller: Caller, thread_id: str, request: SayRequest) -> dict[str, Any]:
        """Say something to an idle thread; a run is queued for it.

        Returns:
            The receipt: ``request_id, action, thread_id, position, revision, state, input_id, run_id``. Behind
            follow-ups that a stop has left the run is that of the first of them. Durable.

        Raises:
            NotFoundError: No such thread for this caller.
            ForbiddenError: Not the caller's own thread, or the agent's policy does not let the caller in.
            ConflictError: ``thread_busy, queue_full, request_conflict, thread_deleted`` or ``capture_not_full``.
            SealedError: The vault is locked. Nothing has happened.
            UnavailableError: Storage cannot answer; asking again is safe.
        """

        def decide(moment: _Moment, input_id: str) -> Change:
            return controls.decide_message(
                moment.head, input_id=input_id, run_id=new_id("rn"), epoch=moment.epoch, at_us=moment.at_us
            )

        return self._say(caller, thread_id, request, "message", decide)

    def steer(self, caller: Caller, thread_id: str, request: SayRequest) -> dict[str, Any]:
        """Say something that the run going on reads before its next step.

        A run that ends without having read it makes it the first follow-up, in the same transaction. Returns and raises
        as `message`, with ``control_not_declared, thread_not_running`` and ``thread_stopping`` instead of
        ``thread_busy``.
        """

        def decide(moment: _Moment, input_id: str) -> Change:
            return controls.decide_steer(moment.head, moment.agent.controls, input_id=input_id, at_us=moment.at_us)

        return self._say(caller, thread_id, request, "steer", decide)

    def follow_up(self, caller: Caller, thread_id: str, request: SayRequest) -> dict[str, Any]:
        """Say something that the next run begins with; an idle thread begins at once.

        It is held while the thread waits, was interrupted or has failed, and after a stop. Returns and raises as
        `message`, with ``control_not_declared`` instead of ``thread_busy``.
        """

        def decide(moment: _Moment, input_id: str) -> Change:
            return controls.decide_follow_up(
                moment.head, moment.agent.controls, input_id=input_id, run_id=new_id("rn"), epoch=moment.epoch,
                at_us=moment.at_us,
            )  # fmt: skip

        return self._say(caller, thread_id, request, "follow_up", decide)

    def _say(
        self, caller: Caller, thread_id: str, request: SayRequest, action: str,
        decide: Callable[[_Moment, str], Change],
    ) -> dict[str, Any]:  # fmt: skip
        def decided(moment: _Moment) -> _Decided:
            threads_receipts.require_capture(moment.opened.vault)
            rights.require_use(caller, moment.agent)
            input_id = new_id("in")
            change = decide(moment, input_id)
            return change, Contents(said={input_id: request.content}), {"input_id": input_id}

        return self._act(caller, thread_id, request, decided, action=action, right=Right.FEED)

    # ---- controls

    def stop(self, caller: Caller, thread_id: str, request: ControlRequest) -> dict[str, Any]:
        """Stop what a thread does: at once where no worker has it, else by asking the worker.

        A run that was asked to stop ends as stopped once its worker settles it; whatever it did stays recorded. Nothing
        starts by itself afterwards: follow-ups wait for the next message or `resume`.

        Returns:
            The receipt: ``request_id, action, thread_id, position, revision, state``. Durable.

        Raises:
            NotFoundError: No such thread for this caller.
            ForbiddenError: The caller may see it, and not stop it.
            ConflictError: ``thread_not_running, control_not_declared, stale_revision, request_conflict`` or
                ``thread_deleted``.
            SealedError: The vault is locked. Nothing has happened.
            UnavailableError: Storage cannot answer; asking again is safe.
        """

        def decided(moment: _Moment) -> _Decided:
            change = controls.decide_stop(
                moment.head, moment.agent.controls, seen=request.revision, actor=caller.actor, at_us=moment.at_us
            )
            return change, Contents(), {}

        return self._act(caller, thread_id, request, decided, action="stop", right=Right.CONTROL)

    def resume(self, caller: Caller, thread_id: str, request: ControlRequest) -> dict[str, Any]:
        """Go on after an interruption or a failure, or with follow-ups that a stop has left: a new run is queued.

        It is handed what the unfinished run was handed: the same input, replies and steers.

        Returns:
            The receipt: ``request_id, action, thread_id, position, revision, state, run_id``. Durable.

        Raises:
            As `stop`, with ``nothing_to_resume`` and ``capture_not_full`` instead of ``thread_not_running`` and
            ``control_not_declared``.
        """

        def decided(moment: _Moment) -> _Decided:
            threads_receipts.require_capture(moment.opened.vault)
            change = controls.decide_resume(
                moment.head, seen=request.revision, run_id=new_id("rn"), epoch=moment.epoch, at_us=moment.at_us
            )
            return change, Contents(), {}

        return self._act(caller, thread_id, request, decided, action="resume", right=Right.CONTROL)

    def reply(self, caller: Caller, thread_id: str, waiting_id: str, request: ReplyRequest) -> dict[str, Any]:
        """Answer a waiting request, once; the last answer of a run's requests queues the next run.

        Returns:
            The receipt: ``request_id, action, thread_id, position, revision, state, waiting_id, waiting_revision``, and
            ``run_id`` where a run was queued. An identical reply, whoever sends it under whichever request_id, gets the
            receipt of the first. Durable.

        Raises:
            NotFoundError: No such thread or request for this caller.
            ForbiddenError: Not the caller's own thread, or the agent's policy does not let the caller in.
            MalformedError: The reply is not what the request's schema asks for. Nothing has happened.
            ConflictError: ``already_answered`` with the recorded decision, ``stale_waiting_revision`` with the current
                one, ``waiting_cancelled, request_conflict, thread_deleted`` or ``capture_not_full``.
            SealedError: The vault is locked. Nothing has happened.
            UnavailableError: Storage cannot answer; asking again is safe.
        """
        digest = body_digest(canonical_bytes(request.reply))

        def work(connection: Connection) -> dict[str, Any]:
            opened = self.ledger.lock(connection, caller, thread_id, Right.FEED)
            body = {"waiting_id": waiting_id, **request.body()}
            asked = threads_receipts.slip(
                self.ledger.vault, caller, thread_id, request.request_id, action="reply", body=body
            )
            known = threads_receipts.found(connection, opened, asked)
            if known is not None:
                return known
            place = {"thread_pk": opened.thread_pk, "waiting_id": waiting_id}
            row = connection.execute(statements.REQUEST, place).one_or_none()
            if row is None:
                raise NotFoundError("There is no such waiting request.")
            question = self.ledger.request(opened, row)
            if row.revision != request.revision:
                raise refuse("stale_waiting_revision", opened.head, waiting_revision=row.revision)
            if row.state != RequestState.OPEN:
                return _answered_before(self.ledger, opened, row, digest)
            moment = self._moment(connection, opened)
            return self._admit(caller, moment, asked, request, question=question, waiting_id=waiting_id, digest=digest)

        return self.store.write(work)

    def _admit(
        self, caller: Caller, moment: _Moment, asked: Slip, request: ReplyRequest, *, question: Mapping[str, Any],
        waiting_id: str, digest: str,
    ) -> dict[str, Any]:  # fmt: skip
        """Check and write the first reply to an open request."""
        threads_receipts.require_capture(moment.opened.vault)
        rights.require_use(caller, moment.agent)
        problem = schemas.problem(question["schema"], request.reply)
        if problem is not None:
            raise MalformedError(f"{problem}. Nothing was changed.")
        change = controls.decide_reply(
            moment.head, waiting_id, revision=request.revision, digest=digest, actor=caller.actor, run_id=new_id("rn"),
            epoch=moment.epoch, at_us=moment.at_us,
        )  # fmt: skip
        after = replace(moment.opened, head=change.head)
        receipt = {
            **threads_receipts.new(after, request.request_id, "reply"), **controls.describe(change),
            "waiting_id": waiting_id, "waiting_revision": request.revision,
        }  # fmt: skip
        replied = {"reply": request.reply, "digest": digest, "actor": caller.actor, "receipt": receipt}
        contents = Contents(replied={waiting_id: replied}, shown={waiting_id: question["shown"]})
        opened = self.ledger.record(moment.connection, moment.opened, change, at_us=moment.at_us, contents=contents)
        threads_receipts.keep(moment.connection, opened, asked, receipt)
        self._note(moment.connection, caller, "reply", opened.thread_id, at_us=moment.at_us)
        return receipt

    # ---- receipts

    def receipt(self, caller: Caller, thread_id: str, request_id: str) -> dict[str, Any]:
        """Return the receipt of one of the caller's own requests on a thread, whose answer may have been lost.

        Raises:
            NotFoundError: No such thread, or no such request: it has not taken effect.
            ConflictError: ``thread_deleted``.
            SealedError: The vault is locked.
        """

        def read(connection: Connection) -> dict[str, Any]:
            opened = self.ledger.peek(connection, caller, thread_id)
            asked = threads_receipts.slip(self.ledger.vault, caller, thread_id, request_id, action="", body={})
            place = {"scope_ix": asked.scope_ix, "request_id": request_id}
            row = connection.execute(statements.RECEIPT, place).one_or_none()
            if row is None:
                raise NotFoundError("There is no receipt of this request: it has not taken effect.")
            return threads_receipts.read(opened, asked, row)

        return self.store.read(read)

    # ---- common

    def _act(
        self, caller: Caller, thread_id: str, request: _Asked, decide: Callable[[_Moment], _Decided], *,
        action: str, right: Right,
    ) -> dict[str, Any]:  # fmt: skip
        """Lock, look for the receipt, decide, write, keep the receipt."""

        def work(connection: Connection) -> dict[str, Any]:
            opened = self.ledger.lock(connection, caller, thread_id, right)
            asked = threads_receipts.slip(
                self.ledger.vault, caller, thread_id, request.request_id, action=action, body=request.body()
            )
            known = threads_receipts.found(connection, opened, asked)
            if known is not None:
                return known
            moment = self._moment(connection, opened)
            change, contents, named = decide(moment)
            after, described = moment.opened, dict[str, Any]()
            if change is not None:
                after = self.ledger.record(connection, moment.opened, change, at_us=moment.at_us, contents=contents)
                described = controls.describe(change)
            receipt = {**threads_receipts.new(after, request.request_id, action), **described, **named}
            threads_receipts.keep(connection, after, asked, receipt)
            self._note(connection, caller, action, thread_id, at_us=moment.at_us)
            return receipt

        return self.store.write(work)

    def _moment(self, connection: Connection, opened: OpenedThread) -> _Moment:
        """Read the clock, let a claim that has run out end, and read what the agent allows."""
        at_us = self.ledger.stamp_us(connection, opened)
        current = self.ledger.expire(connection, opened, at_us)
        return _Moment(connection, current, self.ledger.agent_of(connection, opened), at_us)

    def _note(self, connection: Connection, caller: Caller, action: str, thread_id: str, *, at_us: int) -> None:
        """Write what a person did to the audit log, whose head is locked last."""
        if caller.kind is not CallerKind.PERSON or action not in _AUDITED:
            return
        entry = AuditEntry(
            action=_AUDITED[action], actor=caller.actor, object_id=thread_id, result="done",
            request_id=caller.request_id,
        )  # fmt: skip
        self.audit.append(connection, entry, now_us=at_us)


def _answered_before(ledger: ThreadLedger, opened: OpenedThread, row: AnyRow, digest: str) -> dict[str, Any]:
    """Answer a reply to a request that is not open: as the first one if it is the same."""
    if row.state == RequestState.CANCELLED:
        raise refuse("waiting_cancelled", opened.head)
    first = ledger.reply(opened, row)
    if first["digest"] == digest:
        receipt: dict[str, Any] = first["receipt"]
        return receipt
    raise refuse(
        "already_answered", opened.head, waiting_revision=row.revision, decision=first["reply"], answered=first["at"]
    )
