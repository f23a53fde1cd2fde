"""Steers, stops, follow-ups and limits while a worker runs; what ends a run without an answer says why."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import contextmanager

import pytest

from tests.patience import PATIENCE_S

pytest.importorskip("langchain")

import requests
from langchain.tools import tool
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from requests.adapters import HTTPAdapter

from continuity.integrations import RegisteredTool
from continuity.threads import ClientPolicy, GovernedTool, Limits, ThreadWorker, WorkerClient, define_agent
from tests.langgraph.agents import ScriptedModel
from tests.langgraph.hall import Destination, call
from tests.patience import wait_for
from tests.threads.graphs import ALL, saver_of


@pytest.fixture
def running(town, tmp_path):
    """Make a worker that runs in a thread, and a thread of its agent."""

    @contextmanager
    def run(**options):
        name = f"agent-{secrets.token_hex(4)}"
        options = {
            "client": ClientPolicy(public=True), "controls": ALL, "checkpointer": saver_of(tmp_path), **options,
        }  # fmt: skip
        client = WorkerClient(
            town.url, town.worker_token(name), coordinator_token=town.token(), adapter=options.pop("adapter", None)
        )
        reported = []
        worker = ThreadWorker(
            client, [define_agent(name=name, **options)], report=reported.append,
            pause=lambda event, _s: event.wait(0.05),
        )  # fmt: skip
        worker.__enter__()
        working = threading.Thread(target=loop, args=(worker,))
        working.start()
        try:
            ann = town.talker()
            yield ann, ann.create("talk", name)["thread_id"], reported
        finally:
            worker.stop()
            working.join()
            worker.__exit__(None, None, None)

    return run


def loop(worker):
    while not worker._stopped.is_set():
        if not worker.run_one():
            time.sleep(0.05)


def at_rest(ann, thread):
    return wait_for(lambda: (s := ann.snapshot(thread))["thread"]["state"] != "running" and s)


def said(snapshot, role="assistant"):
    return [m["content"] for m in snapshot["messages"] if m["type"] == "message" and m["role"] == role]


class Gate:
    """A tool that waits in the middle of a run."""

    def __init__(self):
        self.is_in, self.may_go = threading.Event(), threading.Event()

        @tool
        def wait_here() -> str:
            """Wait."""
            self.is_in.set()
            assert self.may_go.wait(PATIENCE_S)
            return "waited"

        self.tool = wait_here


def test_a_steer_is_read_before_the_next_step(running):
    gate = Gate()
    model = ScriptedModel(replies=[[call("wait_here")]])
    with running(model=model, tools=[gate.tool]) as (ann, thread, reported):
        ann.message(thread, "Go")
        assert gate.is_in.wait(PATIENCE_S)
        ann.steer(thread, "Be quick")
        gate.may_go.set()
        snapshot = at_rest(ann, thread)
    assert reported == []
    assert said(snapshot, "user") == ["Go", "Be quick"]
    assert [run["state"] for run in snapshot["runs"]] == ["settled"]
    assert snapshot["queue"] == []


def test_a_stop_ends_the_run_after_its_step_and_holds_what_was_queued(running):
    gate = Gate()
    model = ScriptedModel(replies=[[call("wait_here")], [call("wait_here", "c2")]])
    with running(model=model, tools=[gate.tool]) as (ann, thread, _reported):
        ann.message(thread, "Go")
        assert gate.is_in.wait(PATIENCE_S)
        ann.follow_up(thread, "And then")
        ann.stop(thread)
        assert ann.snapshot(thread)["runs"][-1]["stopping"]
        gate.may_go.set()
        snapshot = at_rest(ann, thread)
    assert [run["state"] for run in snapshot["runs"]] == ["stopped"]
    assert [m["outcome"] for m in snapshot["messages"] if m["type"] == "tool_call"] == ["ok"]
    assert [each["content"] for each in snapshot["queue"]] == ["And then"]


def test_limits_end_a_run_and_say_so(running):
    model = ScriptedModel(replies=[[call("look", f"c{n}", at="it")] for n in range(9)])

    @tool
    def look(at: str) -> str:
        """Look."""
        return at

    with running(model=model, tools=[look], limits=Limits(max_steps=2)) as (ann, thread, _):
        ann.message(thread, "Go")
        snapshot = at_rest(ann, thread)
    assert snapshot["thread"]["state"] == "needs_attention"
    assert snapshot["runs"][-1]["message"] == "It took 2 steps without an answer."
    assert len([m for m in snapshot["messages"] if m["type"] == "tool_call"]) == 2


def test_tool_calls_beyond_the_limit_are_not_begun(running):
    begun = []

    @tool
    def look(at: str) -> str:
        """Look."""
        begun.append(at)
        return at

    model = ScriptedModel(replies=[[call("look", f"c{n}", at=str(n)) for n in range(3)]])
    with running(model=model, tools=[look], limits=Limits(max_tool_calls=2)) as (ann, thread, _):
        ann.message(thread, "Go")
        snapshot = at_rest(ann, thread)
    assert begun == []
    assert snapshot["runs"][-1]["message"] == "It wanted more than 2 tool calls."


def test_blocked_work_interrupts_the_run_and_names_it(running, town):
    destination = Destination(raises=[OSError("gone")])
    send = RegisteredTool("send", destination.execute)
    model = ScriptedModel(replies=[[call("send", to="bob")]])
    with running(model=model, tools=[GovernedTool(send, "Send it.")]) as (ann, thread, _):
        ann.message(thread, "Go")
        snapshot = at_rest(ann, thread)
        run = snapshot["runs"][-1]
        assert (run["state"], run["reason"]) == ("interrupted", "tool_blocked")
        # The work is named; where its page is stands nowhere.
        assert run["workflow_id"]
        assert "://" not in run["message"]
        ann.resume(thread)
        again = at_rest(ann, thread)["runs"][-1]
        assert (again["state"], again["workflow_id"]) == ("interrupted", run["workflow_id"])
        town.confirm(run["workflow_id"], receipt={
            "effect_id": "e1", "result": {"sent": 1},
        })  # fmt: skip
        ann.resume(thread)
        snapshot = at_rest(ann, thread)
    assert snapshot["thread"]["state"] == "idle"
    assert len(destination.effects) == 1
    (called,) = [m for m in snapshot["messages"] if m["type"] == "tool_call"]
    assert (called["outcome"], called["workflow_id"]) == ("ok", run["workflow_id"])


def test_what_a_graph_raises_fails_the_run_without_its_words(running):
    def broken(_state):
        raise KeyError("a secret word")

    graph = StateGraph(MessagesState)
    graph.add_node("broken", broken)
    graph.add_edge(START, "broken")
    with running(graph=graph.compile()) as (ann, thread, reported):
        ann.message(thread, "Go")
        snapshot = at_rest(ann, thread)
        assert snapshot["runs"][-1]["message"] == "The agent raised KeyError."
        assert "a secret word" in reported[0]
        assert "a secret word" not in str(ann.journal(thread, "1-0")["records"])


def test_only_declared_state_and_tools_reach_a_client(running):
    @tool
    def peek(key: str) -> str:
        """Peek."""
        return "hidden result"

    model = ScriptedModel(replies=[[call("peek", key="hidden argument")]])
    options = {"model": model, "tools": [peek], "instructions": "hidden instructions"}
    with running(**options) as (ann, thread, _):
        ann.message(thread, "Go")
        at_rest(ann, thread)
        told = str(ann.journal(thread, "1-0")["records"])
    assert "peek" in told
    assert "hidden" not in told


def test_a_run_whose_claim_is_lost_writes_nothing_more(town, tmp_path):
    from continuity.threads.claims import Claimed  # noqa: PLC0415
    from continuity.threads.holding import ClaimLostError, Holding  # noqa: PLC0415

    hand, ann = town.by_hand(), town.talker()
    thread = hand.thread(ann)
    ann.message(thread, "Go")
    claimed = hand.claim()
    wrong = Claimed(claimed.run, "x" * 43, claimed.claimed_s)
    holding = Holding(hand.calls, wrong)
    holding.start()
    holding.say({"kind": "progress", "data": 1})
    with pytest.raises(ClaimLostError):
        holding.flush()
    with pytest.raises(ClaimLostError):
        holding.say({"kind": "progress", "data": 2})
    holding.close()
    assert [record["kind"] for record in ann.journal(thread, "1-0")["records"]].count("progress") == 0


def test_an_answer_of_messages_alone_is_told_once(running):
    def answer(_state):
        return {"messages": [AIMessage("One", id="a"), AIMessage("Two", id="b")]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    with running(graph=graph.compile()) as (ann, thread, _):
        ann.message(thread, "Go")
        assert said(at_rest(ann, thread)) == ["One", "Two"]


class _Lost(HTTPAdapter):
    """Loses the answer to the first request that begins governed work: the server has done what it asks."""

    def __init__(self):
        super().__init__()
        self.is_lost = False

    def send(self, request, *args, **kwargs):
        answer = super().send(request, *args, **kwargs)
        if not self.is_lost and request.method == "POST" and request.path_url.startswith("/v1/continuity"):
            self.is_lost = True
            answer.close()
            raise requests.ConnectionError("the server died")
        return answer


def test_a_lost_answer_of_governed_work_is_uncertain_and_tells_no_address(running, town):
    destination, adapter = Destination(), _Lost()
    send = RegisteredTool("send", destination.execute)
    model = ScriptedModel(replies=[[call("send", to="bob")]])
    with running(model=model, tools=[GovernedTool(send, "Send it.")], adapter=adapter) as (ann, thread, _):
        ann.message(thread, "Go")
        run = at_rest(ann, thread)["runs"][-1]
        told = str(ann.journal(thread, "1-0")["records"])
    adapter.close()
    assert adapter.is_lost
    assert (run["state"], run["reason"]) == ("interrupted", "tool_blocked")
    assert "AtMem gave no answer" in run["message"]
    assert destination.effects == []
    assert town.url not in told
    assert "127.0.0.1" not in told
