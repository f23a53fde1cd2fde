"""One run from its claim to its end: what is given to the graph, what is told of it, and how it ends.

Everything here is decided without waiting for anything but the journal's writer; who drives the graph, in a thread or
on an event loop, is `continuity.threads.worker` or `continuity.threads.async_worker`.

Rules:

* What a run is given is judged by what the checkpoint holds, never by why the run was queued: an input that it has
  reached is not given again, a reply whose question is answered is passed over.
* Once the claim is lost nothing more is written, neither to the journal nor to the checkpoints.
* What ends without an answer says why: blocked work with its workflow, so that a person can look at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph.errors import GraphRecursionError
from langgraph.types import Command

from continuity.decisions.threads import bounds
from continuity.delivery import is_passing
from continuity.errors import ConflictError, ContinuityError, MalformedError, TooLargeError
from continuity.limits import REASON_CHARS
from continuity.stops import OutcomeNotRecorded, RecoveryBlocked
from continuity.threads.agents import Agent, InputError, OutputError
from continuity.threads.claims import Claimed, ClaimLostError, WorkerClient
from continuity.threads.holding import Holding
from continuity.threads.limits import LimitReachedError
from continuity.threads.places import Waiting, answers, fenced, question
from continuity.threads.telling import INPUT_MARK, Telling, messages_in
from continuity.threads.words import PROGRESS, tasks_here

MODES: Final = ["messages", "updates", "values", "custom", "checkpoints"]
GRAPH_STEPS: Final = 10_000
"""Steps of an agent's graph are not what its limits count: each hook of middleware is one."""
_UNHEARD: Final = (
    "AtMem gave no answer while a governed call was asked for, so whether it was begun is not known. Nothing was done"
    " with it. A resumed run asks for the same call."
)
_STOPPING: Final = "thread_stopping"


@dataclass(frozen=True, slots=True)
class End:
    """How a run ends: the last part of the path, and the body."""

    action: str
    body: Mapping[str, Any]


class Segment:
    """A run in hand; `continuity.threads.words.Current` for what runs in it."""

    def __init__(self, agent: Agent, graph: Any, holding: Holding, client: WorkerClient) -> None:
        """Keep what it is made of; nothing is asked."""
        self.agent = agent
        self.claimed: Claimed = holding.claimed
        self.holding = holding
        self.telling = Telling(agent.client.tools, agent.client.state, client.work_of)
        self._clock = client.clock
        self._ends_at_s = client.clock() + agent.limits.timeout_seconds
        self._calls = 0
        self._later: list[Any] = []
        self._passed = client.trace
        self.graph = graph.copy(
            update={
                "checkpointer": fenced(graph.checkpointer, self.holding),
                "step_timeout": agent.limits.timeout_seconds,
            }
        )

    @property
    def config(self) -> dict[str, Any]:
        """What the graph is run with."""
        steps = self.agent.limits.max_steps if self.agent.profile == "graph" else GRAPH_STEPS
        given = self.claimed.run["input"]
        return {
            "configurable": {"thread_id": self.claimed.thread_id},
            "recursion_limit": steps,
            "metadata": {} if given is None else {INPUT_MARK: given["input_id"]},
        }

    # --- For what runs inside ---

    def steers(self) -> list[Mapping[str, Any]]:
        """See `Current.steers`."""
        return self.holding.steers(tasks_here())

    def check(self) -> None:
        """See `Current.check`."""
        self.holding.check()
        if self._clock() >= self._ends_at_s:
            raise LimitReachedError(f"It took longer than {self.agent.limits.timeout_seconds:g} seconds.")

    def passed(self, point: str) -> None:
        """See `Current.passed`."""
        self._passed(point)

    # --- From the checkpoint to the first step ---

    def given(self, state: Any, found: Sequence[tuple[Waiting, int]]) -> Any:
        """Return what the graph is given: its input, the replies to its questions, or nothing but to go on.

        Args:
            state: What is stored of the thread.
            found: Its questions with their ordinals.

        Raises:
            InputError: What was said is not what the agent takes.
        """
        self.holding.say(*self.telling.begin(messages_in(state.values)))
        said = self.claimed.run["input"]
        if said is not None and (state.metadata or {}).get(INPUT_MARK) != said["input_id"]:
            return self.agent.first_state(said["content"], input_id=said["input_id"], held=state.values)
        replies = answers(found, self.claimed.run["replies"])
        return Command(resume=replies) if replies else None

    # --- While it runs ---

    def heard(self, namespace: tuple[str, ...], mode: str, payload: Any) -> bool:
        """Tell the journal of one event of the graph; return whether to go on to the next.

        Raises:
            ClaimLostError: The claim is over.
            LimitReachedError: The run has gone as far as it may.
        """
        self.check()
        if mode == "custom":
            if isinstance(payload, Mapping) and payload.get("format") == PROGRESS:
                self.holding.say(*self.telling.progress(payload["data"], payload["call_id"]))
        elif not namespace and mode == "messages":
            if payload[0].type in {"ai", "AIMessageChunk"}:
                self.holding.say(*self.telling.part(payload[0]))
        elif not namespace and mode == "updates":
            self._updated(payload)
        elif not namespace and mode == "values":
            self._told_later()
            self.holding.say(*self.telling.state(payload))
            self.holding.look()
        elif not namespace and mode == "checkpoints":
            # A step is over and stored, whether it has changed anything or not: a stop ends the run.
            return not self.holding.is_stopping
        return True

    def _updated(self, payload: Mapping[str, Any]) -> None:
        for update in payload.values():
            for each in update if isinstance(update, list | tuple) else [update]:
                messages = each.get("messages") if isinstance(each, Mapping) else None
                if messages is None:
                    continue
                added = messages if isinstance(messages, list) else [messages]
                self._later += [message for message in added if getattr(message, "type", "") == "ai"]
                self.holding.say(*self.telling.messages(m for m in added if getattr(m, "type", "") == "tool"))
                self._count(added)

    def _told_later(self) -> None:
        """Tell the calls of a step that is stored: those of one that is lost are never made."""
        self.holding.say(*self.telling.messages(self._later))
        self._later = []

    def _count(self, added: Sequence[Any]) -> None:
        self._calls += sum(len(message.tool_calls) for message in added if getattr(message, "type", "") == "ai")
        if self._calls > self.agent.limits.max_tool_calls:
            raise LimitReachedError(f"It wanted more than {self.agent.limits.max_tool_calls} tool calls.")

    # --- The end ---

    def came_to(self, state: Any, found: Sequence[tuple[Waiting, int]]) -> End:
        """Say how a run ends that the graph has left.

        Raises:
            OutputError: What it came to is not what the agent promises.
            LimitReachedError: It asks more questions at once than a thread holds.
        """
        self._told_later()
        if self.holding.is_stopping:
            return End("settle", {"output": None})
        if found:
            if len(found) > bounds.REQUESTS_PER_WAIT:
                raise LimitReachedError(f"It asks more than {bounds.REQUESTS_PER_WAIT} questions at once.")
            unfinished = self.holding.steers_unfinished
            return End("wait", {
                "requests": [question(waiting, ordinal) for waiting, ordinal in found],
                **({"steers_unfinished": unfinished} if unfinished else {}),
            })  # fmt: skip
        if state.next:
            return End("fail", {"reason": "failed", "message": "The graph stopped before its end without a question."})
        text = self.agent.answer_text(state.values)
        if text:
            # By the checkpoint: a run that goes on from it after a worker's death says the same answer again.
            checkpoint_id = state.config["configurable"]["checkpoint_id"]
            self.holding.say(*_answer(f"answer-{checkpoint_id}", text))
        return End("settle", {"output": self.agent.result(state.values)})

    def broken(self, error: BaseException) -> End | None:
        """Say how a run ends that has raised; None where nothing may be said any more."""
        if isinstance(error, ClaimLostError) or self.holding.is_lost:
            return None
        if isinstance(error, RecoveryBlocked | OutcomeNotRecorded):
            named = {"workflow_id": error.workflow_id} if error.workflow_id else {}
            # The page's address is no text of a conversation: the workflow is named, and whoever shows it leads there.
            message = error.message.removesuffix(error.page).rstrip()
            return End("fail", {"reason": "blocked", "message": message[:REASON_CHARS], **named})
        if isinstance(error, ContinuityError) and is_passing(error):
            # An attempt may have been granted, and nothing was done with it: the same call is asked for by its key.
            return End("fail", {"reason": "blocked", "message": _UNHEARD})
        return End("fail", {"reason": "failed", "message": _why(error)[:REASON_CHARS]})

    def end(self, end: End) -> None:
        """Write how the run ends; what the server does not take ends it as failed, with why.

        Raises:
            ClaimLostError: The claim is over.
            ContinuityError: The server does not take that it failed, or was not reached.
        """
        try:
            self.holding.end(end.action, end.body)
        except (ConflictError, MalformedError, TooLargeError) as error:
            if end.action == "fail":
                raise
            if error.code == _STOPPING:
                # A stop came between the last look and this: what it wants to ask is not asked any more.
                self.holding.end("settle", {"output": None})
            else:
                # Left to run out, the claim would say that the worker went away, after each resume again.
                self.holding.end("fail", {"reason": "failed", "message": _why(error)[:REASON_CHARS]})


def _why(error: BaseException) -> str:
    if isinstance(error, InputError | OutputError | LimitReachedError):
        return str(error)
    if isinstance(error, GraphRecursionError):
        return "It took more steps than it may."
    if isinstance(error, TimeoutError):
        return "A step took longer than the run may."
    if isinstance(error, ContinuityError):
        return error.message
    # What a graph of somebody's raises may hold anything: the worker's own log has it whole.
    return f"The agent raised {type(error).__name__}."


def _answer(message_id: str, text: str) -> list[dict[str, Any]]:
    parts = [text[start : start + 8_192] for start in range(0, min(len(text), bounds.MESSAGE_CHARS), 8_192)]
    return [
        {"kind": "message_started", "message_id": message_id},
        *({"kind": "message_part", "message_id": message_id, "text": part} for part in parts),
        {"kind": "message_ended", "message_id": message_id},
    ]
