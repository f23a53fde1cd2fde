"""A worker runs graphs that were compiled elsewhere."""

from __future__ import annotations

import operator
import secrets
from contextlib import suppress
from typing import Annotated, Any, Literal

import pytest

pytest.importorskip("langgraph")

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from continuity.threads.agents import Chat, ClientPolicy, define_agent
from continuity.threads.claims import WorkerClient
from continuity.threads.words import approve, ask
from continuity.threads.worker import ThreadWorker
from tests.threads.graphs import ALL, State, asking, echoing, saver_of


@pytest.fixture
def working(town, tmp_path):
    """Make a worker and a thread of a graph."""
    workers = []

    def make(graph, **options):
        name = f"agent-{secrets.token_hex(4)}"
        options = {
            "client": ClientPolicy(public=True), "controls": ALL, "checkpointer": saver_of(tmp_path), **options,
        }  # fmt: skip
        agent = define_agent(name=name, graph=graph, **options)
        reported = []
        worker = ThreadWorker(WorkerClient(town.url, town.worker_token(name)), [agent], report=reported.append)
        worker.reported = reported
        worker.__enter__()
        workers.append(worker)
        ann = town.talker()
        return worker, ann, ann.create("talk", name)["thread_id"]

    yield make
    for worker in workers:
        worker.__exit__(None, None, None)


def replies(ann, thread, **by_name):
    """Answer what is asked, by what is shown."""
    for waiting in ann.snapshot(thread)["waiting"]:
        name = waiting["shown"]["what"]
        if waiting["state"] == "open" and name in by_name:
            ann.reply(thread, waiting["waiting_id"], by_name[name], revision=waiting["revision"])


def asked(ann, thread):
    return sorted(w["shown"]["what"] for w in ann.snapshot(thread)["waiting"] if w["state"] == "open")


def test_a_graph_says_its_answer(working):
    worker, ann, thread = working(echoing().compile())
    ann.message(thread, "Hello")
    assert worker.run_one()
    snapshot = ann.snapshot(thread)
    assert worker.reported == []
    assert [m["content"] for m in snapshot["messages"]] == ["Hello", "You said: Hello"]
    assert {m["status"] for m in snapshot["messages"]} == {"done"}
    assert snapshot["thread"]["state"] == "idle"
    assert snapshot["runs"][-1]["output"] == "You said: Hello"
    assert not worker.run_one()
    ann.message(thread, "Again")
    worker.run_one()
    assert ann.snapshot(thread)["messages"][-1]["content"] == "You said: Again"


@pytest.mark.parametrize("order", [("first", "inner"), ("inner", "first")])
def test_questions_side_by_side_nested_and_one_after_the_other_are_answered_in_any_order(working, order):
    worker, ann, thread = working(asking().compile(), state_profile="graph", chat=Chat("message", "answer"))
    given = {"first": True, "inner": "yes", "second": 7}
    ann.message(thread, "Go")
    worker.run_one()
    assert asked(ann, thread) == ["first", "inner"]
    for name in order:
        assert ann.snapshot(thread)["thread"]["state"] == "waiting"
        replies(ann, thread, **{name: given[name]})
    worker.run_one()
    assert asked(ann, thread) == ["second"]
    replies(ann, thread, **given)
    worker.run_one()
    snapshot = ann.snapshot(thread)
    assert worker.reported == []
    assert snapshot["runs"][-1]["output"] == "done"
    assert snapshot["messages"][-1]["content"] == "done"
    assert [run["state"] for run in snapshot["runs"]] == ["waiting", "waiting", "settled"]
    values = worker._graphs[next(iter(worker._graphs))].get_state({"configurable": {"thread_id": thread}}).values
    assert sorted(values["said"]) == [["inner", "yes"], ["two", True, 7]]


def alone(node, state=State):
    """Return a graph of one node."""
    graph = StateGraph(state)
    graph.add_node("one", node)
    graph.add_edge(START, "one")
    return graph.compile()


@pytest.mark.parametrize(
    ("node", "controls", "words"),
    [
        (lambda _: {"answer": str(approve({"what": "it"}))}, ("stop",), "does not declare this control"),
        (lambda _: {"said": [ask(Literal["a" * 9_000, "b" * 9_000], {"what": "it"})]}, ALL, "schema"),
        (lambda _: {"answer": "a" * 70_000}, ALL, "65536 bytes"),
        (lambda _: {"answer": "a\0b"}, ALL, "NUL"),
    ],
    ids=["undeclared question", "question too large", "output too large", "output that is no text"],
)  # fmt: skip
def test_an_end_that_the_server_does_not_take_is_a_failure_that_says_why(working, node, controls, words):
    worker, ann, thread = working(alone(node), state_profile="graph", controls=controls)
    ann.message(thread, "Hello")
    assert worker.run_one()

    run = ann.snapshot(thread)["runs"][-1]
    assert (run["state"], run["reason"]) == ("failed", "failed")
    assert words in run["message"]


def test_a_graph_may_keep_whatever_it_likes_under_the_name_of_messages(working):
    class Kept(State, total=False):
        messages: Annotated[list[Any], operator.add]

    node = lambda _: {"messages": [{"role": "assistant", "content": "Hi"}, "text"], "answer": "Hi"}  # noqa: E731
    worker, ann, thread = working(alone(node, Kept), state_profile="graph")
    for _ in range(2):
        ann.message(thread, "Hello")
        assert worker.run_one()

    snapshot = ann.snapshot(thread)
    assert worker.reported == []
    assert [run["output"] for run in snapshot["runs"]] == ["Hi", "Hi"]
    assert [message["content"] for message in snapshot["messages"]] == ["Hello", "Hi", "Hello", "Hi"]


class KilledError(Exception):
    """What stands for the death of a worker at a point."""


class Keeping(WorkerClient):
    """Knows its first claim, to end what a dead worker leaves without waiting for the claim to run out."""

    first = None

    def claim(self, agents):
        claimed = super().claim(agents)
        self.first = self.first or claimed
        return claimed


@pytest.mark.parametrize("point", ["append.before", "settle.before"])
@pytest.mark.parametrize(
    ("state", "node", "profile"),
    [
        (MessagesState, lambda _: {"messages": [AIMessage("Here it is.")]}, "agents"),
        (State, lambda _: {"answer": "Here it is."}, "graph"),
    ],
    ids=["messages", "answer"],
)
def test_an_answer_whose_worker_died_about_telling_it_is_told_once(town, tmp_path, state, node, profile, point):
    dies, name = [point], f"agent-{secrets.token_hex(4)}"

    def trace(passed):
        if passed in dies:
            dies.clear()
            raise KilledError

    agent = define_agent(
        name=name, graph=alone(node, state), state_profile=profile, checkpointer=saver_of(tmp_path),
        client=ClientPolicy(public=True),
    )  # fmt: skip
    client, ann = Keeping(town.url, town.worker_token(name), trace=trace), town.talker()
    with ThreadWorker(client, [agent]) as worker:
        thread = ann.create("talk", name)["thread_id"]
        ann.message(thread, "Where?")
        with suppress(KilledError):
            worker.run_one()
        assert not dies
        client.write(client.first, "fail", {"reason": "failed", "message": "dead"}, steers_read=0, patience_s=5)
        ann.resume(thread)
        worker.run_one()

    snapshot = ann.snapshot(thread)
    assert [(m["content"], m["status"]) for m in snapshot["messages"]] == [("Where?", "done"), ("Here it is.", "done")]
    assert snapshot["runs"][-1]["output"] == "Here it is."
