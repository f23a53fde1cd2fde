"""Where a thread stands, in words: for every situation what happened, what is known, and what is safe next. Pure.

Source: docs/threads.md, "What every event does" and "What is promised".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from continuity.decisions.threads.bounds import CLAIM_S
from continuity.decisions.threads.states import Cause, Reason, RunState, Situation, ThreadState

STATE_NAMES: Final = {
    ThreadState.NEEDS_ATTENTION: "Needs attention",
    ThreadState.WAITING: "Waiting for an answer",
    ThreadState.RUNNING: "Running",
    ThreadState.IDLE: "Idle",
}
"""In the order in which they want somebody."""
NOTHING: Final = {
    ThreadState.NEEDS_ATTENTION: (
        "Nothing needs attention", "A conversation shows here when its run was interrupted or has failed."
    ),
    ThreadState.WAITING: ("Nothing waits for an answer", "A conversation shows here while its agent asks something."),
    ThreadState.RUNNING: ("Nothing is running", "A conversation shows here from a message until its run has ended."),
    ThreadState.IDLE: ("Nothing is idle", "A conversation shows here once its last run has settled or was stopped."),
}  # fmt: skip
CAUSES: Final = {
    Cause.MESSAGE: "A message",
    Cause.FOLLOW_UP: "A follow-up",
    Cause.REPLY: "The last answer to its questions",
    Cause.RESUME: "Somebody resumed it",
}


@dataclass(frozen=True, slots=True)
class Lead:
    """What a thread waits for, in words. `tone` is a kind of notice; `workflow_id` is the governed work behind it."""

    title: str
    happened: str
    known: str
    safe: str
    tone: str = "info"
    workflow_id: str | None = None


_INTERRUPTED: Final = {
    Reason.CLAIM_EXPIRED: Lead(
        "The worker went away in the middle",
        f"No sign of life came from it for {CLAIM_S} seconds, so its claim ran out and the run was interrupted. Nothing"
        " goes on by itself.",
        "Everything up to the last record above is kept. What the worker did after it is not known here; if it is still"
        " alive, it can write nothing more.",
        "Look at what it was doing: calls without a result may have happened. Then resume, or stop.",
        "warn",
    ),
    Reason.TOOL_BLOCKED: Lead(
        "Governed work does not let it go on",
        "A call with an effect outside may have happened, and its receipt is missing. The run was interrupted so that"
        " it is not done twice.",
        "What is known of that call stands with the workflow, under Decisions.",
        "Look at the workflow first: its page says what it waits for. A lease that another attempt holds ends by"
        " itself; what nobody knows, somebody looks up at the destination and confirms there. Then resume here; resumed"
        " before, it is interrupted again.",
        "warn",
    ),
    Reason.RESTORED: Lead(
        "It was queued before a backup was restored",
        "In the backup the run waited for a worker. What was done between backup and restore is not known here.",
        "Its worker may have done everything already, in the time that was lost.",
        "Look at what the agent would have done. Resume only what was not done, else stop it and say so in a message.",
        "warn",
    ),
}  # fmt: skip
_FAILED: Final = Lead(
    "The run failed",
    "Its worker gave up and said why. Nothing goes on by itself.",
    "Everything up to the failure is kept. Calls that had no result have none until the run is resumed or stopped.",
    "If the cause is gone, resume. Else stop it.",
    "bad",
)
_LEADS: Final = {
    Situation.QUEUED: Lead(
        "Waits for a worker",
        "What was said is accepted and kept. No worker has taken it yet.",
        "Nothing of this run has been done.",
        "It begins as soon as a worker of this agent asks for work. If that takes long, look whether one is running.",
    ),
    Situation.STOPPING: Lead(
        "A stop was asked for",
        "The worker is told with its next sign of life, and ends the run after the step in hand.",
        "An effect that has begun may still happen, and whatever was done stays recorded.",
        "Wait. If the worker is gone, its claim runs out within a minute, and the run is interrupted instead.",
        "quiet",
    ),
    Situation.HELD: Lead(
        "Stopped, with follow-ups held",
        "The last run was stopped. Follow-ups that were accepted before are kept, and none has started.",
        "They stand above in their order.",
        "Resume starts the first of them. A new message starts it as well, and joins them at the end.",
        "quiet",
    ),
}  # fmt: skip


def situation(snapshot: Mapping[str, Any]) -> Situation:
    """Return where the thread of a snapshot stands, as finely as its controls can tell."""
    state = ThreadState(snapshot["thread"]["state"])
    run = snapshot["runs"][-1] if snapshot["runs"] else None
    if state is ThreadState.IDLE or run is None:
        return Situation.HELD if snapshot["queue"] else Situation.IDLE
    if run["state"] == RunState.QUEUED:
        return Situation.QUEUED
    if run["state"] == RunState.CLAIMED:
        return Situation.STOPPING if run["stopping"] else Situation.CLAIMED
    return {
        RunState.WAITING: Situation.WAITING,
        RunState.INTERRUPTED: Situation.INTERRUPTED,
        RunState.FAILED: Situation.FAILED,
    }[RunState(run["state"])]


def lead(snapshot: Mapping[str, Any]) -> Lead | None:
    """Return what to say first of a thread; None where its transcript says everything."""
    where = situation(snapshot)
    if where in _LEADS:
        return _LEADS[where]
    if where not in {Situation.INTERRUPTED, Situation.FAILED}:
        return None
    run = snapshot["runs"][-1]
    base = _FAILED if where is Situation.FAILED else _INTERRUPTED[Reason(run["reason"])]
    said = f" It said: {_message(run)}" if run.get("message") else ""
    return Lead(base.title, base.happened + said, base.known, base.safe, base.tone, run.get("workflow_id"))


def _message(run: Mapping[str, Any]) -> str:
    """Return what a worker said, without the address of the workflow at its end: a link beside it leads there."""
    said = str(run["message"])
    before, _, last = said.rpartition(" ")
    workflow_id = run.get("workflow_id")
    return before if before and workflow_id and last.endswith(f"/resume-work/{workflow_id}") else said


def why_it_ended(run: Mapping[str, Any]) -> str:
    """Return why a run ended, in a sentence; empty while it has not, and where its state says all."""
    if run["state"] in {RunState.INTERRUPTED, RunState.FAILED, RunState.STOPPED} and "reason" in run:
        words = {
            Reason.CLAIM_EXPIRED: "Its worker went away and the claim ran out.",
            Reason.TOOL_BLOCKED: "Governed work did not let it go on.",
            Reason.RESTORED: "It was older than a restored backup.",
            Reason.FAILED: "Its worker failed.",
        }[Reason(run["reason"])]
        said = f" {_message(run)}" if run.get("message") else ""
        then = " It was stopped afterwards." if run["state"] == RunState.STOPPED else ""
        return words + said + then
    if run["state"] == RunState.STOPPED:
        return "Somebody stopped it."
    return ""


def waiting_note(requests: Sequence[Mapping[str, Any]]) -> str:
    """Say what a thread waits for; empty when it waits for nothing."""
    if not requests:
        return ""
    left = sum(request["state"] == "open" for request in requests)
    asked = "a question" if len(requests) == 1 else f"{len(requests)} questions, {left} of them open"
    until = "it is answered" if len(requests) == 1 else "all are answered, in any order"
    return f"The run has ended with {asked}, and nothing goes on until {until}. To answer nothing, stop it."
