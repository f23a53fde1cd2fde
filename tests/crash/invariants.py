"""One question after every fault: does what the product says explain what really happened?

The numbers are those of the fault plan: I1 an acknowledged reply is true afterwards, I2 one accepted success, I3 one
lease after the other, I4 an effect is never told as nothing, I5 no effect without a durable grant, I13 no second
effect without a reason, I14 time makes nothing unfinished. I8 and I11 are about databases and starts: `Stage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.crash.sink import Effect

FINAL = frozenset({"completed", "refused", "abandoned"})
GRANTS = frozenset({"execute", "query"})
NOTHING_DONE = frozenset({"not_dispatched", "confirmed_refused"})

View = Mapping[str, Any]


def check_invariants(
    sink: Sequence[Effect], view: View, acks: Sequence[Mapping[str, Any]], *, earlier: Iterable[View] = (),
    is_honest: bool = True,
) -> None:  # fmt: skip
    """Compare the truth with a workflow's view with its history.

    Args:
        sink: Every effect at the destination, oldest first.
        view: The workflow, from GET.
        acks: What hosts were answered: ``{"call", "sent", "reply"}``.
        earlier: Views of the same workflow from before.
        is_honest: Nobody has attested or reported anything but the truth: at most one effect was applied.
    """
    known = {operation["operation_id"] for operation in view["operations"]}
    assert {effect.operation_id for effect in sink} <= known, "I5: an effect of an operation that nobody created"
    for operation in view["operations"]:
        effects = [effect for effect in sink if effect.operation_id == operation["operation_id"]]
        past = [event for event in view["history"] if event.get("name") == operation["name"]]
        _check_effects(operation, effects)
        _check_executes(operation, past)
        _check_leases(operation)
        _check_outcomes(operation, past)
        if is_honest:
            _check_truth(operation, effects, past)
    _check_acks(view, acks)
    _check_revisions(view)
    for before in earlier:
        _check_progress(before, view)


def _check_effects(operation: View, effects: Sequence[Effect]) -> None:
    executes = [attempt["attempt_id"] for attempt in operation["attempts"] if attempt["mode"] == "execute"]
    performed = [effect.attempt_id for effect in effects]
    assert set(performed) <= set(executes), "I5: an effect without a granted execute"
    assert len(performed) == len(set(performed)), "more than one effect for one granted execute"


def _check_executes(operation: View, past: Sequence[View]) -> None:
    """I13: each execute after the first was allowed by a declaration, by a report or by a person."""
    modes = {attempt["attempt_id"]: attempt["mode"] for attempt in operation["attempts"]}
    open_executes: set[str] = set()
    last_absent = False
    for event in past:
        if event["event"] == "attempt_granted" and modes[event["attempt_id"]] == "execute":
            is_allowed = (
                not open_executes
                or "idempotent" in operation["capability"]
                or ("absence_final_after_seconds" in operation and last_absent)
            )
            assert is_allowed, "I13: an execute while an earlier one may have happened"
            open_executes.add(event["attempt_id"])
        elif event["event"] == "outcome_recorded":
            last_absent = event["outcome"] == "absent"
            if event["outcome"] in NOTHING_DONE:
                open_executes.discard(event["attempt_id"])
        elif event["event"] == "outcome_confirmed":
            open_executes.clear()


def _check_leases(operation: View) -> None:
    attempts = operation["attempts"]
    assert len({attempt["attempt_id"] for attempt in attempts}) == len(attempts), "I3: an attempt id twice"
    starts = [attempt["started"] for attempt in attempts]
    assert starts == sorted(starts), "I3: an attempt that began before the one it follows"


def _check_outcomes(operation: View, past: Sequence[View]) -> None:
    accepted = [event for event in past if event["event"] == "outcome_recorded"]
    successes = [event for event in accepted if event["outcome"] == "confirmed_succeeded"]
    attested = [event for event in past if event["event"] == "outcome_confirmed" and event["happened"]]
    assert len(successes) + len(attested) <= 1, "I2: two successes were accepted"
    assert len({event["attempt_id"] for event in accepted}) == len(accepted), "I2: an attempt ended twice"
    is_completed = operation["status"] == "completed"
    assert is_completed == bool(successes or attested), "I2: completed, and not by one accepted success"
    assert (operation["receipt"] is not None) == (operation["status"] in {"completed", "refused"})


def _check_truth(operation: View, effects: Sequence[Effect], past: Sequence[View]) -> None:
    applied = [effect for effect in effects if effect.applied]
    assert len(applied) <= 1, "I13: applied twice"
    if "idempotent" in operation["capability"]:
        assert len({effect.key for effect in effects}) <= 1, "one operation, two idempotency keys"
    if operation["status"] == "completed":
        assert applied, "completed, and nothing has happened"
        assert operation["receipt"]["effect_id"] == applied[0].effect_id, "the receipt is of another effect"
    elif applied:
        assert operation["status"] == "uncertain", f"I4: an effect, and the product says {operation['status']}"
    if not any(event["event"] == "attempt_granted" for event in past):
        assert operation["status"] in {"pending", "abandoned"}


def _check_acks(view: View, acks: Sequence[Mapping[str, Any]]) -> None:
    """I1: nothing that a host was told has been forgotten."""
    attempts = {
        attempt["attempt_id"]: (operation, attempt)
        for operation in view["operations"]
        for attempt in operation["attempts"]
    }
    for ack in acks:
        sent, reply = ack["sent"], ack["reply"]
        if ack["call"] == "create":
            assert reply["workflow_id"] == view["workflow_id"], "I1: a created workflow is another one now"
        elif ack["call"] == "begin" and reply["action"] in GRANTS:
            assert sent["attempt_id"] in attempts, "I1: a grant is not in the record"
            _, attempt = attempts[sent["attempt_id"]]
            assert attempt["mode"] == reply["action"], "I1: a grant is not in the record"
            assert attempt["run_id"] == sent["run_id"]
        elif ack["call"] == "begin" and reply["action"] == "completed":
            operation = next(o for o in view["operations"] if o["operation_id"] == reply["operation_id"])
            assert operation["receipt"] == reply["receipt"], "I1: a saved receipt is another one now"
        elif ack["call"] == "outcome":
            _check_outcome_ack(attempts[sent["attempt_id"]], sent, reply)
        assert reply["revision"] <= view["revision"], "I1: a revision that was told is gone"


_MODE_OF = {"not_dispatched": "execute", "confirmed_refused": "execute", "absent": "query"}
"""Outcomes that only one kind of attempt can have."""


def _check_outcome_ack(found: tuple[View, View], sent: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
    operation, attempt = found
    if reply["accepted"]:
        claimed = sent["receipt"]["outcome"]
        # What belongs to the other mode says nothing, and ends the attempt as unknown.
        expected = claimed if _MODE_OF.get(claimed, attempt["mode"]) == attempt["mode"] else "unknown"
        assert attempt.get("outcome") == expected, "I1: an accepted outcome is not in the record"
        if attempt["outcome"] == "confirmed_succeeded":
            assert operation["receipt"] == sent["receipt"], "I1: an accepted receipt is not the one that is kept"
    else:
        kept = [late["receipt"] for late in operation["late"] if late["attempt_id"] == sent["attempt_id"]]
        assert sent["receipt"] in kept, "I1: late evidence that was taken is not kept"


def _check_revisions(view: View) -> None:
    history = view["history"]
    assert [event["seq"] for event in history] == list(range(1, len(history) + 1)), "an event is missing"
    counted = sum(event["event"] != "late_receipt_kept" for event in history)
    assert view["revision"] == counted, "a revision was skipped or used twice"


def _check_progress(before: View, now: View) -> None:
    assert before["history"] == now["history"][: len(before["history"])], "I14: the past has changed"
    for then, operation in zip(before["operations"], now["operations"], strict=True):
        if then["status"] in FINAL:
            assert operation["status"] == then["status"], "I14: something final is not final"
            assert operation["receipt"] == then["receipt"], "I14: a final receipt has changed"
