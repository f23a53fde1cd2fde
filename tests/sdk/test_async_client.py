"""What only a client for event loops can meet: cancellation, loops that must go on, threads that must not run out."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from continuity import errors, eventloop
from continuity.client import (
    AsyncContinuityClient,
    AsyncTool,
    ContinuityClient,
    NotDispatched,
    OutcomeNotRecorded,
    RecoveryBlocked,
    Tool,
    arecord_charge,
    record_charge,
)
from tests.patience import PATIENCE_S
from tests.sdk.scripts import (
    LEASE_TOKEN,
    SUCCESS,
    TOKEN,
    WORKFLOW,
    accepted,
    blocked,
    completed,
    granted,
    refused,
    world,
)
from tests.servers import ROOT


def run_in(there, main, **options):
    """Run a coroutine function of a client and the events of the test."""

    async def with_client():
        async with AsyncContinuityClient(there.server.url, TOKEN, **options) as client:
            return await asyncio.wait_for(main(client), PATIENCE_S)

    return asyncio.run(with_client())


def operation(client, execute=lambda *_: SUCCESS, query=None):
    return client.run_operation(WORKFLOW, "upload", {"upload": AsyncTool(execute, query)})


async def cancelled(task):
    """Cancel a task, see that it ends cancelled, and return its error."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    return caught.value


async def holds(condition):
    """Wait for what another thread brings about."""
    while not condition():  # noqa: ASYNC110 - no event of this loop tells
        await asyncio.sleep(0.005)


class Gate:
    """Lets a handler or a callback in another thread stand still until the test has done something."""

    def __init__(self):
        self.reached, self.open = threading.Event(), threading.Event()

    def stand(self):
        self.reached.set()
        assert self.open.wait(PATIENCE_S)

    async def is_reached(self):
        assert await asyncio.to_thread(self.reached.wait, PATIENCE_S)

    def before(self, answer):
        def standing(handler, seen):
            self.stand()
            answer(handler, seen)

        return standing


# --- A cancelled task tells before it ends ---


@pytest.mark.parametrize("mode", ["execute", "query"])
def test_a_coroutine_callback_that_is_cancelled_is_reported_as_unknown(mode):
    async def main(client):
        started = asyncio.Event()

        async def endless(*_):
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(operation(client, endless, endless))
        await started.wait()
        await cancelled(task)

    with world(begin=[granted(mode)], outcome=[accepted("uncertain")]) as there:
        run_in(there, main)

        (receipt,), (outcome,) = there.receipts(), there.calls("outcome")
    assert receipt["outcome"] == "unknown"
    assert outcome.body["lease_token"] == LEASE_TOKEN


@pytest.mark.parametrize(
    ("says", "outcome"), [(NotDispatched("Nothing left."), "not_dispatched"), (SUCCESS, "confirmed_succeeded")]
)
def test_a_coroutine_callback_may_say_better_when_it_is_cancelled_and_the_task_still_ends(says, outcome):
    async def main(client):
        started = asyncio.Event()

        async def careful(*_):
            started.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            if isinstance(says, Exception):
                raise says
            return says

        task = asyncio.create_task(operation(client, careful))
        await started.wait()
        await cancelled(task)

    with world(begin=[granted()], outcome=[accepted("pending")]) as there:
        run_in(there, main)

        assert [receipt["outcome"] for receipt in there.receipts()] == [outcome]
        assert len(there.calls("begin")) == 1


def test_a_callback_whose_own_helper_was_cancelled_has_failed_and_nobody_was_cancelled():
    async def main(client):
        async def upload(*_):
            helper = asyncio.create_task(asyncio.sleep(60))
            await asyncio.sleep(0)
            helper.cancel()
            await helper

        with pytest.raises(RecoveryBlocked) as caught:
            await operation(client, upload)
        return caught.value

    with world(begin=[granted()], outcome=[accepted("uncertain")]) as there:
        stop = run_in(there, main)

    assert (stop.code, stop.because) == ("outcome_unknown", "The tool raised CancelledError.")


def test_a_timeout_around_a_run_reports_and_times_out():
    async def main(client):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await operation(client, lambda *_: asyncio.sleep(60))

    with world(begin=[granted()], outcome=[accepted("uncertain")]) as there:
        run_in(there, main)

        assert [receipt["outcome"] for receipt in there.receipts()] == ["unknown"]


def test_an_ordinary_callback_is_given_time_to_return_its_receipt():
    gate = Gate()

    def slow(*_):
        gate.stand()
        return SUCCESS

    async def main(client):
        task = asyncio.create_task(operation(client, slow))
        await gate.is_reached()
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with world(begin=[granted()], outcome=[accepted()]) as there:
        run_in(there, main)

        assert there.receipts() == [SUCCESS]


@pytest.mark.parametrize(("raised", "outcome"), [(NotDispatched(), "not_dispatched"), (ValueError(), "unknown")])
def test_what_an_ordinary_callback_raises_in_that_time_is_reported_and_the_task_still_ends(raised, outcome):
    gate = Gate()

    def slow(*_):
        gate.stand()
        raise raised

    async def main(client):
        task = asyncio.create_task(operation(client, slow))
        await gate.is_reached()
        task.cancel()
        await asyncio.sleep(0)
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with world(begin=[granted()], outcome=[accepted("pending")]) as there:
        run_in(there, main)

        assert [receipt["outcome"] for receipt in there.receipts()] == [outcome]


def test_an_ordinary_callback_that_does_not_end_is_reported_as_unknown(monkeypatch):
    monkeypatch.setattr(eventloop, "INTERRUPTED_FOR_S", 0.05)
    gate = Gate()

    async def main(client):
        task = asyncio.create_task(operation(client, lambda *_: gate.stand()))
        await gate.is_reached()
        await cancelled(task)

    with world(begin=[granted()], outcome=[accepted("uncertain")]) as there:
        run_in(there, main)
        gate.open.set()

        assert [receipt["outcome"] for receipt in there.receipts()] == ["unknown"]


def test_a_callback_that_still_waits_for_a_thread_is_never_called(monkeypatch):
    monkeypatch.setattr(eventloop, "CALLBACKS_MOST", 1)
    gate, called = Gate(), []

    async def main(client):
        first = asyncio.create_task(operation(client, lambda *_: gate.stand() or SUCCESS))
        await gate.is_reached()
        second = asyncio.create_task(operation(client, lambda *_: called.append(1)))
        await holds(lambda: len(there.calls("begin")) == 2)
        await asyncio.sleep(0.05)
        await cancelled(second)
        gate.open.set()
        return await first

    with world(begin=[granted()], outcome=[accepted("pending")]) as there:
        assert run_in(there, main) == {"url": "there"}

        assert [receipt["outcome"] for receipt in there.receipts()] == ["not_dispatched", "confirmed_succeeded"]
    assert called == []


def test_a_callback_that_has_waited_too_long_for_a_thread_is_not_called(monkeypatch):
    monkeypatch.setattr(eventloop, "CALLBACKS_MOST", 1)
    gate, called, now = Gate(), [], [0.0]

    async def main(client):
        first = asyncio.create_task(operation(client, lambda *_: gate.stand() or SUCCESS))
        await gate.is_reached()
        second = asyncio.create_task(operation(client, lambda *_: called.append(1)))
        await holds(lambda: len(there.calls("begin")) == 2)
        await asyncio.sleep(0.05)
        now[0] += 31
        gate.open.set()
        await first
        with pytest.raises(RecoveryBlocked) as caught:
            await second
        return caught.value.code

    with world(begin=[granted()], outcome=[accepted("pending")]) as there:
        assert run_in(there, main, clock=lambda: now[0]) == "not_dispatched"

    assert called == []


@pytest.mark.parametrize(("mode", "outcome"), [("execute", "not_dispatched"), ("query", "unknown")])
def test_a_grant_that_arrives_after_the_cancellation_is_given_back(mode, outcome):
    gate, called = Gate(), []

    async def main(client):
        task = asyncio.create_task(operation(client, called.append, called.append))
        await gate.is_reached()
        task.cancel()
        await asyncio.sleep(0.05)
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with world(begin=[gate.before(granted(mode))], outcome=[accepted("pending")]) as there:
        run_in(there, main)

        (receipt,), (sent,) = there.receipts(), there.calls("outcome")
    assert (receipt["outcome"], sent.body["lease_token"]) == (outcome, LEASE_TOKEN)
    assert called == []


def test_a_grant_of_a_creation_is_given_back_too():
    gate, called = Gate(), []

    def create(handler, seen):
        gate.stand()
        replies = []
        inner = type(seen)(**{**vars(seen), "body": seen.body["begin"]})
        granted()(type("Recorder", (), {"reply": staticmethod(replies.append)}), inner)
        handler.reply({"workflow_id": WORKFLOW, "begin": replies[0]})

    async def main(client):
        definition = {"name": "upload", "tool": "upload"}
        run = client.run_new_operation("key-1", definition, {"upload": AsyncTool(called.append)})
        task = asyncio.create_task(run)
        await gate.is_reached()
        task.cancel()
        await asyncio.sleep(0.05)
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with world(outcome=[accepted("pending")], others=create) as there:
        run_in(there, main)

        assert [receipt["outcome"] for receipt in there.receipts()] == ["not_dispatched"]
    assert called == []


@pytest.mark.parametrize("reply", [completed(), blocked("needs_confirmation"), refused(503, "storage_unavailable")])
def test_a_begin_that_grants_nothing_ends_cancelled_and_reports_nothing(reply):
    gate = Gate()

    async def main(client):
        task = asyncio.create_task(operation(client))
        await gate.is_reached()
        task.cancel()
        await asyncio.sleep(0)
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with world(begin=[gate.before(reply)]) as there:
        run_in(there, main)

        assert there.calls("outcome") == []


def test_a_receipt_under_way_is_delivered_through_any_number_of_cancellations():
    gate = Gate()

    async def main(client):
        task = asyncio.create_task(operation(client))
        await gate.is_reached()
        for _ in range(5):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with world(begin=[granted()], outcome=[gate.before(accepted())]) as there:
        run_in(there, main)

        assert there.receipts() == [SUCCESS]


def test_a_receipt_nobody_takes_is_tried_once_more_and_stays_in_hand():
    async def main(client):
        task = asyncio.create_task(operation(client))
        await holds(lambda: there.calls("outcome"))
        return await cancelled(task)

    # A client that waited for so long before it tries again would not be back in time.
    busy = refused(503, "storage_unavailable", **{"Retry-After": str(PATIENCE_S)})
    with world(begin=[granted()], outcome=[busy]) as there:
        began_s = time.monotonic()
        error = run_in(there, main)

        assert there.receipts() == [SUCCESS] * len(there.receipts())
        assert 1 <= len(there.receipts()) <= 2
    assert time.monotonic() - began_s < PATIENCE_S
    assert isinstance(error.__cause__, OutcomeNotRecorded)
    assert error.__cause__.receipt == SUCCESS


def test_an_outcome_by_hand_is_delivered_before_the_cancellation_goes_on():
    gate = Gate()

    async def main(client):
        values = {"run_id": "r", "attempt_id": "a", "lease_token": "t", "receipt": SUCCESS}
        task = asyncio.create_task(client.outcome(WORKFLOW, "upload", **values))
        await gate.is_reached()
        task.cancel()
        await asyncio.sleep(0)
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    busy = gate.before(refused(503, "storage_unavailable"))
    with world(outcome=[busy, accepted()]) as there:
        run_in(there, main)

        assert len(there.calls("outcome")) == 2


def test_a_loop_that_ends_lets_its_runs_report_first():
    async def main(client):
        started = asyncio.Event()

        async def endless(*_):
            started.set()
            await asyncio.Event().wait()

        main.kept = asyncio.create_task(operation(client, endless))
        await started.wait()

    async def whole():
        # Not closed: the loop ends with the run under way, and cancels it.
        await main(AsyncContinuityClient(there.server.url, TOKEN))

    with world(begin=[granted()], outcome=[accepted("uncertain")]) as there:
        asyncio.run(whole())

        assert [receipt["outcome"] for receipt in there.receipts()] == ["unknown"]


# --- The loop goes on, and threads do not run out ---


def test_the_loop_goes_on_while_an_ordinary_callback_blocks():
    gate = Gate()

    async def main(client):
        task = asyncio.create_task(operation(client, lambda *_: gate.stand() or SUCCESS))
        await gate.is_reached()
        for _ in range(20):
            await asyncio.sleep(0)
        gate.open.set()
        return await task

    with world(begin=[granted()], outcome=[accepted()]) as there:
        assert run_in(there, main) == {"url": "there"}


def test_slow_tools_in_every_thread_do_not_keep_a_receipt_from_being_delivered(monkeypatch):
    monkeypatch.setattr(eventloop, "CALLBACKS_MOST", 2)
    gates = [Gate(), Gate()]

    async def main(client):
        slow = [asyncio.create_task(operation(client, lambda *_, g=g: g.stand() or SUCCESS)) for g in gates]
        for gate in gates:
            await gate.is_reached()

        async def quick(*_):
            return SUCCESS

        result = await operation(client, quick)
        for gate in gates:
            gate.open.set()
        await asyncio.gather(*slow)
        return result

    with world(begin=[granted()], outcome=[accepted()]) as there:
        assert run_in(there, main) == {"url": "there"}


def test_more_runs_than_threads_wait_in_their_callbacks_together():
    together = 3 * eventloop.CALLBACKS_MOST

    async def main(client):
        arrived = asyncio.Barrier(together)

        async def meet(*_):
            await arrived.wait()
            return SUCCESS

        return await asyncio.gather(*(operation(client, meet) for _ in range(together)))

    with world(begin=[granted()], outcome=[accepted()]) as there:
        assert run_in(there, main) == [{"url": "there"}] * together


# --- Callbacks of every make ---


class Uploader:
    async def __call__(self, *_):
        await asyncio.sleep(0)
        return SUCCESS


async def upload(*_):
    return SUCCESS


@pytest.mark.parametrize(
    "tool", [AsyncTool(upload), AsyncTool(lambda *_: upload()), AsyncTool(Uploader()), Tool(lambda *_: SUCCESS)]
)
def test_a_callback_may_be_ordinary_or_a_coroutine_function_or_make_a_coroutine(tool):
    async def main(client):
        return await client.run_operation(WORKFLOW, "upload", {"upload": tool})

    with world(begin=[granted()], outcome=[accepted()]) as there:
        assert run_in(there, main) == {"url": "there"}


@pytest.mark.parametrize("error", [StopIteration(1), StopAsyncIteration()])
def test_an_exception_that_futures_cannot_carry_is_reported_like_any_other(error):
    def upload(*_):
        raise error

    async def main(client):
        with pytest.raises(RecoveryBlocked) as caught:
            await operation(client, upload)
        return caught.value.code

    with world(begin=[granted()], outcome=[accepted("uncertain")]) as there:
        assert run_in(there, main) == "outcome_unknown"


def test_the_client_that_blocks_calls_no_coroutine_function():
    with world(begin=[granted()], outcome=[accepted("pending")]) as there:
        with pytest.raises(RecoveryBlocked, match="AsyncContinuityClient") as caught:
            there.client.run_operation(WORKFLOW, "upload", {"upload": AsyncTool(upload)})

        assert [receipt["outcome"] for receipt in there.receipts()] == ["not_dispatched"]
    assert caught.value.code == "tool_unavailable"


class Heard:
    def __init__(self):
        self.events = []

    def deliver(self, event):
        self.events.append(event)


class Refusing:
    def deliver(self, event):
        raise errors.ForbiddenError(f"Not {event.event_id}.")


def test_events_that_are_not_delivered_are_told_by_type_and_by_code():
    async def main(client):
        await operation(client)
        return client.observation_error_count, client.observation_errors, client.observation_error_codes

    view = {"operations": [{"name": "upload", "status": "pending", "attempts": []}]}
    with world(begin=[granted()], outcome=[accepted()], view=lambda _seen: view) as there:
        assert run_in(there, main, observer=Refusing()) == (2, ["ForbiddenError"] * 2, ["forbidden"] * 2)


def test_charges_are_those_of_the_run_that_records_them():
    observer = Heard()

    def ordinary(*_):
        assert record_charge(charge_id="ordinary", charge_source="me") is True
        return SUCCESS

    async def awaited(*_):
        assert await arecord_charge("awaited", "me", input_tokens=3) is True
        return SUCCESS

    async def main(client):
        await asyncio.gather(operation(client, ordinary), operation(client, awaited))
        return await arecord_charge("outside", "me")

    with world(begin=[granted()], outcome=[accepted()], view=lambda _seen: {}) as there:
        assert run_in(there, main, observer=observer) is False

        begun = {seen.body["attempt_id"] for seen in there.calls("begin")}
    charges = {event.charge_id: event.attempt_id for event in observer.events if event.charge_id}
    assert set(charges) == {"ordinary", "awaited"}
    assert set(charges.values()) == begun


# --- Loading, closing, forking ---


def test_a_program_without_a_loop_does_not_load_one():
    code = (
        "import sys, continuity.client as c; assert 'asyncio' not in sys.modules; c.AsyncContinuityClient; c.AsyncTool"
    )

    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=True)


def test_a_name_that_the_package_does_not_have_is_missed_as_usual():
    import continuity.client  # noqa: PLC0415

    with pytest.raises(AttributeError, match="AsyncSomething"):
        _ = continuity.client.AsyncSomething


def test_a_closed_client_connects_again():
    async def main(client):
        first = await operation(client)
        await client.aclose()
        return first, await operation(client)

    with world(begin=[granted()], outcome=[accepted()]) as there:
        assert run_in(there, main) == ({"url": "there"}, {"url": "there"})


def test_one_client_serves_loop_after_loop():
    with world(begin=[granted()], outcome=[accepted()]) as there:
        client = AsyncContinuityClient(there.server.url, TOKEN)

        assert [asyncio.run(operation(client)) for _ in range(3)] == [{"url": "there"}] * 3

        asyncio.run(client.aclose())


def test_a_forked_child_has_threads_of_its_own():
    with world(begin=[granted()], outcome=[accepted()]) as there:
        client = AsyncContinuityClient(there.server.url, TOKEN)
        asyncio.run(operation(client))
        child = os.fork()
        if child == 0:
            # A child that waits for threads of its parent waits for ever.
            signal.alarm(PATIENCE_S)
            status = 1
            with suppress(BaseException):
                status = 0 if asyncio.run(operation(client)) == {"url": "there"} else 2
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        asyncio.run(client.aclose())


def test_both_clients_have_the_same_methods():
    def methods(kind):
        return {name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}

    assert methods(AsyncContinuityClient) - {"aclose"} == methods(ContinuityClient) - {"close"}


def test_neither_address_nor_token_is_taken_unseen():
    with pytest.raises(errors.MalformedError):
        AsyncContinuityClient("http://far.example", TOKEN)
    client = AsyncContinuityClient("https://host", TOKEN)

    assert TOKEN not in repr(client) + str(vars(client))
