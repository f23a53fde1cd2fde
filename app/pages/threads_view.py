"""A thread as frozen values, made from its snapshot: transcript, queue, state, runs, and what may be done. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.pages.jsonview import JSONView, json_view
from app.pages.threads_words import CAUSES, Lead, lead, situation, waiting_note, why_it_ended
from continuity.decisions.threads.states import Cause, Control, Situation

_QUESTION: Final = "question"
_TOOL: Final = "tool"
_HEADING_CHARS: Final = 200
_TODOS: Final = "todos"
_TODO_STATES: Final = {"completed": "done", "in_progress": "under way", "pending": "to do"}
_RUNNING: Final = frozenset({Situation.QUEUED, Situation.CLAIMED, Situation.STOPPING})
_ATTENTION: Final = frozenset({Situation.INTERRUPTED, Situation.FAILED})


@dataclass(frozen=True, slots=True)
class Content:
    """What was said or declared: text, or another JSON value laid out."""

    text: str | None
    json: JSONView | None

    @classmethod
    def of(cls, value: Any) -> Content:
        if isinstance(value, str):
            return cls(value, None)
        is_plain = value is None or isinstance(value, bool | int | float)
        return cls(json.dumps(value), None) if is_plain else cls(None, json_view(value))


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the transcript: ``user``, ``assistant``, ``tool`` or ``answer``.

    `state` of a call is ``open, waits, cut, ok, error, denied`` or ``unknown``; of an answer ``approved, denied`` or
    ``answered``, with what was asked in `question` and `asked`, and who answered in `name`; of a message ``open, cut,
    done`` or ``incomplete``. What has not ended is ``cut`` where its run was interrupted or has failed.
    """

    number: int
    item_id: str
    who: str
    state: str
    status: str
    at: float
    kind: str = ""
    name: str = ""
    content: Content | None = None
    arguments: JSONView | None = None
    progress: Content | None = None
    result: Content | None = None
    workflow_id: str | None = None
    operation_id: str | None = None
    run: int | None = None
    question: str = ""
    asked: tuple[tuple[str, Content], ...] = ()


@dataclass(frozen=True, slots=True)
class Queued:
    """What was accepted and no run has taken in yet."""

    kind: str
    content: Content
    at: float


@dataclass(frozen=True, slots=True)
class Todo:
    text: str
    state: str
    words: str


@dataclass(frozen=True, slots=True)
class Declared:
    """One key of the state that the agent lets clients see."""

    key: str
    content: Content
    todos: tuple[Todo, ...] = ()

    @property
    def done(self) -> str:
        return f"{sum(todo.state == 'completed' for todo in self.todos)} of {len(self.todos)} done"


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run; `resumes` is the number of the one that it goes on from, `because` why it ended."""

    number: int
    run_id: str
    state: str
    cause: str
    queued: float
    ended: float | None
    generation: int | None
    resumes: int | None
    is_resuming: bool
    is_stopping: bool
    because: str
    workflow_id: str | None
    output: JSONView | None


@dataclass(frozen=True, slots=True)
class Offers:
    """Which controls the state admits and the agent declares; a `why_…` says why one is not there."""

    message: bool
    steer: bool
    follow_up: bool
    stop: bool
    resume: bool
    delete: bool
    is_stopping: bool
    is_urgent: bool
    why_no_message: str
    why_no_stop: str

    @property
    def says(self) -> bool:
        """Whether anything can be said now."""
        return self.message or self.steer or self.follow_up


@dataclass(frozen=True, slots=True)
class ThreadView:
    """A thread as its page shows it. `acts_mark` differs whenever what may be done would."""

    thread_id: str
    name: str
    agent: str
    workspace: str
    owner: str
    created: float
    revision: int
    state: str
    situation: str
    checkpoint: str
    acts_mark: str
    items: tuple[Item, ...]
    queue: tuple[Queued, ...]
    declared: tuple[Declared, ...]
    runs: tuple[RunLine, ...]
    older: str | None
    lead: Lead | None
    waits: str
    offers: Offers

    @property
    def is_running(self) -> bool:
        return self.situation in _RUNNING


def thread_view(snapshot: Mapping[str, Any], names: Mapping[str, str]) -> ThreadView:
    """Make the page's value; `names` are of those who have answered (`answerers`)."""
    thread, numbers = snapshot["thread"], {run["run_id"]: run["number"] for run in snapshot["runs"]}
    where = situation(snapshot)
    return ThreadView(
        **{name: thread[name] for name in (
            "thread_id", "name", "agent", "workspace", "owner", "created", "revision", "state",
        )},
        situation=where,
        checkpoint=snapshot["checkpoint"],
        acts_mark=acts_mark(snapshot["checkpoint"], thread["revision"]),
        items=tuple(item_view(item, numbers, names, where) for item in snapshot["messages"]),
        queue=tuple(Queued(each["kind"], Content.of(each["content"]), each["at"]) for each in snapshot["queue"]),
        declared=tuple(_declared(key, value) for key, value in sorted(snapshot["state"].items())),
        runs=tuple(_run(run, numbers) for run in reversed(snapshot["runs"])),
        older=snapshot["history_cursor"],
        lead=lead(snapshot),
        waits=waiting_note(snapshot["waiting"]),
        offers=offers(where, frozenset(snapshot["controls"])),
    )  # fmt: skip


def answerers(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the actors who have answered questions of a transcript."""
    return {item["actor"] for item in messages if item["type"] == "answer"}


def acts_mark(checkpoint: str, revision: int) -> str:
    """Return a word that differs whenever what may be done would: parts of a message raise no revision."""
    return f"{checkpoint.partition('-')[0]}-{revision}"


def item_view(
    item: Mapping[str, Any], numbers: Mapping[str, int], names: Mapping[str, str], where: Situation = Situation.IDLE
) -> Item:
    """Make one line of a transcript; `numbers` are those of the runs that are shown, `names` of those who answered."""
    common = {
        "number": item["item_no"], "item_id": item["id"], "status": item["status"], "at": item["at"],
        "run": numbers.get(item["run_id"] or ""),
    }  # fmt: skip
    if item["type"] == "message":
        return Item(
            **common, who=item["role"], state=_message_state(item, where), kind=item.get("kind", ""),
            name=item.get("name", ""), content=Content.of(item["content"]),
        )  # fmt: skip
    if item["type"] == "answer":
        heading, shown = heading_of(item)
        return Item(
            **common, who="answer", state=_answer_state(item), name=names.get(item["actor"], item["actor"]),
            kind=item["kind"], content=Content.of(item["reply"]), question=heading, asked=shown,
        )  # fmt: skip
    return Item(
        **common, who="tool", state=_call_state(item, where), name=item["tool"],
        arguments=json_view(item["arguments"]) if "arguments" in item else None,
        progress=Content.of(item["progress"]) if "progress" in item else None,
        result=Content.of(item["result"]) if "result" in item else None,
        workflow_id=item.get("workflow_id"), operation_id=item.get("operation_id"),
    )  # fmt: skip


def offers(where: Situation, declared: frozenset[str]) -> Offers:
    """Say which controls stand open, whoever asks."""
    is_running, is_urgent = where in _RUNNING, where in _ATTENTION
    is_busy = where not in {Situation.IDLE, Situation.HELD}
    stops = Control.STOP in declared
    may_stop = is_urgent or (stops and (is_running or where is Situation.WAITING))
    return Offers(
        message=not is_busy,
        steer=Control.STEER in declared and where in {Situation.QUEUED, Situation.CLAIMED},
        follow_up=Control.FOLLOW_UP in declared and is_busy,
        stop=may_stop and where is not Situation.STOPPING,
        resume=is_urgent or where is Situation.HELD,
        delete=not is_busy,
        is_stopping=where is Situation.STOPPING,
        is_urgent=is_urgent,
        why_no_message=_why_no_message(where) if is_busy else "",
        why_no_stop="" if stops or not is_busy or is_urgent else "This agent does not let anybody stop it.",
    )


def _why_no_message(where: Situation) -> str:
    if where is Situation.WAITING:
        return "It waits for an answer to what it asks. A new message is taken once the thread is idle again."
    if where in _ATTENTION:
        return "It needs attention: resume it or stop it. A new message is taken once the thread is idle again."
    return "A run goes on. A new message is taken once the thread is idle again."


def heading_of(question: Mapping[str, Any]) -> tuple[str, tuple[tuple[str, Content], ...]]:
    """Return what to call a question, by its ``kind`` and what is ``shown``, and what is shown beside."""
    shown = dict(question["shown"])
    is_approval = question["kind"] == "approval"
    heading = "Approve or deny" if is_approval else "Your reply is asked for"
    if _is_short(shown.get(_QUESTION)):
        heading = shown.pop(_QUESTION)
    elif is_approval and _is_short(shown.get(_TOOL)):
        # As governed tools ask.
        heading = f"Approve {shown.pop(_TOOL)}?"
    return heading, tuple((key, Content.of(value)) for key, value in shown.items())


def _is_short(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= _HEADING_CHARS


def _answer_state(item: Mapping[str, Any]) -> str:
    reply = item["reply"]
    if item["kind"] != "approval" or not isinstance(reply, bool):
        return "answered"
    return "approved" if reply else "denied"


def _message_state(item: Mapping[str, Any], where: Situation) -> str:
    return "cut" if item["status"] == "open" and where in _ATTENTION else str(item["status"])


def _call_state(item: Mapping[str, Any], where: Situation) -> str:
    if item["status"] != "open":
        return str(item.get("outcome", "unknown"))
    return "cut" if where in _ATTENTION else "waits" if where is Situation.WAITING else "open"


def _declared(key: str, value: Any) -> Declared:
    return Declared(key, Content.of(value), _todos(value) if key == _TODOS else ())


def _todos(value: Any) -> tuple[Todo, ...]:
    """Read a list of things to do as LangChain's middleware keeps it; anything else is shown as it is."""
    items: Sequence[Any] = value if isinstance(value, list) else ()
    if not items or not all(isinstance(each, Mapping) and isinstance(each.get("content"), str) for each in items):
        return ()
    states = [str(each.get("status", "pending")) for each in items]
    return tuple(
        Todo(each["content"], state, _TODO_STATES.get(state, state)) for each, state in zip(items, states, strict=True)
    )


def _run(run: Mapping[str, Any], numbers: Mapping[str, int]) -> RunLine:
    return RunLine(
        number=run["number"], run_id=run["run_id"], state=run["state"], cause=CAUSES[Cause(run["cause"])],
        queued=run["queued"], ended=run.get("ended"), generation=run.get("generation"),
        resumes=numbers.get(run["resumes"] or ""), is_resuming=run["resumes"] is not None,
        is_stopping=run["stopping"] and run["state"] == "claimed", because=why_it_ended(run),
        workflow_id=run.get("workflow_id"), output=json_view(run["output"]) if "output" in run else None,
    )  # fmt: skip
