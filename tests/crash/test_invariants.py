"""The one function that judges every crash can say no, to each thing that it is there to find."""

from __future__ import annotations

import copy

import pytest

from tests.crash.invariants import check_invariants
from tests.crash.sink import Effect

OPERATION = "op_1"
RECEIPT = {"outcome": "confirmed_succeeded", "operation_id": OPERATION, "effect_id": "effect-of-at_1", "result": 1}
EFFECT = Effect(OPERATION, "at_1", "ik_1", applied=True, at_s=1.0)
GRANT = {
    "call": "begin",
    "sent": {"attempt_id": "at_1", "run_id": "run_1"},
    "reply": {"action": "execute", "revision": 2},
}
OUTCOME = {
    "call": "outcome", "sent": {"attempt_id": "at_1", "receipt": RECEIPT}, "reply": {"accepted": True, "revision": 3},
}  # fmt: skip


def event(seq, kind, **more):
    return {"seq": seq, "event": kind, "name": "publish-it", **more}


def completed():
    """Return the view of an operation that was begun once and reported."""
    return {
        "workflow_id": "wf_1", "revision": 3,
        "operations": [{
            "operation_id": OPERATION, "name": "publish-it", "status": "completed", "capability": "none",
            "attempts": [{
                "attempt_id": "at_1", "run_id": "run_1", "mode": "execute", "started": 1,
                "outcome": "confirmed_succeeded",
            }],
            "receipt": RECEIPT, "late": [],
        }],
        "history": [
            {"seq": 1, "event": "created"}, event(2, "attempt_granted", attempt_id="at_1"),
            event(3, "outcome_recorded", attempt_id="at_1", outcome="confirmed_succeeded"),
        ],
    }  # fmt: skip


def again(view):
    """Add a second execute of the same operation."""
    view["operations"][0]["attempts"].append(
        {"attempt_id": "at_2", "run_id": "run_2", "mode": "execute", "started": 2}
    )  # fmt: skip
    view["history"].insert(2, event(3, "attempt_granted", attempt_id="at_2"))
    view["history"][3]["seq"] = view["revision"] = 4


def uncertain(view):
    view["operations"][0] |= {"status": "uncertain", "receipt": None}
    view["operations"][0]["attempts"][0].pop("outcome")
    view["history"].pop()
    view["revision"] = 2


def test_what_really_happens_passes():
    check_invariants([EFFECT], completed(), [GRANT, OUTCOME], earlier=[completed()])


@pytest.mark.parametrize(
    ("sink", "damage"),
    [
        pytest.param([], lambda _: None, id="completed, and nothing has happened"),
        pytest.param([EFFECT, EFFECT], lambda _: None, id="two effects of one grant"),
        pytest.param([EFFECT, Effect(OPERATION, "at_9", "ik_1", applied=False, at_s=2)], lambda _: None, id="no grant"),
        pytest.param([EFFECT], again, id="a second execute without a reason"),
        pytest.param([EFFECT], lambda v: v["operations"][0].update(status="refused"), id="told as refused"),
        pytest.param([EFFECT], lambda v: v["operations"][0].update(receipt=None), id="the receipt is gone"),
        pytest.param([EFFECT], uncertain, id="an acknowledged outcome is gone"),
        pytest.param([EFFECT], lambda v: v["history"].pop(0), id="an event is gone"),
        pytest.param([EFFECT], lambda v: v.update(revision=4), id="a revision was skipped"),
        pytest.param([EFFECT], lambda v: v["operations"][0]["attempts"].clear(), id="an acknowledged grant is gone"),
        pytest.param(
            [EFFECT], lambda v: v["operations"][0]["receipt"].update(result=2), id="another receipt than was accepted"
        ),
        pytest.param(
            [EFFECT], lambda v: v["history"].append(event(4, "outcome_confirmed", happened=True)), id="two successes"
        ),
    ],
)  # fmt: skip
def test_what_must_not_happen_is_found(sink, damage):
    view = copy.deepcopy(completed())
    damage(view)

    with pytest.raises(AssertionError):
        check_invariants(sink, view, [GRANT, OUTCOME])


def test_a_finished_thing_that_is_unfinished_later_is_found():
    view = completed()
    uncertain(view)

    with pytest.raises(AssertionError):
        check_invariants([EFFECT], view, [], earlier=[completed()])
