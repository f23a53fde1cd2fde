"""A real server with applications and thread workers, and a worker that is driven by hand."""

from __future__ import annotations

import itertools
import secrets
from typing import Any

from continuity.client import ContinuityClient
from continuity.decisions.threads.states import Control
from continuity.thread_requests import AgentDeclaration
from continuity.threads.claims import Claimed, WorkerClient
from continuity.threads.client import ThreadClient
from tests.langgraph.hall import Hall
from tests.servers import RunningServer

ALL_CONTROLS = frozenset(Control)
_names = itertools.count()


class Town(Hall):
    """A server, an application, and credentials for workers of any agent."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__(server)
        self.application = self.grant("shop", "thread_application", workspace_id="default")
        self.folder = server.instance.folder

    def talker(self, subject: str = "ann", **options: Any) -> ThreadClient:
        return ThreadClient(self.url, self.application, subject=subject, **options)

    def worker_token(self, *agents: str) -> str:
        return self.grant(
            f"runner-{secrets.token_hex(4)}", "thread_worker", workspace_id="default", agents=list(agents)
        )

    def calls(self, *agents: str, **options: Any) -> WorkerClient:
        return WorkerClient(self.url, self.worker_token(*agents), **options)

    def by_hand(self, agent: str | None = None, **declared: Any) -> ByHand:
        agent = agent or f"agent-{secrets.token_hex(4)}"
        calls = self.calls(agent)
        declared = {"controls": ALL_CONTROLS, "is_public": True, **declared}
        calls.declare([AgentDeclaration(agent, **declared)])
        return ByHand(self, calls, agent)

    def coordinator(self, **options: Any) -> ContinuityClient:
        return ContinuityClient(self.url, self.token(), **options)


class ByHand:
    """A worker whose every write is a call of the test's."""

    def __init__(self, town: Town, calls: WorkerClient, agent: str) -> None:
        self.calls = calls
        self.agent = agent
        self._town = town

    def thread(self, client: ThreadClient, name: str = "") -> str:
        return str(client.create(name or f"t-{next(_names)}-{secrets.token_hex(3)}", self.agent)["thread_id"])

    def claim(self) -> Claimed:
        claimed = self.calls.claim([self.agent])
        assert claimed is not None, "no run waits"
        return claimed

    def write(self, claimed: Claimed, action: str, *, steers_read: int = 0, **body: Any) -> dict[str, Any]:
        return self.calls.write(claimed, action, body, steers_read=steers_read, patience_s=5)

    def say(self, claimed: Claimed, message_id: str, *parts: str) -> None:
        entries = [{"kind": "message_started", "message_id": message_id}]
        entries += [{"kind": "message_part", "message_id": message_id, "text": part} for part in parts]
        entries += [{"kind": "message_ended", "message_id": message_id}]
        self.write(claimed, "append", records=entries)
