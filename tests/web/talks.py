"""Conversations on a site, for the tests of their pages: who owns them, and a worker that does what workers do."""

from __future__ import annotations

from typing import Any

from app.auth import principals
from app.auth.requests import GrantRequest
from continuity.services.callers import Caller, Role
from tests.integration.conversing import ALL_CONTROLS, Conversing
from tests.people import VISIT
from tests.web.site import Site

AGENT = "order_support"
KEEPER = "eva"
"""Who issues the worker's credential."""
STATE_KEYS = ["todos", "order", "note"]


class Talks(Conversing):
    """The services of a site's threads. `person` owns what is made; `worker` runs the agent."""

    def __init__(
        self, site: Site, owner: str, *, workspace: str = "default", agents: tuple[str, ...] = (AGENT,)
    ) -> None:
        self.site = site
        threads = site.wiring.threads
        self.threads, self.reading, self.work = threads.acting, threads.reading, threads.work
        self.upkeep, self.deletions = threads.upkeep, threads.deletions
        self.numbers = iter(range(10**9))
        self.person = self.person_of(owner)
        self.site.person(KEEPER, Role.ADMINISTRATOR)
        self.worker = self._worker(workspace, agents)
        for agent in agents:
            self.declare(agent)

    @property
    def clock(self) -> Any:
        return self.site.clock

    def declare(self, name: str = AGENT, **fields: Any) -> None:
        super().declare(name, **{"controls": ALL_CONTROLS, "state_keys": STATE_KEYS, **fields})

    def create(self, name: str | None = None, *, by: Caller | None = None, agent: str = AGENT) -> str:
        return super().create(name, by=by, agent=agent)

    def person_of(self, username: str) -> Caller:
        auth = self.site.wiring.auth
        welcome = auth.sign_in.sign_in(username, self.site.passwords[username], visit=VISIT, replaced=None)
        found = auth.sessions.find(welcome.session.session_id)
        assert found is not None
        return principals.person(found, request_id="req_test")

    def asked(self, *requests: dict[str, Any], name: str | None = None, content: Any = "hello") -> tuple[str, Any]:
        """A thread that waits for answers; returns its id and what it asks."""
        thread_id = self.create(name)
        self.say(thread_id, content)
        return thread_id, self.wait(self.claim(), *requests)["waiting"]

    def governed(self, workspace: str = "default", *, key: str | None = None, run_id: str | None = None) -> str:
        """Governed work of a workspace, begun by a run where one is named; returns its workflow_id."""
        asked = {"principal_id": f"tools-{workspace}", "role": "continuity_coordinator", "workspace_id": workspace}
        keeper = self.person_of(KEEPER)
        token = self.site.wiring.auth.credentials.issue(keeper, GrantRequest.from_json(asked)).token
        begun = {"activate": True, "begin": {"name": "cancel", "run_id": run_id, "attempt_id": "at_1"}}
        body = {
            **(begun if run_id else {}),
            "workflow_key": key or self.fresh(),
            "operations": [
                {"name": "cancel", "tool": "cancel", "arguments": {}, "capability": "none", "timeout_seconds": 30}
            ],
        }
        reply = self.site.browser().post("/v1/continuity", body, headers={"Authorization": f"Bearer {token}"})
        assert reply.status_code == 200, reply.text
        return str(reply.json["workflow_id"])

    def _worker(self, workspace: str, agents: tuple[str, ...]) -> Caller:
        asked = {"principal_id": "runner", "role": "thread_worker", "workspace_id": workspace, "agents": list(agents)}
        token = self.site.wiring.auth.credentials.issue(self.person_of(KEEPER), GrantRequest.from_json(asked)).token
        return self.site.wiring.auth.principals.bearer(f"Bearer {token}", request_id="req_test")
