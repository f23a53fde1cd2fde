"""A snapshot and what follows it are one story, while others write as fast as they can and connections are cut."""

from __future__ import annotations

import http.client
import threading
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from continuity.decisions.threads.transcript import advance
from continuity.errors import ConflictError
from continuity.thread_requests import Position
from continuity.threads.client import ThreadClient
from continuity.threads.events import read_events
from tests.patience import PATIENCE_S, wait_for
from tests.servers import start, stop
from tests.threads.cutting import Cutter
from tests.threads.town import Town

SHOWN = ("thread", "runs", "messages", "state", "queue", "waiting", "checkpoint")


@pytest.fixture
def own_town(instance_template, tmp_path):
    """A town whose server may be killed; the next one listens where it did."""
    servers = [start(instance_template.copy_to(tmp_path / "instance"))]
    made = Town(servers[0])

    def kill_and_start():
        servers[-1].kill()
        servers.append(start(servers[-1].instance, "--port", str(servers[-1].address[1])))

    made.kill_and_start = kill_and_start
    yield made
    for server in servers:
        stop(server)


LOADS = [pytest.param(150, id="few"), pytest.param(1_000, id="many", marks=pytest.mark.soak)]
CUTS = [pytest.param(40, id="few"), pytest.param(300, id="many", marks=pytest.mark.soak)]
MOST_BYTES = 12_000


class Writers:
    """A worker and a client that write into one thread as fast as the server takes it, until told to stop."""

    def __init__(self, town):
        self.hand = town.by_hand(state_keys=("todos",))
        self.ann = town.talker()
        self.thread = self.hand.thread(self.ann)
        self.is_over = threading.Event()
        self.problems = []
        self.accepted = ["begin"]
        self.ann.message(self.thread, "begin")
        self._threads = [threading.Thread(target=self._guard, args=(each,)) for each in (self._work, self._talk)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self._threads:
            thread.join()
        assert self.problems == []

    def _guard(self, write):
        try:
            write()
        except BaseException as error:
            self.problems.append(error)
            raise

    def _work(self):
        number = 0
        while not self.is_over.is_set():
            claimed = self.hand.calls.claim([self.hand.agent])
            if claimed is None:
                with suppress(ConflictError):
                    self.ann.message(self.thread, "on")
                    self.accepted.append("on")
                continue
            read = 0
            for _ in range(6):
                number += 1
                entries = [
                    {"kind": "message_started", "message_id": f"m{number}"},
                    {"kind": "message_part", "message_id": f"m{number}", "text": f"said {number}"},
                    {"kind": "message_ended", "message_id": f"m{number}"},
                    {"kind": "tool_started", "call_id": f"c{number}", "tool": "look"},
                    {"kind": "state_changed", "values": {"todos": [number]}},
                ]
                hold = self.hand.write(claimed, "append", steers_read=read, records=entries)
                read = max([read, *(steer["number"] for steer in hold["steers"])])
                ended = [{"kind": "tool_ended", "call_id": f"c{number}", "outcome": "ok", "result": number}]
                self.hand.write(claimed, "append", steers_read=read, records=ended)
            self.hand.write(claimed, "settle", steers_read=read, output=number)

    def _talk(self):
        number = 0
        while not self.is_over.is_set():
            number += 1
            say = self.ann.steer if number % 3 else self.ann.follow_up
            with suppress(ConflictError):
                say(self.thread, f"said {number}")
                self.accepted.append(f"said {number}")

    def journal(self):
        """Read the whole journal once more, after everybody has stopped."""
        return records_after(self.ann, self.thread, "1-0")

    def check(self, journal):
        """What was accepted is in the journal or in the queue, once; and the journal has no gap."""
        assert [record["seq"] for record in journal] == list(range(1, len(journal) + 1))
        told = [record["data"]["message"]["content"] for record in journal if record["kind"] == "message_added"]
        queued = [each["content"] for each in self.ann.snapshot(self.thread)["queue"]]
        assert sorted([*told, *queued]) == sorted(self.accepted)


def records_after(client, thread, after):
    found = []
    while True:
        page = client.journal(thread, after)
        found, after = found + page["records"], page["checkpoint"]
        if not page["has_more"]:
            return found


def window(snapshot):
    """What a snapshot shows of a thread that has more than it shows."""
    shown = {name: snapshot[name] for name in SHOWN}
    return {**shown, "runs": shown["runs"][-20:], "messages": shown["messages"][-50:]}


@pytest.mark.parametrize("loads", LOADS)
def test_every_load_gives_every_record_once_and_in_order(town, loads, record_property):
    loaded = []
    with Writers(town) as writers:
        reader = town.talker()
        held = None
        # Until there is more than a record a load, whoever is the faster one.
        while len(loaded) < loads or loaded[-1][0] <= loads:
            fresh = reader.snapshot(writers.thread)
            if not loaded:
                # Once it is certain that somebody writes in the middle of a load; then as it comes.
                wait_for(lambda at=fresh["checkpoint"]: reader.snapshot(writers.thread)["checkpoint"] != at)
            records = records_after(reader, writers.thread, fresh["checkpoint"])
            loaded.append((Position.parse(fresh["checkpoint"]).seq, [record["seq"] for record in records]))
            if held is not None:
                # What the load before holds by now is what this one has begun with.
                between = records_after(reader, writers.thread, held["checkpoint"])
                for record in between:
                    if record["seq"] <= loaded[-1][0]:
                        held = advance(held, record)
                assert window(held) == window(fresh)
            held = fresh
            for record in records:
                held = advance(held, record)

    journal = writers.journal()
    writers.check(journal)
    for seq, seqs in loaded:
        assert seqs == list(range(seq + 1, seq + 1 + len(seqs)))
    assert len(journal) > loads
    written_meanwhile = sum(bool(seqs) for _, seqs in loaded)
    record_property("records", len(journal))
    record_property("loads with records behind their checkpoint", written_meanwhile)
    assert written_meanwhile > 0, "nobody wrote in the middle of a load"


@pytest.mark.parametrize("cuts", CUTS)
def test_a_follower_whose_connections_are_cut_loses_and_repeats_nothing(town, cuts, record_property):
    parts = urlsplit(town.url)
    with Cutter((parts.hostname, parts.port), seed=cuts, most_bytes=MOST_BYTES) as cutter:
        client = ThreadClient(
            cutter.url, town.application, subject="ann", pause=lambda event, _s: event.wait(0.005)
        )  # fmt: skip
        with Writers(town) as writers:
            following = client.follow(writers.thread)
            updates = []
            while cutter.cuts < cuts:
                updates.append(next(following))
        journal = writers.journal()
        last = journal[-1]["position"]
        while updates[-1].view["checkpoint"] != last:
            updates.append(next(following))
        following.close()

    record_property("records", len(journal))
    writers.check(journal)
    assert [number for number, update in enumerate(updates) if update.record is None] == [0]
    start = Position.parse(updates[0].view["checkpoint"]).seq
    assert [update.record for update in updates[1:]] == journal[start:]
    assert window(updates[-1].view) == window(writers.ann.snapshot(writers.thread))


def events_until_cut(url, thread, headers, after):
    """Read a stream as a browser does, with the id of the last whole event, until it ends."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_S)
    found = []

    def pieces(reply):
        while piece := reply.read1(512):
            yield piece

    try:
        connection.request(
            "GET", f"/v1/threads/{thread}/journal?after=1-0",
            headers={**headers, "Accept": "text/event-stream", "Last-Event-ID": after},
        )  # fmt: skip
        reply = connection.getresponse()
        # Where a cut stream has not ended yet for the server, its place is not free.
        if reply.status == 200:
            # One for front ends alone has none.
            found.extend(event.id for event in read_events(pieces(reply)) if event.id)
    except (http.client.HTTPException, ConnectionError):
        return found
    finally:
        connection.close()
    return found


def test_a_stream_that_is_cut_anywhere_goes_on_behind_the_last_whole_event(town):
    headers = {"Authorization": f"Bearer {town.application}", "Atmem-Subject": "ann"}
    parts = urlsplit(town.url)
    seen = []
    with (
        Cutter((parts.hostname, parts.port), seed=7, most_bytes=6_000) as cutter,
        Writers(town) as writers,
    ):
        while cutter.cuts < 25 or len(seen) < 50:
            after = seen[-1] if seen else "1-0"
            seen += events_until_cut(cutter.url, writers.thread, headers, after)
            writers.is_over.wait(0.02)

    journal = [record["position"] for record in writers.journal()]
    assert seen == journal[: len(seen)]


def test_a_follower_goes_on_when_the_server_was_killed(own_town):
    hand, ann = own_town.by_hand(), own_town.talker()
    thread = hand.thread(ann)
    ann.message(thread, "Hello")
    claimed = hand.claim()
    updates, ends = [], threading.Event()
    following = ann.follow(thread)

    def follow():
        for update in following:
            updates.append(update)
            if update.record is not None and update.record["kind"] == "run_settled":
                break
        ends.set()

    follower = threading.Thread(target=follow)
    follower.start()
    for number in range(3):
        hand.say(claimed, f"a{number}", "before")
        if number == 1:
            wait_for(lambda: len(updates) > 3, what="nothing was followed")
            own_town.kill_and_start()
    hand.write(claimed, "settle")
    assert ends.wait(PATIENCE_S)
    follower.join()

    journal = records_after(ann, thread, "1-0")
    start = Position.parse(updates[0].view["checkpoint"]).seq
    assert [update.record for update in updates[1:]] == journal[start:]
