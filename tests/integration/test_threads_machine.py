"""The real services against a model, in any order: crashes around commit, clock jumps, duplicates, zombies.

After every step what is shown is compared with the model, and the journal is folded anew and compared with the rows.
`SOMETIMES` proves that rare things happened.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from continuity.errors import ConflictError, ContinuityError
from continuity.store.engine import make_engine
from continuity.store.store import Store
from tests.integration.conversing import process_of, question
from tests.integration.thread_model import Thread
from tests.people import FakeClock, install

SEEN: Counter[str] = Counter()
MOST_ROUNDS = 12
SAY = {"message": "message", "steer": "steer", "follow_up": "follow_up"}
SOMETIMES = {
    "message done", "message thread_busy", "steer done", "steer thread_not_running", "steer thread_stopping",
    "follow_up done", "stop done", "stop thread_not_running", "resume done", "resume nothing_to_resume", "reply done",
    "reply again", "reply already_answered", "claim done", "claim none", "append done", "call ended", "heartbeat done",
    "wait done", "wait thread_stopping", "settle done", "fail done", "block done", "claim ran out", "zombie refused",
    "sent again", "crash before commit", "crash after commit", "clock set back", "steer followed", "process restarted",
    "stopped", "held",
}  # fmt: skip
HAPPENINGS = (
    ["say"] * 6 + ["claim"] * 6 + ["append"] * 4 + ["settle"] * 3 + ["wait"] * 5 + ["reply"] * 4 + ["fail"] * 2
    + ["control"] * 6 + ["heartbeat"] * 3 + ["time_goes_on"] * 3 + ["zombie_writes"] * 2 + ["sent_again"] * 2
    + ["clock_jumps", "process_is_restarted", "housekeeping"]
)  # fmt: skip


class Crash(Exception):
    """The process died."""


def attempt(service):
    try:
        return service(), None
    except ConflictError as error:
        return None, error.code


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


class Machine(RuleBasedStateMachine):
    """One installation with two threads; `place` is set by the test."""

    place = None

    @initialize()
    def install(self):
        self.engine, folder = type(self).place()
        self.store = CrashingStore(self.engine)
        self.clock = FakeClock()
        self.at = process_of(install(self.store, folder, clock=self.clock))
        self.client = self.at.application("s-1")
        self.numbers = iter(range(10**6))
        self.models = [Thread(self.at.create(by=self.client)) for _ in range(2)]
        self.held, self.lost, self.sent = {}, [], []
        self.decided = {}

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            self.engine.dispose()

    def now_us(self, model):
        return max(model.mark_us, self.clock.wall_us)

    def call(self, data, label, service):
        """Call a service that the model allows or refuses; sometimes through a crash, and then again."""
        dies = data.draw(st.sampled_from([None] * 14 + ["before", "after"]), label="crash")
        self.store.dies = dies
        try:
            reply = service()
        except Crash:
            SEEN[f"crash {dies} commit"] += 1
            self.at = process_of(self.at.home)
            reply = service()
        except ConflictError as error:
            SEEN[f"{label} {error.code}"] += 1
            return None, error.code
        finally:
            self.store.dies = None
        # A claim that found nothing has no receipt: sent again it is a new one.
        self.sent = [*self.sent[-9:], (service, reply)] if reply is not None else self.sent
        return reply, None

    def expect(self, label, expected, code):
        assert code == expected, f"{label}: {code}, and not {expected}"
        if code is None:
            SEEN[f"{label} done"] += 1

    def model(self, data):
        model = data.draw(st.sampled_from(self.models), label="thread")
        model.note_time(self.now_us(model))
        return model

    def holding(self, data):
        """A thread whose claim is live, and the claim; None when there is none."""
        for model in self.models:
            model.note_time(self.now_us(model))
        live = [model for model in self.models if model.run == "claimed"]
        if not live:
            return None, None
        model = data.draw(st.sampled_from(live), label="held")
        held = self.held[model.thread_id]
        unread = [steer for steer in model.steers if not steer[1]]
        if unread and data.draw(st.booleans(), label="reads"):
            # What it has been told of, it reads; the number is that of the last.
            steers = self.at.heartbeat(held)["steers"]
            held.steers_read = steers[0]["number"]
            model.until_us = max(model.until_us, self.now_us(model) + 60_000_000)
            model.read(1 + sum(is_read for _, is_read in model.steers))
        return model, held

    # ---- clients

    def say(self, data):
        model = self.model(data)
        how = data.draw(st.sampled_from(["message", "steer", "steer", "follow_up"]), label="how")
        text, request_id = f"t{next(self.numbers)}", self.at.fresh()
        thread_id = model.thread_id
        _, code = self.call(
            data, how, lambda: self.at.say(thread_id, text, how=how, by=self.client, request_id=request_id)
        )
        self.expect(how, getattr(model, how)(text), code)

    def control(self, data):
        model = self.model(data)
        how = data.draw(st.sampled_from(["stop", "stop", "resume", "resume"]), label="how")
        thread_id, request_id = model.thread_id, self.at.fresh()
        _, code = self.call(data, how, lambda: self.at_control(thread_id, how, request_id))
        self.expect(how, getattr(model, how)(), code)
        SEEN["held"] += bool(model.is_idle and model.follow_ups)

    def at_control(self, thread_id, how, request_id):
        from continuity.thread_requests import ControlRequest  # noqa: PLC0415

        asked = ControlRequest.from_json({"request_id": request_id})
        return getattr(self.at.threads, how)(self.client, thread_id, asked)

    def reply(self, data):
        model = self.model(data)
        known = sorted(model.asks) or sorted(self.decided)
        if not known:
            return
        waiting_id = data.draw(st.sampled_from(known), label="request")
        owner = next(
            m for m in self.models if waiting_id in m.asks or m.thread_id == self.decided.get(waiting_id, ("",))[0]
        )
        owner.note_time(self.now_us(owner))
        value, request_id = data.draw(st.booleans(), label="value"), self.at.fresh()
        reply, code = self.call(
            data, "reply",
            lambda: self.at.reply(owner.thread_id, waiting_id, value, by=self.client, request_id=request_id),
        )  # fmt: skip
        if waiting_id in self.decided:
            _, first, receipt = self.decided[waiting_id]
            if first is None:
                assert code == "waiting_cancelled"
            elif first == value:
                assert (code, reply) == (None, receipt)
                SEEN["reply again"] += 1
            else:
                assert code == "already_answered"
            return
        self.expect("reply", None, code)
        self.decided[waiting_id] = (owner.thread_id, value, reply)
        owner.reply(waiting_id, value)

    # ---- workers

    def claim(self, data):
        for model in self.models:
            model.note_time(self.now_us(model))
        queued = [model for model in self.models if model.run == "queued"]
        request_id, secret = self.at.fresh(), f"{next(self.numbers):043d}"
        held, code = self.call(data, "claim", lambda: self.at.claim(request_id=request_id, secret=secret))
        if any(self.clock.wall_us + 2_000_000 < model.mark_us for model in queued) and code is not None:
            assert code == "clock_moved_backwards"
            return
        assert code is None
        if held is None:
            assert not queued
            SEEN["claim none"] += 1
            return
        model = next(m for m in self.models if m.thread_id == held.run["thread_id"])
        assert model in queued
        if model.thread_id in self.held:
            self.lost.append(self.held[model.thread_id])
        self.held[model.thread_id] = held
        model.claim(self.now_us(model))
        self.expect("claim", None, code)
        run = held.run
        assert [steer["content"] for steer in run["steers"]] == [text for text, _ in model.steers]
        assert {each["waiting_id"]: each["reply"] for each in run["replies"]} == model.answers
        assert (run["input"] or {}).get("content") == model.begun_with

    def append(self, data):
        model, held = self.holding(data)
        if model is None:
            return
        is_open = [call for call, outcome in model.calls.items() if outcome == "open"]
        if is_open and data.draw(st.booleans(), label="end a call"):
            call = data.draw(st.sampled_from(is_open), label="call")
            record = {"kind": "tool_ended", "call_id": call, "outcome": "ok", "result": 1}
            model.calls[call] = "ok"
            SEEN["call ended"] += 1
        else:
            call = f"c{next(self.numbers)}"
            record = {"kind": "tool_started", "call_id": call, "tool": "t"}
            model.calls[call] = "open"
        request_id, proof = self.at.fresh(), replace(held)
        receipt, code = self.call(data, "append", lambda: self.at.append(proof, record, request_id=request_id))
        model.until_us = max(model.until_us, self.now_us(model) + 60_000_000)
        self.expect("append", None, code)
        assert receipt["stop"] == model.is_stopping

    def heartbeat(self, data):
        model, held = self.holding(data)
        if model is None:
            return
        told, code = self.call(data, "heartbeat", lambda: self.at.heartbeat(held))
        model.until_us = max(model.until_us, self.now_us(model) + 60_000_000)
        self.expect("heartbeat", None, code)
        assert [steer["content"] for steer in told["steers"]] == [text for text, is_read in model.steers if not is_read]

    def wait(self, data):
        model, held = self.holding(data)
        if model is None:
            return
        count, request_id, proof = data.draw(st.integers(1, 2), label="questions"), self.at.fresh(), replace(held)
        places = [question(f"k{next(self.numbers)}") for _ in range(count)]
        receipt, code = self.call(data, "wait", lambda: self.at.wait(proof, *places, request_id=request_id))
        ids = [] if receipt is None else [each["waiting_id"] for each in receipt["waiting"]]
        self.expect("wait", model.wait(ids), code)

    def settle(self, data):
        model, held = self.holding(data)
        if model is None:
            return
        SEEN["steer followed"] += any(not is_read for _, is_read in model.steers)
        SEEN["stopped"] += model.is_stopping
        request_id, proof = self.at.fresh(), replace(held)
        _, code = self.call(data, "settle", lambda: self.at.settle(proof, {"n": 1}, request_id=request_id))
        model.settle()
        self.expect("settle", None, code)

    def fail(self, data):
        model, held = self.holding(data)
        if model is None:
            return
        reason = data.draw(st.sampled_from(["failed", "blocked"]), label="reason")
        request_id, proof = self.at.fresh(), replace(held)
        _, code = self.call(data, "fail", lambda: self.at.fail(proof, reason, request_id=request_id))
        model.end("failed" if reason == "failed" else "interrupted")
        self.expect("fail" if reason == "failed" else "block", None, code)

    def zombie_writes(self, data):
        """A worker whose claim is over wakes up and sends something new."""
        for model in self.models:
            model.note_time(self.now_us(model))
        over = self.lost + [held for thread_id, held in self.held.items() if not self.is_live(thread_id, held)]
        if not over:
            return
        held = data.draw(st.sampled_from(over), label="zombie")
        write = data.draw(st.sampled_from(["append", "settle", "wait", "fail", "heartbeat"]), label="write")
        arguments = {"append": [{"kind": "progress", "data": 1}], "wait": [question()]}.get(write, [])
        with pytest.raises(ContinuityError) as refused:
            getattr(self.at, write)(held, *arguments)
        assert refused.value.code == "claim_lost"
        SEEN["zombie refused"] += 1

    def is_live(self, thread_id, held):
        model = next(m for m in self.models if m.thread_id == thread_id)
        return model.run == "claimed" and self.held[thread_id] is held

    def sent_again(self, data):
        if self.sent:
            service, reply = data.draw(st.sampled_from(self.sent), label="request")
            again, code = attempt(service)
            # Heartbeats have no receipts, and a claim is answered only while it is live.
            assert code in {None, "claim_lost"}
            if code is not None:
                return
            if isinstance(reply, dict) and "action" in reply:
                assert again == reply
                SEEN["sent again"] += 1
            else:
                self.refresh()

    def refresh(self):
        """A heartbeat or a claim sent again has renewed or granted something: look where that was."""
        for model in self.models:
            row = self.at.row(model.thread_id)
            if row.claim_until is not None and model.run == "claimed":
                model.until_us = row.claim_until

    # ---- time

    def time_goes_on(self, data):
        self.clock.advance(data.draw(st.sampled_from([1, 19, 30, 61]), label="seconds"))
        for model in self.models:
            was = model.run
            model.note_time(self.now_us(model))
            SEEN["claim ran out"] += was != model.run

    def clock_jumps(self, data):
        seconds = data.draw(st.sampled_from([-3_600, -1, 3_600]), label="jump")
        self.clock.set_back(-seconds)
        SEEN["clock set back"] += seconds < 0

    def housekeeping(self, data):
        self.at.upkeep.expire_due()

    def process_is_restarted(self, data):
        self.at = process_of(self.at.home)
        SEEN["process restarted"] += 1

    @rule(data=st.data(), what=st.sampled_from(HAPPENINGS))
    def something_happens(self, data, what):
        getattr(self, what)(data)

    @invariant()
    def everything_is_as_the_model_says(self):
        if not hasattr(self, "models"):
            return
        for model in self.models:
            shown = self.at.snapshot(model.thread_id, by=self.client)
            model.mark_us = max(model.mark_us, self.at.row(model.thread_id).clock_high_water)
            model.note_time(self.now_us(model))
            assert shown["thread"]["state"] == model.state
            assert [run["state"] for run in shown["runs"]] == model.runs[-20:]
            assert [entry["content"] for entry in shown["queue"]] == model.queue
            said = [item["content"] for item in shown["messages"] if item.get("role") == "user"]
            assert said == model.said[-len(said) :]
            calls = {
                item["id"]: item.get("outcome", "open") for item in shown["messages"] if item["type"] == "tool_call"
            }
            assert calls == {call: model.calls[call] for call in calls}
            assert {w["waiting_id"]: w.get("reply") for w in shown["waiting"]} == model.asks
            self.mark_cancelled(model)
        findings = self.at.checker.check()
        assert findings == []

    def mark_cancelled(self, model):
        """Remember what a stop has cancelled, as a client that replies later finds out."""
        known = {w["waiting_id"] for w in self.at.snapshot(model.thread_id, by=self.client)["waiting"]}
        for waiting_id in [w for w, (owner, *_) in self.open_before.items() if owner == model.thread_id]:
            if waiting_id not in known and waiting_id not in self.decided:
                self.decided[waiting_id] = (model.thread_id, None, None)
        self.open_before = {
            **{w: o for w, o in self.open_before.items() if o[0] != model.thread_id},
            **dict.fromkeys(model.asks, (model.thread_id,)),
        }

    open_before: dict = {}  # noqa: RUF012 - replaced, never changed


@pytest.fixture
def places(request, tmp_path):
    """Makes an empty, migrated database and a folder for each run of the machine."""
    numbers = iter(range(10**6))

    def make(kind):
        number = next(numbers)
        folder = tmp_path / f"run-{number}"
        folder.mkdir(mode=0o700)
        if kind == "sqlite":
            url = request.getfixturevalue("sqlite_template").copy_to(folder / "atmem.db")
        else:
            url = request.getfixturevalue("postgresql_server").migrated()
        return make_engine(url, pool_size=4), folder

    return make


@pytest.mark.parametrize(
    ("kind", "rounds", "steps"),
    [
        ("sqlite", 2, 60),
        pytest.param("postgresql", 1, 40, marks=pytest.mark.postgresql),
        pytest.param("sqlite", 60, 80, marks=pytest.mark.soak, id="many"),
    ],
)
def test_any_order_of_events_is_as_the_model_says(places, kind, rounds, steps):
    class Placed(Machine):
        place = staticmethod(lambda: places(kind))

    run(Placed, rounds=rounds, steps=steps)


@pytest.mark.soak
def test_what_is_rare_happens_sometimes(places):
    SEEN.clear()

    class Placed(Machine):
        place = staticmethod(lambda: places("sqlite"))

    for number in range(MOST_ROUNDS):
        run(Placed, rounds=8, steps=80, number=number)
        if set(SEEN) >= SOMETIMES:
            break

    assert SOMETIMES - {name for name, count in SEEN.items() if count} == set()


def run(machine, *, rounds, steps, number=1):
    limited = settings(
        max_examples=rounds, stateful_step_count=steps, deadline=None, database=None, print_blob=True,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    run_state_machine_as_test(seed(number)(machine), settings=limited)
