"""A steer that is sent at the exact end of a run is read, or follows, or was never accepted: whatever the instant."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections import Counter
from contextlib import suppress

import pytest

from tests.patience import PATIENCE_S, wait_for

pytest.importorskip("langgraph")

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from continuity.errors import ConflictError
from continuity.threads import ClientPolicy, ThreadClient, ThreadWorker, WorkerClient, approve, define_agent, steers
from continuity.threads.holding import LOOK_S
from tests.threads.graphs import ALL, echoing, preparing, saver_of
from tests.threads.talks import OVER_S, talking_stage

AMOUNTS = [pytest.param(40, id="few"), pytest.param(500, id="many", marks=pytest.mark.soak)]
POINTS = ("claim.after", "append.before", "append.after", "settle.before", "settle.after")
SPREAD_S = 0.004
"""About as long as the server needs for a settle: the steer meets every instant of it."""


class Ends:
    """Says when the worker passes one point of a run, once; on request holds it there until it may go."""

    def __init__(self):
        self.wanted, self.has_come, self.may_go = "", threading.Event(), threading.Event()

    def passed(self, point):
        if point == self.wanted:
            self.wanted = ""
            self.has_come.set()
            assert self.may_go.wait(PATIENCE_S)

    def expect(self, point, *, is_held):
        self.has_come.clear()
        self.may_go.clear()
        if not is_held:
            self.may_go.set()
        self.wanted = point


@pytest.fixture
def running(town, tmp_path):
    """A worker of an agent that repeats what was said and the steers that it has read, and a thread of it."""
    name, ends, reported = f"agent-{secrets.token_hex(4)}", Ends(), []
    agent = define_agent(
        name=name, graph=preparing().compile(), client=ClientPolicy(public=True), controls=ALL,
        checkpointer=saver_of(tmp_path),
    )  # fmt: skip
    client = WorkerClient(town.url, town.worker_token(name), trace=ends.passed)
    worker = ThreadWorker(client, [agent], report=reported.append, pause=lambda event, _s: event.wait(0.002))
    is_ready = threading.Event()
    working = threading.Thread(target=worker.run, kwargs={"ready": is_ready.set})
    working.start()
    assert is_ready.wait(PATIENCE_S)
    ann = town.talker()
    yield ann, ann.create("talk", name)["thread_id"], ends
    worker.stop()
    working.join()
    assert reported == []


def at_rest(ann, thread):
    while ann.snapshot(thread)["thread"]["state"] == "running":
        time.sleep(0.002)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_steers_at_the_very_end_of_a_run_are_read_or_follow_or_are_refused(running, amount, record_property):
    ann, thread, ends = running
    accepted, refused = [], []
    for number in range(amount):
        # First at each point with the worker held there, whatever the machine's speed; then at any instant.
        is_held = number < len(POINTS)
        ends.expect(POINTS[number] if is_held else random.choice(POINTS), is_held=is_held)
        ann.message(thread, f"message {number}")
        assert ends.has_come.wait(PATIENCE_S)
        if not is_held:
            time.sleep(random.uniform(0, SPREAD_S))
        try:
            ann.steer(thread, f"steer {number}.")
        except ConflictError as error:
            refused.append(error.code)
        else:
            accepted.append(f"steer {number}.")
        ends.may_go.set()
        at_rest(ann, thread)

    records = records_of(ann, thread)
    told = [record["data"]["message"] for record in records if record["kind"] == "message_added"]
    assert [message["content"] for message in told if message["content"].startswith("steer")] == accepted
    answers = Counter(
        word
        for record in records
        if record["kind"] == "message_part"
        for word in record["data"]["text"].removeprefix("You said: ").split(" / ")
    )
    # Each was answered by a run, and by one alone.
    assert {steer: answers[steer] for steer in accepted} == dict.fromkeys(accepted, 1)
    assert ann.snapshot(thread)["queue"] == []
    assert set(refused) == {"thread_not_running"}
    followed = sum(message["kind"] == "follow_up" for message in told)
    record_property("accepted", len(accepted))
    record_property("followed", followed)
    record_property("refused", len(refused))
    assert 0 < followed < len(accepted), "some are read in time, others come at the end"


def records_of(ann, thread):
    found, after = [], "1-0"
    while True:
        page = ann.journal(thread, after)
        found, after = found + page["records"], page["checkpoint"]
        if not page["has_more"]:
            return found


def test_a_steer_reaches_a_nested_graph_and_a_stop_ends_a_step_that_says_nothing(town, tmp_path):
    is_in, may_go, begun = threading.Semaphore(0), threading.Semaphore(0), []

    def wait(_state):
        is_in.release()
        assert may_go.acquire(timeout=PATIENCE_S)
        return {}

    def last(_state):
        begun.append(1)
        return {}

    nested = StateGraph(MessagesState)
    nested.add_node("wait", wait)
    nested.add_node("echo", echoing().compile())
    nested.add_edge(START, "wait")
    nested.add_edge("wait", "echo")
    graph = StateGraph(MessagesState)
    graph.add_node("nested", nested.compile())
    graph.add_node("silent", wait)
    graph.add_node("last", last)
    graph.add_edge(START, "nested")
    graph.add_edge("nested", "silent")
    graph.add_edge("silent", "last")
    name = f"agent-{secrets.token_hex(4)}"
    agent = define_agent(
        name=name, graph=graph.compile(), client=ClientPolicy(public=True), controls=ALL,
        checkpointer=saver_of(tmp_path),
    )  # fmt: skip
    with ThreadWorker(WorkerClient(town.url, town.worker_token(name)), [agent]) as worker:
        ann = town.talker()
        thread = ann.create("talk", name)["thread_id"]
        ann.message(thread, "Go")
        working = threading.Thread(target=worker.run_one)
        working.start()
        asked = [lambda: ann.steer(thread, "Be quick"), lambda: ann.stop(thread)]
        for ask in asked:
            assert is_in.acquire(timeout=PATIENCE_S)
            ask()
            # Whoever heard of nothing for so long asks before the next step.
            time.sleep(2 * LOOK_S)
            may_go.release()
        working.join()

    snapshot = ann.snapshot(thread)
    assert [m["content"] for m in snapshot["messages"]] == ["Go", "Be quick", "You said: Go / Be quick"]
    assert [run["state"] for run in snapshot["runs"]] == ["stopped"]
    assert begun == []


class Killed(BaseException):
    """Ends a worker where it stands: it says nothing more, as if its process had died."""


def asking_graph(handed, before):
    """A graph of somebody's own whose node reads steers, asks, and only then gives them."""

    def first(_state):
        before()
        return {}

    def node(state):
        known = {message.id for message in state["messages"]}
        said = steers()
        handed.append([steer["content"] for steer in said])
        is_allowed = approve({"question": "Go on?"})
        told = [HumanMessage(each["content"], id=each["input_id"]) for each in said if each["input_id"] not in known]
        return {"messages": [*told, AIMessage(f"{is_allowed}: {[message.content for message in told]}")]}

    def again(_state):
        handed.append([steer["content"] for steer in steers()])
        return {}

    graph = StateGraph(MessagesState)
    for name, each in (("first", first), ("node", node), ("again", again)):
        graph.add_node(name, each)
    graph.add_edge(START, "first")
    graph.add_edge("first", "node")
    graph.add_edge("node", "again")
    return graph.compile()


@pytest.fixture(scope="module")
def stage(instance_template, tmp_path_factory):
    """A server whose clock the test moves."""
    folder = tmp_path_factory.mktemp("steers")
    with talking_stage(instance_template.copy_to(folder / "instance"), folder / "clock") as made:
        yield made


@pytest.mark.parametrize("dies_at", ["", "wait.after", "claim.after"])
def test_a_steer_that_a_node_reads_before_it_asks_is_handed_to_it_again(stage, tmp_path, dies_at):
    handed, name, dying = [], f"agent-{secrets.token_hex(4)}", {dies_at}
    ann = ThreadClient(stage.url, stage.application, subject="ann")
    token = stage.grant(f"runner-{secrets.token_hex(4)}", "thread_worker", workspace_id="default", agents=[name])
    threads = []

    def before():
        ann.steer(threads[0], "Be quick")
        time.sleep(2 * LOOK_S)

    def trace(point):
        # At the claim of the run that goes on with the reply, and not of the first.
        if point in dying and (point != "claim.after" or handed):
            dying.discard(point)
            raise Killed

    def work():
        agent = define_agent(
            name=name, graph=asking_graph(handed, before), client=ClientPolicy(public=True), controls=ALL,
            checkpointer=saver_of(tmp_path),
        )  # fmt: skip
        client = WorkerClient(stage.url, token, trace=trace)
        with suppress(Killed), ThreadWorker(client, [agent]) as worker:
            if not threads:
                threads.append(ann.create("talk", name)["thread_id"])
                ann.message(threads[0], "Go")
            worker.run_one()

    work()
    (thread,) = threads
    (waiting,) = ann.snapshot(thread)["waiting"]
    ann.reply(thread, waiting["waiting_id"], True, revision=waiting["revision"])
    work()
    if ann.snapshot(thread)["thread"]["state"] == "running":
        stage.advance(OVER_S)
        wait_for(lambda: ann.snapshot(thread)["thread"]["state"] == "needs_attention")
        ann.resume(thread)
        work()

    snapshot = ann.snapshot(thread)
    assert snapshot["thread"]["state"] == "idle"
    said = [m["content"] for m in snapshot["messages"] if m["type"] == "message"]
    assert said[:2] == ["Go", "Be quick"]
    assert said[-1] == "True: ['Be quick']"
    assert said.count("Be quick") == 1
    assert handed[0] == ["Be quick"]
    # Each time it is entered, until what it gives is stored; the node behind it is handed nothing.
    assert handed[1] == ["Be quick"]
    assert handed[2] == []
