"""What a receipt means, for each mode of the attempt that it names."""

import itertools

import pytest

from continuity.decisions.receipts import classify
from continuity.decisions.states import Mode, Outcome

OWN = {"operation_id": "op_1"}
SUCCESS = {"outcome": "confirmed_succeeded", **OWN, "effect_id": "e-1", "result": None}

# A receipt and what it says of an execute, of a query, of an attempt that nobody issued.
RECEIPTS = {
    "success": (SUCCESS, "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"),
    "success with a result and more": (
        {**SUCCESS, "result": {"url": "u"}, "note": 1}, "SUCCEEDED", "SUCCEEDED", "SUCCEEDED",
    ),
    "unknown": ({"outcome": "unknown"}, "UNKNOWN", "UNKNOWN", "UNKNOWN"),
    "unknown with members": ({"outcome": "unknown", **OWN, "x": []}, "UNKNOWN", "UNKNOWN", "UNKNOWN"),
    "refused": ({"outcome": "confirmed_refused", **OWN, "reason": "no"}, "REFUSED", "UNKNOWN", "REFUSED"),
    "not dispatched": ({"outcome": "not_dispatched", **OWN}, "NOT_DISPATCHED", "UNKNOWN", "NOT_DISPATCHED"),
    "absent": ({"outcome": "absent", **OWN}, "UNKNOWN", "ABSENT", "ABSENT"),
}  # fmt: skip
# Objects that are none of the known receipts: the attempt ends as unknown whatever its mode.
NOTHING = {
    "empty": {},
    "no outcome": {**OWN, "effect_id": "e-1", "result": 1},
    "another word": {**SUCCESS, "outcome": "confirmed_success"},
    "upper case": {**SUCCESS, "outcome": "CONFIRMED_SUCCEEDED"},
    "outcome is a list": {**SUCCESS, "outcome": ["confirmed_succeeded"]},
    "outcome is an object": {**SUCCESS, "outcome": {}},
    "outcome is true": {**SUCCESS, "outcome": True},
    "success of another operation": {**SUCCESS, "operation_id": "op_2"},
    "success of no operation": {key: value for key, value in SUCCESS.items() if key != "operation_id"},
    "success without effect_id": {key: value for key, value in SUCCESS.items() if key != "effect_id"},
    "success with empty effect_id": {**SUCCESS, "effect_id": ""},
    "success with null effect_id": {**SUCCESS, "effect_id": None},
    "success with a number for effect_id": {**SUCCESS, "effect_id": 7},
    "success without result": {key: value for key, value in SUCCESS.items() if key != "result"},
    "refused without reason": {"outcome": "confirmed_refused", **OWN},
    "refused with null for reason": {"outcome": "confirmed_refused", **OWN, "reason": None},
    "refused of another operation": {"outcome": "confirmed_refused", "operation_id": "op_2", "reason": "no"},
    "not dispatched of another operation": {"outcome": "not_dispatched", "operation_id": "op_2"},
    "not dispatched of no operation": {"outcome": "not_dispatched"},
    "absent of another operation": {"outcome": "absent", "operation_id": "op_2"},
    "absent of no operation": {"outcome": "absent", "operation_id": None},
}


@pytest.mark.parametrize("name", RECEIPTS)
def test_a_receipt_says_what_the_design_says(name):
    receipt, of_execute, of_query, of_nobody = RECEIPTS[name]

    assert classify(receipt, operation_id="op_1", mode=Mode.EXECUTE) is Outcome[of_execute]
    assert classify(receipt, operation_id="op_1", mode=Mode.QUERY) is Outcome[of_query]
    assert classify(receipt, operation_id="op_1", mode=None) is Outcome[of_nobody]


@pytest.mark.parametrize(("name", "mode"), list(itertools.product(NOTHING, [*Mode, None])))
def test_any_other_object_says_that_nobody_knows(name, mode):
    assert classify(NOTHING[name], operation_id="op_1", mode=mode) is Outcome.UNKNOWN
