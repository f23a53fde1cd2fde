"""The states of an operation: every pair of state and step against operations.md, written out by hand."""

import itertools

import pytest

from continuity.decisions.states import FINAL, TRANSITIONS, Status, Step, TransitionError, after

# operations.md, "Operation states", read again without looking at the code.
EXPECTED = """
pending    GRANT_EXECUTE               uncertain
pending    ABANDON                     abandoned
pending    CONFIRM_HAPPENED            completed
pending    CONFIRM_DID_NOT_HAPPEN      pending
uncertain  GRANT_EXECUTE               uncertain
uncertain  GRANT_QUERY                 uncertain
uncertain  SUCCEEDED                   completed
uncertain  UNKNOWN                     uncertain
uncertain  ABSENT                      uncertain
uncertain  REFUSED                     refused
uncertain  REFUSED_OTHERS_OPEN         uncertain
uncertain  NOT_DISPATCHED              pending
uncertain  NOT_DISPATCHED_OTHERS_OPEN  uncertain
uncertain  ABANDON                     abandoned
uncertain  CONFIRM_HAPPENED            completed
uncertain  CONFIRM_DID_NOT_HAPPEN      pending
"""
LEGAL = {
    (Status(status), Step[step]): Status(target)
    for status, step, target in (line.split() for line in EXPECTED.split("\n") if line)
}


@pytest.mark.parametrize(("status", "step"), list(itertools.product(Status, Step)))
def test_a_step_leads_where_the_design_says_or_is_refused(status, step):
    if (status, step) in LEGAL:
        assert after(status, step) is LEGAL[status, step]
    else:
        with pytest.raises(TransitionError, match=step.name):
            after(status, step)


def test_every_state_is_in_the_table_and_final_states_have_no_way_out():
    assert set(TRANSITIONS) == set(Status)
    assert {status for status in Status if not TRANSITIONS[status]} == FINAL


def test_only_two_kinds_of_step_lead_back_to_pending():
    back = {step for step, target in TRANSITIONS[Status.UNCERTAIN].items() if target is Status.PENDING}

    assert back == {Step.NOT_DISPATCHED, Step.CONFIRM_DID_NOT_HAPPEN}


def test_a_pending_operation_completes_by_attestation_alone():
    ways = {step for step, target in TRANSITIONS[Status.PENDING].items() if target is Status.COMPLETED}

    assert ways == {Step.CONFIRM_HAPPENED}
