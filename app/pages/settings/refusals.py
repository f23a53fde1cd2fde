"""Why something in Settings was refused, and what is in the way. In every one of these nothing was changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from continuity.errors import CaptureInUseError, ConflictError


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


NO_KEYS: Final = Refusal(
    "The keys cannot be had",
    "The source of the master key does not give, or does not take, what is needed. The server's log says why.",
    "Set that right on the host, then try again here.",
)


def refusal(error: ConflictError) -> Refusal:
    """Return what to say of a refusal; one without words of its own is told in the service's."""
    if isinstance(error, CaptureInUseError):
        return _capture(error.blocking)
    found = REFUSALS.get(error.code)
    return found or Refusal("Not done", error.message, "The page shows what is true now.")


def _capture(blocking: Mapping[str, Any]) -> Refusal:
    count = f"{blocking['count']:,}{'+' if blocking['is_more'] else ''}"
    return Refusal(
        "Work that is not finished needs exact content",
        f"{count} in the way: work that is enabled and not finished, or an operation whose outcome is not known.",
        "Pause what is enabled and resolve what is uncertain; each is listed with the capture mode below.",
    )
