"""Graphs and agents that tests run."""

from __future__ import annotations

import operator
import sqlite3
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from continuity.threads.words import approve, ask, progress, steers

ALL = ("steer", "follow-up", "stop", "approve")


@contextmanager
def saver_at(path):
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        yield SqliteSaver(connection)
    finally:
        connection.close()


def saver_of(folder):
    """Return a factory of a saver on a file."""
    return lambda: saver_at(folder / "threads.db")


class State(TypedDict, total=False):
    message: str
    said: Annotated[list[Any], operator.add]
    answer: str


def asking():
    """Three questions: two after one another in one node, one in a nested graph beside it."""

    def two(state):
        first = approve({"what": "first"})
        second = ask(int, {"what": "second"})
        return {"said": [["two", first, second]]}

    def inner(state):
        return {"said": [["inner", ask(str, {"what": "inner"})]]}

    nested = StateGraph(State)
    nested.add_node("inner", inner)
    nested.add_edge(START, "inner")

    def answer(state):
        return {"answer": "done"}

    graph = StateGraph(State)
    graph.add_node("two", two)
    graph.add_node("nested", nested.compile())
    graph.add_node("answer", answer)
    graph.add_edge(START, "two")
    graph.add_edge(START, "nested")
    graph.add_edge(["two", "nested"], "answer")
    return graph


def echoing():
    """A graph with messages that repeats what was said, and the steers that it has read."""

    def model(state):
        read = [steer["content"] for steer in steers()]
        progress({"step": 1})
        last = [m.text for m in state["messages"] if m.type == "human"][-1]
        return {"messages": [AIMessage(f"You said: {' / '.join([last, *read])}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    return graph


def preparing():
    """The same with a step before it, so that it may hear of steers in time."""

    def prepare(state):
        progress({"step": 0})
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("prepare", prepare)
    graph.add_node("echo", echoing().compile())
    graph.add_edge(START, "prepare")
    graph.add_edge("prepare", "echo")
    return graph
