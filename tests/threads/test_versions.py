"""Which versions of LangGraph and LangChain run agents; `.ci/langgraph` runs the tests of threads on the older ones."""

from __future__ import annotations

import secrets

import pytest

pytest.importorskip("langchain")

from continuity.integrations import UntestedVersionWarning
from continuity.integrations.checks import TESTED
from continuity.threads import ClientPolicy, GovernedTool, ThreadWorker, WorkerClient, define_agent
from tests.langgraph.agents import ScriptedModel
from tests.langgraph.hall import Destination
from tests.threads.graphs import echoing, saver_of


@pytest.fixture
def worker(town, tmp_path):
    """Make a worker of an agent that is run by both libraries, with a factory that notes its use."""

    def make(**options):
        name = f"agent-{secrets.token_hex(4)}"
        made = []

        def saver():
            made.append(1)
            return saver_of(tmp_path)()

        if "graph" not in options:
            options |= {"model": ScriptedModel(replies=[]), "tools": [GovernedTool(Destination().tool(), "Send.")]}
        agent = define_agent(name=name, checkpointer=saver, client=ClientPolicy(public=True), **options)
        client = WorkerClient(town.url, town.worker_token(name), coordinator_token=town.token())
        return ThreadWorker(client, [agent]), name, made

    return make


@pytest.mark.parametrize("library", ["langgraph", "langchain"])
def test_a_version_that_is_not_tested_is_refused_before_anything_is_opened(town, worker, monkeypatch, library):
    monkeypatch.setitem(TESTED, library, ("0.1", "0.2"))
    refused, name, made = worker()

    with pytest.raises(ValueError, match=rf"version_not_tested: {library} .* 0\.1 to 0\.2 are tested"):
        refused.__enter__()

    assert made == []
    assert name not in {agent["name"] for agent in town.talker().agents()}


def test_a_version_that_is_not_tested_runs_where_the_application_says_so(town, worker, monkeypatch):
    monkeypatch.setitem(TESTED, "langgraph", ("0.1", "0.2"))
    accepted, name, _ = worker(untested_langgraph="run_without_proof")
    with pytest.warns(UntestedVersionWarning, match="An effect may happen twice"):
        accepted.__enter__()
    ann = town.talker()
    thread = ann.create("talk", name)["thread_id"]

    ann.message(thread, "Hello")
    accepted.run_one()

    assert ann.snapshot(thread)["thread"]["state"] == "idle"
    accepted.__exit__(None, None, None)


def test_a_graph_needs_no_version_of_langchain(worker, monkeypatch):
    monkeypatch.setitem(TESTED, "langchain", ("0.1", "0.2"))
    accepted, _, made = worker(graph=echoing().compile())

    with accepted:
        assert made == [1]
