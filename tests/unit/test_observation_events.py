"""The event ``atmem.continuity.v1``: what it takes and what it refuses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from continuity.errors import MalformedError
from observations.events import (
    AMOUNT_MAX,
    EVENT_BYTES,
    FORMAT,
    TIME_MAX,
    CachedBasis,
    Event,
    EventName,
    parse_event,
    read_event,
)

LEAST = {
    "format": FORMAT, "event_id": "ev_1", "workflow_id": "wf_1", "operation_id": "op_1", "run_id": "run_1",
    "attempt_id": "at_1", "event": "execute", "time": 1_700_000_000.25,
}  # fmt: skip
CHARGE = {"charge_id": "resp_1", "charge_source": "account"}


def event(**over):
    return {**LEAST, **over}


@pytest.mark.parametrize("name", [member.value for member in EventName])
def test_every_event_of_the_schema_is_read(name):
    assert parse_event(event(event=name)).event == name


@pytest.mark.parametrize(
    "more",
    [
        {"retry": True, "recovery": False}, CHARGE, {**CHARGE, "input_tokens": 0, "output_tokens": AMOUNT_MAX},
        {**CHARGE, "cost_microusd": 0, "price_source": "list-2026-01"}, {"price_source": "list"}, {"model": "m" * 128},
        {**CHARGE, "cached_input_tokens": 5, "cached_basis": "included"},
        {"charge_id": "é" * 256, "charge_source": "x"},
        {"time": 0}, {"time": TIME_MAX}, {"event_id": "x" * 128}, {"charge_id": None, "cost_microusd": None},
    ],
)  # fmt: skip
def test_what_the_rules_allow_is_read(more):
    parsed = parse_event(event(**more))

    assert parsed.to_json() == {name: value for name, value in event(**more).items() if value is not None}


@pytest.mark.parametrize("name", ["cost_microusd", "input_tokens", "output_tokens", "cached_input_tokens"])
@pytest.mark.parametrize("written", ["1.0", "1e3", "0.0", "9007199254740990.6", "1.5", "-0.0"])
def test_an_amount_that_is_written_as_a_float_is_refused(name, written):
    whole = json.dumps(event(**CHARGE, price_source="p", **{name: 77}))
    assert getattr(read_event(whole.encode()), name) == 77

    with pytest.raises(MalformedError, match=name):
        read_event(whole.replace(" 77", f" {written}").encode())


def test_a_time_may_be_written_in_any_way_and_is_the_same_event():
    texts = [json.dumps(event()).replace("1700000000.25", time) for time in ("1700000000", "1700000000.0", "17e8")]

    assert len({read_event(text.encode()) for text in texts}) == 1


@pytest.mark.parametrize("name", list(LEAST))
def test_every_required_field_is_required(name):
    for value in (None, "absent"):
        given_event = {key: member for key, member in LEAST.items() if key != name}
        if value is None:
            given_event[name] = None
        with pytest.raises(MalformedError):
            parse_event(given_event)


@pytest.mark.parametrize(
    "more",
    [
        {"format": "atmem.continuity.v2"}, {"extra": 1}, {"extra": None}, {"scope": "local"}, {"cost_usd": 1},
        {"event": "started"}, {"event": 1}, {"event": []}, {"event_id": ""}, {"event_id": "x" * 129},
        {"event_id": "a b"}, {"event_id": "ev_1\n"}, {"run_id": 5}, {"attempt_id": "ünï"},
        {"time": -1}, {"time": TIME_MAX + 1}, {"time": float("nan")}, {"time": float("inf")}, {"time": "1"},
        {"time": True}, {"retry": 1}, {"retry": "true"}, {"recovery": 0},
        {"charge_id": "x"}, {"charge_source": "x"}, {"charge_id": "", "charge_source": "x"},
        {"charge_id": "x" * 257, "charge_source": "x"}, {"charge_id": "x", "charge_source": "x" * 129},
        {"charge_id": "\x00", "charge_source": "x"}, {"charge_id": "\ud800", "charge_source": "x"},
        {"charge_id": 1, "charge_source": "x"}, {"input_tokens": 1}, {"output_tokens": 0}, {"cached_input_tokens": 1},
        {"cost_microusd": 1}, {**CHARGE, "cost_microusd": 1}, {**CHARGE, "cost_microusd": 1.5, "price_source": "p"},
        {**CHARGE, "cost_microusd": True, "price_source": "p"}, {**CHARGE, "cost_microusd": -1, "price_source": "p"},
        {**CHARGE, "input_tokens": 2**53}, {**CHARGE, "input_tokens": "5"}, {**CHARGE, "input_tokens": 5.0},
        {"price_source": "x" * 257}, {"model": "x" * 129}, {"cached_basis": "some"}, {"cached_basis": True},
    ],
)  # fmt: skip
def test_whatever_breaks_a_rule_is_refused_and_not_repeated_in_the_message(more):
    with pytest.raises(MalformedError) as caught:
        parse_event(event(**more))

    assert "x" * 20 not in str(caught.value)


@pytest.mark.parametrize("value", [None, [], "event", 1, [LEAST]])
def test_what_is_no_object_is_no_event(value):
    with pytest.raises(MalformedError):
        parse_event(value)


def test_making_one_checks_as_reading_one_does():
    known = {name: value for name, value in LEAST.items() if name not in ("format", "event")}

    with pytest.raises(MalformedError):
        Event(**known, event="execute")
    with pytest.raises(MalformedError):
        Event(**known, event=EventName.USAGE, cost_microusd=1)
    with pytest.raises(MalformedError):
        Event(**known, event=EventName.USAGE, cached_basis="included")


ids = st.from_regex(r"[A-Za-z0-9_-]{1,128}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1, max_size=128)
amounts = st.none() | st.integers(0, AMOUNT_MAX)
events = st.builds(
    Event, event_id=ids, workflow_id=ids, operation_id=ids, run_id=ids, attempt_id=ids,
    event=st.sampled_from(EventName), time=st.floats(0, TIME_MAX), retry=st.none() | st.booleans(),
    recovery=st.none() | st.booleans(), charge_id=texts, charge_source=texts, price_source=texts, model=texts,
    cost_microusd=amounts, input_tokens=amounts, output_tokens=amounts, cached_input_tokens=amounts,
    cached_basis=st.none() | st.sampled_from(CachedBasis),
)  # fmt: skip


@given(events)
def test_an_event_travels_and_comes_back_the_same(made):
    body = json.dumps(made.to_json(), ensure_ascii=False).encode()

    assert parse_event(json.loads(body)) == made
    assert len(body) <= EVENT_BYTES


@given(st.dictionaries(st.sampled_from([*LEAST, *CHARGE, "cost_microusd", "x"]), st.none() | st.integers() | st.text()))
def test_any_object_is_either_read_or_malformed(value):
    try:
        parse_event(event(**value))
    except MalformedError:
        return
    assert set(value) <= {*LEAST, *CHARGE, "cost_microusd"}
