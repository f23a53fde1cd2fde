"""The same crash on an agent of LangGraph alone, on DBOS, and on the governed node: how often did it happen?

Each system performs one effect in a process that is killed (SIGKILL) right after it, before anything is recorded, and
is then restarted as its documentation says. The destination is a file of effects, one fsynced line each.

    python -m tests.bench.side_by_side

DBOS is left out where it is not installed. The server's clock is moved past the lease of the killed agent.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.crash.forks import Forks
from tests.crash.stage import Stage, staged
from tests.servers import ROOT, initialised

THREAD = "side-by-side"
RESTARTS = 2
CAPABILITIES = ("none", "idempotent", "query")


class Destination:
    """A file of effects. It enforces keys, and can be asked, whoever makes use of that."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "effects"

    def effects(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self._path.read_text().splitlines()] if self._path.exists() else []

    def perform(self, name: str, key: str = "") -> dict[str, str]:
        for effect in self.effects():
            if key and effect["key"] == key:
                return effect
        effect = {"name": name, "key": key}
        with self._path.open("a") as file:
            file.write(json.dumps(effect) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return effect

    def find(self, name: str) -> dict[str, str] | None:
        return next((effect for effect in self.effects() if effect["name"] == name), None)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# --- The systems: each runs in a process of its own, first with `is_killed` ---------------------------


@contextmanager
def checkpoints(folder: Path) -> Iterator[Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - a second, in the processes that need it

    connection = sqlite3.connect(folder / "checkpoints.db", check_same_thread=False)
    yield SqliteSaver(connection)
    connection.close()


def agent(tools: Any, saver: Any) -> Any:
    """Compile model → tools → model, whose model asks for one call."""
    from langchain_core.messages import AIMessage  # noqa: PLC0415
    from langgraph.graph import END, START, MessagesState, StateGraph  # noqa: PLC0415

    def model(state: Any) -> dict[str, Any]:
        if state["messages"][-1].type == "tool":
            return {"messages": [AIMessage("Done.", id=f"ai-{secrets.token_hex(8)}")]}
        call = {"name": "act", "args": {}, "id": "call_1", "type": "tool_call"}
        return {"messages": [AIMessage("", id=f"ai-{secrets.token_hex(8)}", tool_calls=[call])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


def go_on(graph: Any) -> None:
    config = {"configurable": {"thread_id": THREAD}}
    given = None if graph.get_state(config).values else {"messages": [("user", "Go.")]}
    graph.invoke(given, config, durability="sync")


def langgraph_alone(folder: Path, *, is_killed: bool, **_: str) -> None:
    from langchain_core.messages import ToolMessage  # noqa: PLC0415

    def tools(state: Any) -> dict[str, Any]:
        Destination(folder).perform("act")
        if is_killed:
            die()
        return {"messages": [ToolMessage("done", tool_call_id=state["messages"][-1].tool_calls[0]["id"])]}

    with checkpoints(folder) as saver:
        go_on(agent(tools, saver))


def dbos(folder: Path, *, is_killed: bool, **_: str) -> None:
    from dbos import DBOS, SetWorkflowID  # noqa: PLC0415

    DBOS(config={"name": "side", "system_database_url": f"sqlite:///{folder / 'dbos.db'}", "log_level": "CRITICAL"})

    @DBOS.step()
    def act() -> str:
        Destination(folder).perform("act")
        if is_killed:
            die()
        return "done"

    @DBOS.workflow()
    def work() -> str:
        return act()

    DBOS.launch()
    if is_killed:
        with SetWorkflowID(THREAD):
            work()
    DBOS.retrieve_workflow(THREAD).get_result()
    DBOS.destroy()


def governed(folder: Path, *, is_killed: bool, url: str, token: str, capability: str) -> None:
    from continuity.client import ContinuityClient, RecoveryBlocked  # noqa: PLC0415
    from continuity.integrations import GovernedToolRunner, RegisteredTool  # noqa: PLC0415
    from continuity.integrations.langgraph import governed_langgraph_tools  # noqa: PLC0415
    from continuity.tools import JsonResponseTool  # noqa: PLC0415

    def act(_arguments: Any, operation_id: str, key: str, _timeout_s: float) -> Any:
        effect = Destination(folder).perform(operation_id, key if capability == "idempotent" else "")
        if is_killed:
            die()
        return effect

    tool = JsonResponseTool(act, find=lambda _a, operation_id, _k, _t: Destination(folder).find(operation_id))
    retention_s = 3_600 if capability == "idempotent" else 0
    query = tool.query if capability == "query" else None
    registered = RegisteredTool("act", tool.execute, query, capability=capability, retention_seconds=retention_s)
    with ContinuityClient(url, token) as client, checkpoints(folder) as saver:
        runner = GovernedToolRunner(client, [registered], namespace=THREAD, enabled=True)
        try:
            go_on(agent(governed_langgraph_tools(runner), saver))
        except RecoveryBlocked as stop:
            print(stop.code)


# --- The comparison ----------------------------------------------------------------------------------


def play(system: str, folder: Path, *, is_killed: bool, **options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.bench.side_by_side", "--system", system, "--folder", str(folder)]
    command += ["--killed"] if is_killed else []
    token = options.pop("token", "")
    for name, value in options.items():
        command += [f"--{name}", value]
    environment = {**os.environ, "ATMEM_EVIDENCE_TOKEN": token}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def crash(system: str, folder: Path, *, between: Callable[[], None] = lambda: None, **options: str) -> str:
    """Kill one process after its effect and restart it; say what there is then."""
    folder.mkdir()
    killed = play(system, folder, is_killed=True, **options)
    if killed.returncode != -signal.SIGKILL:
        raise RuntimeError(f"{system} was not killed: {killed.stderr}")
    said = ""
    for _ in range(RESTARTS):
        between()
        restarted = play(system, folder, is_killed=False, **options)
        if restarted.returncode != 0:
            raise RuntimeError(f"{system} did not restart: {restarted.stderr}")
        said = restarted.stdout.strip()
    effects = len(Destination(folder).effects())
    return f"{effects} effect{'s' if effects != 1 else ' '}  {f'stopped: {said}' if said else 'finished'}"


def compare(stage: Stage, folder: Path) -> None:
    print(f"{'LangGraph alone, durability sync':45} {crash('langgraph_alone', folder / 'langgraph')}")
    if find_spec("dbos") is None:
        print(f"{'DBOS':45} not installed")
    else:
        print(f"{'DBOS, a step of a workflow':45} {crash('dbos', folder / 'dbos')}")
    for capability in CAPABILITIES:
        token = stage.grant(f"agent-{capability}", "continuity_coordinator")
        came = crash(
            "governed", folder / capability, between=stage.advance, url=stage.url, token=token, capability=capability
        )
        print(f"{f'governed, destination can: {capability}':45} {came}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", choices=["langgraph_alone", "dbos", "governed"], help=argparse.SUPPRESS)
    for name in ("folder", "url", "capability"):
        parser.add_argument(f"--{name}", default="", help=argparse.SUPPRESS)
    parser.add_argument("--killed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.system:
        token = os.environ["ATMEM_EVIDENCE_TOKEN"]
        given = {"url": options.url, "token": token, "capability": options.capability}
        globals()[options.system](Path(options.folder), is_killed=options.killed, **given)
        return
    forks = Forks()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with staged(forks, initialised(folder / "instance"), clock_file=folder / "clock") as stage:
            compare(stage, folder)
    forks.close()


if __name__ == "__main__":
    main()
