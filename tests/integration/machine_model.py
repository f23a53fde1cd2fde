"""A second reading of operations.md, as plain objects that change: what the services are compared with.

Nothing here is taken from `continuity.decisions`. Limits are read at call time, as a test lowers them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from continuity import limits

S = 1_000_000
PERSON_REASONS = {
    "attempt_limit_reached", "workflow_revision_limit_reached", "late_receipt_needs_decision",
    "restored_needs_decision", "idempotency_window_expired", "needs_confirmation",
}  # fmt: skip


@dataclass
class Try:
    attempt_id: str
    run_id: str
    mode: str
    started: int
    until: int
    token: str | None = None
    renewals: int = 0
    ended: int | None = None
    outcome: str | None = None
    body: bytes | None = None
    reply: dict[str, Any] | None = None
    is_attested: bool = False

    @property
    def is_unresolved(self) -> bool:
        return (
            self.mode == "execute"
            and not self.is_attested
            and self.outcome not in {"not_dispatched", "confirmed_refused"}
        )


@dataclass
class Late:
    attempt_id: str
    run_id: str
    is_proved: bool
    is_extra: bool
    outcome: str
    body: bytes
    reply: dict[str, Any]


@dataclass
class Op:
    name: str
    can_query: bool
    is_idempotent: bool
    timeout: int
    retention: int
    absence: int | None
    epoch: int
    operation_id: str = ""
    status: str = "pending"
    tries: list[Try] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    first: int | None = None
    decided: int = 0
    receipt: bytes | None = None

    @property
    def is_final(self) -> bool:
        return self.status in {"completed", "refused", "abandoned"}

    def live(self, now: int) -> Try | None:
        last = self.tries[-1] if self.tries else None
        if last is None or self.is_final or last.is_attested or last.ended is not None or now >= last.until:
            return None
        return last

    def find(self, attempt_id: str) -> Try | None:
        return next((t for t in self.tries if t.attempt_id == attempt_id), None)

    def landing(self, attempt: Try) -> int:
        return attempt.started + self.timeout + 30 * S

    @property
    def reserved(self) -> int:
        told = {late.attempt_id for late in self.late if late.is_proved and not late.is_extra}
        open_tries = [t for t in self.tries if t.ended is None and t.attempt_id not in told]
        return len(open_tries) * limits.ATTEMPT_RESERVATION_BYTES


@dataclass
class Flow:
    key: str
    definition: list[dict[str, Any]]
    ops: list[Op]
    is_coordinators: bool
    is_enabled: bool
    was_enabled: bool
    mark: int
    workflow_id: str = ""
    revision: int = 1
    events: int = 1
    phase_epoch: int = 0
    is_deleted: bool = False

    @property
    def next(self) -> Op | None:
        return next((op for op in self.ops if op.status != "completed"), None)

    @property
    def is_over(self) -> bool:
        return self.next is None or self.next.is_final

    def is_idle(self, *, to_enable: bool) -> bool:
        """Whether enabling or pausing would make no difference to anybody: nothing runs, nothing is given back."""
        return self.is_over and not (to_enable and any(op.status == "completed" for op in self.ops))

    def changed(self, at: int, *, epoch: int, takes_revision: bool = True) -> None:
        self.revision += takes_revision
        self.events += 1
        self.mark = max(self.mark, at)
        self.phase_epoch = epoch


@dataclass
class World:
    """What is common to all workflows.

    `wall` is the controller's clock, `stepped` when it was last seen to step forward.
    """

    wall: int
    vault_mark: int
    epoch: int
    stepped: int | None = None
    restored: int | None = None
    flows: list[Flow] = field(default_factory=list)

    def stamp(self, flow: Flow) -> int:
        return max(self.wall, flow.mark, self.vault_mark)

    def is_clock_behind(self, *marks: int) -> bool:
        return self.wall + 2 * S < max(*marks, self.vault_mark)

    # ---- begin

    def begin(self, flow: Flow, op: Op, attempt_id: str, *, now: int, as_enabled: bool = False) -> tuple[str, str]:
        """What a begin is told: the first row of the table that applies."""
        left = limits.REVISIONS_PER_WORKFLOW - flow.revision
        late = [receipt for receipt in op.late[op.decided :] if receipt.is_proved]
        rows = [
            (not flow.is_enabled and not as_enabled, "workflow_disabled_or_capture_unavailable"),
            (op.status == "completed", "saved_receipt"),
            (op.status == "abandoned", "abandoned"),
            (op.status == "refused", "refused_by_destination"),
            (flow.next is not op, "earlier_work_unfinished"),
            (op.find(attempt_id), "attempt_already_issued"),
            (op.live(now), "attempt_in_progress"),
            (len(op.tries) >= limits.ATTEMPTS_PER_OPERATION, "attempt_limit_reached"),
            (left < 2, "workflow_revision_limit_reached"),
            (any(receipt.outcome == "confirmed_succeeded" for receipt in late), "late_receipt_needs_decision"),
            (op.epoch < self.epoch, "restored_needs_decision"),
        ]
        reason = next((reason for applies, reason in rows if applies), None)
        if reason is not None:
            return "completed" if reason == "saved_receipt" else "blocked", reason
        return ("execute", "authorized_attempt") if op.status == "pending" else self._begin_uncertain(op, now)

    def _begin_uncertain(self, op: Op, now: int) -> tuple[str, str]:
        if op.is_idempotent and now + op.timeout + 30 * S < (op.first or 0) + op.retention:
            return "execute", "authorized_attempt"
        if op.can_query:
            return ("execute" if self._is_absent(op) else "query"), "authorized_attempt"
        return "blocked", "idempotency_window_expired" if op.is_idempotent else "needs_confirmation"

    def _is_absent(self, op: Op) -> bool:
        last = op.tries[-1]
        if op.absence is None or last.mode != "query" or last.outcome != "absent":
            return False
        if self.stepped is not None and last.started < self.stepped + 120 * S + op.absence:
            return False
        return all(
            last.started > op.absence + max(op.landing(t), t.until if t.ended is None else 0)
            for t in op.tries
            if t.is_unresolved
        )

    def granted(self, flow: Flow, op: Op, attempt: Try) -> None:
        op.status = "uncertain"
        op.tries.append(attempt)
        if attempt.mode == "execute" and op.first is None:
            op.first = attempt.started
        flow.changed(attempt.started, epoch=self.epoch)

    # ---- outcome

    def outcome(
        self, flow: Flow, op: Op, attempt_id: str, *, run_id: str, token: str, receipt: dict[str, Any], body: bytes
    ) -> dict[str, Any] | str:  # fmt: skip
        """The reply, or the code of the refusal; changes what it changes."""
        attempt = op.find(attempt_id)
        is_proved = attempt is not None and attempt.token == token and attempt.run_id == run_id
        if is_proved and attempt.body == body:
            return {**attempt.reply, "replayed": True}
        for late in op.late:
            if (late.attempt_id, late.run_id, late.body, late.is_proved) == (attempt_id, run_id, body, is_proved):
                return {**late.reply, "replayed": True}
        claim = meaning(receipt, op.operation_id, None if attempt is None else attempt.mode)
        at = self.stamp(flow)
        if is_proved and self._is_current(op, attempt):
            return self._end(flow, op, attempt, claim=claim, body=body, at=at)
        has_place = is_proved and not any(late.is_proved and late.attempt_id == attempt_id for late in op.late)
        if not has_place and sum(late.is_extra for late in op.late) >= limits.UNPROVED_LATE_RECEIPTS:
            return "late_receipt_limit_reached"
        flow.changed(at, epoch=self.epoch, takes_revision=False)
        reply = {"accepted": False, "status": op.status, "revision": flow.revision, "reason": "stale_lease"}
        op.late.append(Late(attempt_id, run_id, is_proved, not has_place, claim, body, reply))
        return reply

    def _is_current(self, op: Op, attempt: Try) -> bool:
        """Whether it holds the lease. A restore voids all leases; only a person's decision makes room for another."""
        is_last = attempt is op.tries[-1] and attempt.ended is None
        return is_last and op.status == "uncertain" and op.epoch == self.epoch

    def _end(self, flow: Flow, op: Op, attempt: Try, *, claim: str, body: bytes, at: int) -> dict[str, Any]:
        is_alone = not any(t.is_unresolved for t in op.tries if t is not attempt)
        attempt.ended, attempt.outcome, attempt.body = at, claim, body
        if claim == "confirmed_succeeded":
            op.status, op.receipt = "completed", body
        elif claim == "confirmed_refused" and is_alone:
            op.status, op.receipt = "refused", body
        elif claim == "not_dispatched" and is_alone:
            op.status = "pending"
        flow.changed(at, epoch=self.epoch)
        attempt.reply = {"accepted": True, "status": op.status, "revision": flow.revision}
        return attempt.reply

    # ---- what refuses; every code that applies

    def renewal_refusals(self, flow: Flow, op: Op, attempt_id: str, *, run_id: str, token: str) -> set[str]:
        attempt = op.find(attempt_id)
        codes = set()
        if self.is_clock_behind(flow.mark):
            codes.add("clock_moved_backwards")
        is_own = attempt is not None and attempt.token == token and attempt.run_id == run_id
        if not is_own or not self._is_current(op, attempt):
            return codes | {"stale_lease"}
        if not op.live(self.stamp(flow)):
            codes.add("lease_expired")
        if not flow.is_enabled:
            codes.add("workflow_paused")
        if attempt.renewals >= limits.RENEWALS:
            codes.add("renewal_limit_reached")
        return codes

    def stop_refusals(self, flow: Flow, op: Op, revision: int | None) -> set[str]:
        codes = set()
        if revision not in {None, flow.revision}:
            codes.add("stale_revision")
        if op.is_final:
            codes.add("operation_final")
        if op.live(self.stamp(flow)):
            codes.add("lease_live")
        if flow.revision >= limits.REVISIONS_PER_WORKFLOW + len(flow.ops) + 2:
            codes.add("workflow_revision_limit_reached")
        return codes

    def confirm_refusals(self, flow: Flow, op: Op, *, happened: bool, revision: int, late: int) -> set[str]:
        codes = self.stop_refusals(flow, op, revision)
        if late != len(op.late) and not op.is_final:
            codes.add("stale_revision")
        if happened:
            return codes
        if self.wall < self.attestable_from(op):
            codes.add("effect_may_still_land")
        if len(op.tries) >= limits.ATTEMPTS_PER_OPERATION:
            codes.add("attempt_limit_reached")
        return codes

    def attestable_from(self, op: Op) -> int:
        moments = [op.landing(t) for t in op.tries if t.mode == "execute"]
        if self.restored is not None:
            moments.append(self.restored + 120 * S)
        if self.stepped is not None:
            moments.append(self.stepped + 120 * S + (op.absence or 0))
        return max(moments, default=0)

    def confirmed(self, flow: Flow, op: Op, *, receipt: bytes | None) -> None:
        op.status = "pending" if receipt is None else "completed"
        op.receipt = receipt
        for attempt in op.tries:
            attempt.is_attested = True
        op.decided, op.epoch = len(op.late), self.epoch
        flow.changed(self.stamp(flow), epoch=self.epoch)

    # ---- phase

    def phase(self, flow: Flow) -> str:
        op = flow.next
        if op is None:
            return "done"
        if op.live(self.wall):
            return "running"
        if op.is_final:
            return "ended"
        if not flow.was_enabled:
            return "review"
        if self.begin(flow, op, "", now=self.wall, as_enabled=True)[1] in PERSON_REASONS:
            return "decision"
        if not flow.is_enabled:
            return "paused"
        return "ready" if op.status == "pending" else "resumable"


def meaning(receipt: dict[str, Any], operation_id: str, mode: str | None) -> str:
    """What a receipt says of an attempt of `mode`."""
    claim = receipt.get("outcome")
    allowed = {
        "execute": {"confirmed_succeeded", "confirmed_refused", "not_dispatched"},
        "query": {"confirmed_succeeded", "absent"},
        None: {"confirmed_succeeded", "confirmed_refused", "not_dispatched", "absent"},
    }[mode]
    return claim if claim in list(allowed) and receipt.get("operation_id") == operation_id else "unknown"
