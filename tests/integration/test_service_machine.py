"""The real services against a model, in any order: clock jumps, crashes around commit, duplicates, forged receipts.

After every step everything that is stored is compared with the model, histories are replayed, and counters
are counted again. Limits are lowered so that their ends are met; `SOMETIMES` proves that rare things happened.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from continuity import limits, wire
from continuity.errors import ConflictError, ContinuityError, NotFoundError
from continuity.jsontext import canonical_bytes
from continuity.services.attempts import Attempts
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.checking import Checker
from continuity.services.clockwatch import ClockWatch
from continuity.services.controls import Controls
from continuity.services.deletion import Deletions
from continuity.services.ledger import Ledger
from continuity.services.sweeping import Sweeper
from continuity.services.workflows import Workflows
from continuity.store import schema
from continuity.store.engine import make_engine
from continuity.store.store import Store
from tests.integration.machine_model import Flow, Op, S, Try, World
from tests.people import FakeClock, install

TIMEOUT, RETENTION, ABSENCE = 30, 400, 40
KINDS = {
    "none": {},
    "query": {"capability": "query"},
    "absence": {"capability": "query", "absence_final_after_seconds": ABSENCE},
    "idempotent": {"capability": "idempotent", "retention_seconds": RETENTION},
    "both": {"capability": ["idempotent", "query"], "retention_seconds": RETENTION},
}
LOWERED = {
    "ATTEMPTS_PER_OPERATION": 6, "REVISIONS_PER_WORKFLOW": 14, "UNPROVED_LATE_RECEIPTS": 2, "RENEWALS": 2,
    "COORDINATOR_UNFINISHED": 1,
}  # fmt: skip
SEEN: Counter[str] = Counter()
MOST_ROUNDS = 12
SOMETIMES = {
    "begin execute authorized_attempt", "begin query authorized_attempt", "begin completed saved_receipt",
    "begin blocked workflow_disabled_or_capture_unavailable", "begin blocked abandoned",
    "begin blocked refused_by_destination", "begin blocked earlier_work_unfinished",
    "begin blocked attempt_already_issued", "begin blocked attempt_in_progress",
    "begin blocked late_receipt_needs_decision", "begin blocked restored_needs_decision",
    "begin blocked idempotency_window_expired", "begin blocked needs_confirmation", "begin clock_moved_backwards",
    "execute again", "outcome accepted", "outcome stale_lease", "outcome replayed", "outcome stale_lease replayed",
    "outcome late_receipt_limit_reached", "renew granted", "renew stale_lease", "renew lease_expired",
    "confirm happened", "confirm not happened", "confirm effect_may_still_land", "confirm lease_live",
    "confirm stale_revision", "confirm operation_final", "abandon done", "abandon lease_live", "pause", "enable",
    "create new", "create known", "create definition_conflict", "create workflow_deleted", "delete done",
    "delete workflow_unfinished", "create coordinator_open_limit", "crash before commit", "crash after commit",
    "stranger refused", "clock stepped forward", "clock set back", "phase decision", "phase running", "phase resumable",
    "phase ended", "phase done", "phase ready", "phase paused", "phase review",
}  # fmt: skip
RECEIPTS = [
    "success",
    "success",
    "success",
    "unknown",
    "refused",
    "not dispatched",
    "absent",
    "junk",
    "other operation",
]


HAPPENINGS = (
    ["begin"] * 6 + ["current_attempt_reports"] * 4 + ["a_worker_takes_over"] * 3 + ["a_late_receipt_comes"] * 4
    + ["outcome_again"] * 2 + ["time_goes_on"] * 4 + ["confirm"] * 3 + ["renew"] * 3 + ["create"] * 2 + ["delete"] * 2
    + ["create_again"] * 2 + ["abandon"] * 2 + ["configure", "begin_again", "stranger", "clock_jumps"]
    + ["clock_is_corrected", "mark_is_raised", "process_is_restarted", "backup_is_restored"]
)  # fmt: skip


class Crash(Exception):
    """The process died."""


class CrashingStore(Store):
    """Dies right before or right after a commit, when told to."""

    dies: str | None = None

    def write(self, work):
        dies, self.dies = self.dies, None
        if dies is None:
            return super().write(work)

        def die(connection):
            work(connection)
            raise Crash

        if dies == "before":
            return super().write(die)
        super().write(work)
        raise Crash


class OwnTimeLedger(Ledger):
    """Reads the test's clock on PostgreSQL as well, where the database's would decide."""

    def read_clock(self, database_us=None):
        return super().read_clock()


def receipt_of(kind, op):
    own = {"operation_id": op.operation_id}
    return {
        "success": {"outcome": "confirmed_succeeded", **own, "effect_id": "e-1", "result": {"n": 1.0}, "more": "kept"},
        "unknown": {"outcome": "unknown", "why": "time-out"},
        "refused": {"outcome": "confirmed_refused", **own, "reason": "no"},
        "not dispatched": {"outcome": "not_dispatched", **own},
        "absent": {"outcome": "absent", **own},
        "junk": {"outcome": ["?"]},
        "other operation": {"outcome": "confirmed_succeeded", "operation_id": "op_x", "effect_id": "e", "result": None},
    }[kind]  # fmt: skip


def defined(kinds):
    return [{"name": f"o{n}", "tool": "t", "arguments": {"n": n}, **KINDS[kind]} for n, kind in enumerate(kinds)]


class Machine(RuleBasedStateMachine):
    """One installation; `place` is set by the test."""

    place = None

    @initialize(data=st.data(), kind=st.sampled_from(sorted(KINDS)), other=st.sampled_from(sorted(KINDS)))
    def install(self, data, kind, other):
        self.engine, folder = type(self).place()
        self.store = CrashingStore(self.engine)
        self.clock = FakeClock()
        self.home = install(self.store, folder, clock=self.clock)
        workspace = self.home.workspace("default")
        owner_pk = self.store.write(
            lambda c: self.home.owners.ensure(c, "agent", kind=CallerKind.COORDINATOR, workspace_pk=workspace)
        )
        common = {"request_id": "req_1", "workspaces": None, "home_workspace": workspace}
        self.operator = Caller(CallerKind.OPERATOR, "cred:1", principal="op", **common)
        self.person = Caller(CallerKind.PERSON, "user:1", role=Role.OPERATOR, is_fresh=True, principal="p", **common)
        self.coordinator = Caller(CallerKind.COORDINATOR, "cred:2", owner_pk=owner_pk, principal="agent", **common)
        self.owner_pk = owner_pk
        self.world = World(wall=self.clock.wall_us, vault_mark=self.clock.wall_us, epoch=1)
        self.numbers = iter(range(10**6))
        self.sent = []
        self.touched, self.is_moved = set(), False
        self.start()
        for kinds, is_coordinators in (([kind], True), (["idempotent"], False), ([other, kind], False)):
            self._create(data, f"k{next(self.numbers)}", defined(kinds), is_coordinators=is_coordinators, activate=True)

    def start(self):
        """What a new process builds."""
        self.watch = ClockWatch(self.clock)
        self.ledger = OwnTimeLedger(self.home.vault, self.watch)
        attempts = Attempts(self.store, self.ledger)
        self.workflows = Workflows(self.store, self.ledger, attempts, self.home.audit)
        self.attempts = attempts
        self.controls = Controls(self.store, self.ledger, self.home.audit)
        self.deletions = Deletions(self.store, self.ledger, self.home.audit, lambda _connection, _pk: None)
        self.sweeper = Sweeper(self.store, self.ledger)
        self.world.stepped = None
        self.deletions.finish_all()

    def teardown(self):
        if hasattr(self, "ledger"):
            assert Checker(self.store, self.ledger).check() == []
        if hasattr(self, "store"):
            self.store.close()
            self.engine.dispose()

    def move(self, seconds, *, by_itself=False):
        """Let time pass, or step the wall clock alone."""
        if by_itself:
            self.clock.set_back(-seconds)
        else:
            self.clock.advance(seconds)
        self.world.wall, self.is_moved = self.clock.wall_us, True

    # ---- calling

    def call(self, data, service, *arguments):
        """Call a service, in some cases through a crash. Returns (reply or None, error code, what died)."""
        dies = data.draw(st.sampled_from([None] * 20 + ["before", "after"]), label="crash")
        self.store.dies = dies
        self.touched.add(arguments[1] if isinstance(arguments[1], str) else "")
        try:
            return service(*arguments), None, None
        except Crash:
            SEEN[f"crash {dies} commit"] += 1
            self.start()
            return None, None, dies
        except ContinuityError as error:
            return None, error.code, None
        finally:
            self.store.dies = None

    def expect_refusal(self, codes, code, died, label):
        """Check a call that the model refuses, or does not; True when it went through."""
        if codes:
            assert code in codes, f"{label}: {code} is none of {codes}"
            SEEN[f"{label} {code}"] += 1
            return False
        assert code is None, f"{label} was refused: {code}"
        return died != "before"

    def flows(self):
        return [flow for flow in self.world.flows if not flow.is_deleted]

    def choose(self, data):
        flow = data.draw(st.sampled_from([f for f in self.flows() if not f.is_over] * 2 + self.flows()), label="flow")
        following = [op for op in flow.ops if op is flow.next]
        return flow, data.draw(st.sampled_from(following * 4 + flow.ops), label="operation")

    def worker(self, data, flow):
        worker = replace(self.operator, kind=CallerKind.WORKER, actor="cred:3", workflow_id=flow.workflow_id)
        if flow.is_coordinators:
            return self.coordinator
        return data.draw(st.sampled_from([worker, self.operator]), label="caller")

    # ---- creating and deleting

    def create(self, data):
        kinds = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2), label="kinds")
        activate = data.draw(st.sampled_from([True, True, True, False]), label="activate")
        if sum(not flow.is_over for flow in self.flows()) >= 2 + data.draw(st.integers(0, 1), label="room"):
            return
        is_coordinators = data.draw(st.booleans(), label="coordinator")
        kinds = kinds[:1] if is_coordinators else kinds
        self._create(data, f"k{next(self.numbers)}", defined(kinds), is_coordinators=is_coordinators, activate=activate)

    def create_again(self, data):
        deleted = [flow for flow in self.world.flows if flow.is_deleted]
        flow = data.draw(st.sampled_from(deleted * 3 + self.world.flows), label="known")
        is_other = data.draw(st.booleans(), label="other definition")
        definition = [{**flow.definition[0], "tool": "other"}, *flow.definition[1:]] if is_other else flow.definition
        self._create(data, flow.key, definition, is_coordinators=flow.is_coordinators, activate=True)

    def _create(self, data, key, definition, *, is_coordinators, activate):
        caller = self.coordinator if is_coordinators else self.operator
        body = {"workflow_key": key, "operations": definition, "activate": activate}
        request = wire.CreateWorkflow.from_json(body)
        known = next((f for f in self.world.flows if (f.key, f.is_coordinators) == (key, is_coordinators)), None)
        codes = self._create_refusals(known, definition, is_coordinators=is_coordinators)
        view, code, died = self.call(data, self.workflows.create, caller, request)
        if not self.expect_refusal(codes, code, died, "create"):
            return
        if known is not None:
            SEEN["create known"] += 1
            assert view is None or view["workflow_id"] == known.workflow_id
            return
        SEEN["create new"] += 1
        at = max(self.world.wall, self.world.vault_mark)
        ops = [self._op(item, at) for item in definition]
        flow = Flow(key, definition, ops, is_coordinators, is_enabled=activate, was_enabled=activate, mark=at)
        flow.phase_epoch = self.world.epoch
        # After a crash the host asks again, as the SDK does.
        view = view or self.workflows.create(caller, request)
        flow.workflow_id = view["workflow_id"]
        for op, shown in zip(ops, view["operations"], strict=True):
            op.operation_id = shown["operation_id"]
        self.world.flows.append(flow)
        self.touched.add(flow.workflow_id)

    def _create_refusals(self, known, definition, *, is_coordinators):
        if known is not None and known.is_deleted:
            return {"workflow_deleted"}
        if known is not None:
            return set() if known.definition == definition else {"definition_conflict"}
        codes = set()
        if self.world.is_clock_behind(0):
            codes.add("clock_moved_backwards")
        held = [flow for flow in self.flows() if flow.is_coordinators and not flow.is_over]
        if is_coordinators and len(held) >= limits.COORDINATOR_UNFINISHED:
            codes.add("coordinator_open_limit")
        return codes

    def _op(self, item, _at):
        capability = item.get("capability", "none")
        absence = item.get("absence_final_after_seconds")
        return Op(
            item["name"], "query" in capability, "idempotent" in capability, TIMEOUT * S,
            item.get("retention_seconds", 0) * S, None if absence is None else absence * S, self.world.epoch,
        )  # fmt: skip

    def delete(self, data):
        flow = data.draw(st.sampled_from([f for f in self.flows() if f.is_over] * 3 + self.flows()), label="flow")
        codes = set() if flow.is_over else {"workflow_unfinished"}
        reply, code, died = self.call(data, self.deletions.delete, self.operator, flow.workflow_id)
        if self.expect_refusal(codes, code, died, "delete"):
            SEEN["delete done"] += 1
            flow.is_deleted = True
            assert reply is None or reply["workflows"] == 1

    # ---- begin, outcome, renew

    def begin(self, data):
        self.begin_with(data, is_repeat=False)

    def begin_again(self, data):
        self.begin_with(data, is_repeat=True)

    def begin_with(self, data, *, is_repeat):
        flow, op = self.choose(data)
        used = [attempt.attempt_id for attempt in op.tries]
        attempt_id = data.draw(st.sampled_from(used)) if is_repeat and used else f"a{next(self.numbers)}"
        request = wire.BeginRequest(op.name, "r1", attempt_id)
        codes = {"clock_moved_backwards"} if self.world.is_clock_behind(flow.mark) else set()
        now = self.world.stamp(flow)
        action, reason = self.world.begin(flow, op, attempt_id, now=now)
        reply, code, died = self.call(data, self.attempts.begin, self.worker(data, flow), flow.workflow_id, request)
        if not self.expect_refusal(codes, code, died, "begin"):
            return
        SEEN[f"begin {action} {reason}"] += 1
        assert reply is None or (reply["action"], reply["reason"]) == (action, reason)
        if reply is not None and action == "completed":
            assert canonical_bytes(reply["receipt"]) == op.receipt
        if action not in {"execute", "query"}:
            return
        if action == "execute" and op.status == "uncertain":
            SEEN["execute again"] += 1
        token = None if reply is None else reply["lease_token"]
        self.world.granted(flow, op, Try(attempt_id, "r1", action, now, now + 120 * S, token))
        if reply is not None:
            assert (reply["revision"], reply["arguments"]) == (
                flow.revision,
                flow.definition[int(op.name[1:])]["arguments"],
            )

    def current_attempt_reports(self, data):
        kind = data.draw(st.sampled_from(RECEIPTS), label="kind")
        flow, op = data.draw(st.sampled_from(self.running()), label="operation")
        self.report_of(data, flow, op, op.tries[-1], kind=kind, forgery="none")

    def a_late_receipt_comes(self, data):
        kind = data.draw(st.sampled_from(RECEIPTS), label="kind")
        forgery = data.draw(st.sampled_from(["none", "none", "none", "token", "run", "attempt"]), label="forgery")
        flow, op = data.draw(st.sampled_from(self.told()), label="operation")
        attempt = data.draw(st.sampled_from(op.tries), label="attempt")
        self.report_of(data, flow, op, attempt, kind=kind, forgery=forgery)

    def told(self):
        """Operations with an attempt that can only leave late evidence."""
        return [(f, op) for f in self.flows() for op in f.ops if len(op.tries) > 1 or (op.tries and op.tries[0].ended)]

    def a_worker_takes_over(self, data):
        """The lease runs out and somebody else asks."""
        _, op = data.draw(st.sampled_from(self.running()), label="operation")
        self.move(max(0, op.tries[-1].until - self.world.wall) / S)
        self.begin_with(data, is_repeat=False)

    def uncertain(self):
        return [(f, op) for f in self.flows() for op in f.ops if op.status == "uncertain"]

    def running(self):
        return [
            (f, op) for f in self.flows() for op in f.ops if op.status == "uncertain" and op.tries[-1].ended is None
        ]

    def report_of(self, data, flow, op, attempt, *, kind, forgery):
        token = attempt.token if attempt.token is not None and forgery != "token" else "lt_forged"
        run_id = "r2" if forgery == "run" else attempt.run_id
        attempt_id = "nobody" if forgery == "attempt" else attempt.attempt_id
        receipt = receipt_of(kind, op)
        self.report(data, flow, op, attempt_id, run_id=run_id, token=token, receipt=receipt)
        self.sent.append((flow, op, attempt_id, run_id, token, receipt))

    def outcome_again(self, data):
        flow, op, attempt_id, run_id, token, receipt = data.draw(st.sampled_from(self.sent[-6:]), label="sent before")
        if not flow.is_deleted:
            self.report(data, flow, op, attempt_id, run_id=run_id, token=token, receipt=receipt)

    def report(self, data, flow, op, attempt_id, *, run_id, token, receipt):
        request = wire.OutcomeRequest(op.name, run_id, attempt_id, token, receipt)
        called = (self.attempts.outcome, self.worker(data, flow), flow.workflow_id, request)
        reply, code, died = self.call(data, *called)
        if died == "before":
            return
        sent = {"run_id": run_id, "token": token, "receipt": receipt, "body": canonical_bytes(receipt)}
        expected = self.world.outcome(flow, op, attempt_id, **sent)
        if isinstance(expected, str):
            assert code == expected
            SEEN[f"outcome {code}"] += 1
            return
        assert code is None
        assert reply is None or reply == expected
        words = [
            expected.get("reason", "accepted" if not expected.get("replayed") else ""),
            "replayed" * expected.get("replayed", False),
        ]
        SEEN[" ".join(["outcome", *filter(None, words)])] += 1

    def renew(self, data):
        is_forged = data.draw(st.sampled_from([False, False, False, True]), label="is_forged")
        flow, op = data.draw(st.sampled_from(self.uncertain()), label="operation")
        attempt = data.draw(st.sampled_from(op.tries[-1:] * 3 + op.tries), label="attempt")
        token = "lt_forged" if is_forged or attempt.token is None else attempt.token
        request = wire.RenewRequest(op.name, attempt.run_id, attempt.attempt_id, token)
        codes = self.world.renewal_refusals(flow, op, attempt.attempt_id, run_id=attempt.run_id, token=token)
        reply, code, died = self.call(data, self.attempts.renew, self.worker(data, flow), flow.workflow_id, request)
        if self.expect_refusal(codes, code, died, "renew"):
            SEEN["renew granted"] += 1
            attempt.renewals += 1
            attempt.until = self.world.stamp(flow) + 120 * S
            assert reply is None or reply == {
                "lease_until": pytest.approx(attempt.until / S),
                "revision": flow.revision,
            }

    # ---- people

    def configure(self, data):
        is_enabled = data.draw(st.sampled_from([True, True, False]), label="is_enabled")
        flow = data.draw(st.sampled_from(self.flows()), label="flow")
        codes = set()
        if is_enabled and self.world.is_clock_behind(flow.mark):
            codes.add("clock_moved_backwards")
        most = limits.REVISIONS_PER_WORKFLOW + (0 if is_enabled else len(flow.ops) + 2)
        is_change = flow.is_enabled is not is_enabled and not flow.is_idle(to_enable=is_enabled)
        if is_change and flow.revision >= most:
            codes.add("workflow_revision_limit_reached")
        request = wire.ConfigureRequest(is_enabled, flow.revision)
        _, code, died = self.call(data, self.controls.configure, self.person, flow.workflow_id, request)
        if self.expect_refusal(codes, code, died, "configure") and is_change:
            SEEN["enable" if is_enabled else "pause"] += 1
            flow.is_enabled = is_enabled
            flow.was_enabled |= is_enabled
            flow.changed(self.world.stamp(flow), epoch=self.world.epoch)

    def abandon(self, data):
        behind = data.draw(st.sampled_from([0, 0, 0, 1]), label="behind")
        flow, op = self.choose(data)
        if not op.is_final and data.draw(st.booleans(), label="think again"):
            return
        revision = flow.revision - behind
        codes = self.world.stop_refusals(flow, op, revision)
        request = wire.AbandonRequest(op.name, "not wanted", revision)
        _, code, died = self.call(data, self.controls.abandon, self.person, flow.workflow_id, request)
        if self.expect_refusal(codes, code, died, "abandon"):
            SEEN["abandon done"] += 1
            op.status = "abandoned"
            flow.changed(self.world.stamp(flow), epoch=self.world.epoch)

    def confirm(self, data):
        happened = data.draw(st.sampled_from([True, False, False]), label="happened")
        behind = data.draw(st.sampled_from([0] * 6 + [1]), label="behind")
        unseen = data.draw(st.sampled_from([0] * 6 + [1]), label="unseen")
        flow, op = self.choose(data)
        seen = {"happened": happened, "revision": flow.revision - behind, "late": len(op.late) + unseen}
        codes = self.world.confirm_refusals(flow, op, **seen)
        request = wire.ConfirmRequest(
            op.name, happened, seen["revision"], seen["late"], "looked", "e-9" if happened else None, {"by": "eye"}
        )
        _, code, died = self.call(data, self.controls.confirm, self.person, flow.workflow_id, request)
        if self.expect_refusal(codes, code, died, "confirm"):
            SEEN["confirm happened" if happened else "confirm not happened"] += 1
            attested = {"outcome": "confirmed_succeeded", "operation_id": op.operation_id, "effect_id": "e-9",
                        "result": {"by": "eye"}}  # fmt: skip
            self.world.confirmed(flow, op, receipt=canonical_bytes(attested) if happened else None)

    def stranger(self, data):
        """A worker of another workflow, and a coordinator of operators' work, learn nothing and change nothing."""
        flow, op = self.choose(data)
        other = replace(self.operator, kind=CallerKind.WORKER, actor="cred:9", workflow_id="wf_" + "0" * 32)
        strangers = [other] if flow.is_coordinators else [other, self.coordinator]
        caller = data.draw(st.sampled_from(strangers), label="stranger")
        request = wire.BeginRequest(op.name, "r1", f"a{next(self.numbers)}")
        with pytest.raises(NotFoundError):
            self.attempts.begin(caller, flow.workflow_id, request)
        SEEN["stranger refused"] += 1

    # ---- time, marks, processes

    def time_goes_on(self, data):
        moments = {self.world.wall + seconds * S for seconds in (1, 29, 61, 125)}
        for flow in self.flows():
            for op in flow.ops:
                moments |= self._moments(op)
        ahead = sorted(moment for moment in moments if moment > self.world.wall)
        self.move((data.draw(st.sampled_from(ahead[:8]), label="until") - self.world.wall) / S)

    def _moments(self, op):
        if op.is_final or not op.tries:
            return set()
        last = op.tries[-1]
        moments = {last.until - 1, last.until, self.world.attestable_from(op)}
        if op.is_idempotent:
            end = op.first + op.retention - op.timeout - 30 * S
            moments |= {end - 1, end}
        if op.absence is not None:
            unresolved = [t for t in op.tries if t.is_unresolved]
            moments |= {op.absence + 1 + max(op.landing(t), t.until if t.ended is None else 0) for t in unresolved}
        return moments

    def clock_jumps(self, data):
        seconds = data.draw(st.sampled_from([-3_600, -3, -2, -1, 2, 3, 3_600]), label="seconds")
        self.move(seconds, by_itself=True)
        self.watch.read()
        if seconds > 2:
            SEEN["clock stepped forward"] += 1
            self.world.stepped = self.world.wall
        if seconds < -2:
            SEEN["clock set back"] += 1

    def clock_is_corrected(self, _data):
        """Somebody notices; the mark is ahead by so much that nothing else would happen for long."""
        mark = max([self.world.vault_mark, *(flow.mark for flow in self.world.flows)])
        if self.world.wall + 2 * S >= mark:
            return
        self.move((mark - self.world.wall) / S, by_itself=True)
        self.watch.read()
        self.world.stepped = self.world.wall

    def mark_is_raised(self, _data):
        self.sweeper.raise_mark(self.world.wall)
        self.world.vault_mark = max(self.world.vault_mark, self.world.wall)

    def process_is_restarted(self, _data):
        self.start()

    def backup_is_restored(self, data):
        """What a restore leaves behind, without the loss: a new epoch."""
        if self.world.epoch > 1 or data.draw(st.integers(0, 2), label="not yet"):
            return
        self.home.set_vault(epoch=2, restored_at=self.world.wall)
        self.world.epoch, self.world.restored = 2, self.world.wall

    @rule(data=st.data())
    def something_happens(self, data):
        """One rule, so that what is common and what is rare is decided here and not by Hypothesis."""
        happening = data.draw(st.sampled_from(HAPPENINGS), label="what")
        is_possible = {
            "begin_again": self.flows, "begin": self.flows, "configure": self.flows, "abandon": self.flows,
            "stranger": self.flows, "delete": self.flows, "confirm": self.flows, "renew": self.uncertain,
            "current_attempt_reports": self.running, "a_worker_takes_over": self.running,
            "a_late_receipt_comes": self.told, "outcome_again": lambda: self.sent,
        }.get(happening, lambda: True)  # fmt: skip
        if is_possible():
            getattr(self, happening)(data)

    # ---- after every step

    @invariant()
    def what_is_stored_is_what_the_model_says(self):
        if not hasattr(self, "world"):
            return
        while self.sweeper.sweep():
            pass
        touched, self.touched = self.touched, set()
        is_moved, self.is_moved = self.is_moved, False
        for flow in self.world.flows:
            if flow.workflow_id in touched or is_moved:
                self._look_at(flow)
        for flow in self.flows():
            if flow.workflow_id in touched:
                self._count_again(flow)

    def _look_at(self, flow):
        if not flow.is_deleted:
            self._compare(flow, self.workflows.view(self.operator, flow.workflow_id))
            return
        with pytest.raises(ConflictError):
            self.workflows.view(self.operator, flow.workflow_id)

    def _count_again(self, flow):
        """The history leads to what is stored, and counters say what is there."""
        checker = Checker(self.store, self.ledger)
        assert checker._check_one(flow.workflow_id) == []
        assert checker._check_owners() == []
        row = next(row for row in self.home.rows(schema.workflows) if row.workflow_id == flow.workflow_id)
        assert row.reserved_bytes == sum(op.reserved for op in flow.ops)
        owner = next(row for row in self.home.rows(schema.owners) if row.owner_pk == self.owner_pk)
        assert owner.unfinished == sum(flow.is_coordinators and not flow.is_over for flow in self.flows())

    def _compare(self, flow, view):
        assert (view["enabled"], view["revision"]) == (flow.is_enabled, flow.revision)
        assert view["clock_high_water"] == pytest.approx(flow.mark / S)
        assert [event["seq"] for event in view["history"]] == list(range(1, flow.events + 1))
        if self.world.wall >= flow.mark and flow.phase_epoch == self.world.epoch:
            assert view["phase"] == self.world.phase(flow)
            SEEN[f"phase {view['phase']}"] += 1
        for op, shown in zip(flow.ops, view["operations"], strict=True):
            assert shown["status"] == op.status
            assert [self._shown_try(t) for t in shown["attempts"]] == [
                (t.attempt_id, t.run_id, t.mode, t.started, t.renewals, t.ended, t.outcome) for t in op.tries
            ]
            assert (None if shown["receipt"] is None else canonical_bytes(shown["receipt"])) == op.receipt
            assert shown["late_receipts"] == len(op.late) == len(shown["late"])
            assert [
                (late["attempt_id"], late["proved"], canonical_bytes(late["receipt"])) for late in shown["late"]
            ] == [(late.attempt_id, late.is_proved, late.body) for late in op.late]
            # By the time that a decision would have: a clock set back makes no lease live again.
            now = self.world.stamp(flow)
            live = [t for t in op.tries if t.ended is None and not t.is_attested and now < t.until]
            assert len(live) <= 1 or op.is_final, "two leases are live"

    @staticmethod
    def _shown_try(shown):
        ended = shown.get("ended")
        return (
            shown["attempt_id"], shown["run_id"], shown["mode"], round(shown["started"] * S), shown["renewals"],
            None if ended is None else round(ended * S), shown.get("outcome"),
        )  # fmt: skip


def run_machine(place, monkeypatch, *, seeded=None, **over):
    for name, value in LOWERED.items():
        monkeypatch.setattr(limits, name, value)
    machine = type("Here", (Machine,), {"place": staticmethod(place)})
    if seeded is not None:
        seed(seeded)(machine)
    # Shrinking takes minutes; the soak test does it.
    chosen = {"phases": [Phase.generate], "deadline": None, "database": None, **over}
    chosen["suppress_health_check"] = list(HealthCheck)
    run_state_machine_as_test(machine, settings=settings(**chosen))


def on_sqlite(sqlite_template, tmp_path_factory):
    def place():
        folder = tmp_path_factory.mktemp("machine")
        return make_engine(sqlite_template.copy_to(folder / "atmem.db"), pool_size=4), folder

    return place


def on_postgresql(server, tmp_path_factory):
    return lambda: (make_engine(server.migrated(), pool_size=4), tmp_path_factory.mktemp("machine"))


def test_services_do_what_the_model_says_on_sqlite(sqlite_template, tmp_path_factory, monkeypatch):
    SEEN.clear()
    place = on_sqlite(sqlite_template, tmp_path_factory)

    # The same examples every time, and as many as it takes until everything that is rare has happened.
    for number in range(MOST_ROUNDS):
        run_machine(place, monkeypatch, seeded=number, max_examples=8, stateful_step_count=80)
        if SEEN.keys() >= SOMETIMES:
            break

    assert SOMETIMES - SEEN.keys() == set()


@pytest.mark.postgresql
def test_services_do_what_the_model_says_on_postgresql(postgresql_server, tmp_path_factory, monkeypatch):
    place = on_postgresql(postgresql_server, tmp_path_factory)

    run_machine(place, monkeypatch, seeded=100, max_examples=5, stateful_step_count=50)


@pytest.mark.soak
def test_services_do_what_the_model_says_for_long(sqlite_template, tmp_path_factory, monkeypatch):
    place = on_sqlite(sqlite_template, tmp_path_factory)

    run_machine(place, monkeypatch, max_examples=1_000, stateful_step_count=80, phases=list(Phase))
