"""A process that serves threads: it does one thing after another, and dies by SIGKILL at the commit that it was told.

``python -m tests.crash.thread_jobs`` forks one for each test (`tests.crash.forks`). What it was answered it writes to a
file before it goes on, as a client would know it: everything in that file must be true afterwards.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from continuity.services.audit import AuditLog
from continuity.services.callers import Caller, CallerKind
from continuity.services.owners import Owners
from continuity.store import schema
from continuity.store.engine import make_engine
from continuity.store.store import Store
from continuity.thread_requests import NewThread
from continuity.vault import FileKeyProvider, ShredHead, ShredList, open_vault
from tests.crash import forks
from tests.integration.conversing import Conversing, Held, process_of, question, said
from tests.people import FakeClock, Installation

T = TypeVar("T")

SECRET = "s" * 43
STEPS = (
    "append", "append again", "steer", "wait", "reply", "claim", "settle", "create", "follow up", "claim again", "stop",
    "settle stopped", "message", "claim a third time", "fail", "resume",
)  # fmt: skip
"""What `serve` does, in this order; each is one commit."""


class DyingStore(Store):
    """Kills its process right before or right after its nth commit from when it was told."""

    countdown = 0
    moment = ""

    def write(self, work: Callable[[Connection], T]) -> T:
        self.countdown -= 1
        if self.countdown != 0:
            return super().write(work)

        def die(connection: Connection) -> T:
            result = work(connection)
            os.kill(os.getpid(), signal.SIGKILL)
            return result

        result = super().write(die if self.moment == "before" else work)
        os.kill(os.getpid(), signal.SIGKILL)
        return result


def open_installation(store: Store, folder: Path) -> Installation:
    """Open what the test has installed, as a process that starts does; it has no people."""
    row = store.read(lambda connection: connection.execute(sa.select(schema.vault)).one())
    vault = open_vault(
        FileKeyProvider(folder / "vault.key").load(), canary=row.sealed_canary,
        wrapped_index_key=row.wrapped_index_key, shred_list=ShredList(folder / "shred.list"),
        recorded=ShredHead(row.shred_length, row.shred_head),
    )  # fmt: skip
    nobody: Any = None
    return Installation(store, vault, FakeClock(), nobody, Owners(store, vault), AuditLog(vault))


def serve(
    *, url: str, folder: str, acks: str, thread_id: str, held: dict[str, Any], owner_pk: int, countdown: int,
    moment: str,
) -> None:  # fmt: skip
    """Go through `STEPS`, and die at the commit that the countdown ends at."""
    store = DyingStore(make_engine(url, pool_size=4))
    at = process_of(open_installation(store, Path(folder)), declares=False)
    store.countdown, store.moment = countdown, moment
    with Path(acks).open("a", encoding="utf-8") as file:
        for step, reply in play(at, thread_id, Held(**held), owner_pk):
            file.write(json.dumps([step, reply]) + "\n")
            file.flush()
            os.fsync(file.fileno())


def client_of(at: Conversing, owner_pk: int) -> Caller:
    return replace(
        at.person, kind=CallerKind.APPLICATION, actor="cred:shop", principal="shop", role=None, owner_pk=owner_pk,
        subject="s-1",
    )  # fmt: skip


def play(
    at: Conversing, thread_id: str, held: Held, owner_pk: int, *, told: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, Any]]:
    """Do each step with a request_id of its own; a second process that plays again sends the very same.

    A worker that was answered its claim (`told`) does not claim again: its run may be over.
    """
    client = client_of(at, owner_pk)

    def claimed(step: str, request_id: str) -> Held:
        if told is not None and step in told:
            return Held(told[step], SECRET, request_id)
        return at.claim(request_id=request_id, secret=SECRET)

    yield (
        "append",
        at.append(held, *whole("a"), {"kind": "tool_started", "call_id": "c", "tool": "t"}, request_id="r-1"),
    )
    yield (
        "append again",
        at.append(held, {"kind": "tool_ended", "call_id": "c", "outcome": "ok", "result": 1}, request_id="r-2"),
    )
    yield "steer", at.say(thread_id, "late", how="steer", by=client, request_id="r-3")
    waiting = at.wait(held, question(), request_id="r-4")
    yield "wait", waiting
    waiting_id = waiting["waiting"][0]["waiting_id"]
    yield "reply", at.reply(thread_id, waiting_id, True, by=client, request_id="r-5")
    second = claimed("claim", "r-6")
    yield "claim", second.run
    yield "settle", at.settle(second, {"answer": 1}, request_id="r-7", records=whole("b"))
    other = NewThread.from_json({"request_id": "r-8", "name": "other", "agent": "helper"})
    yield "create", at.threads.create(client, other)
    yield "follow up", at.say(thread_id, "then", how="follow_up", by=client, request_id="r-9")
    third = claimed("claim again", "r-10")
    yield "claim again", third.run
    yield "stop", at.control(thread_id, "stop", by=client, request_id="r-11")
    yield "settle stopped", at.settle(third, request_id="r-12")
    yield "message", at.say(thread_id, "again", by=client, request_id="r-13")
    fourth = claimed("claim a third time", "r-14")
    yield "claim a third time", fourth.run
    yield "fail", at.fail(fourth, request_id="r-15")
    yield "resume", at.control(thread_id, "resume", by=client, request_id="r-16")


def whole(name: str) -> list[dict[str, Any]]:
    return [{**record, "message_id": f"m-{name}"} for record in said(f"words {name}")]


if __name__ == "__main__":
    forks.main({"serve": serve})
