"""The journal of a thread over HTTP: pages, long polls and streams, each record once and in order."""

from __future__ import annotations

import json
import threading
import time

import pytest

from continuity.thread_requests import AppendRequest, SayRequest
from tests.web.matrix import World
from tests.web.site import site_on
from tests.web.thread_rows import SECRET, THREADS, owner_of, thread

SUBJECT = {"Atmem-Subject": "ann"}


@pytest.fixture(scope="module")
def world(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("threads") / "instance")
    with site_on(instance.folder) as site:
        yield World(site)


@pytest.fixture
def headers(world):
    return {"Authorization": f"Bearer {world._tokens['application']}", **SUBJECT}


def say(world, thread_id, text="Hello"):
    """Say something to the thread's run, or to the thread; returns the position of the last record."""
    asked = SayRequest.from_json({"request_id": world.new_name("rq"), "content": text})
    acting, owner = world.site.wiring.threads.acting, owner_of(world)
    said = acting.message if _is_idle(world, thread_id) else acting.follow_up
    world.site.wiring.threads.streams.signals.give()
    return said(owner, thread_id, asked)["position"]


def _is_idle(world, thread_id):
    return world.site.wiring.threads.reading.pulse(owner_of(world), thread_id).state == "idle"


def journal(world, thread_id, after, headers, **query):
    more = "".join(f"&{name}={value}" for name, value in query.items())
    return world.site.browser().send("GET", f"{THREADS}/{thread_id}/journal?after={after}{more}", headers=headers)


def snapshot(world, thread_id, headers):
    return world.site.browser().send("GET", f"{THREADS}/{thread_id}", headers=headers).json


class Stream:
    """A stream of events, read as it comes."""

    def __init__(self, world, thread_id, headers, *, after=None, last=None):
        query = "" if after is None else f"?after={after}"
        wanted = {**headers, "Accept": "text/event-stream", **({} if last is None else {"Last-Event-ID": last})}
        browser = world.site.browser()
        self.response = browser.client.open(
            f"{THREADS}/{thread_id}/journal{query}", headers=wanted, base_url=browser.base_url, buffered=False
        )
        self._chunks = self.response.iter_encoded()
        self._text = ""

    def events(self, count):
        """Return the next events, each as (name, id or None, data)."""
        found = []
        while len(found) < count:
            block, separator, rest = self._text.partition("\n\n")
            if not separator:
                self._text += next(self._chunks).decode()
                continue
            self._text = rest
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "data" in fields:
                found.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
        return found

    def ends(self):
        return "".join(chunk.decode() for chunk in self._chunks) == ""

    def close(self):
        self.response.close()


@pytest.fixture
def stream(world):
    opened = []

    def open_stream(*arguments, **more):
        opened.append(Stream(world, *arguments, **more))
        return opened[-1]

    yield open_stream
    for each in opened:
        each.close()


def test_a_snapshot_and_the_records_behind_it_are_everything(world, headers):
    thread_id, _ = thread(world)
    checkpoint = snapshot(world, thread_id, headers)["checkpoint"]
    last = say(world, thread_id)

    page = journal(world, thread_id, checkpoint, headers).json

    assert page["records"][-1]["position"] == page["checkpoint"] == last
    assert [record["seq"] for record in page["records"]] == sorted({record["seq"] for record in page["records"]})
    assert journal(world, thread_id, last, headers).json["records"] == []


def test_pages_of_one_record_are_all_of_it(world, headers):
    thread_id, _ = thread(world, "waiting")
    whole = journal(world, thread_id, "1-0", headers).json["records"]

    found, after = [], "1-0"
    while True:
        page = journal(world, thread_id, after, headers, limit=1).json
        found += page["records"]
        after = page["checkpoint"]
        if not page["has_more"]:
            break

    assert found == whole
    assert len(whole) > 5


@pytest.mark.parametrize("after", ["1-99999", "2-0", "0-1"])
def test_a_position_that_is_none_of_this_journal_asks_for_the_snapshot(world, headers, after):
    thread_id, _ = thread(world)

    reply = journal(world, thread_id, after, headers)

    assert (reply.status_code, reply.json["error"]["code"]) == (409, "cursor_gap")
    assert reply.json["error"]["current"]["checkpoint"] == snapshot(world, thread_id, headers)["checkpoint"]


@pytest.mark.parametrize(
    "query",
    ["after=x", "after=1", "after=1-0&limit=0", "after=1-0&limit=201", "after=1-0&wait=26", "after=1-0&wait=x"],
)
def test_what_a_query_may_not_hold_is_named(world, headers, query):
    thread_id, _ = thread(world)

    reply = world.site.browser().send("GET", f"{THREADS}/{thread_id}/journal?{query}", headers=headers)

    assert reply.status_code == 400


def test_a_page_without_a_limit_holds_as_many_records_as_the_contract_says(world, headers):
    contract = world.site.browser().send("GET", "/openapi.json").json
    parameters = contract["paths"][f"{THREADS}/{{thread_id}}/journal"]["get"]["parameters"]
    limit = next(each["schema"] for each in parameters if each["name"] == "limit")
    thread_id, known = thread(world, "claimed")
    worker, hold = world.caller_of("thread worker"), {"generation": known["generation"], "secret": SECRET}
    for number in range(2):
        entries = {"request_id": f"full-{number}", "records": [{"kind": "progress", "data": number}] * 100}
        asked = AppendRequest.from_json({**hold, **entries})
        world.site.wiring.threads.work.append(worker, known["run_id"], asked)

    records = journal(world, thread_id, "1-0", headers).json["records"]

    assert len(records) == limit["default"] == limit["maximum"]


def test_a_long_poll_is_answered_when_there_is_something(world, headers):
    thread_id, _ = thread(world)
    checkpoint = snapshot(world, thread_id, headers)["checkpoint"]
    speaker = threading.Timer(0.3, say, (world, thread_id))
    speaker.start()
    started = time.monotonic()

    page = journal(world, thread_id, checkpoint, headers, wait=20).json

    took_s = time.monotonic() - started
    speaker.join()
    assert page["records"]
    # Before the end of the time that it would have waited for.
    assert took_s < 20


def test_a_long_poll_without_news_ends_with_none(world, headers):
    thread_id, _ = thread(world)
    checkpoint = snapshot(world, thread_id, headers)["checkpoint"]
    started = time.monotonic()

    page = journal(world, thread_id, checkpoint, headers, wait=1).json

    assert page == {"records": [], "checkpoint": checkpoint, "has_more": False}
    assert time.monotonic() - started >= 0.9


def test_a_stream_gives_every_record_once_with_its_position(world, headers, stream):
    thread_id, _ = thread(world)
    following = stream(thread_id, headers, after="1-0")
    known = journal(world, thread_id, "1-0", headers).json["records"]
    first = following.events(len(known))
    last = say(world, thread_id)
    behind = journal(world, thread_id, known[-1]["position"], headers).json["records"]

    later = following.events(len(behind))

    assert [event[2]["rawEvent"] for event in first + later] == known + behind
    assert [event[1] for event in first + later] == [record["position"] for record in known + behind]
    assert later[-1][1] == last


def test_a_stream_goes_on_behind_the_last_event_that_was_read(world, headers, stream):
    thread_id, _ = thread(world, "waiting")
    records = journal(world, thread_id, "1-0", headers).json["records"]

    following = stream(thread_id, headers, after="1-0", last=records[2]["position"])

    events = following.events(len(records) - 3)
    assert [event[1] for event in events] == [record["position"] for record in records[3:]]


def test_a_stream_that_cannot_go_on_says_so_and_ends(world, headers, stream):
    thread_id, _ = thread(world)

    following = stream(thread_id, headers, after="1-4711")

    (event,) = following.events(1)
    assert (following.response.status_code, event[0], event[1]) == (200, "cursor_gap", None)
    assert following.ends()


def test_events_have_the_names_that_front_ends_know(world, headers, stream):
    thread_id, _ = thread(world, "waiting")
    count = len(journal(world, thread_id, "1-0", headers).json["records"])

    events = {event[0]: event[2] for event in stream(thread_id, headers, after="1-0").events(count)}

    assert {"TEXT_MESSAGE_CHUNK", "RUN_STARTED", "RUN_FINISHED", "CUSTOM"} <= events.keys()
    assert events["RUN_STARTED"]["threadId"] == thread_id
    assert (events["TEXT_MESSAGE_CHUNK"]["role"], events["TEXT_MESSAGE_CHUNK"]["delta"]) == ("user", "Hello")


def test_whoever_may_not_read_gets_a_status_and_no_stream(world, headers, stream):
    thread_id, _ = thread(world)

    following = stream(thread_id, {**headers, "Atmem-Subject": "bob"}, after="1-0")

    assert following.response.status_code == 404


def test_a_stream_ends_when_the_thread_is_deleted(world, headers, stream):
    thread_id, _ = thread(world)
    count = len(journal(world, thread_id, "1-0", headers).json["records"])
    following = stream(thread_id, headers, after="1-0")
    following.events(count)

    assert world.site.browser().send("DELETE", f"{THREADS}/{thread_id}", headers=headers).status_code == 200

    (event,) = following.events(1)
    assert event[0] in {"not_found", "thread_deleted"}
    assert following.ends()


def test_when_every_place_is_taken_others_poll_and_a_place_that_is_left_is_free(world, headers, stream):
    thread_id, _ = thread(world)
    places = world.site.wiring.threads.streams.places
    streams = [stream(thread_id, headers, after="1-0") for _ in range(places.most)]
    for each in streams:
        each.events(1)

    refused = stream(thread_id, headers, after="1-0").response
    polled = journal(world, thread_id, "1-0", headers, wait=20)
    streams[0].close()

    assert (refused.status_code, refused.json["error"]["code"]) == (503, "storage_unavailable")
    assert polled.json["records"]
    assert stream(thread_id, headers, after="1-0").response.status_code == 200


@pytest.mark.parametrize("subject", ["", "two words", "x" * 129, "a/b"])
def test_a_subject_that_is_none_is_refused(world, headers, subject):
    thread_id, _ = thread(world)

    reply = world.site.browser().send("GET", f"{THREADS}/{thread_id}", headers={**headers, "Atmem-Subject": subject})

    assert reply.status_code == 400


def test_the_subject_of_body_and_header_must_be_one(world, headers):
    body = {"request_id": world.new_name("rq"), "name": world.new_name("named"), "agent": "support", "subject": "bob"}

    assert world.site.browser().send("POST", THREADS, body, headers=headers).status_code == 400
    assert world.site.browser().send("POST", THREADS, {**body, "subject": "ann"}, headers=headers).status_code == 200
