"""Whether a LangGraph node may begin anything: pure decisions about what LangGraph told it.

Facts that these rules rest on, the same on every tested version:

* ``configurable.__pregel_checkpointer`` is the saver given to ``compile``. A node of a subgraph compiled
  with ``checkpointer=False`` sees the parent's, so that it proves nothing by itself.
* ``configurable.__pregel_durability`` is there only if the caller passed ``durability=``, unvalidated.
* ``configurable.checkpoint_map`` names, for the namespace that a node runs in, the very checkpoint that its
  step began from. Where that one can be read back and holds the assistant message, the step is stored.

Source: docs/adr/0013.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from typing import Any, Final, Literal
from uuid import UUID

from continuity.integrations.calls import Refusal

Untested = Literal["refuse", "run_without_proof"]
"""What to do on a version that no test has run on. ``run_without_proof`` gives up the proof that a call is stored
before its effect and keeps its identity when the graph is resumed: an effect may then happen twice."""

TESTED: Final[Mapping[str, tuple[str, str]]] = {
    "langgraph": ("1.1.5", "1.2.24"),
    "langchain": ("1.2.15", "1.5.2"),
}
"""First and last version of each library that the tests are run on."""

_SAVER: Final = "__pregel_checkpointer"
_DURABILITY: Final = "__pregel_durability"
_NAMESPACE_SEPARATOR: Final = "|"
_SYNCHRONOUS_FULL: Final = 2
_JOURNALS_LOST: Final = frozenset({"memory", "off"})
_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*")


class Saver(Enum):
    """The savers that keep what they were told; the value is the class's full name."""

    SQLITE = "langgraph.checkpoint.sqlite.SqliteSaver"
    ASYNC_SQLITE = "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver"
    POSTGRES = "langgraph.checkpoint.postgres.PostgresSaver"
    ASYNC_POSTGRES = "langgraph.checkpoint.postgres.aio.AsyncPostgresSaver"

    @property
    def is_async(self) -> bool:
        """It answers coroutines."""
        return self in {Saver.ASYNC_SQLITE, Saver.ASYNC_POSTGRES}

    @property
    def is_sqlite(self) -> bool:
        """It may be in memory, and may be told not to wait for the disk."""
        return self in {Saver.SQLITE, Saver.ASYNC_SQLITE}


@dataclass(frozen=True, slots=True)
class Step:
    """The stored step that a node began from.

    Attributes:
        thread_id: The conversation.
        namespace: LangGraph's namespace of the graph that the node is part of; empty for the outermost.
        checkpoint_id: The checkpoint.
        continuity_namespace: The application's, may be empty.
    """

    thread_id: str
    namespace: str
    checkpoint_id: str
    continuity_namespace: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells the step from any other."""
        return self.thread_id, self.namespace, self.checkpoint_id

    @property
    def config(self) -> dict[str, Any]:
        """What a saver is asked with."""
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.namespace,
                "checkpoint_id": self.checkpoint_id,
            }
        }


def check_version(library: str, installed: str, *, untested: Untested) -> Refusal | None:
    """Say why a library's version must not be used, None if it may be.

    Args:
        library: A key of `TESTED`.
        installed: Its version.
        untested: What the application has said about versions outside the range.
    """
    first, last = TESTED[library]
    release = _release(installed)
    if release is not None and _release(first) <= release <= _release(last):  # type: ignore[operator]
        return None
    if untested == "run_without_proof":
        return None
    return Refusal("version_not_tested", f"{library} {installed} is installed; {first} to {last} are tested.")


def is_tested(library: str, installed: str) -> bool:
    """Say whether a version lies in the tested range; a pre-release never does."""
    return check_version(library, installed, untested="refuse") is None


def check_config(configurable: Mapping[str, Any], *, is_async: bool) -> Refusal | None:
    """Say why nothing may be begun under this configuration, None if the saver may be asked.

    Args:
        configurable: ``config["configurable"]`` of the node.
        is_async: The node is a coroutine function.
    """
    saver = configurable.get(_SAVER)
    if saver is None:
        return Refusal("checkpointer_missing")
    kind = saver_kind(saver)
    name = type(saver).__name__
    if kind is None:
        return Refusal("checkpointer_unsupported", f"{name} is none of {', '.join(one.name for one in _classes())}.")
    if kind.is_async is not is_async:
        return Refusal("checkpointer_unsupported", f"{name} is for {'async' if kind.is_async else 'ordinary'} graphs.")
    if configurable.get(_DURABILITY) != "sync":
        return Refusal("durability_not_sync")
    return None


def saver_of(configurable: Mapping[str, Any]) -> Any:
    """Return the saver that `check_config` let pass."""
    return configurable[_SAVER]


def saver_kind(saver: object) -> Saver | None:
    """Say which saver an object is; None for a subclass too, which may keep less."""
    cls = type(saver)
    name = f"{cls.__module__}.{cls.__qualname__}"
    return next((kind for kind in Saver if kind.value == name), None)


def check_sqlite(path: str, synchronous: int, journal: str) -> Refusal | None:
    """Say why a SQLite database does not keep what it was told, None if it does.

    Args:
        path: File of the main database, empty for one in memory.
        synchronous: What ``PRAGMA synchronous`` answers.
        journal: What ``PRAGMA journal_mode`` answers; a database of the VFS ``memdb`` has a path and says "memory".
    """
    if not path:
        return Refusal("checkpointer_in_memory")
    if journal.lower() in _JOURNALS_LOST:
        return Refusal("checkpointer_not_durable", f"PRAGMA journal_mode of its connection is {journal}.")
    if synchronous < _SYNCHRONOUS_FULL:
        return Refusal("checkpointer_not_durable", "PRAGMA synchronous of its connection is below FULL.")
    return None


def check_postgresql(synchronous_commit: str, *, is_idle: bool) -> Refusal | None:
    """Say why a PostgreSQL connection does not keep what it was told, None if it does.

    Args:
        synchronous_commit: What it is set to for it.
        is_idle: It was in no transaction before it was asked. In one, what was written is not committed.
    """
    if not is_idle:
        return Refusal("checkpointer_not_durable", "Its connection is in a transaction; it needs autocommit=True.")
    if synchronous_commit == "off":
        return Refusal("checkpointer_not_durable", "synchronous_commit is off for its connection.")
    return None


def step_of(configurable: Mapping[str, Any]) -> Step | Refusal:
    """Return the step that a node began from, or why it is not known."""
    thread_id = configurable.get("thread_id")
    if isinstance(thread_id, bool) or not isinstance(thread_id, str | int | UUID) or thread_id == "":
        return Refusal("thread_missing")
    continuity_namespace = configurable.get("continuity_namespace", "")
    if not isinstance(continuity_namespace, str):
        return Refusal("continuity_namespace_malformed")
    task_namespace = configurable.get("checkpoint_ns")
    checkpoints = configurable.get("checkpoint_map")
    if not isinstance(task_namespace, str) or not isinstance(checkpoints, Mapping):
        return Refusal("step_not_stored", "LangGraph does not say which step the node began from.")
    namespace = _NAMESPACE_SEPARATOR.join(task_namespace.split(_NAMESPACE_SEPARATOR)[:-1])
    checkpoint_id = checkpoints.get(namespace)
    if not isinstance(checkpoint_id, str) or not checkpoint_id:
        return Refusal("step_not_stored", "LangGraph does not say which step the node began from.")
    return Step(str(thread_id), namespace, checkpoint_id, continuity_namespace)


def check_message(message: object) -> Refusal | None:
    """Say why a message is not one whose calls may be run, None if it is."""
    if getattr(message, "type", None) != "ai":
        return Refusal("message_not_assistant")
    message_id = getattr(message, "id", None)
    if not isinstance(message_id, str) or not message_id:
        return Refusal("message_without_id")
    return None


def check_stored(message: Any, stored: Any, *, messages_key: str) -> Refusal | None:
    """Say why a message does not count as stored, None if it does.

    Args:
        message: One that `check_message` let pass.
        stored: The saver's tuple of the step, None when it has none.
        messages_key: Where the graph's state holds its messages.
    """
    if stored is None:
        return Refusal("step_not_stored", "The checkpointer does not have the step that the node began from.")
    if message is None:
        return Refusal("message_not_stored", "The stored step holds no assistant message with an id.")
    messages = stored.checkpoint.get("channel_values", {}).get(messages_key)
    if not isinstance(messages, Sequence):
        return Refusal("message_not_stored", f"The stored step has no {messages_key!r}.")
    same = [kept for kept in messages if getattr(kept, "id", None) == message.id]
    if not same:
        return Refusal("message_not_stored", "The stored step does not hold the message.")
    if not _are_same(_calls_of(same[-1]), _calls_of(message)):
        return Refusal("call_changed", "The message is stored with other tool calls.")
    return None


def assistant_message(stored: Any, *, messages_key: str) -> Any:
    """Return the last assistant message of a saver's tuple, None if it holds none."""
    messages = None if stored is None else stored.checkpoint.get("channel_values", {}).get(messages_key)
    if not isinstance(messages, Sequence):
        return None
    return next((message for message in reversed(messages) if check_message(message) is None), None)


def answered_calls(stored: Any, *, messages_key: str) -> set[str]:
    """Return the ids of the calls whose tool messages are stored.

    They are writes of the step that follows, or stand behind the assistant message already: of a call that a
    person has rejected, for example, LangChain asks for none any more.
    """
    if stored is None:
        return set()
    written = [value for _, _, value in (stored.pending_writes or ())]
    messages = [message for value in written for message in (value if isinstance(value, list) else [value])]
    kept = stored.checkpoint.get("channel_values", {}).get(messages_key)
    if isinstance(kept, Sequence):
        messages += takewhile(lambda message: check_message(message) is not None, reversed(kept))
    return {message.tool_call_id for message in messages if getattr(message, "type", None) == "tool"}


def same_call(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Say whether two tool calls are the same in id, name and arguments."""
    return all(_are_same(one.get(part), other.get(part)) for part in ("id", "name", "args"))


def _are_same(one: object, other: object) -> bool:
    # What was read back holds another NaN, which equals nothing; written out, both are the same.
    return one == other or repr(one) == repr(other)


def _calls_of(message: Any) -> list[tuple[Any, Any, Any]]:
    calls = getattr(message, "tool_calls", None) or ()
    return [(call.get("id"), call.get("name"), call.get("args")) for call in calls]


def _release(version: str) -> tuple[int, ...] | None:
    return tuple(int(part) for part in version.split(".")) if _RELEASE.fullmatch(version) else None


def _classes() -> list[Any]:
    return list(Saver)
