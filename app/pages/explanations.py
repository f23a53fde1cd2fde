"""What each reason of the decision table means for the person who must decide.

Every entry answers four questions: what it is, what happened, what is known, what is safe next. It names the
controls that are for it, the most likely one first. Pure texts; `situation` chooses among them.

Source: operations.md, "begin: the decision table"; ui.md, workflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from continuity import limits
from continuity.decisions.beginning import Reason


class Control(StrEnum):
    """What a person can do to a workflow."""

    ENABLE = "enable"
    PAUSE = "pause"
    STOP = "stop"
    CONFIRM = "confirm"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Explanation:
    """One situation in words. `tone` is a kind of notice; ``warn`` waits for a person."""

    title: str
    happened: str
    known: str
    safe: str
    controls: tuple[Control, ...] = ()
    tone: str = "info"


_DECIDE: Final = (Control.CONFIRM, Control.STOP)
_ALL_USED: Final = f"All {limits.ATTEMPTS_PER_OPERATION} attempts"

EXPLANATIONS: Final[Mapping[Reason, Mapping[str, Explanation]]] = {
    Reason.DISABLED: {
        "review": Explanation(
            "Waits for your review",
            "This work was prepared and has never been enabled. Nothing was sent anywhere.",
            "What it wants to do stands below, exactly as it would be handed to the worker. It cannot change any more.",
            "Read the operations. If you agree, enable recovery; if not, leave it or stop it.",
            (Control.ENABLE, Control.STOP), "warn",
        ),
        "paused": Explanation(
            "Paused, nothing under way",
            "New attempts were paused. No attempt is open and none will be granted.",
            "The next operation has not been started; nothing of it can exist at the destination.",
            "It keeps. Enable recovery when workers may go on.",
            (Control.ENABLE, Control.STOP), "quiet",
        ),
        "paused_uncertain": Explanation(
            "Paused with an outcome not known",
            "New attempts were paused after an attempt had been sent whose outcome is not known.",
            "Its effect may have happened. The receipt of an attempt that was granted before is still taken.",
            "It keeps. Once enabled, a worker does only what the destination's capability allows without a second"
            " effect.",
            (Control.ENABLE, *_DECIDE), "quiet",
        ),
        "capture": Explanation(
            "Evidence is not captured",
            "The vault's capture mode is not full, so no attempt is granted.",
            "Without full capture a receipt could not be kept, and a lost receipt is what makes repeats unsafe.",
            "An administrator sets the capture mode back to full. Nothing is lost meanwhile.",
            (), "warn",
        ),
    },
    Reason.SAVED_RECEIPT: {
        "host": Explanation(
            "Completed",
            "The host reported that it happened, and its receipt is kept.",
            "Whoever asks for this operation again gets this receipt. It is never done a second time.",
            "Nothing is left to decide.",
            (), "good",
        ),
        "person": Explanation(
            "Completed on a person's word",
            "Somebody looked at the destination and confirmed that it happened.",
            "No host reported it. Whoever asks for this operation gets the confirmed receipt; it is never done again.",
            "Nothing is left to decide. Who confirmed it, and why, stands in the history.",
            (), "good",
        ),
    },
    Reason.ABANDONED: {
        "unsent": Explanation(
            "Stopped before it had any effect",
            "Somebody stopped this work. No attempt of it can have had an effect.",
            "It is not completed, and no attempt is ever granted again. What depends on it stays blocked.",
            "If the work is wanted after all, the host prepares it under a new key.",
            (), "quiet",
        ),
        "open": Explanation(
            "Stopped with its outcome not known",
            "Somebody stopped this work after an attempt had been sent that nobody has settled.",
            "Its effect may exist at the destination. Stopping undid nothing there and called nothing completed.",
            "Look at the destination before the same work is prepared under a new key.",
            (), "quiet",
        ),
    },
    Reason.REFUSED: {
        "final": Explanation(
            "The destination refused it",
            "The host reported that the destination answered for certain: nothing was done.",
            "The refusal and its reason are kept. No attempt is granted again, and what depends on it stays blocked.",
            "Read the reason in the receipt. Corrected work goes under a new key.",
            (), "bad",
        ),
    },
    Reason.EARLIER_UNFINISHED: {
        "waiting": Explanation(
            "Waits for earlier work",
            "Operations run in their order, and an earlier one is not completed.",
            "Nothing of this operation was sent, unless its attempts below say otherwise.",
            "Settle the earlier operation; this one follows by itself.",
            (), "quiet",
        ),
        "never": Explanation(
            "Will not run",
            "An earlier operation was stopped or refused, so this one's turn never comes.",
            "It stays as it is for good; it is neither completed nor failed.",
            "If it is wanted alone, the host prepares it under a new key.",
            (), "quiet",
        ),
    },
    Reason.ALREADY_ISSUED: {
        "any": Explanation(
            "This attempt was handed out before",
            "A worker asked for an attempt by an attempt_id that had been granted once.",
            "The first grant may have reached another worker, so it is never given twice.",
            "Nothing here waits for you. A worker goes on under a new attempt_id, and is then told how things stand.",
        ),
    },
    Reason.IN_PROGRESS: {
        "execute": Explanation(
            "A worker is at it now",
            "A worker was granted the right to execute, and its lease is live.",
            "From the grant on, the effect may have happened. Nobody else is let in while the lease lasts.",
            "Wait for its receipt, or for the lease to run out. Pausing keeps further attempts away; it does not reach"
            " into this one.",
            (Control.PAUSE,),
        ),
        "query": Explanation(
            "A worker is asking the destination now",
            "A worker was granted a query, and its lease is live.",
            "A query does nothing at the destination. What may have happened before is still open.",
            "Wait for the answer, or for the lease to run out.",
            (Control.PAUSE,),
        ),
    },
    Reason.ATTEMPT_LIMIT: {
        "pending": Explanation(
            f"{_ALL_USED} are used",
            "Attempt after attempt ended without the effect, and there is none left.",
            "Nothing of it exists at the destination, as far as every host and person has said.",
            "Find out why attempts end. Stop this work, or confirm that it happened by other means.",
            (Control.STOP, Control.CONFIRM), "warn",
        ),
        "uncertain": Explanation(
            f"{_ALL_USED} are used, and the outcome is not known",
            "Attempt after attempt was made, and none of them settled what happened.",
            "The effect may exist. No further attempt and no further query can be granted.",
            "Look at the destination. Confirm that it happened, or stop this work; a repeat is no longer possible.",
            _DECIDE, "warn",
        ),
    },
    Reason.REVISION_LIMIT: {
        "pending": Explanation(
            "The workflow has used up its changes",
            f"It changed {limits.REVISIONS_PER_WORKFLOW:,} times, which is the most that a workflow may.",
            "The next operation was not started and no attempt of it can be granted any more.",
            "Stop this work, and let the host prepare what is left under a new key.",
            (Control.STOP, Control.CONFIRM), "warn",
        ),
        "uncertain": Explanation(
            "The workflow has used up its changes with an outcome open",
            f"It changed {limits.REVISIONS_PER_WORKFLOW:,} times, the most that a workflow may, and an attempt is not"
            " settled.",
            "The effect may exist at the destination. Room is kept for your decision, not for more attempts.",
            "Look at the destination, then confirm what happened or stop this work.",
            _DECIDE, "warn",
        ),
    },
    Reason.LATE_RECEIPT: {
        "uncertain": Explanation(
            "A late receipt claims that it happened",
            "An attempt that had been replaced came back with a receipt of success, proved by its own token.",
            "A later attempt may have had the effect too: it can exist twice. Nothing more is dispatched.",
            "Compare the receipts below with the destination, then confirm what is true there.",
            _DECIDE, "warn",
        ),
        "pending": Explanation(
            "A late receipt contradicts the confirmation",
            "Somebody confirmed that it did not happen. Since then an earlier attempt has reported that it did.",
            "The proof of that receipt is good, so the confirmation may have been wrong. Nothing was sent since.",
            "Look at the destination again before anything is sent, and confirm what you find.",
            _DECIDE, "warn",
        ),
    },
    Reason.RESTORED: {
        "pending": Explanation(
            "Restored from a backup, not started as far as it knows",
            "The database was put back to an earlier time. What was done after that time is not in it.",
            "This operation may have been done in the time that is missing.",
            "Look at the destination. Confirm that it did not happen, and it runs once; or that it did.",
            _DECIDE, "warn",
        ),
        "uncertain": Explanation(
            "Restored from a backup with its outcome open",
            "The database was put back to a time at which an attempt was not settled.",
            "What became of that attempt, and of any attempt in the time that is missing, is not known here.",
            "Look at the destination, then confirm what is true there.",
            _DECIDE, "warn",
        ),
    },
    Reason.WINDOW_EXPIRED: {
        "uncertain": Explanation(
            "The key no longer protects a repeat",
            "An attempt may have happened, and the time in which the destination recognises a repeat is over.",
            "A repeat now could be a second effect. The destination cannot be asked.",
            "Look at the destination yourself, then confirm what you found.",
            _DECIDE, "warn",
        ),
    },
    Reason.NEEDS_CONFIRMATION: {
        "silent": Explanation(
            "Needs confirmation: no receipt came",
            "A worker was granted an attempt and was not heard of again. Its lease is over.",
            "It may have happened, or not, or it may be happening late. The destination can neither be asked nor"
            " recognise a repeat.",
            "Look at the destination yourself, then confirm what you found. Until then nothing is sent.",
            _DECIDE, "warn",
        ),
        "unknown": Explanation(
            "Needs confirmation: the host does not know",
            "A worker made the attempt and reported that it cannot tell whether it happened.",
            "The worker is done with it. A timeout or a broken connection is no proof of failure.",
            "Look at the destination yourself, with what the receipt says, then confirm what you found.",
            _DECIDE, "warn",
        ),
    },
    Reason.AUTHORIZED: {
        "first": Explanation(
            "Ready for its first attempt",
            "Recovery is enabled, and nothing was sent to the destination yet.",
            "No effect of this operation can exist.",
            "Leave it: the next worker that asks is allowed to execute it once.",
            (Control.PAUSE,),
        ),
        "never_left": Explanation(
            "Ready again: the last attempt never left",
            "A worker held the right to execute and reported that it did not reach the destination.",
            "No other attempt is open, so nothing of it can exist there.",
            "Leave it: the next worker is allowed to execute it.",
            (Control.PAUSE,),
        ),
        "attested": Explanation(
            "Ready once more, on a person's word",
            "Somebody looked at the destination and confirmed that it did not happen.",
            "Earlier attempts can only leave late receipts from now on; they complete nothing.",
            "Leave it: the next worker executes it exactly once. Pause first if you doubt the confirmation.",
            (Control.PAUSE,),
        ),
        "repeat": Explanation(
            "Can be repeated safely for now",
            "An attempt may have happened, and its receipt is missing.",
            "The destination still recognises the idempotency key: the same request again has no second effect.",
            "Leave it: the next worker repeats it under the same key. After the time below it is not repeated any"
            " more.",
            (Control.PAUSE,),
        ),
        "absence": Explanation(
            "Can be done again: absence is final",
            "An attempt was not settled. The destination was asked after everything could have landed, and knew"
            " nothing.",
            "The workflow declares that absence is final by then, so nothing of it exists.",
            "Leave it: the next worker executes it once more.",
            (Control.PAUSE,),
        ),
        "ask": Explanation(
            "The destination will be asked",
            "An attempt may have happened, and its receipt is missing.",
            "The destination can be asked what happened. Asking does nothing there.",
            "Leave it: the next worker asks before anything else.",
            (Control.PAUSE, Control.CONFIRM),
        ),
        "ask_again": Explanation(
            "The destination will be asked again",
            "The destination was asked and gave no answer that settles it.",
            "That it knows nothing yet is no proof: a request that is under way may still land.",
            "Leave it: the next worker asks again. If you have looked there yourself, confirm what you found.",
            (Control.CONFIRM, Control.PAUSE),
        ),
    },
}  # fmt: skip
"""By reason and by the state that it occurs in."""

ALL_DONE: Final = Explanation(
    "Everything is done",
    "Every operation of this workflow is completed, and its receipts are kept.",
    "Whoever runs it again gets the saved results. Nothing is done a second time.",
    "Nothing is left to decide. It stays until somebody deletes it.",
    (Control.DELETE,), "good",
)  # fmt: skip
"""For a workflow as a whole."""
