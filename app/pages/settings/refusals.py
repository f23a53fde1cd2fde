"""Why something in Settings was refused, and what is in the way. In every one of these nothing was changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from continuity.errors import ConflictError


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a page says above the form that was refused. `in_the_way` has a line for each thing, where it is known."""

    title: str
    what: str
    next_step: str
    in_the_way: tuple[str, ...] = ()


REFUSALS: Final[Mapping[str, Refusal]] = {
    "last_administrator": Refusal(
        "This is the last administrator",
        "Nobody else could manage this installation: there is no other administrator who is enabled and can sign in.",
        "Make somebody else an administrator and let them sign in once, then come back.",
    ),
    "stale_revision": Refusal(
        "It has changed since you opened this page",
        "You would have decided about something other than what you saw.",
        "The page shows what is true now. Read it, and press the button again if you still want to.",
    ),
    "workflow_deleted": Refusal(
        "The workflow was deleted",
        "No worker can run it any more, and credentials for it have ended.",
        "New work goes under a new key.",
    ),
}


def refusal(error: ConflictError) -> Refusal:
    """Return what to say of a refusal; one without words of its own is told in the service's."""
    found = REFUSALS.get(error.code)
    return found or Refusal("Not done", error.message, "The page shows what is true now.")
