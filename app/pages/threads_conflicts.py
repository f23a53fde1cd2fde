"""Why something about a thread was refused, for each 409 code that a page can meet. In all of them nothing was changed.

Source: docs/threads.md, "What every event does"; continuity.decisions.threads.changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from continuity.decisions.threads.bounds import FOLLOW_UPS


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is said: `what` happened to the request, and what to do next."""

    title: str
    what: str
    tone: str = "warn"


REFUSALS: Final = {
    "thread_busy": Refusal(
        "Not sent: it is not idle any more",
        "A run began, asks something or needs attention by now. The controls below are those of its state now.",
    ),
    "thread_not_running": Refusal(
        "There is no run that this could reach", "The run has ended since you opened this page, or waits for an answer."
    ),
    "thread_stopping": Refusal(
        "Not steered: the run is being stopped",
        "It reads nothing more. A follow-up is kept until the next message or resume.",
    ),
    "nothing_to_resume": Refusal(
        "Nothing is left to resume", "It goes on already, or was stopped: somebody was faster."
    ),
    "control_not_declared": Refusal(
        "The agent does not take this", "Its worker no longer declares this control. The page offers what it declares."
    ),
    "queue_full": Refusal(
        "Too many wait already", f"{FOLLOW_UPS} are kept at most. Wait until the agent has taken some."
    ),
    "waiting_cancelled": Refusal(
        "Not answered: it is no longer asked", "The run was stopped meanwhile, and its questions with it."
    ),
    "already_answered": Refusal(
        "Answered already, and otherwise", "The first answer counts and is never changed. Yours was not recorded."
    ),
    "stale_waiting_revision": Refusal(
        "Not answered: it was asked again",
        "The agent has asked anew at the same place, and what it shows may differ. Read it, then answer.",
    ),
    "stale_revision": Refusal(
        "Not done: the thread has moved on",
        "Something happened after you opened this page. Look at its state below, and press again if you still want to.",
    ),
    "request_conflict": Refusal(
        "This form was sent before with other words",
        "What was sent first counts: look for it below. To say something else, use the form as it stands now.",
    ),
    "capture_not_full": Refusal(
        "Nothing is taken: evidence is not captured",
        "The vault's capture mode is not full: what an agent does could not be kept. An administrator can set it.",
    ),
    "clock_moved_backwards": Refusal(
        "The server's clock went backwards",
        "Times and claims cannot be trusted until it is right. Correct the clock of the server; change no times.",
        "bad",
    ),
    "claim_lost": Refusal("The claim has ended", "Only a worker meets this: its claim ran out."),
    "cursor_gap": Refusal(
        "The page is too far behind", "Records between what you saw and now were let go of. Open the page again."
    ),
    "thread_deleted": Refusal(
        "This thread was deleted",
        "Its content and data key are destroyed, and its name cannot be used again. The audit log says who and when.",
        "quiet",
    ),
}  # fmt: skip
"""By code."""

_OF_FORM: Final = {
    ("delete", "thread_busy"): Refusal(
        "Not deleted: it is not idle",
        "Something of it runs, waits for an answer or needs attention. Stop it first, and delete it when it is idle.",
    ),
    ("stop", "thread_not_running"): Refusal(
        "Nothing to stop", "The run ended by itself after you opened this page. What it did stands below.", "info"
    ),
}  # fmt: skip
UNEXPECTED: Final = Refusal(
    "This was refused", "The state of things does not allow it just now. Look at it below before you try again."
)
"""For a code that came with a newer core. A test sees to it that there is none."""


def refusal(form: str, code: str) -> Refusal:
    """Return why the form was refused with `code`."""
    return _OF_FORM.get((form, code)) or REFUSALS.get(code, UNEXPECTED)
