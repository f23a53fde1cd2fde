"""A head goes to JSON and comes back, whatever it holds; a client's view advances as the server's rows do."""

from __future__ import annotations

import json

import pytest

from continuity.decisions.threads import bounds, transcript
from continuity.decisions.threads.records import head_from_json, head_to_json
from continuity.decisions.threads.states import Situation
from continuity.errors import TooLargeError
from tests.unit.thread_cases import EVENTS, at, meet


@pytest.mark.parametrize("situation", Situation)
def test_a_head_comes_back_from_json(situation):
    heads = [at(situation), *(met for event in EVENTS if not isinstance(met := meet(at(situation), event), str))]

    for head in heads:
        assert head_from_json(json.loads(json.dumps(head_to_json(head))), thread_id=head.thread_id) == head


def record(kind, seq=1, **data):
    return {"seq": seq, "position": f"1-{seq}", "kind": kind, "at": 5, "run_id": "rn_1", "generation": 1, "data": data}


def test_a_message_begun_again_starts_afresh_and_keeps_its_place():
    begun = record("message_started", item_no=3, message_id="m")
    part = record("message_part", item_no=3, message_id="m", text="ab")
    item = transcript.fold_item(transcript.fold_item(None, begun), part)

    assert item["content"] == "ab"
    again = transcript.fold_item(item, {**begun, "run_id": "rn_2", "at": 9})
    assert (again["content"], again["run_id"], again["at"], again["item_no"]) == ("", "rn_2", 5, 3)


def test_a_message_holds_so_much_and_no_more():
    item = transcript.fold_item(None, record("message_started", item_no=1, message_id="m"))
    full = transcript.fold_item(
        item, record("message_part", item_no=1, message_id="m", text="x" * bounds.MESSAGE_CHARS)
    )

    with pytest.raises(TooLargeError):
        transcript.fold_item(full, record("message_part", item_no=1, message_id="m", text="x"))


def test_null_takes_declared_state_away():
    assert transcript.fold_state({"a": 1, "b": 2}, {"a": None, "c": 3}) == {"b": 2, "c": 3}


def test_advancing_changes_no_view_that_somebody_holds():
    view = {"thread": {"state": "idle"}, "messages": [], "state": {}, "queue": [], "waiting": [], "runs": [],
            "checkpoint": "1-0"}  # fmt: skip
    before = json.dumps(view)

    after = transcript.advance(view, record("message_started", item_no=1, message_id="m"))
    later = transcript.advance(after, record("message_ended", 2, item_no=1, message_id="m"))

    assert json.dumps(view) == before
    assert (after["messages"][0]["status"], later["messages"][0]["status"]) == ("open", "done")
    assert later["checkpoint"] == "1-2"


def test_a_kind_of_record_that_a_client_does_not_know_moves_its_checkpoint_alone():
    view = {"thread": {}, "messages": [], "checkpoint": "1-0"}

    assert transcript.advance(view, record("something_new", thing=1)) == {**view, "checkpoint": "1-1"}


def test_a_bounded_view_has_the_newest_and_what_has_not_ended_at_every_record():
    whole = {"thread": {"state": "idle"}, "messages": [], "state": {}, "queue": [], "waiting": [], "runs": [],
             "checkpoint": "1-0"}  # fmt: skip
    held = whole
    told = [("message_started", {"item_no": 1, "message_id": "m1"})]
    for number in range(2, 80):
        told += [(f"message_{what}", {"item_no": number, "message_id": f"m{number}"}) for what in ("started", "ended")]
        told.append(("run_queued", {"number": number, "cause": "message", "resumes": None}))
    told.append(("message_part", {"item_no": 1, "message_id": "m1", "text": "late"}))

    for seq, (kind, data) in enumerate(told, start=1):
        whole = transcript.advance(whole, record(kind, seq, **data))
        held = transcript.bounded(transcript.advance(held, record(kind, seq, **data)), messages=5, runs=3)

        assert held["messages"][-5:] == whole["messages"][-5:]
        assert held["runs"][-3:] == whole["runs"][-3:]
        assert whole["messages"][0] in held["messages"]
        assert len(held["messages"]) <= 11
        assert len(held["runs"]) <= 6
