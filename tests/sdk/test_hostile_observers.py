"""Whatever an observation server does, a governed run ends as it would without one, and at most two seconds an
event later."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from continuity.client import Tool
from observations.client import AtFlowsObserver, ContinuityObserver, record_charge
from tests.sdk import waits
from tests.sdk.scripts import SUCCESS, WORKFLOW, accepted, granted, world
from tests.sdk.stub_server import serving

TOKEN = "a-producer-token-for-tests-0123456789"
EVENTS = 3
"""Start, charge, end."""


def hang(handler, _seen):
    handler.server.leave.wait()
    handler.close_connection = True


def drip(handler, _seen):
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not handler.server.leave.wait(0.1):
        handler.wfile.write(b" ")


def refuse(handler, _seen):
    handler.refuse(401, "unauthenticated")


def lie(handler, _seen):
    handler.reply({"action": "blocked", "accepted": False, "reason": "stopped", "receipt": {"outcome": "unknown"}}, 200)


def lie_about_the_error(handler, _seen):
    handler.refuse(409, "workflow_paused")


def babble(handler, _seen):
    handler.reply_bytes(b"\x00" * 3_000_000)


HOSTILE = [hang, drip, refuse, lie, lie_about_the_error, babble]


@pytest.mark.parametrize("answer", HOSTILE, ids=lambda answer: answer.__name__)
def test_a_hostile_observer_changes_no_result_and_delays_two_seconds_an_event_at_most(answer):
    def execute(*_):
        record_charge(charge_id="c", charge_source="s")
        return SUCCESS

    with serving(answer) as server:
        server.leave = threading.Event()
        observer = AtFlowsObserver(server.url, TOKEN)
        with world(begin=[granted()], outcome=[accepted()], observer=observer) as there, waits.noted() as waits_s:
            result = there.client.run_operation(WORKFLOW, "upload", {"upload": Tool(execute=execute)}, run_id="run-1")
            # Whoever hangs or drips does so until now: no more than what is noted has kept the run.
            outcomes = there.server.calls("outcome")
            server.leave.set()

    assert result == {"url": "there"}
    assert len(outcomes) == 1
    assert len(waits_s) <= EVENTS
    assert all(wait_s <= 2 for wait_s in waits_s)


# --- The context variable ---


class Kept:
    def __init__(self):
        self.events = []

    def deliver(self, event):
        self.events.append(event)


def test_charges_of_asyncio_tasks_go_to_their_own_attempts():
    kept = Kept()
    watch = ContinuityObserver("", "", observer=kept)

    async def work(name):
        with watch.attempt(workflow_id="w", operation_id=name, attempt_id=name):
            await asyncio.sleep(0.01)
            assert await asyncio.to_thread(record_charge, charge_id=name, charge_source="s")
            await asyncio.create_task(charged_by_a_child(f"{name}-child"))

    async def charged_by_a_child(name):
        await asyncio.sleep(0)
        assert record_charge(charge_id=name, charge_source="s")

    async def everything():
        await asyncio.gather(*(work(f"a{n}") for n in range(4)))
        assert not record_charge(charge_id="x", charge_source="s")

    # In a thread of its own: a browser test of this process may keep a loop running in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, everything()).result()

    charges = {event.charge_id: event.attempt_id for event in kept.events if event.charge_id}
    assert charges == {f"a{n}{child}": f"a{n}" for n in range(4) for child in ("", "-child")}


def test_a_thread_that_was_started_inside_has_no_attempt_unless_it_is_given_the_context():
    import contextvars  # noqa: PLC0415

    kept, told = Kept(), []
    with ContinuityObserver("", "", observer=kept).attempt(workflow_id="w", operation_id="o"):
        context = contextvars.copy_context()
        for run in (record_charge, lambda **charge: context.run(record_charge, **charge)):
            thread = threading.Thread(target=lambda run=run: told.append(run(charge_id="c", charge_source="s")))
            thread.start()
            thread.join()

    assert told == [False, True]
