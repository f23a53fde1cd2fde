"""A real server with a person, coordinators, a destination that counts, and graphs whose model is a script."""

from __future__ import annotations

import itertools
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.cli.remote import PersonConnection
from continuity.client import AsyncContinuityClient, ContinuityClient
from continuity.integrations import AsyncGovernedToolRunner, GovernedToolRunner, RegisteredTool
from tests.servers import RunningServer

PASSWORD = "five quiet badgers dig"
SIGN_IN_AFTER_S = 300.0
_numbers = itertools.count()


class Hall:
    """A server and who asks it."""

    def __init__(self, server: RunningServer) -> None:
        self.url = server.url
        self._username = server.instance.username
        first = PersonConnection(self.url)
        first.sign_in(self._username, server.instance.password)
        passwords = {"current_password": server.instance.password, "new_password": PASSWORD}
        first.call("POST", "/api/auth/change-password", passwords)
        first.close()
        self._person = PersonConnection(self.url)
        self._signed_in_at = -SIGN_IN_AFTER_S
        self.operator = ContinuityClient(self.url, self.grant("hall-operator", "evidence_collector"))

    def grant(self, principal_id: str, role: str = "continuity_coordinator", **fields: Any) -> str:
        """Issue a credential; return its token."""
        body = {"principal_id": principal_id, "role": role, **fields}
        if role == "continuity_coordinator":
            body.setdefault("workspace_id", "default")
        return str(self._decide("/v1/evidence/grants", body)["token"])

    def token(self) -> str:
        """Issue a credential for a coordinator that nobody else is."""
        return self.grant(f"tools-{secrets.token_hex(6)}")

    def client(self) -> ContinuityClient:
        return ContinuityClient(self.url, self.token())

    def work(self, blocked: Any) -> dict[str, Any]:
        """Return the view of the work that an error names."""
        assert blocked.workflow_id, "the error names no work"
        return self.operator.get_workflow(blocked.workflow_id)

    def confirm(self, workflow_id: str, *, receipt: Mapping[str, Any] | None) -> None:
        """Let a person say what happened: `receipt` when it did, None when it did not."""
        view = self.operator.get_workflow(workflow_id)
        (operation,) = view["operations"]
        body = {
            "name": operation["name"], "happened": receipt is not None, "revision": view["revision"],
            "late_receipts": operation["late_receipts"], "reason": "Looked at the destination.",
        }  # fmt: skip
        if receipt is not None:
            body["receipt"] = dict(receipt)
        self._decide(f"/v1/continuity/{workflow_id}/confirm", body)

    def delete(self, workflow_id: str) -> None:
        """Delete finished work, as a person does."""
        self._decide("/v1/evidence/delete", {"run_id": workflow_id, "confirmation": workflow_id})

    def pause(self, workflow_id: str) -> None:
        self.operator.configure(workflow_id, enabled=False)

    def _decide(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask as a person whose password was given lately: the hall outlives the ten minutes that one counts."""
        if time.monotonic() - self._signed_in_at > SIGN_IN_AFTER_S:
            self._person.sign_in(self._username, PASSWORD)
            self._signed_in_at = time.monotonic()
        return self._person.call("POST", path, body)


@dataclass
class Destination:
    """Counts what arrives, by operation, and does to the caller what it was told to do."""

    effects: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    raises: list[BaseException | None] = field(default_factory=list)
    """Raised after the effect of each call in turn, None for none."""
    refuses: list[BaseException | None] = field(default_factory=list)
    """Raised before the effect of each call in turn, None for none."""

    def execute(self, arguments: dict[str, Any], operation_id: str, _key: str, _timeout_s: float) -> dict[str, Any]:
        before = self.refuses.pop(0) if self.refuses else None
        if before is not None:
            raise before
        self.effects.append((operation_id, arguments))
        after = self.raises.pop(0) if self.raises else None
        if after is not None:
            raise after
        return self._receipt(operation_id)

    async def aexecute(self, *given: Any) -> dict[str, Any]:
        return self.execute(*given)

    def query(self, _arguments: dict[str, Any], operation_id: str, _key: str, _timeout_s: float) -> dict[str, Any]:
        self.asked.append(operation_id)
        if any(known == operation_id for known, _ in self.effects):
            return self._receipt(operation_id)
        return {"outcome": "absent", "operation_id": operation_id}

    async def aquery(self, *given: Any) -> dict[str, Any]:
        return self.query(*given)

    def tool(self, name: str = "send", **options: Any) -> RegisteredTool:
        query = self.query if "query" in options.get("capability", "none") else None
        return RegisteredTool(name, self.execute, query, **options)

    def atool(self, name: str = "send", **options: Any) -> RegisteredTool:
        query = self.aquery if "query" in options.get("capability", "none") else None
        return RegisteredTool(name, self.aexecute, query, **options)

    @property
    def arguments(self) -> list[dict[str, Any]]:
        return [arguments for _, arguments in self.effects]

    def _receipt(self, operation_id: str) -> dict[str, Any]:
        number = [known for known, _ in self.effects].index(operation_id) + 1
        return {
            "outcome": "confirmed_succeeded", "operation_id": operation_id, "effect_id": f"effect-{number}",
            "result": {"sent": number},
        }  # fmt: skip


def call(name: str = "send", call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    """Return a tool call as LangChain has it."""
    return {"name": name, "args": arguments, "id": call_id, "type": "tool_call"}


def runner_of(hall: Hall, *tools: RegisteredTool, client: ContinuityClient | None = None) -> GovernedToolRunner:
    return GovernedToolRunner(client or hall.client(), tools, namespace="tests", enabled=True)


@asynccontextmanager
async def arunner_of(hall: Hall, *tools: RegisteredTool) -> AsyncIterator[AsyncGovernedToolRunner]:
    async with AsyncContinuityClient(hall.url, hall.token()) as client:
        yield AsyncGovernedToolRunner(client, tools, namespace="tests", enabled=True)


@contextmanager
def sqlite_saver(path: Path | str, *, kind: Any = None) -> Iterator[Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415

    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        yield (kind or SqliteSaver)(connection)
    finally:
        connection.close()


Script = Callable[[Sequence[Any]], Any]


def scripted(*replies: Sequence[dict[str, Any]]) -> Script:
    """Return a model that makes these calls one message after another, and then says that it is done."""
    from langchain_core.messages import AIMessage  # noqa: PLC0415

    def reply(messages: Sequence[Any]) -> Any:
        turn = sum(message.type == "ai" for message in messages)
        message_id = f"ai-{next(_numbers)}"
        if turn >= len(replies):
            return AIMessage("done", id=message_id)
        return AIMessage("", id=message_id, tool_calls=[dict(one) for one in replies[turn]])

    return reply


def agent_graph(node: Any, script: Script, saver: Any = None, **options: Any) -> Any:
    """Compile model → tools → model … with the governed node as tools."""
    from langgraph.graph import END, START, MessagesState, StateGraph  # noqa: PLC0415

    def model(state: Any) -> dict[str, Any]:
        return {"messages": [script(state["messages"])]}

    def where(state: Any) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", node)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", where, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver, **options)


def thread(name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": name or f"thread-{secrets.token_hex(6)}", **more}}


def tool_messages(values: Mapping[str, Any]) -> list[Any]:
    return [message for message in values["messages"] if message.type == "tool"]


ASK = {"messages": [("user", "Do it.")]}
