"""Proves that what is stored agrees with itself: histories, states, counters.

For every workflow: its chain of events is whole and ends where the head says; replaying the events gives
the stored state; its counted bytes are the bytes that are stored; all of it opens and is found by the right
indexes. For every coordinator: its counters are
what its workflows hold. Reads in small steps while the server runs; changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from continuity import limits
from continuity.decisions import records
from continuity.decisions.events import WorkflowDeleting, WorkflowEnabled, WorkflowPaused, evolve, evolve_workflow
from continuity.decisions.model import Attempt, Operation, Standing, Workflow
from continuity.errors import ConflictError, VaultError
from continuity.jsontext import canonical_bytes
from continuity.services import chains, documents, proofs
from continuity.services.sealing import event_place, open_json
from continuity.store import counters, counting, listing
from continuity.store import workflows as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.ledger import Ledger
    from continuity.services.opened import Opened
    from continuity.store.store import Store

BATCH: Final = 100
PUT_BACK: Final = "its key was destroyed and its row is there: an older database was put back"
_NO_TEXT: Final = "a clear column is no text: it was edited"


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction.

    Attributes:
        object_id: The workflow, or ``owner:<owner_pk>``.
        problem: What is wrong, without content.
    """

    object_id: str
    problem: str


def check_each(
    batch: Callable[[int | None], Sequence[tuple[int, str]]],
    check_one: Callable[[str], list[Finding]],
    progress: Callable[[int], None],
) -> list[Finding]:
    """Check objects of one kind, `BATCH` at a time.

    Args:
        batch: Gives the numbers and ids of those behind a number, None for the first; fewer than `BATCH` are the last.
        check_one: Checks the object of an id.
        progress: Called after each batch with how many were checked so far.
    """
    findings: list[Finding] = []
    last: int | None = None
    count = 0
    while True:
        objects = batch(last)
        for _number, object_id in objects:
            findings += check_one(object_id)
        count += len(objects)
        progress(count)
        if len(objects) < BATCH:
            return findings
        last = objects[-1][0]


def findings_of(object_id: str, read: Callable[[], list[str]]) -> list[Finding]:
    """Return what `read` finds of one object; what does not open, or should not be there, is a finding too."""
    try:
        problems = read()
    except VaultError as error:
        problems = [error.message]
    except ConflictError:
        problems = [PUT_BACK]
    return [Finding(object_id, problem) for problem in problems]


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks everything that is stored about workflows.

    Attributes:
        store: Where it is read.
        ledger: Opens workflows.
    """

    store: Store
    ledger: Ledger

    def check(self, progress: Callable[[int], None] = lambda _count: None) -> list[Finding]:
        """Check all workflows and counters.

        Args:
            progress: Called after each batch with how many workflows were checked so far.

        Returns:
            What contradicts itself; empty when nothing does.

        Raises:
            SealedError: The vault is locked.
        """
        return [*check_each(self._batch, self._check_one, progress), *self._check_owners()]

    def _batch(self, after: int | None) -> list[tuple[int, str]]:
        rows = self.store.read(lambda connection: listing.ids_after(connection, after or 0, count=BATCH))
        return [(row.workflow_pk, row.workflow_id) for row in rows]

    def _check_one(self, workflow_id: str) -> list[Finding]:
        if not workflow_id.isascii():
            return [Finding(workflow_id, _NO_TEXT)]
        return findings_of(
            workflow_id, lambda: self._read_again(lambda connection: self._problems(connection, workflow_id))
        )

    def _problems(self, connection: Connection, workflow_id: str) -> list[str]:
        row = connection.execute(statements.HEAD_BY_ID, {"workflow_id": workflow_id}).one_or_none()
        if row is None or row.deleting_at is not None or row.deleted_at is not None:
            return []
        facts = self.ledger.facts(row)
        opened = self.ledger.unseal(row, facts)
        stored = self.ledger.operations(connection, opened)
        problems = _replay_problems(connection, opened, stored)
        if counting.stored_bytes(connection, opened.workflow_pk) != row.retained_bytes:
            problems.append("retained_bytes differs from the bytes that are stored")
        if sum(map(reserved_bytes, stored)) != row.reserved_bytes:
            problems.append("reserved_bytes differs from what its attempts keep free")
        # Whatever no decision reads is opened too: definitions and every receipt.
        view = documents.view(connection, opened, stored, now_us=row.created_at)
        if counting.indexes(connection, opened.workflow_pk) != self._indexes(opened, stored, view["definitions"]):
            problems.append("its indexes are not those of its content")
        return problems

    def _read_again(self, work: Callable[[Connection], list[str]]) -> list[str]:
        """Read, and once more what was deleted meanwhile: the second state knows of it."""
        try:
            return self.store.read(work)
        except ConflictError:
            return self.store.read(work)

    def _indexes(
        self, opened: Opened, operations: Sequence[Operation], definitions: Sequence[Any]
    ) -> tuple[bytes, bytes, list[bytes]]:
        """Return the blind indexes that follow from a workflow's content, in the form of `counting.indexes`."""
        index = self.ledger.vault.index
        return (
            index("workflow_key", opened.origin.owner_pk, opened.origin.workflow_key),
            index("definition", canonical_bytes(definitions)),
            [self.ledger.name_index(operation.name) for operation in operations],
        )

    def _check_owners(self) -> list[Finding]:
        off = [
            Finding(f"owner:{row.owner_pk}", "counters differ from what its workflows hold")
            for row in self.store.read(counting.owners_off)
        ]
        for row in self.store.read(lambda connection: connection.execute(counters.ALL).all()):
            try:
                proofs.proved_counters(self.ledger.vault, row)
            except VaultError as error:
                off.append(Finding(f"owner:{row.counted_owner_pk}", error.message))
        return off


def _replay_problems(connection: Connection, opened: Opened, stored: Sequence[Operation]) -> list[str]:
    """Walk a workflow's events and compare what they lead to with what is stored."""
    rows = connection.execute(statements.EVENTS, {"workflow_pk": opened.workflow_pk}).all()
    previous, values = chains.GENESIS, []
    for number, row in enumerate(rows, start=1):
        linked = chains.link(
            opened.workflow_id, seq=row.seq, kind=row.kind, at_us=row.at, sealed_event=row.sealed_event,
            previous=previous,
        )  # fmt: skip
        if row.seq != number or linked != row.hash:
            return [f"the history is broken at event {number}"]
        previous = linked
        values.append(open_json(opened, row.sealed_event, event_place(opened.workflow_id, row.seq)))
    if len(rows) != opened.chain_seq or previous != opened.chain_hash:
        return ["the history does not end where the head says"]
    workflow, operations = replay(opened.workflow_id, values)
    problems = []
    if workflow != opened.workflow:
        problems.append("the head is not what its history leads to")
    if [_without_renewals(o) for o in operations] != [_without_renewals(o) for o in stored]:
        problems.append("an operation is not what its history leads to")
    return problems


def replay(workflow_id: str, values: Sequence[dict[str, Any]]) -> tuple[Workflow, list[Operation]]:
    """Fold a workflow's events, oldest first, into its state.

    Args:
        workflow_id: Whose events they are.
        values: The opened events; the first is its creation.

    Returns:
        The head and the operations in order.
    """
    created = values[0]
    operations = [
        records.operation_from_json(value, ordinal=ordinal) for ordinal, value in enumerate(created["operations"])
    ]
    workflow = Workflow(
        workflow_id=workflow_id,
        revision=1,
        is_enabled=created["enabled"],
        was_enabled=created["enabled"],
        clock_high_water_us=created["at_us"],
        epoch=created["epoch"],
        standings=tuple(Standing(o.status, o.change_seq, o.epoch) for o in operations),
    )
    for seq, value in enumerate(values[1:], start=2):
        event = records.event_from_json(value)
        if isinstance(event, WorkflowEnabled | WorkflowPaused | WorkflowDeleting):
            workflow = evolve_workflow(workflow, event)
        else:
            workflow, changed = evolve(workflow, operations[event.ordinal], event, seq=seq)
            operations[event.ordinal] = changed
    return workflow, operations


def reserved_bytes(operation: Operation) -> int:
    """Return what is kept free for the receipts of attempts that have delivered none."""
    delivered = {late.attempt_id for late in operation.late if late.is_proved and not late.is_extra}
    waiting = [a for a in operation.attempts if not a.has_ended and a.attempt_id not in delivered]
    return len(waiting) * limits.ATTEMPT_RESERVATION_BYTES


def _without_renewals(operation: Operation) -> Operation:
    """Return an operation without the renewals that no event tells of: those of attempts that have not ended."""
    return replace(operation, attempts=tuple(_unrenewed(attempt) for attempt in operation.attempts))


def _unrenewed(attempt: Attempt) -> Attempt:
    return attempt if attempt.has_ended else replace(attempt, renewals=0, lease_until_us=0)
