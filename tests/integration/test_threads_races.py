"""Threads under real threads: readers among writers, replies and claims at once, a steer at the very end of a run."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from continuity.errors import ConflictError
from continuity.thread_requests import NewThread, Position
from tests.integration.conversing import Conversing, advanced, converse, process_of, question, said

SHOWN = ("thread", "runs", "messages", "state", "queue", "waiting", "checkpoint")
FEW_AND_MANY = [pytest.param("few"), pytest.param("many", marks=pytest.mark.soak)]


@pytest.fixture
def at(store, tmp_path) -> Conversing:
    return converse(store, tmp_path)


def window(snapshot):
    """What a snapshot shows of a thread that has more than it shows."""
    shown = {name: snapshot[name] for name in SHOWN}
    return {**shown, "runs": shown["runs"][-20:], "messages": shown["messages"][-50:]}


def attempt(call, *arguments, **named):
    """Return the code of a refusal, empty when there was none, and the reply."""
    try:
        return "", call(*arguments, **named)
    except ConflictError as error:
        return error.code, None


class Writers:
    """A worker and a client that write into one thread as fast as they can, until told to stop."""

    def __init__(self, at: Conversing, thread_id: str, client) -> None:
        self.at, self.thread_id, self.client = at, thread_id, client
        self.is_over = threading.Event()
        self.accepted: list[str] = []
        self.problems: list[BaseException] = []
        self.writers = [threading.Thread(target=self.guard, args=(work,)) for work in (self.works, self.talks)]

    def __enter__(self):
        for writer in self.writers:
            writer.start()
        return self

    def __exit__(self, *_error):
        self.is_over.set()
        for writer in self.writers:
            writer.join()

    def guard(self, work):
        try:
            work()
        except BaseException as error:
            self.problems.append(error)
            raise

    def works(self):
        at, number = process_of(self.at.home), 0
        while not self.is_over.is_set():
            held = at.claim()
            if held is None:
                continue
            for _ in range(4):
                number += 1
                receipt = at.append(
                    held, *said(f"n{number}"), {"kind": "state_changed", "values": {"todos": [number]}},
                    {"kind": "tool_started", "call_id": f"c{number}", "tool": "t"},
                )  # fmt: skip
                steers = receipt["steers"]
                held.steers_read = steers[-1]["number"] if steers else held.steers_read
                at.append(held, {"kind": "tool_ended", "call_id": f"c{number}", "outcome": "ok", "result": number})
            at.settle(held, {"answer": number})

    def talks(self):
        at, number = process_of(self.at.home), 0
        while not self.is_over.is_set():
            number += 1
            how = "steer" if number % 3 else "follow_up"
            code, _ = attempt(at.say, self.thread_id, f"said {number}", how=how, by=self.client)
            assert code in {"", "thread_not_running", "queue_full"}
            if not code:
                self.accepted.append(f"said {number}")


@pytest.mark.parametrize("amount", FEW_AND_MANY)
def test_every_load_gives_every_record_once_and_in_order(at, amount):
    loads = 120 if amount == "few" else 1_000
    client = at.application("s-1")
    thread_id = at.create(by=client)
    at.say(thread_id, "begin", by=client)
    reader = process_of(at.home)

    with Writers(at, thread_id, client) as writers:
        held = reader.snapshot(thread_id, by=client)
        for _ in range(loads):
            fresh = reader.snapshot(thread_id, by=client)
            records = reader.records(thread_id, held["checkpoint"], by=client)
            upto = Position.parse(fresh["checkpoint"]).seq
            reached = advanced(held, [record for record in records if record["seq"] <= upto])
            assert window(reached) == window(fresh)
            held = advanced(fresh, [record for record in records if record["seq"] > upto])

    assert writers.problems == []
    last = at.records(thread_id, by=client)
    assert [record["seq"] for record in last] == list(range(1, len(last) + 1))
    assert at.checker.check() == []
    texts = [record["data"]["message"]["content"] for record in last if record["kind"] == "message_added"]
    queued = [entry["content"] for entry in at.snapshot(thread_id, by=client)["queue"]]
    assert sorted([*texts[1:], *queued]) == sorted(writers.accepted)


def test_twenty_replies_from_four_threads_are_admitted_once_with_one_receipt(at):
    thread_id, held = at.running()
    waiting_id = at.wait(held, question())["waiting"][0]["waiting_id"]
    start = threading.Barrier(4)

    def replies(_number):
        own = process_of(at.home)
        start.wait()
        return [own.reply(thread_id, waiting_id, True) for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        receipts = [receipt for some in pool.map(replies, range(4)) for receipt in some]

    assert len(receipts) == 20
    assert all(receipt == receipts[0] for receipt in receipts)
    kinds = [record["kind"] for record in at.records(thread_id)]
    assert kinds.count("request_answered") == 1
    assert kinds.count("run_queued") == 2


def test_approve_and_deny_at_once_leave_one_decision(at):
    thread_id, held = at.running()
    waiting_id = at.wait(held, question())["waiting"][0]["waiting_id"]
    start = threading.Barrier(6)

    def reply(number):
        own = process_of(at.home)
        start.wait()
        try:
            own.reply(thread_id, waiting_id, number % 2 == 0)
        except ConflictError as error:
            return error.current["decision"]
        return number % 2 == 0

    with ThreadPoolExecutor(6) as pool:
        decisions = set(pool.map(reply, range(6)))

    assert len(decisions) == 1
    assert at.claim().run["replies"][0]["reply"] in decisions


@pytest.mark.parametrize("amount", FEW_AND_MANY)
def test_a_steer_at_the_exact_end_of_a_run_is_read_or_follows_or_is_refused(at, amount):
    times = 40 if amount == "few" else 500
    thread_id = at.create()
    own = process_of(at.home)
    outcomes = {"accepted": 0, "refused": 0}
    with ThreadPoolExecutor(2) as pool:
        for number in range(times):
            at.say(thread_id, "go")
            held = at.claim()
            start = threading.Barrier(2)

            def steer(start=start, number=number):
                start.wait()
                code, receipt = attempt(own.say, thread_id, f"steer {number}", how="steer")
                assert code in {"", "thread_not_running"}
                return None if code else receipt["input_id"]

            def settle(start=start, held=held):
                start.wait()
                at.settle(held)

            steered, settled = pool.submit(steer), pool.submit(settle)
            settled.result()
            input_id = steered.result()
            following = at.claim()
            outcomes["refused" if input_id is None else "accepted"] += 1
            assert (following is None) == (input_id is None)
            if following is not None:
                assert following.run["input"]["input_id"] == input_id
                at.settle(following)

    assert sum(outcomes.values()) == times
    assert at.checker.check() == []


def test_each_run_is_claimed_by_one_worker_however_many_ask(at):
    ids = {at.create() for _ in range(12)}
    for thread_id in ids:
        at.say(thread_id)
    start = threading.Barrier(6)

    def claims(_number):
        own = process_of(at.home)
        start.wait()
        return [held.run["thread_id"] for held in iter(own.claim, None)]

    with ThreadPoolExecutor(6) as pool:
        claimed = [thread_id for some in pool.map(claims, range(6)) for thread_id in some]

    # Whoever finds the last rows locked by others goes away with nothing, and asks again.
    claimed += [held.run["thread_id"] for held in iter(at.claim, None)]
    assert sorted(claimed) == sorted(ids)


def test_one_claim_sent_twice_at_once_is_one_claim(at):
    for _ in range(3):
        at.say(at.create())
    start = threading.Barrier(4)

    def claim(_number):
        own = process_of(at.home)
        start.wait()
        return own.claim(request_id="same", secret="s" * 43).run

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(claim, range(4)))

    assert all(run == runs[0] for run in runs)
    assert len([row for row in at.home.rows(at_runs()) if row.state == "claimed"]) == 1


def test_creations_of_one_name_at_once_are_one_thread(at):
    start = threading.Barrier(4)

    def create(_number):
        own = process_of(at.home)
        start.wait()
        return own.create("same")

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(create, range(4)))) == 1


def test_creations_of_one_name_at_once_under_few_request_ids_have_their_receipts(at):
    processes = [process_of(at.home) for _ in range(8)]

    for name in (f"same-{number}" for number in range(8)):
        start = threading.Barrier(len(processes))
        asked = [
            NewThread.from_json({"request_id": f"{name}-{number % 3}", "name": name, "agent": "helper"})
            for number in range(len(processes))
        ]

        def create(own, request, start=start):
            start.wait()
            return own.threads.create(own.person, request)

        with ThreadPoolExecutor(len(processes)) as pool:
            receipts = list(pool.map(create, processes, asked))
        assert len({receipt["thread_id"] for receipt in receipts}) == 1
        assert [receipt["request_id"] for receipt in receipts] == [request.request_id for request in asked]


def test_a_stop_and_a_settle_at_once_leave_one_end(at):
    for _ in range(12):
        thread_id, held = at.running()
        own, start = process_of(at.home), threading.Barrier(2)

        def stop(thread_id=thread_id, own=own, start=start):
            start.wait()
            try:
                own.control(thread_id, "stop")
            except ConflictError as error:
                return error.code
            return "stopped"

        def settle(held=held, start=start):
            start.wait()
            return at.settle(held)["state"]

        with ThreadPoolExecutor(2) as pool:
            stopped, state = pool.submit(stop), pool.submit(settle)
        run = at.snapshot(thread_id)["runs"][-1]
        assert state.result() == "idle"
        assert (stopped.result(), run["state"]) in {("stopped", "stopped"), ("thread_not_running", "settled")}


def at_runs():
    from continuity.store import threads_schema  # noqa: PLC0415

    return threads_schema.runs
