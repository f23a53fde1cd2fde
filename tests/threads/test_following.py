"""A follower sees every record once and in order, whatever breaks."""

from __future__ import annotations

import gc
import random
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice

import pytest

from app.streaming import STREAM_S
from continuity.errors import ConflictError, NotFoundError, TransportError, UnavailableError
from continuity.thread_requests import Position
from continuity.threads import following as threads_following
from continuity.threads.client import ThreadClient
from continuity.threads.following import Following
from tests.patience import PATIENCE_S, wait_for


def drained(client, thread_id, *, until):
    """Follow until the predicate holds of an update; return all of them."""
    updates = []
    for update in client.follow(thread_id):
        updates.append(update)
        if until(update):
            return updates
    raise AssertionError("the following ended")


def is_settled(update):
    return update.record is not None and update.record["kind"] == "run_settled"


def same(view, snapshot):
    """Compare what a follower holds with a snapshot, which has the newest messages alone and a cursor of its own."""
    held = {**view, "history_cursor": None, "messages": view["messages"][-len(snapshot["messages"]) :]}
    return held == {**snapshot, "history_cursor": None}


def test_a_follower_holds_what_a_snapshot_shows(town):
    hand, ann = town.by_hand(), town.talker()
    thread = hand.thread(ann)
    ann.message(thread, "Hello")
    claimed = hand.claim()
    hand.say(claimed, "m1", "Good ", "day")
    hand.write(claimed, "settle", output="Good day")

    updates = []
    following = ann.follow(thread)
    updates.append(next(following))
    ann.message(thread, "Again")
    claimed = hand.claim()
    hand.say(claimed, "m2", "Good ", "night")
    hand.write(claimed, "settle", output="Good night")
    for update in following:
        updates.append(update)
        if is_settled(update):
            break

    assert updates[0].record is None
    assert same(updates[-1].view, ann.snapshot(thread))
    assert [m["content"] for m in updates[-1].view["messages"]] == ["Hello", "Good day", "Again", "Good night"]
    assert updates[-1].view["thread"]["state"] == "idle"


LEAST_CUTS = 4


class Cutting(ThreadClient):
    """Its streams break after a few bytes, and some of its answers are lost."""

    cuts = 0

    @contextmanager
    def stream(self, thread_id, after):
        with super().stream(thread_id, after) as pieces:
            yield self._cut(pieces)

    def _cut(self, pieces):
        # The first ones early, so that they are met whatever the others are.
        left = random.randrange(20, 6_000 if Cutting.cuts >= LEAST_CUTS else 600)
        for piece in pieces:
            if len(piece) >= left:
                Cutting.cuts += 1
                yield piece[:left]
                raise TransportError("cut")
            left -= len(piece)
            yield piece


def test_streams_that_break_in_the_middle_lose_and_repeat_nothing(town):
    hand, ann = town.by_hand(), town.talker()
    thread = hand.thread(ann)
    client = Cutting(town.url, town.application, subject="ann", pause=lambda event, _s: event.wait(0.01))
    Cutting.cuts = 0
    ann.message(thread, "Hello")
    claimed = hand.claim()
    first = client.snapshot(thread)

    def write():
        number, ends_at_s = 0, time.monotonic() + PATIENCE_S
        # Until enough was cut: a reader that is slow beside the writer is told of much at once.
        while number < 60 or (Cutting.cuts < LEAST_CUTS and time.monotonic() < ends_at_s):
            number += 1
            hand.say(claimed, f"m{number}", f"part {number}", " and more")
        hand.write(claimed, "settle")

    writer = threading.Thread(target=write)
    writer.start()
    updates = drained(client, thread, until=is_settled)
    writer.join()

    start = Position.parse(updates[0].view["checkpoint"]).seq
    assert start >= Position.parse(first["checkpoint"]).seq
    seqs = [update.record["seq"] for update in updates if update.record is not None]
    assert seqs == list(range(start + 1, start + 1 + len(seqs)))
    assert [update for update in updates if update.record is None] == updates[:1]
    assert same(updates[-1].view, ann.snapshot(thread))
    assert Cutting.cuts >= LEAST_CUTS


class Endless:
    """A server whose stream never ends; says whether it was left."""

    def __init__(self):
        self.is_left = False

    def snapshot(self, _thread_id):
        return {"checkpoint": "1-0"}

    @contextmanager
    def stream(self, _thread_id, _after):
        try:
            yield iter([b": \n\n"] * 3)
        finally:
            self.is_left = True


def test_who_leaves_with_break_has_closed_the_stream(monkeypatch):
    """Without waiting for a collection, which would find the socket before the one that closes it."""
    monkeypatch.setattr(threads_following, "_advanced", lambda view, _record: {**view})
    monkeypatch.setattr(threads_following, "record_of", lambda _event: {})
    monkeypatch.setattr(threads_following, "read_events", lambda pieces: ("event" for _ in pieces))
    server = Endless()
    gc.disable()
    try:
        for number, _update in enumerate(Following(server, "th_1", pause=lambda *_wait: None)):
            if number == 2:
                break

        assert server.is_left
    finally:
        gc.enable()


def test_a_follower_without_a_place_for_a_stream_waits_for_pages(town):
    hand, ann = town.by_hand(), town.talker()
    thread = hand.thread(ann)
    checkpoint = ann.snapshot(thread)["checkpoint"]
    with ExitStack() as held:
        # Four of the sixteen threads of the server may stream.
        for _ in range(4):
            with suppress(UnavailableError):
                held.enter_context(ann.stream(thread, checkpoint))
        with pytest.raises(UnavailableError):
            held.enter_context(ann.stream(thread, checkpoint))
        following = ann.follow(thread)
        next(following)
        ann.message(thread, "Hello")
        kinds = [update.record["kind"] for update in islice(following, 3)]

    assert kinds == ["input_queued", "message_added", "run_queued"]


def test_whoever_leaves_a_stream_leaves_a_place_for_others(town):
    hand, ann = town.by_hand(), town.talker()
    thread = hand.thread(ann)
    checkpoint = ann.snapshot(thread)["checkpoint"]

    def opened():
        try:
            with ann.stream(thread, checkpoint):
                return True
        except UnavailableError:
            return False

    began_s = time.monotonic()
    for _ in range(8):
        wait_for(opened, what="a place is kept for somebody who has left")
    # Not when the stream would have ended by itself.
    assert time.monotonic() - began_s < STREAM_S


class Full:
    """A server that has no place for a stream, and none to wait for a page: it answers at once."""

    asked = 0

    def snapshot(self, _thread_id):
        return {"checkpoint": "1-1", "thread": {"state": "running"}}

    def stream(self, _thread_id, _after):
        raise UnavailableError("no place", retry_after_s=1)

    def journal(self, _thread_id, _after, *, wait_s=0):
        self.asked += 1
        assert self.asked < 50, "it asks without end"
        return {"records": [], "checkpoint": "1-1", "has_more": False}


class Ending(Full):
    """A server whose streams end before they have told anything, as while it stops."""

    @contextmanager
    def stream(self, thread_id, after):
        self.journal(thread_id, after)
        yield iter([b"retry: 1000\n\n"])


@pytest.mark.parametrize("source", [Full, Ending])
def test_a_follower_that_is_told_nothing_does_not_ask_again_at_once(source):
    waits = []

    def pause(stopped, wait_s):
        waits.append(wait_s)
        if len(waits) == 5:
            stopped.set()

    server = source()
    assert len(list(Following(server, "th_1", pause=pause))) == 1
    assert server.asked == 5
    assert min(waits) >= 1


def test_who_waits_for_a_thread_does_not_ask_again_at_once(town):
    hand, slept = town.by_hand(), []
    thread = hand.thread(town.talker())
    town.talker().message(thread, "Hello")
    now_s = [0.0]

    class Busy(ThreadClient):
        def journal(self, _thread_id, after, **_):
            assert len(slept) < 50, "it asks without end"
            return {"records": [], "checkpoint": after, "has_more": False}

    def sleep(wait_s):
        slept.append(wait_s)
        now_s[0] += wait_s

    client = Busy(town.url, town.application, subject="ann", clock=lambda: now_s[0], sleep=sleep)
    with pytest.raises(TimeoutError):
        client.wait(thread, timeout_s=4.5)
    assert sum(slept) == 4.5
    assert len(slept) == 5


def test_a_gap_loads_the_snapshot_again(town):
    hand, ann = town.by_hand(), town.talker()
    thread = hand.thread(ann)
    with pytest.raises(ConflictError) as refused:
        ann.journal(thread, "9-1")
    assert refused.value.code == "cursor_gap"
    assert Position.parse(refused.value.current["checkpoint"])

    class Behind(ThreadClient):
        snapshots = 0

        def snapshot(self, thread_id):
            Behind.snapshots += 1
            found = super().snapshot(thread_id)
            return {**found, "checkpoint": "9-1"} if Behind.snapshots == 1 else found

    following = Behind(town.url, town.application, subject="ann").follow(thread)
    next(following)
    again = next(following)
    assert again.record is None
    assert again.view["checkpoint"] == ann.snapshot(thread)["checkpoint"]


def test_a_thread_of_somebody_else_ends_the_following(town):
    hand, ann = town.by_hand(), town.talker()
    thread = hand.thread(ann)
    with pytest.raises(NotFoundError):
        next(town.talker("bob").follow(thread))


def test_a_following_is_stopped_from_another_thread(town):
    hand, ann = town.by_hand(), town.talker()
    following = ann.follow(hand.thread(ann))
    next(following)
    following.stop()
    following.close()
    assert list(following) == []


class Losing(ThreadClient):
    """The answers of its first writes are lost on the way."""

    def __init__(self, *args, **options):
        super().__init__(*args, sleep=lambda _s: None, **options)
        call = self._transport.call
        self.lost = []

        def lose(method, path, *rest, **more):
            answer = call(method, path, *rest, **more)
            if method == "POST" and path not in self.lost:
                self.lost.append(path)
                raise TransportError("lost")
            return answer

        self._transport.call = lose


def test_a_write_whose_answer_was_lost_is_done_once(town):
    hand = town.by_hand()
    ann = Losing(town.url, town.application, subject="ann")
    thread = hand.thread(ann)
    receipt = ann.message(thread, "Hello")
    assert ann.receipt(thread, receipt["request_id"]) == receipt
    claimed = hand.claim()
    ann.follow_up(thread, "And then")
    ann.stop(thread)
    snapshot = ann.snapshot(thread)
    assert len(ann.lost) == 4
    assert [message["content"] for message in snapshot["messages"]] == ["Hello"]
    assert [queued["content"] for queued in snapshot["queue"]] == ["And then"]
    assert len(snapshot["runs"]) == 1
    hand.write(claimed, "settle")
    assert ann.snapshot(thread)["runs"][0]["state"] == "stopped"


def test_requests_and_replies_go_round(town):
    hand, ann = town.by_hand(), town.talker()
    thread = hand.thread(ann, "talk-of-replies")
    assert ann.create("talk-of-replies", hand.agent)["thread_id"] == thread
    ann.message(thread, {"text": "Hello"})
    claimed = hand.claim()
    schema = {"type": "boolean"}
    question = {"task": "t1", "ordinal": 0, "kind": "approval", "schema": schema, "shown": {"what": "cancel"}}
    hand.write(claimed, "wait", requests=[question])
    (waiting,) = ann.snapshot(thread)["waiting"]
    with pytest.raises(ConflictError) as refused:
        ann.reply(thread, waiting["waiting_id"], True, revision=waiting["revision"] + 1)
    assert (refused.value.code, refused.value.current["waiting_revision"]) == ("stale_waiting_revision", 1)
    ann.reply(thread, waiting["waiting_id"], True, revision=waiting["revision"])
    again = hand.claim()
    assert [reply["reply"] for reply in again.run["replies"]] == [True]
    hand.write(again, "settle")
    assert ann.wait(thread)["thread"]["state"] == "idle"
    assert thread in {each["thread_id"] for each in ann.list(limit=50)["threads"]}
    assert hand.agent in {agent["name"] for agent in ann.agents()}
    ann.delete(thread)
    with pytest.raises((NotFoundError, ConflictError)):
        ann.snapshot(thread)
