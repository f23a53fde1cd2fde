"""A call that answers with JSON, as a tool."""

from __future__ import annotations

import pytest

from continuity.callbacks import NotDispatched, Refused, Tool
from continuity.client import RecoveryBlocked
from continuity.tools import JsonResponseTool
from tests.sdk.scripts import OPERATION, WORKFLOW, accepted, granted, world


def answering(answer):
    return lambda *_: answer


@pytest.mark.parametrize(
    ("answer", "effect_id"),
    [
        ({"id": "resp_1", "x": 1}, "resp_1"),
        ({"id": 7}, "7"),
        ({"id": ""}, "sha256:"),
        ({"id": True}, "sha256:"),
        ({"id": None}, "sha256:"),
        ({}, "sha256:"),
        ([1, 2], "sha256:"),
        ("text", "sha256:"),
        (None, "sha256:"),
        (0, "sha256:"),
    ],
)
def test_any_answer_becomes_a_success_with_an_identifier(answer, effect_id):
    tool = JsonResponseTool(answering(answer))

    with world(begin=[granted()], outcome=[accepted()]) as there:
        assert there.client.run_operation(WORKFLOW, "upload", {"upload": tool}) == answer

        (receipt,) = there.receipts()
    assert receipt["outcome"] == "confirmed_succeeded"
    assert receipt["effect_id"].startswith(effect_id)
    assert receipt["operation_id"] == OPERATION


def test_the_call_gets_what_every_callback_gets():
    calls = []
    tool = JsonResponseTool(lambda *arguments: calls.append(arguments))

    tool.execute({"a": 1}, OPERATION, "ik", 5.0)

    assert calls == [({"a": 1}, OPERATION, "ik", 5.0)]


def test_an_identifier_can_be_picked_by_the_host():
    tool = JsonResponseTool(answering({"data": {"uid": "u1"}}), effect_id=lambda answer: answer["data"]["uid"])

    assert tool.execute({}, OPERATION, "ik", 5)["effect_id"] == "u1"


def test_what_the_destination_knows_is_found_and_what_it_does_not_know_is_absent():
    known, unknown = (JsonResponseTool(answering(1), find=answering(answer)) for answer in ({"id": "e"}, None))

    assert known.query({}, OPERATION, "ik", 5)["outcome"] == "confirmed_succeeded"
    assert unknown.query({}, OPERATION, "ik", 5) == {"outcome": "absent", "operation_id": OPERATION}


def test_without_a_way_to_find_there_is_no_query():
    assert JsonResponseTool(answering(1)).query is None


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotDispatched(), "pending", "not_dispatched"),
        (Refused(), "refused", "refused_by_destination"),
        (TimeoutError(), "uncertain", "outcome_unknown"),
        (RuntimeError("HTTP 500"), "uncertain", "outcome_unknown"),
    ],
)
def test_what_the_call_raises_is_not_a_success(error, status, code):
    def call(*_):
        raise error

    with (
        world(begin=[granted()], outcome=[accepted(status)]) as there,
        pytest.raises(RecoveryBlocked) as caught,
    ):
        there.client.run_operation(WORKFLOW, "upload", {"upload": JsonResponseTool(call)})

    assert caught.value.code == code


@pytest.mark.parametrize("answer", [object(), float("nan"), "x" * 70_000, {1: 2}])
def test_an_answer_that_cannot_be_kept_leaves_the_outcome_unknown(answer):
    with (
        world(begin=[granted()], outcome=[accepted("uncertain")]) as there,
        pytest.raises(RecoveryBlocked) as caught,
    ):
        there.client.run_operation(WORKFLOW, "upload", {"upload": JsonResponseTool(answering(answer))})

    assert caught.value.code == "outcome_unknown"


def test_both_kinds_of_tool_can_stand_side_by_side():
    tools = {"upload": Tool(execute=answering({})), "call": JsonResponseTool(answering(1), find=answering(None))}

    assert all(callable(tool.execute) for tool in tools.values())
