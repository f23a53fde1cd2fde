"""The history of a workflow in sentences: who, when, what, why. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.pages.wording import OUTCOMES
from continuity.decisions.states import Outcome

_SIMPLE: Final = {
    "created": "The work was prepared",
    "enabled": "Recovery was enabled",
    "paused": "New attempts were paused",
    "deleting": "Its deletion began",
}
_TONES: Final = {"outcome_confirmed": "warn", "abandoned": "warn", "late_receipt_kept": "warn", "enabled": "good"}


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One event. `subject` is the operation it concerns, `attempt_id` the attempt."""

    seq: int
    time: float
    actor: str
    what: str
    tone: str
    subject: str | None = None
    attempt_id: str | None = None
    reason: str | None = None


def lines(history: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Iterator[HistoryLine]:
    """Yield the events in words, newest first."""
    for event in reversed(history):
        yield HistoryLine(
            seq=event["seq"],
            time=event["time"],
            actor=names.get(event["actor"], event["actor"]),
            what=_what(event),
            tone=_TONES.get(event["event"], "quiet"),
            subject=event.get("name"),
            attempt_id=event.get("attempt_id"),
            reason=event.get("reason"),
        )


def _what(event: Mapping[str, Any]) -> str:
    match event["event"]:
        case "created":
            return f"{_SIMPLE['created']}, enabled from the start" if event["enabled"] else _SIMPLE["created"]
        case "attempt_granted":
            return "An attempt to execute was granted" if event["mode"] == "execute" else "A query was granted"
        case "outcome_recorded":
            return f"A receipt ended the attempt: {_claim(event)}"
        case "late_receipt_kept":
            return f"A late receipt was kept, {'proved' if event['is_proved'] else 'not proved'}: {_claim(event)}"
        case "abandoned":
            return "The work was stopped"
        case "outcome_confirmed":
            return f"A person confirmed that it {'happened' if event['happened'] else 'did not happen'}"
        case name:
            return _SIMPLE[name]


def _claim(event: Mapping[str, Any]) -> str:
    return OUTCOMES[Outcome(event["outcome"])].name.lower()
