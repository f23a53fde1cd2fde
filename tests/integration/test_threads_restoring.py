"""However a reader's loads and pages fall between the writes of others, it sees every record once and in order."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from continuity.decisions.threads import transcript
from continuity.errors import ConflictError
from continuity.thread_requests import Position
from tests.integration.conversing import Conversing, converse, question, said

SHOWN = ("thread", "runs", "messages", "state", "queue", "waiting", "checkpoint")
WRITES = ("say", "append", "append", "call", "wait", "reply", "settle", "fail", "expire", "resume", "stop")
READS = ("load", "load", "page", "page", "page", "page")
STEPS = st.lists(
    st.tuples(st.sampled_from((*WRITES, *READS)), st.integers(0, 2), st.integers(1, 4)), min_size=15, max_size=60
)
AMOUNTS = [pytest.param(20, id="few"), pytest.param(200, id="many", marks=pytest.mark.soak)]


class Story:
    """One thread, whoever writes into it, and three readers of it."""

    def __init__(self, at: Conversing) -> None:
        self.at = at
        self.client = at.application("s-1")
        self.thread_id = at.create(by=self.client)
        self.held = None
        self.asked = []
        self.numbers = iter(range(10**6))
        self.views, self.begun, self.seen = [{}, {}, {}], [0, 0, 0], [[], [], []]
        for reader in range(3):
            self.load(reader)

    # ---- writes; what the thread does not allow in its situation is refused, and changes nothing

    def say(self):
        try:
            self.at.say(self.thread_id, f"said {next(self.numbers)}", by=self.client)
        except ConflictError:
            how = "steer" if next(self.numbers) % 2 else "follow_up"
            self.at.say(self.thread_id, f"said {next(self.numbers)}", how=how, by=self.client)

    def _hold(self):
        claimed = self.at.claim()
        if claimed is not None and claimed.run["thread_id"] == self.thread_id:
            self.held = claimed
        return self.held

    def append(self):
        if self._hold():
            self.at.append(self.held, *said(f"told {next(self.numbers)}"))

    def call(self):
        if self._hold():
            call_id = f"c{next(self.numbers)}"
            self.at.append(self.held, {"kind": "tool_started", "call_id": call_id, "tool": "t"})
            values = {"kind": "state_changed", "values": {"todos": [call_id]}}
            self.at.append(self.held, {"kind": "tool_ended", "call_id": call_id, "outcome": "ok"}, values)

    def wait(self):
        if self._hold():
            self.asked = [each["waiting_id"] for each in self.at.wait(self.held, question(), question("t2"))["waiting"]]

    def reply(self):
        if self.asked:
            self.at.reply(self.thread_id, self.asked.pop(), True, by=self.client)

    def settle(self):
        if self._hold():
            self.at.settle(self.held, {"answer": next(self.numbers)})

    def fail(self):
        if self._hold():
            self.at.fail(self.held)

    def expire(self):
        self.at.clock.advance(61)
        self.at.upkeep.expire_due()

    def resume(self):
        self.at.control(self.thread_id, "resume", by=self.client)

    def stop(self):
        self.at.control(self.thread_id, "stop", by=self.client)

    # ---- readers

    def load(self, reader):
        self.views[reader] = self.at.snapshot(self.thread_id, by=self.client)
        self.begun[reader] = Position.parse(self.views[reader]["checkpoint"]).seq
        self.seen[reader] = []

    def page(self, reader, limit):
        after = Position.parse(self.views[reader]["checkpoint"])
        page = self.at.reading.journal(self.client, self.thread_id, after, limit=limit)
        for record in page["records"]:
            self.views[reader] = transcript.advance(self.views[reader], record)
            self.seen[reader].append(record["seq"])
        return page["has_more"]

    def check(self):
        journal = self.at.records(self.thread_id, by=self.client)
        fresh = self.at.snapshot(self.thread_id, by=self.client)
        for reader in range(3):
            while self.page(reader, 3):
                pass
            assert self.seen[reader] == [record["seq"] for record in journal[self.begun[reader] :]]
            assert shown(self.views[reader]) == shown(fresh)


def shown(view):
    """What a snapshot shows: the newest of what a reader holds that began earlier."""
    held = {name: view[name] for name in SHOWN}
    return {**held, "runs": held["runs"][-20:], "messages": held["messages"][-50:]}


@pytest.mark.parametrize("amount", AMOUNTS)
def test_however_loads_and_pages_fall_between_writes_every_record_is_seen_once_and_in_order(store, tmp_path, amount):
    at = converse(store, tmp_path)

    @settings(
        max_examples=amount,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        phases=[Phase.generate],
    )
    @given(steps=STEPS)
    def told(steps):
        story = Story(at)
        for name, reader, limit in steps:
            if name == "load":
                story.load(reader)
            elif name == "page":
                story.page(reader, limit)
            else:
                with suppress(ConflictError):
                    getattr(story, name)()
        story.check()
        # Runs of this story are not the next one's to claim.
        with suppress(ConflictError):
            story.stop()
        if story.held is not None:
            with suppress(ConflictError):
                at.settle(story.held)

    told()
