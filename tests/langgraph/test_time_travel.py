"""Whatever way a thread is taken back, forked and resumed: one effect a message, and one tool message a call."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, RemoveMessage

from continuity.client import RecoveryBlocked
from continuity.integrations import governed_langgraph_tools
from tests.langgraph.hall import ASK, Destination, agent_graph, call, runner_of, scripted, sqlite_saver, thread

NUMBERS = itertools.count()
STEPS = st.lists(
    st.tuples(st.sampled_from(["go on", "go back", "fork", "crash"]), st.integers(0, 6)), min_size=1, max_size=7
)


class Journey:
    """A thread, what it was told to do, and what must have come of it."""

    def __init__(self, hall, saver):
        self.destination = Destination()
        self.codes = set()
        tool = self.destination.tool(capability="query")
        script = scripted([call(to="a"), call(call_id="c2", to="b")], [call(to="c")])
        self.graph = agent_graph(governed_langgraph_tools(runner_of(hall, tool)), script, saver)
        self.config = thread()
        self.run(ASK, self.config)

    def run(self, given, config):
        try:
            self.graph.invoke(given, config, durability="sync")
        except RecoveryBlocked as error:
            self.codes.add(error.code)

    def take(self, step, number):
        if step == "crash":
            self.destination.raises = [TimeoutError()]
            return
        if step == "go on":
            self.run(None, self.config)
            return
        before = [state for state in self.graph.get_state_history(self.config) if state.next == ("tools",)]
        state = before[number % len(before)]
        config = state.config
        if step == "fork":
            last = state.values["messages"][-1]
            new = AIMessage("", id=f"fork-{next(NUMBERS)}", tool_calls=last.tool_calls)
            config = self.graph.update_state(config, {"messages": [RemoveMessage(last.id), new]}, as_node="model")
        self.run(None, config)

    def finish(self):
        for _ in range(4):
            if self.graph.get_state(self.config).next:
                self.run(None, self.config)

    def check(self):
        begun = set()
        for state in self.graph.get_state_history(self.config):
            calls = [(m.id, c["id"]) for m in state.values.get("messages", []) if m.type == "ai" for c in m.tool_calls]
            answers = [m.tool_call_id for m in state.values.get("messages", []) if m.type == "tool"]
            assert sorted(answers) == sorted(c for _, c in calls) or state.next == ("tools",)
            begun |= set(calls)
        operations = [operation_id for operation_id, _ in self.destination.effects]
        assert len(operations) == len(set(operations)), "an effect was repeated"
        assert len(operations) <= len(begun), "an effect without a call"
        assert self.graph.get_state(self.config).next == ()
        # An effect happened and its receipt was lost; the destination could be asked.
        assert self.codes <= {"outcome_unknown"}


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=STEPS)
def test_no_way_through_time_repeats_an_effect(hall, steps):
    with tempfile.TemporaryDirectory() as folder, sqlite_saver(Path(folder) / "checkpoints.db") as saver:
        journey = Journey(hall, saver)
        for step, number in steps:
            journey.take(step, number)
        journey.destination.raises = []
        journey.finish()
        journey.check()
