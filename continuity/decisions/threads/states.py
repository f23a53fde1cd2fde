"""States of threads and runs, and what every event does in every situation.

Rules:

* A run is one execution segment. It is claimed once in its life; going on after a wait, a failure or an interruption
  is a new run. What has ended is never changed, but that a person may stop what was left waiting or unfinished.
* `TABLE` is all there is to know about legality: `Situation` x `Event` gives the situations that can follow, or the
  code of the refusal. One look-up, one error.
* Nothing but a settled run starts the next follow-up by itself. An interruption, a failure and a stop start nothing.
* Whatever was accepted is in the queue, in the transcript, or named in a record: no event drops it.
* A claim that has run out writes nothing and is never renewed into life; its run becomes interrupted.

The pictures in ``docs/threads.md`` are generated from the tables here; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ThreadState(StrEnum):
    """State of a thread, as stored and as shown."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING = "waiting"
    NEEDS_ATTENTION = "needs_attention"


class RunState(StrEnum):
    """State of a run, as stored and as shown."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    SETTLED = "settled"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    STOPPED = "stopped"


class RequestState(StrEnum):
    """State of a waiting request."""

    OPEN = "open"
    ANSWERED = "answered"
    CANCELLED = "cancelled"


class RequestKind(StrEnum):
    """What a waiting request asks for."""

    APPROVAL = "approval"
    REPLY = "reply"


class Control(StrEnum):
    """What an agent may let clients do while it runs."""

    STEER = "steer"
    FOLLOW_UP = "follow-up"
    STOP = "stop"
    APPROVE = "approve"


class Cause(StrEnum):
    """Why a run was queued."""

    MESSAGE = "message"
    FOLLOW_UP = "follow_up"
    REPLY = "reply"
    RESUME = "resume"


class Reason(StrEnum):
    """Why a run was interrupted or failed."""

    CLAIM_EXPIRED = "claim_expired"
    TOOL_BLOCKED = "tool_blocked"
    RESTORED = "restored"
    FAILED = "failed"


class Step(StrEnum):
    """What can happen to a run."""

    CLAIM = "claimed by a worker"
    WAIT = "ended with questions"
    SETTLE = "settled"
    SETTLE_STOPPING = "settled after a stop was asked for"
    FAIL = "failed"
    BLOCK = "governed work is blocked"
    EXPIRE = "claim ran out"
    RESTORE = "older than a restored backup"
    STOP = "stopped"


RUN_STEPS: Final[dict[RunState, dict[Step, RunState]]] = {
    RunState.QUEUED: {
        Step.CLAIM: RunState.CLAIMED,
        Step.RESTORE: RunState.INTERRUPTED,
        Step.STOP: RunState.STOPPED,
    },
    RunState.CLAIMED: {
        Step.WAIT: RunState.WAITING,
        Step.SETTLE: RunState.SETTLED,
        Step.SETTLE_STOPPING: RunState.STOPPED,
        Step.FAIL: RunState.FAILED,
        Step.BLOCK: RunState.INTERRUPTED,
        Step.EXPIRE: RunState.INTERRUPTED,
    },
    RunState.WAITING: {Step.STOP: RunState.STOPPED},
    RunState.INTERRUPTED: {Step.STOP: RunState.STOPPED},
    RunState.FAILED: {Step.STOP: RunState.STOPPED},
    RunState.SETTLED: {},
    RunState.STOPPED: {},
}
"""Legal steps of a run. A run that waits or is left unfinished goes on as a new one, which names it."""

REQUEST_STEPS: Final[dict[RequestState, dict[str, RequestState]]] = {
    RequestState.OPEN: {
        "first reply admitted": RequestState.ANSWERED,
        "run stopped": RequestState.CANCELLED,
    },
    RequestState.ANSWERED: {"asked again at the same place": RequestState.OPEN},
    RequestState.CANCELLED: {},
}
"""Legal steps of a waiting request. To be asked again raises its revision."""

THREAD_OF_RUN: Final[dict[RunState | None, ThreadState]] = {
    None: ThreadState.IDLE,
    RunState.QUEUED: ThreadState.RUNNING,
    RunState.CLAIMED: ThreadState.RUNNING,
    RunState.WAITING: ThreadState.WAITING,
    RunState.INTERRUPTED: ThreadState.NEEDS_ATTENTION,
    RunState.FAILED: ThreadState.NEEDS_ATTENTION,
    RunState.SETTLED: ThreadState.IDLE,
    RunState.STOPPED: ThreadState.IDLE,
}
"""State of a thread by its newest run."""


class Situation(StrEnum):
    """Where a thread stands, as finely as events can tell it."""

    IDLE = "idle"
    HELD = "idle, follow-ups held"
    QUEUED = "run queued"
    CLAIMED = "run claimed"
    STOPPING = "run claimed, stop asked for"
    WAITING = "questions open"
    INTERRUPTED = "run interrupted"
    FAILED = "run failed"


class Event(StrEnum):
    """What clients, workers and time can do to a thread."""

    MESSAGE = "message"
    STEER = "steer"
    FOLLOW_UP = "follow-up"
    STOP = "stop"
    RESUME = "resume"
    REPLY = "reply"
    DELETE = "delete"
    CLAIM = "claim"
    HEARTBEAT = "heartbeat"
    APPEND = "append"
    WAIT = "wait"
    SETTLE = "settle"
    FAIL = "fail"
    BLOCK = "fail, blocked"
    EXPIRE = "claim runs out"


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal: its stable code."""

    code: str


BUSY: Final = Refused("thread_busy")
NOT_RUNNING: Final = Refused("thread_not_running")
STOPPING: Final = Refused("thread_stopping")
NOTHING_TO_RESUME: Final = Refused("nothing_to_resume")
CLAIM_LOST: Final = Refused("claim_lost")
NOT_OPEN: Final = Refused("already_answered")
"""What a reply meets that finds its request answered; one that was cancelled answers ``waiting_cancelled``."""
NOTHING: Final[tuple[Situation, ...]] = ()
"""Nothing happens and nobody is refused: there is no claim that could run out."""

Outcome = tuple[Situation, ...] | Refused

_S = Situation
_E = Event
_NO_CLAIM: Final[dict[Event, Outcome]] = {
    _E.CLAIM: CLAIM_LOST,
    _E.HEARTBEAT: CLAIM_LOST,
    _E.APPEND: CLAIM_LOST,
    _E.WAIT: CLAIM_LOST,
    _E.SETTLE: CLAIM_LOST,
    _E.FAIL: CLAIM_LOST,
    _E.BLOCK: CLAIM_LOST,
    _E.EXPIRE: NOTHING,
}
"""What workers meet where they hold no claim."""

TABLE: Final[dict[Situation, dict[Event, Outcome]]] = {
    _S.IDLE: {
        **_NO_CLAIM,
        _E.MESSAGE: (_S.QUEUED,),
        _E.STEER: NOT_RUNNING,
        _E.FOLLOW_UP: (_S.QUEUED,),
        _E.STOP: NOT_RUNNING,
        _E.RESUME: NOTHING_TO_RESUME,
        _E.REPLY: NOT_OPEN,
        _E.DELETE: (_S.IDLE,),
    },
    _S.HELD: {
        **_NO_CLAIM,
        # It joins the queue, whose first starts: what was accepted earlier is not overtaken.
        _E.MESSAGE: (_S.QUEUED,),
        _E.STEER: NOT_RUNNING,
        _E.FOLLOW_UP: (_S.QUEUED,),
        _E.STOP: NOT_RUNNING,
        _E.RESUME: (_S.QUEUED,),
        _E.REPLY: NOT_OPEN,
        _E.DELETE: (_S.HELD,),
    },
    _S.QUEUED: {
        **_NO_CLAIM,
        _E.MESSAGE: BUSY,
        _E.STEER: (_S.QUEUED,),
        _E.FOLLOW_UP: (_S.QUEUED,),
        _E.STOP: (_S.IDLE, _S.HELD),
        _E.RESUME: NOTHING_TO_RESUME,
        _E.REPLY: NOT_OPEN,
        _E.DELETE: BUSY,
        _E.CLAIM: (_S.CLAIMED,),
    },
    _S.CLAIMED: {
        _E.MESSAGE: BUSY,
        _E.STEER: (_S.CLAIMED,),
        _E.FOLLOW_UP: (_S.CLAIMED,),
        _E.STOP: (_S.STOPPING,),
        _E.RESUME: NOTHING_TO_RESUME,
        _E.REPLY: NOT_OPEN,
        _E.DELETE: BUSY,
        _E.CLAIM: CLAIM_LOST,
        _E.HEARTBEAT: (_S.CLAIMED,),
        _E.APPEND: (_S.CLAIMED,),
        _E.WAIT: (_S.WAITING,),
        _E.SETTLE: (_S.IDLE, _S.QUEUED),
        _E.FAIL: (_S.FAILED,),
        _E.BLOCK: (_S.INTERRUPTED,),
        _E.EXPIRE: (_S.INTERRUPTED,),
    },
    _S.STOPPING: {
        _E.MESSAGE: BUSY,
        _E.STEER: STOPPING,
        _E.FOLLOW_UP: (_S.STOPPING,),
        _E.STOP: (_S.STOPPING,),
        _E.RESUME: NOTHING_TO_RESUME,
        _E.REPLY: NOT_OPEN,
        _E.DELETE: BUSY,
        _E.CLAIM: CLAIM_LOST,
        _E.HEARTBEAT: (_S.STOPPING,),
        _E.APPEND: (_S.STOPPING,),
        # Whoever asked for the stop would be asked something instead.
        _E.WAIT: STOPPING,
        _E.SETTLE: (_S.IDLE, _S.HELD),
        _E.FAIL: (_S.FAILED,),
        _E.BLOCK: (_S.INTERRUPTED,),
        _E.EXPIRE: (_S.INTERRUPTED,),
    },
    _S.WAITING: {
        **_NO_CLAIM,
        _E.MESSAGE: BUSY,
        _E.STEER: NOT_RUNNING,
        _E.FOLLOW_UP: (_S.WAITING,),
        _E.STOP: (_S.IDLE, _S.HELD),
        _E.RESUME: NOTHING_TO_RESUME,
        _E.REPLY: (_S.WAITING, _S.QUEUED),
        _E.DELETE: BUSY,
    },
    _S.INTERRUPTED: {
        **_NO_CLAIM,
        _E.MESSAGE: BUSY,
        _E.STEER: NOT_RUNNING,
        _E.FOLLOW_UP: (_S.INTERRUPTED,),
        _E.STOP: (_S.IDLE, _S.HELD),
        _E.RESUME: (_S.QUEUED,),
        _E.REPLY: NOT_OPEN,
        _E.DELETE: BUSY,
    },
    _S.FAILED: {
        **_NO_CLAIM,
        _E.MESSAGE: BUSY,
        _E.STEER: NOT_RUNNING,
        _E.FOLLOW_UP: (_S.FAILED,),
        _E.STOP: (_S.IDLE, _S.HELD),
        _E.RESUME: (_S.QUEUED,),
        _E.REPLY: NOT_OPEN,
        _E.DELETE: BUSY,
    },
}
"""What each event does in each situation: the situations that can follow, or the refusal."""

NEEDS_CONTROL: Final[dict[Event, Control]] = {
    Event.STEER: Control.STEER,
    Event.FOLLOW_UP: Control.FOLLOW_UP,
    Event.STOP: Control.STOP,
}
"""Events that an agent must have declared. What needs attention can be stopped and resumed in any case."""


class TransitionError(RuntimeError):
    """A step that the state does not allow was about to be taken: a defect of ours. Nothing has changed."""


def after(state: RunState, step: Step) -> RunState:
    """Return the state of a run that `step` leads to.

    Raises:
        TransitionError: `step` is not legal in `state`. Nothing has changed.
    """
    try:
        return RUN_STEPS[state][step]
    except KeyError:
        raise TransitionError(f"{step.name} is not possible for a run that is {state}.") from None
