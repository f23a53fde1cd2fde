"""What is decided about a node's configuration, its saver, and the message that its step holds."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from continuity.client import RecoveryBlocked
from continuity.integrations.calls import Refusal
from continuity.integrations.checks import (
    Saver,
    Step,
    answered_calls,
    assistant_message,
    check_config,
    check_message,
    check_postgresql,
    check_sqlite,
    check_stored,
    same_call,
    saver_kind,
    step_of,
)
from continuity.stops import NEXT_STEPS
from tests.langgraph.hall import call

CONFIG_CODES = {
    "checkpointer_missing", "checkpointer_unsupported", "checkpointer_in_memory", "checkpointer_not_durable",
    "durability_not_sync", "thread_missing", "continuity_namespace_malformed", "step_not_stored",
    "message_not_assistant", "message_without_id", "message_not_stored", "integration_not_enabled",
    "version_not_tested",
}  # fmt: skip


CALL_CODES = {"call_id_missing", "call_id_duplicate", "tool_not_registered", "too_many_calls"}


def test_each_refusal_has_its_own_words_on_what_is_safe_next():
    general = RecoveryBlocked("no_such_code", "", page="").next_step
    codes = {*CONFIG_CODES, *CALL_CODES, "call_changed", "tool_retired", "earlier_call_unresolved", "runner_mismatch",
             "middleware_passed_over"}  # fmt: skip
    assert all(NEXT_STEPS.get(code, general) != general for code in codes)


def saver_named(name):
    module, _, qualname = name.rpartition(".")
    return type(qualname, (), {"__module__": module, "__qualname__": qualname})()


SAVERS = {
    None: None,
    "other": saver_named("langgraph.checkpoint.memory.InMemorySaver"),
    **{kind: saver_named(kind.value) for kind in Saver},
}
DURABILITIES = [None, "sync", "async", "exit", "SYNC", True]


def test_of_every_saver_durability_and_kind_of_node_only_those_that_keep_are_admitted():
    for (kind, saver), durability, is_async in itertools.product(SAVERS.items(), DURABILITIES, [True, False]):
        configurable = {"__pregel_checkpointer": saver}
        if durability is not None:
            configurable["__pregel_durability"] = durability
        refusal = check_config(configurable, is_async=is_async)
        if kind is None:
            expected = "checkpointer_missing"
        elif kind == "other" or kind.is_async is not is_async:
            expected = "checkpointer_unsupported"
        else:
            expected = None if durability == "sync" else "durability_not_sync"
        assert (refusal and refusal.code) == expected


def test_savers_are_known_by_their_very_class():
    class Sub(type(SAVERS[Saver.SQLITE])):
        """May keep less."""

    assert saver_kind(SAVERS[Saver.POSTGRES]) is Saver.POSTGRES
    assert saver_kind(Sub()) is None
    assert saver_kind(None) is None


@pytest.mark.parametrize(
    ("path", "synchronous", "journal", "code"),
    [
        ("/a.db", 2, "wal", None), ("/a.db", 3, "delete", None), ("/a.db", 1, "wal", "checkpointer_not_durable"),
        ("/a.db", 0, "wal", "checkpointer_not_durable"), ("", 2, "memory", "checkpointer_in_memory"),
        ("", 0, "wal", "checkpointer_in_memory"), ("/a.db", 2, "memory", "checkpointer_not_durable"),
        ("/a.db", 2, "OFF", "checkpointer_not_durable"),
    ],
)  # fmt: skip
def test_a_database_keeps_what_is_in_a_file_and_journalled_and_waited_for(path, synchronous, journal, code):
    refusal = check_sqlite(path, synchronous, journal)
    assert (refusal and refusal.code) == code


@pytest.mark.parametrize(
    ("synchronous_commit", "is_idle", "code"),
    [
        ("on", True, None), ("local", True, None), ("remote_apply", True, None),
        ("off", True, "checkpointer_not_durable"), ("on", False, "checkpointer_not_durable"),
    ],
)  # fmt: skip
def test_a_postgresql_connection_keeps_what_it_waits_for_and_commits(synchronous_commit, is_idle, code):
    refusal = check_postgresql(synchronous_commit, is_idle=is_idle)
    assert (refusal and refusal.code) == code


HERE = {"thread_id": "t", "checkpoint_ns": "tools:1", "checkpoint_map": {"": "cp"}}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, Step("t", "", "cp", "")),
        ({"thread_id": 7}, Step("7", "", "cp", "")),
        ({"continuity_namespace": "n"}, Step("t", "", "cp", "n")),
        ({"checkpoint_ns": "sub:2|tools:1", "checkpoint_map": {"": "cp", "sub:2": "in"}}, Step("t", "sub:2", "in", "")),
        ({"thread_id": None}, "thread_missing"),
        ({"thread_id": ""}, "thread_missing"),
        ({"thread_id": True}, "thread_missing"),
        ({"continuity_namespace": None}, "continuity_namespace_malformed"),
        ({"checkpoint_ns": None}, "step_not_stored"),
        ({"checkpoint_ns": "sub:2|tools:1"}, "step_not_stored"),
        ({"checkpoint_map": None}, "step_not_stored"),
        ({"checkpoint_map": {}}, "step_not_stored"),
        ({"checkpoint_map": {"": None}}, "step_not_stored"),
    ],
)
def test_the_step_is_the_one_that_the_nodes_own_graph_began_from(change, found):
    step = step_of({**HERE, **change})
    assert (step.code if isinstance(step, Refusal) else step) == found


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (AIMessage("", id="m"), None),
        (AIMessage("", id=None), "message_without_id"),
        (AIMessage("", id=""), "message_without_id"),
        (HumanMessage("", id="m"), "message_not_assistant"),
        (ToolMessage("", tool_call_id="c", id="m"), "message_not_assistant"),
        (None, "message_not_assistant"),
        ({"type": "ai", "id": "m"}, "message_not_assistant"),
    ],
)
def test_only_an_assistant_message_with_an_id_is_run(message, code):
    refusal = check_message(message)
    assert (refusal and refusal.code) == code


ASKED = AIMessage("", id="m", tool_calls=[call(to="a")])


def stored(*messages, key="messages", writes=()):
    return SimpleNamespace(checkpoint={"channel_values": {key: list(messages)}}, pending_writes=writes)


@pytest.mark.parametrize(
    ("kept", "code"),
    [
        (stored(HumanMessage("x", id="h"), ASKED), None),
        (stored(ASKED, AIMessage("later", id="n")), None),
        (None, "step_not_stored"),
        (stored(), "message_not_stored"),
        (stored(ASKED, key="other"), "message_not_stored"),
        (stored(AIMessage("", id="n", tool_calls=[call(to="a")])), "message_not_stored"),
        (stored(AIMessage("", id="m", tool_calls=[call(to="b")])), "call_changed"),
        (stored(AIMessage("", id="m", tool_calls=[call(call_id="c2", to="a")])), "call_changed"),
        (stored(AIMessage("", id="m")), "call_changed"),
    ],
)
def test_a_message_is_stored_when_the_step_holds_it_with_the_same_calls(kept, code):
    refusal = check_stored(ASKED, kept, messages_key="messages")
    assert (refusal and refusal.code) == code


def test_a_message_that_was_read_back_is_the_same_one_whatever_its_arguments_hold():
    messages = [AIMessage("", id="m", tool_calls=[call(n=float("nan"), to=[float("inf")])]) for _ in range(2)]
    assert check_stored(messages[0], stored(messages[1]), messages_key="messages") is None
    assert same_call(messages[0].tool_calls[0], messages[1].tool_calls[0])


def test_the_message_of_a_step_is_its_last_assistant_message_with_an_id():
    assert assistant_message(stored(ASKED, HumanMessage("x")), messages_key="messages") is ASKED
    assert assistant_message(stored(ASKED, AIMessage("")), messages_key="messages") is ASKED
    assert assistant_message(stored(HumanMessage("x")), messages_key="messages") is None
    assert assistant_message(None, messages_key="messages") is None
    assert check_stored(None, stored(), messages_key="messages").code == "message_not_stored"


def test_calls_are_answered_by_tool_messages_among_the_writes_of_the_step():
    answer = ToolMessage("x", tool_call_id="c1")
    writes = [("task", "messages", [answer]), ("task2", "messages", ToolMessage("y", tool_call_id="c2")), ("t", "x", 5)]
    assert answered_calls(stored(writes=writes), messages_key="messages") == {"c1", "c2"}
    assert answered_calls(stored(writes=None), messages_key="messages") == set()
    assert answered_calls(None, messages_key="messages") == set()


def test_calls_are_answered_by_tool_messages_behind_their_own_message_and_not_by_earlier_ones():
    """Another message may have had a call of the same id."""
    messages = [ASKED, ToolMessage("x", tool_call_id="c1"), ASKED, ToolMessage("y", tool_call_id="c2")]
    assert answered_calls(stored(*messages), messages_key="messages") == {"c2"}
