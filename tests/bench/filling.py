"""Instances with many workflows in them, made through the product's own services in large transactions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection

from app import wiring
from app.auth import principals
from app.auth.requests import GrantRequest
from app.auth.signin import Visit
from app.config import load_settings
from continuity.services.callers import Caller
from continuity.wire import CreateWorkflow
from tests.entry import OVERRIDES
from tests.servers import Instance, initialised

PASSWORD = "benchmarks want no surprises"
BATCH = 500
DEFINITION = {"name": "publish", "tool": "directory_publish", "arguments": {"document": "x" * 200}}


@dataclass
class Filled:
    """An instance with `count` enabled, pending workflows and an operator's credential."""

    instance: Instance
    token: str = field(repr=False)
    workflow_ids: list[str] = field(repr=False)


@contextmanager
def opened(instance: Instance) -> Iterator[wiring.Wiring]:
    """Build the product on an instance, in this process."""
    before = os.umask(0o077)
    try:
        settings = load_settings({"ATMEM_INSTANCE": str(instance.folder)})
        with wiring.built(settings, overrides=OVERRIDES) as built:
            yield built
    finally:
        os.umask(before)


def fill(folder: Path, count: int) -> Filled:
    """Make an instance in `folder` and create `count` workflows in it."""
    instance = initialised(folder)
    with opened(instance) as built:
        built.auth.sign_in.change_password_locally(instance.username, current=instance.password, new=PASSWORD)
        visit = Visit(address="127.0.0.1", request_id="req_bench")
        welcome = built.auth.sign_in.sign_in(instance.username, PASSWORD, visit=visit, replaced=None)
        found = built.auth.sessions.find(welcome.session.session_id)
        if found is None:
            raise RuntimeError("the session is gone")
        person = principals.person(found, request_id="req_bench")
        body = {"principal_id": "bench-operator", "role": "evidence_collector", "workspace_id": "default"}
        token = built.auth.credentials.issue(person, GrantRequest.from_json(body)).token
        caller = built.auth.principals.bearer(f"Bearer {token}", request_id="req_bench")
        ids = [workflow_id for start in range(0, count, BATCH) for workflow_id in _batch(built, caller, start, count)]
    return Filled(instance, token, ids)


def _batch(built: wiring.Wiring, caller: Caller, start: int, count: int) -> list[str]:
    requests = [
        CreateWorkflow.from_json({"workflow_key": f"bench-{number}", "operations": [DEFINITION], "activate": True})
        for number in range(start, min(start + BATCH, count))
    ]

    def work(connection: Connection) -> list[str]:
        return [built.services.workflows.create_in(connection, caller, request)["workflow_id"] for request in requests]

    return built.store.write(work)
