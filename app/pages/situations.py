"""Which explanation an operation has now, from its view, its standing and its history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from app.pages.explanations import EXPLANATIONS, Explanation
from continuity.decisions.beginning import Action, Reason
from continuity.decisions.phases import Phase
from continuity.decisions.states import FINAL, Mode, Outcome, Status

_GRANTED: Final = "attempt_granted"
_ENDED: Final = "outcome_recorded"
_CONFIRMED: Final = "outcome_confirmed"
_WITHOUT_EFFECT: Final = frozenset({Outcome.NOT_DISPATCHED, Outcome.REFUSED})
_DEAD: Final = frozenset({Status.ABANDONED, Status.REFUSED})

View = Mapping[str, Any]
Operation = Mapping[str, Any]
Past = Mapping[str, Any]


def following(operations: Sequence[Operation]) -> int | None:
    """Return the place of the first operation that is not completed: what the workflow waits for."""
    for index, operation in enumerate(operations):
        if operation["status"] != Status.COMPLETED:
            return index
    return None


def explain(view: View, index: int) -> Explanation:
    """Return the explanation of one operation of a workflow."""
    reason, state = situation(view, index)
    return EXPLANATIONS[reason][state]


def situation(view: View, index: int) -> tuple[Reason, str]:
    """Return the reason and the state for which `EXPLANATIONS` has the words."""
    operations, operation = view["operations"], view["operations"][index]
    if index == following(operations) and operation["status"] not in FINAL:
        held = _held(view, operation)
        if held is not None:
            return Reason.DISABLED, held
    reason = Reason(operation["standing"]["reason"])
    return reason, _STATES.get(reason, _status)(view, index)


def open_attempts(past: Iterable[Past]) -> set[str]:
    """Return the execute attempts of an operation that may have had an effect and that nobody has settled."""
    found: set[str] = set()
    for event in past:
        if event["event"] == _GRANTED and event["mode"] == Mode.EXECUTE:
            found.add(event["attempt_id"])
        elif event["event"] == _ENDED and event["outcome"] in _WITHOUT_EFFECT:
            found.discard(event["attempt_id"])
        elif event["event"] == _CONFIRMED:
            found.clear()
    return found


def confirmed_since(past: Iterable[Past], attempt_id: str) -> bool | None:
    """Return what a person confirmed of an operation after an attempt of it was granted, None for nothing."""
    is_granted = False
    for event in past:
        if event["event"] == _GRANTED and event["attempt_id"] == attempt_id:
            is_granted = True
        elif event["event"] == _CONFIRMED and is_granted:
            return bool(event["happened"])
    return None


def _held(view: View, operation: Operation) -> str | None:
    """Say what keeps attempts away from the next operation before the table is asked; None for nothing."""
    if view["phase"] == Phase.REVIEW:
        return "review"
    if view["phase"] not in {Phase.PAUSED, Phase.READY, Phase.RESUMABLE}:
        return None
    if not view["is_capture_full"]:
        return "capture"
    if view["phase"] != Phase.PAUSED:
        return None
    return "paused_uncertain" if operation["status"] == Status.UNCERTAIN else "paused"


def _status(view: View, index: int) -> str:
    return str(view["operations"][index]["status"])


def _completed(view: View, index: int) -> str:
    return "person" if view["operations"][index].get("assurance") == "operator_attested" else "host"


def _abandoned(view: View, index: int) -> str:
    return "open" if open_attempts(_past(view, index)) else "unsent"


def _behind(view: View, index: int) -> str:
    is_dead = any(earlier["status"] in _DEAD for earlier in view["operations"][:index])
    return "never" if is_dead else "waiting"


def _under_way(view: View, index: int) -> str:
    return str(view["operations"][index]["attempts"][-1]["mode"])


def _granted(view: View, index: int) -> str:
    operation = view["operations"][index]
    standing, attempts = operation["standing"], operation["attempts"]
    if operation["status"] == Status.PENDING:
        steps = [event["event"] for event in _past(view, index) if event["event"] in {_GRANTED, _ENDED, _CONFIRMED}]
        if steps[-1:] == [_CONFIRMED]:
            return "attested"
        return "never_left" if attempts else "first"
    if standing["action"] == Action.EXECUTE:
        window_end = standing["window_end"]
        return "repeat" if window_end is not None and view["now"] < window_end else "absence"
    return "ask_again" if attempts[-1]["mode"] == Mode.QUERY else "ask"


def _unconfirmed(view: View, index: int) -> str:
    # Whatever else its only open attempt could have reported would have settled it.
    return "unknown" if view["operations"][index]["attempts"][-1].get("outcome") == Outcome.UNKNOWN else "silent"


def _past(view: View, index: int) -> list[Past]:
    name = view["operations"][index]["name"]
    return [event for event in view["history"] if event.get("name") == name]


_STATES: Final[Mapping[Reason, Callable[[View, int], str]]] = {
    Reason.SAVED_RECEIPT: _completed,
    Reason.ABANDONED: _abandoned,
    Reason.REFUSED: lambda _view, _index: "final",
    Reason.EARLIER_UNFINISHED: _behind,
    Reason.IN_PROGRESS: _under_way,
    Reason.AUTHORIZED: _granted,
    Reason.NEEDS_CONFIRMATION: _unconfirmed,
}
"""How to tell the states of a reason apart; where it is not here, they are those of the operation."""
