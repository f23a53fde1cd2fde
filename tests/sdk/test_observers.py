"""Observing: what is sent, how long a caller waits for it, and that it changes nothing else."""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from continuity import errors
from continuity.client import AtFlowsObserver, ContinuityObserver, NotDispatched, RecoveryBlocked, Tool, record_charge
from continuity.errors import ConflictError, MalformedError, TransportTimeoutError
from observations import client as producer
from observations.client import WorkersBusyError
from observations.events import Event, EventName, parse_event
from observations.usage import openai_usage
from tests.patience import PATIENCE_S, wait_for
from tests.sdk import waits
from tests.sdk.scripts import ABSENT, OPERATION, SUCCESS, WORKFLOW, accepted, completed, granted, world
from tests.sdk.stub_server import serving

PRODUCER_TOKEN = "p" * 40
EVENT = Event(
    event_id="ev_1", workflow_id="wf_1", operation_id="op_1", run_id="r", attempt_id="a", event=EventName.EXECUTE,
    time=1.0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _nobody_sends():
    waits.until_nobody_sends()
    yield
    waits.until_nobody_sends()


def take(handler, _seen):
    handler.reply({"accepted": True, "replayed": False})


@contextmanager
def atflows(answer=take):
    with serving(answer) as server:
        observer = AtFlowsObserver(server.url, PRODUCER_TOKEN)
        try:
            yield server, observer
        finally:
            observer.close()


def view(**operation):
    return lambda _seen: {"operations": [{"name": "upload", "status": "pending", "attempts": [], **operation}]}


def run(there, execute=lambda *_: SUCCESS, query=lambda *_: ABSENT):
    return there.client.run_operation(WORKFLOW, "upload", {"upload": Tool(execute=execute, query=query)}, run_id="run")


def sent(server):
    return [seen.body for seen in server.seen]


def names(server):
    return [body["event"] for body in sent(server)]


# --- What is sent ---


def test_an_attempt_is_reported_with_opaque_ids_and_nothing_else():
    with atflows() as (server, observer):
        with world(begin=[granted()], outcome=[accepted()], view=view(), observer=observer) as there:
            run(there)
            attempt_id = there.calls("begin")[0].body["attempt_id"]
            assert there.client.observation_error_count == 0

        (first, last) = sent(server)
        assert {seen.path for seen in server.seen} == {"/v1/continuity/events"}
        assert {seen.headers["authorization"] for seen in server.seen} == {f"Bearer {PRODUCER_TOKEN}"}
    for body in (first, last):
        parse_event(body)
        assert abs(body["time"] - time.time()) < 60
        assert {key: body[key] for key in ("workflow_id", "operation_id", "run_id", "attempt_id")} == {
            "workflow_id": WORKFLOW, "operation_id": OPERATION, "run_id": "run", "attempt_id": attempt_id,
        }  # fmt: skip
        assert set(body) == {
            "format", "event_id", "workflow_id", "operation_id", "run_id", "attempt_id", "event", "time", "retry",
            "recovery",
        }  # fmt: skip
    assert (first["event"], last["event"]) == ("execute", "completed")
    assert first["event_id"] != last["event_id"]


def failing(error):
    def execute(*_):
        raise error

    return execute


@pytest.mark.parametrize(
    ("mode", "callback", "last"),
    [
        ("execute", lambda *_: {"outcome": "unknown"}, "unknown"),
        ("execute", failing(TimeoutError()), "unknown"),
        ("execute", failing(NotDispatched()), "blocked"),
        ("execute", lambda *_: {"outcome": "confirmed_refused", "operation_id": OPERATION, "reason": "x"}, "blocked"),
        ("query", lambda *_: ABSENT, "unknown"),
    ],
)
def test_how_an_attempt_ended_is_reported(mode, callback, last):
    with atflows() as (server, observer):
        settings = {"view": view(), "observer": observer}
        with (
            world(begin=[granted(mode)], outcome=[accepted("uncertain")], **settings) as there,
            pytest.raises(RecoveryBlocked),
        ):
            run(there, execute=callback, query=callback)

        assert names(server) == [mode, last]


EXECUTED = {"attempt_id": "at_0", "run_id": "r", "mode": "execute", "started": 1.0}


@pytest.mark.parametrize(
    ("operation", "mode", "retry", "recovery"),
    [
        ({}, "execute", False, False),
        ({"status": "uncertain", "attempts": [EXECUTED]}, "execute", True, True),
        ({"status": "uncertain", "attempts": [EXECUTED]}, "query", False, True),
        ({"status": "pending", "attempts": [{**EXECUTED, "outcome": "not_dispatched"}]}, "execute", True, False),
    ],
)
def test_repeated_and_recovering_attempts_say_so(operation, mode, retry, recovery):
    with atflows() as (server, observer):
        with world(
            begin=[granted(mode)], outcome=[accepted()], view=view(**operation), observer=observer
        ) as there:  # fmt: skip
            run(there, query=lambda *_: SUCCESS)

        assert {(body["retry"], body["recovery"]) for body in sent(server)} == {(retry, recovery)}


def test_a_saved_result_is_no_attempt():
    with atflows() as (server, observer):
        with world(begin=[completed()], view=view(), observer=observer) as there:
            run(there)

        assert server.seen == []


def test_without_an_observer_nothing_more_is_asked_of_the_server():
    with world(begin=[granted()], outcome=[accepted()]) as there:
        run(there)

        assert [seen.call for seen in there.server.seen] == ["begin", "outcome"]
        assert (there.client.observation_error_count, there.client.observation_errors) == (0, [])


# --- Charges ---


def test_a_charge_inside_a_callback_is_bound_to_its_attempt():
    answers = []

    def execute(*_):
        answers.append(record_charge(charge_id="resp", charge_source="acc", input_tokens=10, output_tokens=None))
        answers.append(
            record_charge(
                charge_id="resp2", charge_source="acc", cost_microusd=7, price_source="list-1", model="m",
                cached_input_tokens=3, cached_basis="included",
            )
        )  # fmt: skip
        return SUCCESS

    with atflows() as (server, observer):
        with world(begin=[granted()], outcome=[accepted()], view=view(), observer=observer) as there:
            run(there, execute=execute)

        first, charge, priced, last = sent(server)
    assert answers == [True, True]
    assert charge["event"] == "usage"
    assert charge["attempt_id"] == first["attempt_id"] == last["attempt_id"]
    assert (charge["charge_id"], charge["charge_source"], charge["input_tokens"]) == ("resp", "acc", 10)
    assert "output_tokens" not in charge
    assert "cost_microusd" not in charge
    assert (priced["cost_microusd"], priced["price_source"], priced["cached_basis"]) == (7, "list-1", "included")


def test_a_charge_outside_a_callback_or_without_an_observer_is_not_recorded():
    answers = [record_charge(charge_id="x", charge_source="y")]

    def execute(*_):
        answers.append(record_charge(charge_id="x", charge_source="y"))
        return SUCCESS

    with world(begin=[granted()], outcome=[accepted()]) as there:
        run(there, execute=execute)
        assert there.client.observation_error_count == 0
    answers.append(record_charge(charge_id="x", charge_source="y"))

    assert answers == [False, False, False]


@pytest.mark.parametrize(
    ("charge", "said"),
    [
        ({"cost_microusd": 5}, "A cost needs a price_source."),
        ({"input_tokens": "secret"}, "input_tokens must be a whole number from 0 to 2^53-1."),
        ({"cached_basis": "secret"}, "cached_basis must be included or separate."),
        ({"model": "secret" * 100}, "model must be text of 1 to 128 characters."),
    ],
)
def test_a_charge_that_breaks_a_rule_is_said_once_by_its_field_and_never_by_its_value(caplog, charge, said):
    class Nowhere:
        def deliver(self, event):
            """Take it."""

    watch = ContinuityObserver("", "", observer=Nowhere())
    with watch.attempt(workflow_id="w", operation_id="o"):
        for n in range(3):
            assert not record_charge(charge_id=f"c{n}", charge_source="y", **charge)

    assert watch.observation_error_count == 3
    assert [record.getMessage() for record in caplog.records] == [f"An event was not reported: {said}"]
    assert {record.name for record in caplog.records} == {"observations"}
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("charge", "name"),
    [
        ({"charge_id": "", "charge_source": "y"}, "MalformedError"),
        ({"charge_id": "x", "charge_source": None}, "MalformedError"),
        ({"charge_id": "x", "charge_source": "y", "cost_microusd": 5}, "MalformedError"),
        ({"charge_id": "x", "charge_source": "y", "input_tokens": 1.5}, "MalformedError"),
        ({"charge_id": "x", "charge_source": "y", "cached_basis": "half"}, "ValueError"),
    ],
)
def test_a_charge_that_breaks_a_rule_is_counted_and_never_disturbs_the_work(charge, name):
    answers = []

    def execute(*_):
        answers.append(record_charge(**charge))
        return SUCCESS

    with atflows() as (server, observer):
        with world(begin=[granted()], outcome=[accepted()], view=view(), observer=observer) as there:
            assert run(there, execute=execute) == {"url": "there"}
            assert (there.client.observation_error_count, there.client.observation_errors) == (1, [name])

        assert names(server) == ["execute", "completed"]
    assert answers == [False]


def test_charges_of_two_threads_go_to_their_own_attempts():
    barrier = threading.Barrier(2)

    def execute(*_):
        barrier.wait(PATIENCE_S)
        assert record_charge(charge_id=threading.current_thread().name, charge_source="y")
        barrier.wait(PATIENCE_S)
        return SUCCESS

    with atflows() as (server, observer):
        with world(begin=[granted()], outcome=[accepted()], view=view(), observer=observer) as there:
            threads = [
                threading.Thread(
                    target=there.client.run_operation,
                    args=(WORKFLOW, "upload", {"upload": Tool(execute=execute)}), kwargs={"run_id": f"run-{n}"},
                    name=f"run-{n}",
                )
                for n in range(2)
            ]  # fmt: skip
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        charges = [body for body in sent(server) if body["event"] == "usage"]
    assert sorted(body["charge_id"] for body in charges) == ["run-0", "run-1"]
    assert all(body["charge_id"] == body["run_id"] for body in charges)


# --- Bounds ---


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (lambda handler, _seen: handler.refuse(409, "event_conflict"), ("ConflictError", "event_conflict")),
        (lambda handler, _seen: handler.refuse(401, "unauthenticated"), ("UnauthenticatedError", "unauthenticated")),
        (lambda handler, _seen: handler.hang_up(), ("TransportError", "transport_error")),
        (
            lambda handler, _seen: handler.reply_bytes(b"{}", 302, {"Location": "/"}),
            ("TransportError", "transport_error"),
        ),
    ],
)
def test_failures_are_counted_by_type_and_code_and_change_nothing(answer, name):
    with atflows(answer) as (server, observer):
        with world(begin=[granted()], outcome=[accepted()], view=view(), observer=observer) as there:
            assert run(there) == {"url": "there"}

            assert there.client.observation_error_count == 2
            assert there.client.observation_errors == [name[0], name[0]]
            assert there.client.observation_error_codes == [name[1], name[1]]
        assert len(server.seen) == 2


def test_only_the_first_hundred_types_are_kept_and_all_are_counted():
    class Broken:
        def deliver(self, event):
            raise RuntimeError("secret")

    with world(begin=[granted()], outcome=[accepted()], view=view(), observer=Broken()) as there:
        for _ in range(60):
            run(there)

        assert there.client.observation_error_count == 120
        assert there.client.observation_errors == ["RuntimeError"] * 100
        assert there.client.observation_error_codes == ["RuntimeError"] * 100


def test_a_failing_look_back_is_counted_and_leaves_retry_open():
    with atflows() as (server, observer):
        with world(begin=[granted()], outcome=[accepted()], observer=observer) as there:
            run(there)

            assert there.client.observation_errors == ["NotFoundError"]
        assert all("retry" not in body or body["retry"] is None for body in sent(server))


def test_a_slow_server_takes_two_seconds_of_the_caller_at_most_and_may_still_get_the_event():
    release = threading.Event()
    arrived = threading.Event()

    def slow(handler, seen):
        release.wait()
        take(handler, seen)
        arrived.set()

    with atflows(slow) as (_server, observer), waits.noted() as waits_s:
        started = time.monotonic()
        with pytest.raises(TransportTimeoutError):
            observer.deliver(EVENT)
        waited_s = time.monotonic() - started
        # The server answers only now: nothing but the two seconds has let the caller go.
        assert not arrived.is_set()
        release.set()

        assert arrived.wait(PATIENCE_S)
    assert waits_s == [2]
    assert waited_s > 1.9


def test_eight_senders_a_process_and_no_waiting_for_a_ninth():
    release = threading.Event()
    waiting = threading.Semaphore(0)

    def stuck(handler, seen):
        waiting.release()
        release.wait()
        take(handler, seen)

    def deliver(observer):
        with pytest.raises(TransportTimeoutError):
            observer.deliver(EVENT)

    with atflows(stuck) as (server, first), atflows() as (other_server, second), waits.noted() as waits_s:
        quick = AtFlowsObserver(server.url, PRODUCER_TOKEN, wait_s=0.2)
        threads = [threading.Thread(target=deliver, args=(quick,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
            assert waiting.acquire(timeout=PATIENCE_S)

        assert waits_s == [0.2] * 8
        for observer in (first, second):
            with pytest.raises(WorkersBusyError):
                observer.deliver(EVENT)
        assert waits_s == [0.2] * 8, "who was sent away had to wait"
        assert other_server.seen == []

        release.set()
        until_free(second)
        assert len(server.seen) == 8
        quick.close()


def until_free(observer):
    """Deliver once the stuck senders have gone on."""

    def is_taken():
        try:
            observer.deliver(EVENT)
        except WorkersBusyError:
            return False
        return True

    wait_for(is_taken, what="the senders never became free again")


def test_a_sender_never_keeps_the_process_alive():
    daemons = []

    def look(handler, seen):
        daemons.extend(thread.daemon for thread in threading.enumerate() if thread.name == "atflows-sender")
        take(handler, seen)

    with atflows(look) as (_server, observer):
        observer.deliver(EVENT)

    assert daemons == [True]


def test_a_forked_child_has_its_own_senders():
    before = producer._slots
    for _ in range(8):
        assert before.acquire(blocking=False)
    try:
        producer._free_slots()

        assert producer._slots is not before
        assert producer._slots.acquire(blocking=False)
        producer._slots.release()
    finally:
        for _ in range(8):
            before.release()


@pytest.mark.parametrize("url", ["http://atflows.example", "nowhere", "https://u:p@host"])
def test_the_token_goes_to_no_address_that_could_leak_it(url):
    with pytest.raises(MalformedError):
        AtFlowsObserver(url, PRODUCER_TOKEN)


def test_an_observer_shows_no_token():
    assert PRODUCER_TOKEN not in repr(AtFlowsObserver("https://host", PRODUCER_TOKEN))


def test_a_refused_event_says_what_the_server_said():
    with (
        atflows(lambda handler, _seen: handler.refuse(409, "event_conflict")) as (_server, observer),
        pytest.raises(ConflictError) as caught,
    ):
        observer.deliver(EVENT)

    assert caught.value.code == "event_conflict"


# --- Calls that AtMem does not govern ---


def test_an_ungoverned_attempt_reports_its_start_charges_and_end():
    with atflows() as (server, observer):
        watch = ContinuityObserver(server.url, PRODUCER_TOKEN, observer=observer)
        with watch.attempt(workflow_id="nightly", operation_id="summary", run_id="r1", attempt_id="a1", retry=True):
            assert record_charge(charge_id="x", charge_source="y")
        assert not record_charge(charge_id="x", charge_source="y")

        assert names(server) == ["execute", "usage", "completed"]
        assert {body["attempt_id"] for body in sent(server)} == {"a1"}
        assert all(body["retry"] is True for body in sent(server))
        assert watch.observation_error_count == 0


def test_an_ungoverned_attempt_that_raises_is_unknown_and_goes_on_raising():
    with atflows() as (server, observer):
        watch = ContinuityObserver(server.url, PRODUCER_TOKEN, observer=observer)
        with pytest.raises(KeyError), watch.attempt(workflow_id="nightly", operation_id="summary"):
            raise KeyError

        assert names(server) == ["execute", "unknown"]


def test_an_ungoverned_attempt_with_wrong_ids_is_counted_and_the_work_goes_on():
    done = []
    with atflows() as (server, observer):
        watch = ContinuityObserver(server.url, PRODUCER_TOKEN, observer=observer)
        with watch.attempt(workflow_id="not an id", operation_id="summary"):
            done.append(True)

        assert server.seen == []
        assert watch.observation_errors == ["MalformedError", "MalformedError"]
    assert done == [True]


def test_the_guide_s_example_of_a_price_reports_one():
    guide = (Path(__file__).parents[2] / "docs" / "observations.md").read_text()
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "price_source=" in block]
    seen = []

    class Keeping:
        def deliver(self, event):
            seen.append(event)

    watch = ContinuityObserver("", "", observer=Keeping())
    response = {"id": "r1", "model": "m", "usage": {"prompt_tokens": 2_000, "completion_tokens": 5}}
    with watch.attempt(workflow_id="w", operation_id="o"):
        exec(example, {"openai_usage": openai_usage, "record_charge": record_charge, "response": response})

    assert (seen[1].cost_microusd, seen[1].price_source) == (300, "price-list-2026-11")
    assert watch.observation_error_count == 0


def test_the_guide_names_only_codes_that_there_are():
    guide = (Path(__file__).parents[2] / "docs" / "observations.md").read_text()
    rows = re.findall(r"^\| (`[a-z_`, ]+) \|", guide, re.MULTILINE)
    named = {code for row in rows for code in re.findall(r"`([a-z_]+)`", row)}
    codes = {getattr(each, "code", None) for each in vars(errors).values()} | {WorkersBusyError.code, "event_conflict"}

    assert "transport_timeout" in named
    assert named <= codes
