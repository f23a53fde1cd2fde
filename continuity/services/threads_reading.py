"""What clients see of threads: snapshots, the journal behind a position, older messages, lists.

Rules:

* A snapshot and its checkpoint are read in one transaction, from rows that are kept current: what it costs does not
  depend on how long the journal is. Records strictly after the checkpoint make of it every later one
  (`continuity.decisions.threads.transcript.advance`).
* A snapshot holds the newest messages, and every one that has not ended, however old. History pages hold the others as
  they were at that snapshot: what has ended never changes.
* A person's look is written to the audit log before anything is returned. While somebody follows a journal one entry in
  `LOOK_S` is enough.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from continuity.decisions.threads import bounds
from continuity.errors import (
    ConflictError,
    DecryptionError,
    ForbiddenError,
    IntegrityError,
    MalformedError,
    NotFoundError,
)
from continuity.limits import SECOND_US
from continuity.services import threads_rights as rights
from continuity.services.audit import AuditEntry
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.cursors import Cursors
from continuity.services.threads_ledger import ThreadLedger
from continuity.services.threads_rights import Right
from continuity.services.threads_sealing import OpenedThread
from continuity.services.threads_views import ThreadViews, record_view
from continuity.store import threads as statements
from continuity.store import workflows
from continuity.thread_requests import ListThreads, Position

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.audit import AuditLog
    from continuity.store.store import Store
    from continuity.thread_requests import AgentDeclaration

T = TypeVar("T")

FORMAT: Final = "atmem-thread-v1"
LOOK_S: Final = 600
"""How long one entry of the audit log stands for somebody who follows a journal."""
_LOOKS_KEPT: Final = 4_096
_NUMBER_BITS: Final = 32
"""A history cursor holds two numbers: below which item, and at which record."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a poll compares.

    Attributes:
        checkpoint: Position of the last record.
        revision: The thread's revision.
        state: Its state.
        claim_left_s: How long the claim of its newest run lives unless it is renewed; None where it is not claimed.
    """

    checkpoint: Position
    revision: int
    state: str
    claim_left_s: float | None = None


@dataclass(frozen=True, slots=True)
class ThreadReading:
    """Use cases of those who look.

    Attributes:
        store: Where everything is read, and looks are written.
        ledger: Opens threads.
        audit: The audit log.
        views: Shows what is opened.
    """

    store: Store
    ledger: ThreadLedger
    audit: AuditLog
    views: ThreadViews = field(init=False)
    _looks: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        """Make what shows rows."""
        object.__setattr__(self, "views", ThreadViews(self.ledger))

    def snapshot(self, caller: Caller, thread_id: str, *, is_following: bool = False) -> dict[str, Any]:
        """Return everything that a client needs at one position of the journal.

        Args:
            caller: Who asks.
            thread_id: Which thread.
            is_following: A page that somebody has open looks again by itself: one entry in `LOOK_S` is enough.

        Returns:
            ``format, thread, runs`` (the newest 20, oldest first), ``messages`` (the newest 50 and all that have not
            ended, oldest first), ``state`` (declared keys), ``queue`` (steers nobody has read, then follow-ups),
            ``waiting`` (what the run asks that the thread waits for, answered ones with their reply), ``controls,
            checkpoint, history_cursor`` (None when there is nothing older). Times are Unix seconds.

        Raises:
            NotFoundError: No such thread for this caller.
            ConflictError: ``thread_deleted``.
            SealedError: The vault is locked.
        """

        def read(connection: Connection, opened: OpenedThread, now_us: int) -> dict[str, Any]:
            agent = self.ledger.agent_of(connection, opened)
            items = self.views.newest_items(connection, opened)
            # Where the window of the newest begins; before it stand only those that have not ended.
            oldest = items[-bounds.SNAPSHOT_MESSAGES :][0]["item_no"] if items else 0
            return {
                "format": FORMAT,
                "thread": self.views.thread(connection, opened),
                "runs": self.views.runs(connection, opened),
                "messages": items,
                "state": self.views.state(connection, opened, agent),
                "queue": self.views.queue(connection, opened),
                "waiting": self.views.waiting(connection, opened),
                "controls": sorted(control.value for control in agent.controls),
                "checkpoint": opened.position(),
                "history_cursor": self._cursor(caller, opened, oldest, pinned=opened.head.last_seq, now_us=now_us),
            }

        snapshot, now_us = self._current(caller, thread_id, read)
        self._note(caller, thread_id, now_us, is_following=is_following)
        return snapshot

    def journal(
        self, caller: Caller, thread_id: str, after: Position, *, limit: int = bounds.JOURNAL_PAGE
    ) -> dict[str, Any]:
        """Return the records strictly after a position, oldest first.

        Args:
            caller: Who asks.
            thread_id: Which thread.
            after: A checkpoint, or the position of a record.
            limit: At most so many, 1 to 200.

        Returns:
            ``records`` (``seq, position, kind, at, run_id, generation, data``), ``checkpoint`` (of the last of them, or
            `after`), ``has_more``.

        Raises:
            NotFoundError: No such thread for this caller.
            ConflictError: ``cursor_gap``: the position was trimmed, lies ahead or is of another epoch: load the
                snapshot again. ``thread_deleted``.
            SealedError: The vault is locked.
        """
        count = max(1, min(limit, bounds.JOURNAL_PAGE))

        def read(connection: Connection, opened: OpenedThread, _now_us: int) -> dict[str, Any]:
            head = opened.head
            if after.epoch != opened.vault.epoch or not head.trimmed_seq <= after.seq <= head.last_seq:
                raise ConflictError(
                    "The journal cannot go on from this position: load the snapshot again.", code="cursor_gap",
                    current={"checkpoint": opened.position()},
                )  # fmt: skip
            place = {"thread_pk": opened.thread_pk, "after": after.seq, "count": count}
            rows = connection.execute(statements.RECORDS, place).all()
            expected = min(count, head.last_seq - after.seq)
            if [row.seq for row in rows] != list(range(after.seq + 1, after.seq + 1 + expected)):
                raise IntegrityError("A record of the thread's journal is missing.")
            last = after.seq + expected
            return {
                "records": [record_view(opened, row) for row in rows],
                "checkpoint": opened.position(last),
                "has_more": last < head.last_seq,
            }

        page, now_us = self._current(caller, thread_id, read)
        if page["records"]:
            self._note(caller, thread_id, now_us, is_following=True)
        return page

    def history(self, caller: Caller, thread_id: str, cursor: str) -> dict[str, Any]:
        """Return older messages, as they were at the snapshot that the cursor comes from.

        Returns:
            ``messages`` (at most 50, oldest first) and ``history_cursor``, None on the last page.

        Raises:
            NotFoundError: No such thread for this caller; or the cursor is not one that this caller got for this thread
                within the last 15 minutes.
            ConflictError: ``thread_deleted``.
            SealedError: The vault is locked.
        """

        def read(connection: Connection, opened: OpenedThread, now_us: int) -> dict[str, Any]:
            try:
                packed = self._cursors(caller, opened).read(cursor, now_us=now_us)
            except MalformedError:
                raise NotFoundError("There is no such page of this thread's history.") from None
            before, pinned = packed >> _NUMBER_BITS, packed & (2**_NUMBER_BITS - 1)
            place = {"thread_pk": opened.thread_pk, "before": before, "count": bounds.HISTORY_PAGE}
            rows = connection.execute(statements.OLDER_ITEMS, place).all()
            expected = range(before - 1, max(0, before - 1 - bounds.HISTORY_PAGE), -1)
            if [row.item_no for row in rows] != list(expected):
                raise IntegrityError("A message of the thread is missing.")
            opened_items = [self.views.item(opened, row) for row in rows]
            # The snapshot held what had not ended; what has changed since had not.
            shown = [item for item, seq in opened_items if seq <= pinned and item["status"] != "open"]
            return {
                "messages": shown[::-1],
                "history_cursor": self._cursor(
                    caller, opened, rows[-1].item_no if rows else 0, pinned=pinned, now_us=now_us
                ),
            }

        page, now_us = self._current(caller, thread_id, read)
        self._note(caller, thread_id, now_us, is_following=False)
        return page

    def pulse(self, caller: Caller, thread_id: str) -> Pulse:
        """Return what a poll compares; nothing sealed is opened and nothing is written. It checks the rights again.

        Raises:
            NotFoundError: No such thread for this caller, or it was deleted.
            SealedError: The vault is locked.
        """
        owner_ix = self.ledger.caller_ix(caller)

        def read(connection: Connection) -> Pulse:
            row = connection.execute(statements.HEAD, {"thread_id": thread_id}).one_or_none()
            if row is None or row.deleted_at is not None or row.deleting_at is not None:
                raise rights.no_such_thread()
            rights.require(caller, row, Right.SEE, owner_ix=owner_ix)
            facts = self.ledger.facts(row)
            left_us = (
                None if row.claim_until is None else max(0, row.claim_until - self.ledger.reading(connection).now_us)
            )
            return Pulse(
                Position(facts.epoch, row.last_seq), row.revision, row.state,
                None if left_us is None else left_us / SECOND_US,
            )  # fmt: skip

        return self.store.autocommit(read)

    def page(self, caller: Caller, request: ListThreads) -> dict[str, Any]:
        """Return threads, newest first.

        Returns:
            ``threads`` (as in a snapshot, with ``run`` and how many requests are ``open`` and inputs ``queued``; one
            that does not open has ``thread_id, state, unreadable, key_id``), ``next_cursor`` or None.

        Raises:
            ForbiddenError: Callers of this kind own none, or may not see those of others.
            MalformedError: The cursor is not one of this list.
            SealedError: The vault is locked.
        """
        wanted = self._wanted(caller, request)

        def read(connection: Connection) -> dict[str, Any]:
            vault = connection.execute(workflows.VAULT).one()
            facts, now_us = self.ledger.facts(vault), self.ledger.reading(connection).now_us
            question = json.dumps(["threads", request.scope, request.state])
            cursors = Cursors(self.ledger.vault, rights.principal_key(caller), question, facts.epoch)
            before = None if request.cursor is None else cursors.read(request.cursor, now_us=now_us)
            rows = statements.page(connection, before=before, count=request.limit + 1, **wanted)
            shown = rows[: request.limit]
            more = len(rows) > request.limit
            return {
                "threads": [self.views.listed(connection, row) for row in shown],
                "next_cursor": cursors.write(shown[-1].thread_pk, now_us=now_us) if more else None,
            }

        return self.store.read(read)

    def agents(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the agents that the caller may use in its workspace, by name: ``name, controls, state_keys, public``.

        A declaration that does not open is left out: what it is called is sealed in it.

        Raises:
            ForbiddenError: Callers of this kind use none.
            SealedError: The vault is locked.
        """
        rights.owner_key(caller)

        def read(connection: Connection) -> list[AgentDeclaration]:
            self.ledger.facts(connection.execute(workflows.VAULT).one())
            rows = connection.execute(statements.AGENTS, {"workspace_pk": caller.home_workspace}).all()
            agents = []
            for row in rows:
                # One that does not open is offered to nobody, and hides no other; `atmem vault check` names it.
                with suppress(DecryptionError, IntegrityError):
                    agents.append(self.ledger.open_agent(connection, row.workspace_pk, row.agent_ix, row.sealed_agent))
            return agents

        found = sorted(self.store.read(read), key=lambda agent: agent.name)
        return [
            {name: value for name, value in agent.to_json().items() if name != "principals"}
            for agent in found
            if rights.may_use(caller, agent)
        ]

    # ---- common

    def _current(
        self, caller: Caller, thread_id: str, read: Callable[[Connection, OpenedThread, int], T]
    ) -> tuple[T, int]:
        """Read a thread as it is now: a claim that has run out is over before anything is shown."""

        def look(connection: Connection) -> tuple[T, int] | None:
            opened = self.ledger.peek(connection, caller, thread_id)
            now_us = self.ledger.stamp_us(connection, opened)
            return None if opened.head.has_expired(now_us) else (read(connection, opened, now_us), now_us)

        seen = self.store.read(look)
        if seen is None:
            self.store.write(lambda connection: self.ledger.expire_by_id(connection, thread_id))
            seen = self.store.read(look)
        if seen is None:
            raise IntegrityError("A claim of the thread does not end.")
        return seen

    def _note(self, caller: Caller, thread_id: str, now_us: int, *, is_following: bool) -> None:
        """Write to the audit log that a person has looked, before anything is returned."""
        if caller.kind is not CallerKind.PERSON:
            return
        look = (caller.actor, thread_id)
        with self._lock:
            last_us = self._looks.get(look)
        # Also after the clock was set back: a look in the future stands for none of now.
        if is_following and last_us is not None and 0 <= now_us - last_us < LOOK_S * SECOND_US:
            return
        entry = AuditEntry(
            action="thread.viewed", actor=caller.actor, object_id=thread_id, result="done",
            request_id=caller.request_id,
        )  # fmt: skip
        self.store.write(lambda connection: self.audit.append(connection, entry, now_us=now_us))
        with self._lock:
            if len(self._looks) >= _LOOKS_KEPT:
                self._looks.clear()
            self._looks[look] = now_us

    def _wanted(self, caller: Caller, request: ListThreads) -> dict[str, Any]:
        """Return the filters of a list. Raises `ForbiddenError`."""
        state = None if request.state is None else request.state.value
        workspaces = None if caller.workspaces is None else sorted(caller.workspaces)
        if request.scope == "own":
            return {"owner_ix": self.ledger.caller_ix(caller), "workspaces": workspaces, "state": state}
        if caller.kind is not CallerKind.PERSON or caller.role not in {Role.OPERATOR, Role.ADMINISTRATOR}:
            raise ForbiddenError("Only operators and administrators see threads of others.")
        return {"workspaces": workspaces, "state": state}

    # ---- cursors

    def _cursors(self, caller: Caller, opened: OpenedThread) -> Cursors:
        question = f"history:{opened.thread_id}"
        return Cursors(self.ledger.vault, rights.principal_key(caller), question, opened.vault.epoch)

    def _cursor(self, caller: Caller, opened: OpenedThread, oldest: int, *, pinned: int, now_us: int) -> str | None:
        if oldest <= 1:
            return None
        return self._cursors(caller, opened).write(oldest << _NUMBER_BITS | pinned, now_us=now_us)
