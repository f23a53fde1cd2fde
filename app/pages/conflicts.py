"""Why a control was refused, for each control and each 409 code that it can meet, and what to do instead.

In every one of these nothing was changed, which the page says beside them.

Source: wire.md, 409 codes; operations.md, "People's controls".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.pages.explanations import Control, Explanation
from continuity import limits

CONFLICTS: Final[Mapping[Control, Mapping[str, Explanation]]] = {
    Control.ENABLE: {
        "stale_revision": Explanation(
            "Not enabled: the work has moved on",
            "Something changed after you opened this page.",
            "You would have enabled something other than what you reviewed.",
            "The page shows the new state. Read it, and enable it if you still agree.",
            (Control.ENABLE,), "warn",
        ),
        "capture_not_full": Explanation(
            "Not enabled: evidence is not captured",
            "The vault's capture mode is not full.",
            "Work runs only while its receipts can be kept.",
            "An administrator sets the capture mode to full; then enable again.",
            (Control.ENABLE,), "warn",
        ),
        "clock_moved_backwards": Explanation(
            "Not enabled: the server's clock went backwards",
            "The clock stands before the time at which this work, or the vault, last changed.",
            "Leases and time limits cannot be trusted until it is right. No attempt is granted either.",
            "Correct the clock of the server's machine. Do not change stored times.",
            (Control.ENABLE,), "bad",
        ),
        "workflow_revision_limit_reached": Explanation(
            "Not enabled: its changes are used up",
            f"The workflow has changed {limits.REVISIONS_PER_WORKFLOW:,} times.",
            "No further attempt could be granted, so there is nothing to enable.",
            "Settle what is open: confirm it or stop it. What is left goes under a new key.",
            (Control.CONFIRM, Control.STOP), "warn",
        ),
        "workflow_deleted": Explanation(
            "Not enabled: it was deleted",
            "Somebody deleted this workflow after you opened the page.",
            "Its content and its data key are destroyed, and its key cannot be used again.",
            "New work goes under a new key.",
            (), "quiet",
        ),
    },
    Control.PAUSE: {
        "stale_revision": Explanation(
            "Not paused: the work has moved on",
            "Something changed after you opened this page, perhaps an attempt was granted.",
            "New attempts are still allowed, unless the page now says otherwise.",
            "If you still want to keep new attempts away, pause again now.",
            (Control.PAUSE,), "warn",
        ),
        "workflow_revision_limit_reached": Explanation(
            "Not paused: even the room for controls is used up",
            f"The workflow has gone beyond its {limits.REVISIONS_PER_WORKFLOW:,} changes and the few kept for people.",
            "No attempt is granted beyond that limit, so pausing would keep nothing away.",
            "Nothing needs to be done: it is as good as paused.",
            (), "quiet",
        ),
        "workflow_deleted": Explanation(
            "Not paused: it was deleted",
            "Somebody deleted this workflow meanwhile.",
            "A deleted workflow grants no attempts.",
            "Nothing is left to pause.",
            (), "quiet",
        ),
    },
    Control.STOP: {
        "stale_revision": Explanation(
            "Not stopped: the work has moved on",
            "Something changed after you opened this page. A worker may have finished it.",
            "You would have stopped something other than what you saw.",
            "Look at the new state, and stop it if it is still wanted.",
            (Control.STOP,), "warn",
        ),
        "lease_live": Explanation(
            "Not stopped: a worker is at it",
            "An attempt holds a live lease.",
            "What a worker is doing cannot be called back from here.",
            "Pause to keep further attempts away, and stop once its receipt is there or the lease is over.",
            (Control.PAUSE, Control.STOP), "warn",
        ),
        "operation_final": Explanation(
            "Not stopped: it is over already",
            "The operation is completed, refused or stopped.",
            "That is final, and stays as it is.",
            "Nothing is left to stop.",
            (), "quiet",
        ),
        "workflow_revision_limit_reached": Explanation(
            "Not stopped: the room for controls is used up",
            "Every change that is kept for people's controls has been used.",
            "No attempt can be granted, so nothing will run.",
            "It stays as it is. What is still wanted goes under a new key.",
            (), "quiet",
        ),
        "workflow_deleted": Explanation(
            "Not stopped: it was deleted",
            "The workflow was deleted after you opened the page.",
            "Nothing of it can run.",
            "There is nothing left to stop here.",
            (), "quiet",
        ),
    },
    Control.CONFIRM: {
        "stale_revision": Explanation(
            "Not confirmed: there is something you have not seen",
            "Somebody else decided, a worker went on, or another late receipt came after you opened this page.",
            "Your word would have been about an older state.",
            "Read what is new. If it still waits for a decision, look at the destination again and confirm.",
            (Control.CONFIRM,), "warn",
        ),
        "lease_live": Explanation(
            "Not confirmed: a worker is at it",
            "An attempt was granted and its lease is live.",
            "What you saw at the destination may be changing right now.",
            "Wait for its receipt or for the end of the lease, then look again.",
            (Control.PAUSE, Control.CONFIRM), "warn",
        ),
        "effect_may_still_land": Explanation(
            "Not confirmed: it may still happen",
            "The last attempt is too recent: its request may still be on its way.",
            "That you saw nothing at the destination so far proves nothing.",
            "Wait for the countdown. Then look at the destination again, and only then confirm.",
            (Control.CONFIRM,), "warn",
        ),
        "attempt_limit_reached": Explanation(
            "Not confirmed: no attempt is left to repeat it",
            f'All {limits.ATTEMPTS_PER_OPERATION} attempts are used, so "did not happen" could not lead to another.',
            "It can be confirmed as happened, or stopped.",
            "If it did not happen, stop this work and let the host prepare it under a new key.",
            (Control.STOP, Control.CONFIRM), "warn",
        ),
        "operation_final": Explanation(
            "Not confirmed: it is decided already",
            "A receipt, or another person, settled it before you.",
            "What is settled is final. Your word was not recorded.",
            "Compare what you saw with the receipt below. If they differ, tell whoever is responsible.",
            (), "warn",
        ),
        "workflow_revision_limit_reached": Explanation(
            "Not confirmed: the changes kept for decisions are used up",
            "The workflow has no change left, not even for a decision.",
            "It stays open for good, and nothing will be sent.",
            "Note what you found where your team keeps such things.",
            (), "warn",
        ),
        "workflow_deleted": Explanation(
            "Not confirmed: it was deleted",
            "The workflow was deleted while you were deciding.",
            "There is nothing left that your word could be about.",
            "Nothing will be sent for it.",
            (), "quiet",
        ),
    },
    Control.DELETE: {
        "stale_revision": Explanation(
            "Not deleted: something came in",
            "The workflow changed after you opened this page. It may hold a late receipt that you have not seen.",
            "Deleting would have destroyed evidence unread.",
            "Read what is new, then delete it if nobody needs it.",
            (Control.DELETE,), "warn",
        ),
        "workflow_unfinished": Explanation(
            "Not deleted: it is unfinished",
            "Something of it can still run, or an outcome is not known.",
            "Its record is what keeps the work from being done twice.",
            "Finish it, confirm what happened, or stop it first.",
            (Control.STOP, Control.CONFIRM), "warn",
        ),
        "workflow_deleted": Explanation(
            "It was deleted already",
            "Somebody deleted this workflow before you did.",
            "Its content is destroyed; a sealed tombstone keeps its key from being used again.",
            "Nothing is left to delete.",
            (), "quiet",
        ),
    },
}  # fmt: skip
"""By control and code."""

UNEXPECTED: Final = Explanation(
    "This was refused",
    "The state of things does not allow it just now.",
    "Nothing else is known about why.",
    "Look at the state below before you try again.",
    (), "warn",
)  # fmt: skip
"""For a code that came with a newer core. A test sees to it that there is none."""

GONE: Final = Explanation(
    "This workflow was deleted",
    "Somebody deleted it after it was finished.",
    "Its content and its data key are destroyed. A sealed tombstone keeps its key from being used again, and the audit"
    " log says who and when.",
    "New work goes under a new key.",
    (), "quiet",
)  # fmt: skip


def conflict(control: Control, code: str) -> Explanation:
    """Return why `control` was refused with `code`."""
    return CONFLICTS[control].get(code, UNEXPECTED)


_ALREADY: Final[Mapping[Control, Explanation]] = {
    Control.ENABLE: Explanation(
        "It is enabled already",
        "Somebody enabled recovery after you opened this page.",
        "Workers may go on; your press changed nothing.",
        "Read the new state. Pause new attempts if you do not agree.",
        (Control.PAUSE,), "info",
    ),
    Control.PAUSE: Explanation(
        "It is paused already",
        "New attempts were paused after you opened this page, or the work has not been enabled.",
        "No attempt is granted; your press changed nothing.",
        "Nothing needs to be done.",
        (), "info",
    ),
}  # fmt: skip


def already(control: Control) -> Explanation:
    """Return what to say when what was to be done is so already, by somebody else's hand."""
    return _ALREADY[control]
