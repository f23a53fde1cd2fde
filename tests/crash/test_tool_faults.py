"""A tool that answers with garbage, with too much, or never: the work is uncertain, and the ledger goes on (F25)."""

from __future__ import annotations

import math
import threading

import pytest

from continuity.client import ContinuityClient, RecoveryBlocked, Tool
from tests.crash.host import TOOL
from tests.crash.stage import NAME
from tests.patience import PATIENCE_S

ENDLESS: list = []
ENDLESS.append(ENDLESS)
GARBAGE = {
    "nothing": lambda _operation_id: None,
    "a text": lambda _operation_id: "done",
    "bytes": lambda _operation_id: b"{}",
    "an object": lambda _operation_id: object(),
    "a list": lambda operation_id: [operation_id],
    "no number": lambda operation_id: {"outcome": "confirmed_succeeded", "operation_id": operation_id,
                                       "effect_id": "e", "result": math.nan},
    "itself in itself": lambda operation_id: {"outcome": "confirmed_succeeded", "operation_id": operation_id,
                                              "effect_id": "e", "result": ENDLESS},
    "a hundred megabytes": lambda operation_id: {"outcome": "confirmed_succeeded", "operation_id": operation_id,
                                                 "effect_id": "e", "result": "x" * 100_000_000},
    "of another operation": lambda _operation_id: {"outcome": "confirmed_succeeded", "operation_id": "op_" + "0" * 32,
                                                   "effect_id": "e", "result": None},
    "a lone surrogate": lambda operation_id: {"outcome": "confirmed_succeeded", "operation_id": operation_id,
                                              "effect_id": "e", "result": "\ud800"},
}  # fmt: skip


@pytest.fixture
def stage(sqlite_stage):
    return sqlite_stage


@pytest.mark.parametrize("what", GARBAGE)
def test_what_is_no_receipt_leaves_the_work_uncertain_and_is_not_called_again(stage, tmp_path, what):
    case = stage.case("none", tmp_path)
    calls = []

    def execute(_arguments, operation_id, _key, _timeout_s):
        calls.append(operation_id)
        return GARBAGE[what](operation_id)

    with ContinuityClient(stage.url, stage.token) as client:
        for _ in range(2):
            with pytest.raises(RecoveryBlocked) as stop:
                client.run_operation(case.workflow_id, NAME, {TOOL: Tool(execute=execute)})

    assert stop.value.code == "needs_confirmation"
    assert len(calls) == 1
    operation = case.operation
    assert (operation["status"], [attempt["outcome"] for attempt in operation["attempts"]]) == (
        "uncertain",
        ["unknown"],
    )
    assert case.view()["phase"] == "decision"


def test_a_tool_that_never_answers_holds_its_own_work_alone_until_its_lease_ends(stage, tmp_path):
    case, other = stage.case("query", tmp_path), stage.case("none", tmp_path)
    is_called, may_end = threading.Event(), threading.Event()
    ended = []

    def hang(_arguments, operation_id, _key, _timeout_s):
        is_called.set()
        may_end.wait(PATIENCE_S)
        return success(operation_id)

    def run():
        with ContinuityClient(stage.url, stage.token) as client, pytest.raises(RecoveryBlocked) as stop:
            client.run_operation(case.workflow_id, NAME, {TOOL: Tool(execute=hang, query=hang)})
        ended.append(stop.value.code)

    hanging = threading.Thread(target=run)
    hanging.start()
    assert is_called.wait(PATIENCE_S)
    stage.advance()
    with ContinuityClient(stage.url, stage.token) as client:
        done = client.run_operation(other.workflow_id, NAME, {TOOL: Tool(execute=lambda _a, i, _k, _t: success(i))})
        # Another worker may only ask, and what it is told is no proof that nothing happened.
        second = client.begin(case.workflow_id, NAME, run_id="run-2", attempt_id="at-2")
    may_end.set()
    hanging.join(PATIENCE_S)

    assert done == "done"
    assert second["action"] == "query"
    assert ended == ["stale_lease"]
    operation = case.operation
    assert (operation["status"], operation["late_receipts"]) == ("uncertain", 1)
    case.check(is_honest=False)


def success(operation_id):
    return {"outcome": "confirmed_succeeded", "operation_id": operation_id, "effect_id": "e-1", "result": "done"}
