"""The event chains of all workflows: walked, read to their ends, and compared with the ends that were kept elsewhere.

A chain is computed over sealed bytes (`continuity.services.chains`), so it is walked without a key. Where the vault
opens, its end is compared with the one in the workflow's sealed head: nobody without the key can shorten a history,
or make it longer, and have both agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from continuity.errors import ConflictError, IntegrityError, VaultError
from continuity.services import chains
from continuity.services.checkpoints import WorkflowHead
from continuity.services.opening import vault_facts
from continuity.store import workflows as statements
from continuity.store.schema import audit, events, workflows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.opening import Opener
    from continuity.store.store import Store

BATCH: Final = 100
"""Workflows in one transaction."""
_EVENTS_AT_ONCE: Final = 100
DELETED: Final = "workflow.deleted"
VAULT: Final = "vault"
"""Kind of a finding that is of no entry and no event."""
_NO_ID: Final = "its id is not one that was written here: it was edited."
_GONE: Final = "its key was destroyed and its row is there: an older database was put back."


def _stored(column: sa.Column[Any]) -> sa.Label[Any]:
    """Read a column as the driver gives it: an edited row of SQLite may hold a value of another type."""
    return sa.type_coerce(column, sa.types.NullType()).label(column.name)


_LIVING: Final = (
    sa.select(workflows.c.workflow_pk, workflows.c.workflow_id)
    .where(workflows.c.workflow_pk > sa.bindparam("after"), workflows.c.deleted_at.is_(None))
    .order_by(workflows.c.workflow_pk)
    .limit(BATCH)
)
_LAST: Final = (
    sa.select(sa.func.max(events.c.seq))
    .where(events.c.workflow_pk == workflows.c.workflow_pk)
    .correlate(workflows)
    .scalar_subquery()
)
_ENDS: Final = _LIVING.add_columns(events.c.seq, _stored(events.c.hash)).outerjoin(
    events, sa.and_(events.c.workflow_pk == workflows.c.workflow_pk, events.c.seq == _LAST)
)
_EVENTS: Final = (
    sa.select(*(_stored(column) for column in events.c))
    .where(events.c.workflow_pk == sa.bindparam("workflow_pk"), events.c.seq > sa.bindparam("after"))
    .order_by(events.c.seq)
    .limit(_EVENTS_AT_ONCE)
)
_TYPES: Final = {"seq": int, "kind": str, "at": int, "hash": bytes, "sealed_event": bytes}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it was written.

    Attributes:
        kind: A word for programs.
        workflow_id: Whose history; None for the audit log.
        seq: The entry or event at which it was found; 0 where it is of none.
        problem: What differs, one sentence that begins small; no content.
    """

    kind: str
    workflow_id: str | None
    seq: int
    problem: str

    def __str__(self) -> str:
        """Return the line for a person."""
        if self.kind == VAULT:
            return f"The vault: {self.problem}"
        where = f"Audit entry {self.seq}" if self.workflow_id is None else f"{self.workflow_id}, event {self.seq}"
        return f"{where}: {self.problem}"


@dataclass(slots=True)
class Histories:
    """Reads the histories of workflows in small steps while a server runs; changes nothing.

    Attributes:
        store: Where they are.
        opener: Opens heads; None where the vault does not open.
        has_heads: Whether every end that was walked so far was compared with a sealed head.
    """

    store: Store
    opener: Opener | None = None
    has_heads: bool = field(init=False)

    def __post_init__(self) -> None:
        """Claim no more than can be done."""
        self.has_heads = self.opener is not None

    def heads(self) -> Iterator[WorkflowHead]:
        """Give the ends of the histories of all living workflows, as stored, in the order of their creation.

        Raises:
            IntegrityError: A workflow has no history with an end.
        """
        after = 0
        while rows := self._living(after, _ENDS):
            for row in rows:
                if row.seq is None or type(row.hash) is not bytes or not row.workflow_id.isascii():
                    raise IntegrityError(f"{row.workflow_id} has no history with a true end. Run `atmem audit verify`.")
                yield WorkflowHead(row.workflow_id, row.seq, row.hash)
            after = rows[-1].workflow_pk

    def walk(self) -> Iterator[tuple[int, list[Finding]]]:
        """Walk every history from its first event on.

        Returns:
            After each batch, how many workflows were walked so far, and what was found in this batch.
        """
        after = count = 0
        while rows := self._living(after, _LIVING):
            ids = [(row.workflow_pk, row.workflow_id) for row in rows]
            found, again = self.store.read(partial(self._walk_batch, ids=ids))
            found += [_finding("put_back", workflow_id, 1, _GONE) for workflow_id in again if self._lives(workflow_id)]
            after, count = rows[-1].workflow_pk, count + len(rows)
            yield count, found

    def compare(self, kept: Iterator[WorkflowHead], *, since: int) -> Iterator[tuple[int, list[Finding]]]:
        """Compare ends that were kept with the events that are stored now.

        Args:
            kept: The ends.
            since: Sequence of the audit log when they were kept; deletions behind it explain a missing history.

        Returns:
            After each batch, how many were compared so far, and what was found in this batch.
        """
        count = 0
        while batch := list(islice(kept, BATCH)):
            found = self.store.read(partial(self._compare, batch=batch, since=since))
            count += len(batch)
            yield count, found

    def _living(self, after: int, statement: sa.Select[*tuple[Any, ...]]) -> Sequence[statements.AnyRow]:
        return self.store.read(lambda connection: connection.execute(statement, {"after": after}).all())

    def _lives(self, workflow_id: str) -> bool:
        """Look again at what the shred list knew before the database did."""
        row = self.store.read(
            lambda connection: connection.execute(statements.HEAD_BY_ID, {"workflow_id": workflow_id}).one_or_none()
        )
        return row is not None and row.deleting_at is None and row.deleted_at is None

    def _walk_batch(self, connection: Connection, *, ids: Sequence[tuple[int, str]]) -> tuple[list[Finding], list[str]]:
        """Return what is wrong, and the workflows that are deleted or were put back."""
        found: list[Finding] = []
        again: list[str] = []
        for workflow_pk, workflow_id in ids:
            if not workflow_id.isascii():
                found.append(_finding("changed", workflow_id, 0, _NO_ID))
                continue
            try:
                fault = self._fault(connection, workflow_pk, workflow_id)
            except ConflictError:
                again.append(workflow_id)
            else:
                found += [] if fault is None else [fault]
        return found, again

    def _fault(self, connection: Connection, workflow_pk: int, workflow_id: str) -> Finding | None:
        row = connection.execute(statements.HEAD_BY_ID, {"workflow_id": workflow_id}).one_or_none()
        if row is None or row.deleted_at is not None:
            return None
        end, fault = _walk_one(connection, workflow_pk, workflow_id)
        try:
            return fault or self._fault_of_end(row, end)
        except VaultError as error:
            return _finding("head", workflow_id, end.seq, f"its head cannot be compared: {error.message}")

    def _fault_of_end(self, row: statements.AnyRow, end: WorkflowHead) -> Finding | None:
        if self.opener is None or row.vault_state == "locked":
            self.has_heads = False
            return None
        opened = self.opener.unseal(row, vault_facts(row))
        if end.seq < opened.chain_seq:
            said = f"the event and all behind it are gone: {opened.chain_seq} were written."
            return _finding("truncated", end.workflow_id, end.seq + 1, said)
        if end.seq > opened.chain_seq:
            said = f"the event stands behind the end of the history: {opened.chain_seq} were written."
            return _finding("surplus", end.workflow_id, opened.chain_seq + 1, said)
        if end.hash != opened.chain_hash:
            said = "the head of the workflow does not hold the hash of the last event."
            return _finding("head", end.workflow_id, end.seq, said)
        return None

    def _compare(self, connection: Connection, *, batch: Sequence[WorkflowHead], since: int) -> list[Finding]:
        stored = _hashes(connection, batch)
        absent = [head for head in batch if head.workflow_id not in stored]
        deleted = _deleted(connection, [head.workflow_id for head in absent], since) if absent else set()
        found = []
        for head in batch:
            problem = self._problem(head, stored, is_deleted=head.workflow_id in deleted)
            if problem is not None:
                found.append(_finding("checkpoint", head.workflow_id, head.seq, problem))
        return found

    def _problem(self, head: WorkflowHead, stored: dict[str, bytes], *, is_deleted: bool) -> str | None:
        if head.workflow_id in stored:
            if stored[head.workflow_id] == head.hash:
                return None
            return "the event is not the one that the checkpoint knows: up to here the history was written anew."
        if not is_deleted:
            return "the checkpoint knows the event, and it is gone; the audit log tells of no deletion since."
        if self.opener is not None and not self.opener.vault.has_shredded(head.workflow_id):
            return (
                "the audit log tells of a deletion since the checkpoint, and the key's list of the destroyed does not."
            )
        return None


def _walk_one(connection: Connection, workflow_pk: int, workflow_id: str) -> tuple[WorkflowHead, Finding | None]:
    """Return how far a history holds, and where it breaks first."""
    end = WorkflowHead(workflow_id, 0, chains.GENESIS)
    after = -(2**63)
    while rows := connection.execute(_EVENTS, {"workflow_pk": workflow_pk, "after": after}).all():
        for row in rows:
            if type(row.seq) is int and row.seq > end.seq + 1:
                return end, _finding("missing", workflow_id, end.seq + 1, "the event is not there, and later ones are.")
            if row.seq != end.seq + 1 or _linked(row, end) != row.hash:
                said = (
                    "the event is not what was written here: it was edited, put in or moved, as its hash does not "
                    "follow from what it holds and the event before."
                )
                return end, _finding("changed", workflow_id, row.seq, said)
            end = WorkflowHead(workflow_id, row.seq, row.hash)
        after = rows[-1].seq
    return end, None if end.seq else _finding("missing", workflow_id, 1, "its history is gone.")


def _linked(row: sa.Row[Any], end: WorkflowHead) -> bytes | None:
    if any(type(getattr(row, name)) is not wanted for name, wanted in _TYPES.items()):
        return None
    return chains.link(
        end.workflow_id, seq=row.seq, kind=row.kind, at_us=row.at, sealed_event=row.sealed_event, previous=end.hash
    )


def _hashes(connection: Connection, batch: Sequence[WorkflowHead]) -> dict[str, bytes]:
    """Return the stored hash at each end, by workflow; without those that have no such event."""
    ids = {head.workflow_id: head.seq for head in batch}
    named = connection.execute(
        sa.select(workflows.c.workflow_pk, workflows.c.workflow_id).where(workflows.c.workflow_id.in_(ids))
    ).all()
    by_pk = {row.workflow_pk: row.workflow_id for row in named}
    pairs = [(pk, ids[workflow_id]) for pk, workflow_id in by_pk.items()]
    place = sa.tuple_(events.c.workflow_pk, events.c.seq)
    rows = connection.execute(sa.select(events.c.workflow_pk, _stored(events.c.hash)).where(place.in_(pairs))).all()
    return {by_pk[row.workflow_pk]: row.hash for row in rows}


def _deleted(connection: Connection, ids: Sequence[str], since: int) -> set[str]:
    told = sa.select(audit.c.object_id).where(
        audit.c.action == DELETED, audit.c.seq > since, audit.c.result == "done", audit.c.object_id.in_(ids)
    )
    return {str(object_id) for object_id in connection.execute(told).scalars()}


def _finding(kind: str, workflow_id: str, seq: int, problem: str) -> Finding:
    return Finding(kind, workflow_id, seq, problem)
