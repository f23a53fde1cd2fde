"""What clients see of the rows of a thread: each value opened, compared with the sealed head, and without secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from continuity.decisions.threads import bounds
from continuity.decisions.threads.model import Run
from continuity.decisions.threads.records import run_from_json
from continuity.decisions.threads.states import RequestState, ThreadState
from continuity.errors import ConflictError, DecryptionError, IntegrityError
from continuity.services.documents import seconds
from continuity.services.threads_ledger import ThreadLedger
from continuity.services.threads_sealing import (
    OpenedThread,
    item_place,
    record_place,
    run_place,
    state_place,
)
from continuity.store import threads as statements
from continuity.store import workflows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.store.workflows import AnyRow
    from continuity.thread_requests import AgentDeclaration


@dataclass(frozen=True, slots=True)
class ThreadViews:
    """Makes views of opened threads, inside a reading transaction. Raises `VaultError` for whatever does not agree.

    Attributes:
        ledger: Opens what belongs to a thread.
    """

    ledger: ThreadLedger

    def thread(self, connection: Connection, opened: OpenedThread) -> dict[str, Any]:
        """Return what a thread is called and how it stands."""
        origin = opened.origin
        workspace = connection.execute(workflows.WORKSPACE_NAME, {"workspace_pk": origin.workspace_pk}).scalar_one()
        return {
            "thread_id": opened.thread_id,
            "name": origin.name,
            "agent": origin.agent,
            "workspace": workspace,
            "owner": origin.owner_name,
            "created": seconds(origin.created_us),
            "revision": opened.head.revision,
            "state": opened.head.state.value,
        }

    def listed(self, connection: Connection, row: AnyRow) -> dict[str, Any]:
        """Return the line of a list; of a thread that does not open what its clear columns say."""
        try:
            opened = self.ledger.unseal(row, self.ledger.facts(row))
        except (ConflictError, DecryptionError, IntegrityError):
            return {
                "thread_id": row.thread_id, "state": row.state, "unreadable": True, "key_id": row.wrapping_key_id,
            }  # fmt: skip
        head, run = opened.head, opened.head.run
        return {
            **self.thread(connection, opened),
            "changed": seconds(opened.changed_us),
            "run": None if run is None else run_view(run, {}),
            "open": sum(ask.state is RequestState.OPEN for ask in head.asks) if is_waiting(opened) else 0,
            "queued": len(head.follow_ups) + sum(not steer.is_read for steer in head.steers),
        }

    def runs(self, connection: Connection, opened: OpenedThread) -> list[dict[str, Any]]:
        """Return the newest runs, oldest first."""
        place = {"thread_pk": opened.thread_pk, "count": bounds.SNAPSHOT_RUNS}
        rows = connection.execute(statements.NEWEST_RUNS, place).all()
        newest = opened.head.run
        expected = range(opened.head.run_count, max(0, opened.head.run_count - bounds.SNAPSHOT_RUNS), -1)
        if [row.number for row in rows] != list(expected):
            raise IntegrityError("A run of the thread is missing.")
        shown = []
        for row in rows:
            value = json.loads(opened.key.open(row.sealed_run, place=run_place(opened.thread_id, row.number)))
            run = run_from_json(value["run"])
            is_same = run.state.value == row.state and run.run_id == row.run_id
            if not is_same or (newest is not None and run.number == newest.number and run.state is not newest.state):
                raise IntegrityError("A run contradicts the thread's sealed head.")
            shown.append(run_view(run, value["detail"]))
        return shown[::-1]

    def newest_items(self, connection: Connection, opened: OpenedThread) -> list[dict[str, Any]]:
        """Return the newest items of the transcript and all that have not ended, oldest first."""
        place: dict[str, Any] = {"thread_pk": opened.thread_pk, "count": bounds.SNAPSHOT_MESSAGES}
        rows = list(connection.execute(statements.NEWEST_ITEMS, place).all())[::-1]
        count = opened.head.item_count
        if [row.item_no for row in rows] != list(range(count - len(rows) + 1, count + 1)):
            raise IntegrityError("A message of the thread is missing.")
        oldest = rows[0].item_no if rows else 0
        older = [item.number for item in opened.head.open_items if item.number < oldest]
        if older:
            place = {"thread_pk": opened.thread_pk, "numbers": sorted(older)}
            rows = [*sorted(connection.execute(statements.ITEMS, place).all(), key=lambda row: row.item_no), *rows]
        return [self.item(opened, row)[0] for row in rows]

    def item(self, opened: OpenedThread, row: AnyRow) -> tuple[dict[str, Any], int]:
        """Return an item of the transcript, and the record that changed it last."""
        sealed_place = item_place(opened.thread_id, row.item_no)
        item: dict[str, Any] = json.loads(opened.key.open(row.sealed_item, place=sealed_place))
        if item.pop("changed_seq") != row.changed_seq:
            raise IntegrityError("A message contradicts its sealed content.")
        return item, row.changed_seq

    def state(self, connection: Connection, opened: OpenedThread, agent: AgentDeclaration) -> dict[str, Any]:
        """Return the declared state; what an agent does not declare any more is not shown any more."""
        value = self.whole_state(connection, opened)
        return {key: child for key, child in value.items() if key in agent.state_keys}

    def whole_state(self, connection: Connection, opened: OpenedThread) -> dict[str, Any]:
        """Return all that was ever declared of the state, as it is now."""
        sealed = connection.execute(statements.STATE, {"thread_pk": opened.thread_pk}).scalar_one_or_none()
        if sealed is None:
            return {}
        value: dict[str, Any] = json.loads(opened.key.open(sealed, place=state_place(opened.thread_id)))
        return value

    def queue(self, connection: Connection, opened: OpenedThread) -> list[dict[str, Any]]:
        """Return steers that nobody has read, then follow-ups, each in their order."""
        head = opened.head
        queued = [*(steer for steer in head.steers if not steer.is_read), *head.follow_ups]
        said = self.ledger.contents(connection, opened, [each.number for each in queued])
        return [
            {
                "input_id": each.input_id, "kind": each.kind.value, "content": said[each.number]["content"],
                "at": said[each.number]["at"],
            }
            for each in queued
        ]  # fmt: skip

    def waiting(self, connection: Connection, opened: OpenedThread) -> list[dict[str, Any]]:
        """Return what the thread waits for, in the order in which it was asked; empty when it does not wait."""
        if not is_waiting(opened):
            return []
        place = {"thread_pk": opened.thread_pk, "ids": [ask.waiting_id for ask in opened.head.asks]}
        rows = {row.waiting_id: row for row in connection.execute(statements.REQUESTS, place)}
        shown = []
        for ask in opened.head.asks:
            row = rows.get(ask.waiting_id)
            if row is None:
                raise IntegrityError("A waiting request of the thread is missing.")
            question = self.ledger.request(opened, row)
            request = {
                "waiting_id": ask.waiting_id, "revision": ask.revision, "state": ask.state.value,
                **{name: question[name] for name in ("kind", "schema", "shown", "run_id", "at")},
            }  # fmt: skip
            if ask.state is RequestState.ANSWERED:
                request["reply"] = self.ledger.reply(opened, row)["reply"]
            shown.append(request)
        return shown


def is_waiting(opened: OpenedThread) -> bool:
    """Say whether the thread waits for replies."""
    return opened.head.state is ThreadState.WAITING


def run_view(run: Run, detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run as clients see it, with nothing of its claim but the generation."""
    optional = {
        "generation": None if run.claim is None else run.claim.generation,
        "ended": None if run.ended_us is None else seconds(run.ended_us),
        "reason": None if run.reason is None else run.reason.value,
        "workflow_id": run.workflow_id,
        "output": detail.get("output"),
        "message": detail.get("message"),
    }
    return {
        "run_id": run.run_id,
        "number": run.number,
        "state": run.state.value,
        "cause": run.cause.value,
        "resumes": run.resumes,
        "queued": seconds(run.queued_us),
        "stopping": run.is_stopping,
        **{name: value for name, value in optional.items() if value is not None},
    }


def record_view(opened: OpenedThread, row: AnyRow) -> dict[str, Any]:
    """Return a record of the journal as clients see it. Raises `VaultError`."""
    value: Sequence[Any] = json.loads(opened.key.open(row.sealed_record, place=record_place(opened.thread_id, row.seq)))
    run_id, generation, data = value
    if generation != row.generation:
        raise IntegrityError("A record contradicts its sealed content.")
    return {
        "seq": row.seq, "position": opened.position(row.seq), "kind": row.kind, "at": seconds(row.at),
        "run_id": run_id, "generation": generation, "data": data,
    }  # fmt: skip
