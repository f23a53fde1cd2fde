"""Reading one run: its records in order, with what they hold, and the manifest of what running it again would need.

A page is proved as far as it goes: each record is at its place, follows the one before, and the last one of the run is
the one that the sealed head names. What does not hold is told beside the records that do: one must not hide the others.

A look of a person is written to the audit log before anything is returned; where it cannot be written, nothing is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from continuity import limits
from continuity.decisions import clocks
from continuity.errors import ConflictError, DecryptionError, IntegrityError
from continuity.jsontext import canonical_bytes
from continuity.services import documents
from continuity.services import evidence_runs as runs
from continuity.services.audit import AuditEntry
from continuity.services.callers import Caller, CallerKind
from continuity.services.chains import GENESIS
from continuity.services.documents import seconds
from continuity.services.evidence_runs import EvidenceRuns, OpenedRun
from continuity.services.opening import is_visible
from continuity.store import evidence as statements
from continuity.store import run_links, workflows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.decisions.model import Operation
    from continuity.services.audit import AuditLog
    from continuity.services.ledger import Ledger
    from continuity.services.opened import Opened
    from continuity.store.store import Store
    from continuity.store.workflows import AnyRow

FORMAT: Final = "atmem-evidence-v1"
MANIFEST_FORMAT: Final = "atmem-replay-manifest-v1"
LINKED_AT_MOST: Final = 50
"""Workflows that one run is shown with."""
_UNREADABLE: Final = "the record does not open, or is not what was kept"


@dataclass(frozen=True, slots=True)
class Part:
    """Some records of a run.

    Attributes:
        records: As the wire writes them, in order.
        next_after: ``seq`` to go on after; None at the end.
        faults: ``seq, problem`` of what does not hold.
    """

    records: list[dict[str, Any]]
    next_after: int | None
    faults: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class EvidenceReading:
    """Use cases that read one run.

    Attributes:
        store: Where it is read, and the look itself written.
        ledger: Opens linked workflows.
        runs: Opens runs.
        audit: The audit log.
    """

    store: Store
    ledger: Ledger
    runs: EvidenceRuns
    audit: AuditLog

    def run(
        self, caller: Caller, run: str, *, after: int = 0, limit: int = limits.PAGE_MAX
    ) -> dict[str, Any]:  # fmt: skip
        """Return a page of a run in its order, with content.

        Args:
            caller: Who asks.
            run: Its evidence_id or run_id.
            after: Only records with a larger ``seq``.
            limit: At most so many records, and content of `limits.EVIDENCE_PAGE_BYTES`.

        Returns:
            What is known of the run, ``workflows`` whose attempts have the same run_id and that the caller may see,
            ``records``, ``next_after`` (None at the end), ``is_whole`` and ``faults`` of this page.

        Raises:
            NotFoundError: No such run for this caller.
            ConflictError: ``evidence_deleted``, or ``request_conflict`` for a run_id of several workspaces.
            SealedError: The vault is locked.
            VaultError: The run's head does not open.
        """

        def read(connection: Connection) -> tuple[dict[str, Any], str]:
            opened = self.runs.open_found(connection, caller, run)
            part = self.part(connection, opened, after=after, limit=limit, with_content=True)
            linked = self._linked(connection, caller, opened)
            return {
                "format": FORMAT,
                **describe(opened),
                "workflows": [each.to_json() for each in linked[:LINKED_AT_MOST]],
                "workflows_more": len(linked) > LINKED_AT_MOST,
                "records": part.records,
                "next_after": part.next_after,
                "is_whole": not part.faults,
                "faults": part.faults,
            }, opened.evidence_id

        return self.looked(caller, "evidence.viewed", read)

    def manifest(self, caller: Caller, run: str) -> dict[str, Any]:
        """Return what would be needed to run it again, without content.

        Returns:
            The records in order (what, whose, when, how large, its SHA-256), the linked workflows with their
            operations (tool, capability, sizes and digests of definition and arguments, attempts) and ``tools``.

        Raises:
            ContinuityError: As `run`.
        """

        def read(connection: Connection) -> tuple[dict[str, Any], str]:
            opened = self.runs.open_found(connection, caller, run)
            records, faults = list[dict[str, Any]](), list[dict[str, Any]]()
            for part in self.parts(connection, opened, with_content=False):
                records += part.records
                faults += part.faults
            linked = self._linked(connection, caller, opened)
            shown = [
                {**each.to_json(), "operations": _operations(connection, each)} for each in linked[:LINKED_AT_MOST]
            ]
            return {
                "format": MANIFEST_FORMAT,
                **describe(opened),
                "is_whole": not faults,
                "faults": faults,
                "records": records,
                "workflows": shown,
                "workflows_more": len(linked) > LINKED_AT_MOST,
                "tools": _tools(records, shown),
            }, opened.evidence_id

        return self.looked(caller, "evidence.manifest_viewed", read)

    def looked(
        self, caller: Caller, action: str, read: Callable[[Connection], tuple[dict[str, Any], str]]
    ) -> dict[str, Any]:
        """Read for a caller, from one state of the database; what a person is shown is in the audit log before that."""
        shown, object_id = self.store.read(read)
        if caller.kind is CallerKind.PERSON:
            # Not while it is opened: long runs would keep other writers waiting.
            self.store.write(lambda connection: self.note(connection, caller, action, object_id))
        return shown

    def note(self, connection: Connection, caller: Caller, action: str, object_id: str, **detail: Any) -> None:
        """Write into the audit log that a caller has seen or taken something."""
        entry = AuditEntry(
            action=action, actor=caller.actor, object_id=object_id, result="done", request_id=caller.request_id,
            detail=detail or None,
        )  # fmt: skip
        self.audit.append(connection, entry, now_us=self.now_us(connection))

    def now_us(self, connection: Connection) -> int:
        """Return the time to record something with; checks that the vault is open and its row proved."""
        row = connection.execute(workflows.VAULT).one()
        facts = self.ledger.facts(row)
        return clocks.stamp_us(self.ledger.read_clock(row.now_us), facts.clock_high_water_us)

    # ---- records

    def parts(self, connection: Connection, opened: OpenedRun, *, with_content: bool) -> Iterator[Part]:
        """Give a whole run, part by part."""
        after: int | None = 0
        while after is not None:
            part = self.part(connection, opened, after=after, limit=limits.PAGE_MAX, with_content=with_content)
            yield part
            after = part.next_after

    def part(
        self, connection: Connection, opened: OpenedRun, *, after: int, limit: int, with_content: bool
    ) -> Part:  # fmt: skip
        """Read records of a run in order, from behind `after` on."""
        asked = {"run_pk": opened.run_pk, "after": after, "count": limit + 1}
        rows = connection.execute(statements.RECORDS, asked).all()
        shown = _within_bytes(rows[:limit]) if with_content else rows[:limit]
        is_end = len(shown) == len(rows)
        chain = _Chain(opened, after, self._hash_at(connection, opened, after))
        records = []
        for row in shown:
            chain.follow(row)
            records.append(self._shown(connection, opened, row, chain.faults, with_content=with_content))
        if is_end:
            chain.end()
        return Part(records, None if is_end else shown[-1].seq, chain.faults)

    def _hash_at(self, connection: Connection, opened: OpenedRun, seq: int) -> bytes:
        if seq == 0:
            return GENESIS
        found = connection.execute(statements.HASH_AT, {"run_pk": opened.run_pk, "seq": seq}).scalar_one_or_none()
        # A place that never was, or is gone: what follows it does not follow this.
        return found or b""

    def _shown(
        self, connection: Connection, opened: OpenedRun, row: AnyRow, faults: list[dict[str, Any]], *,
        with_content: bool,
    ) -> dict[str, Any]:  # fmt: skip
        try:
            record = self.runs.record(opened.key, opened.evidence_id, row)
            shown = record_to_json(row, record)
            if with_content and record["content_hash"] is not None:
                shown["content"] = self.runs.content(connection, opened, row, record)
            return shown
        except (DecryptionError, IntegrityError):
            faults.append({"seq": row.seq, "problem": _UNREADABLE})
            return {"seq": row.seq, "received": seconds(row.received_at), "unreadable": True}

    # ---- workflows of the same run

    def _linked(self, connection: Connection, caller: Caller, opened: OpenedRun) -> list[_Linked]:
        """Return the workflows of a run that the caller may see; damaged and deleted ones are left out."""
        head = opened.head
        index = runs.run_index(self.runs.vault, head.workspace_pk, head.run_id)
        found = []
        for workflow_pk in run_links.workflows_of(connection, index, count=LINKED_AT_MOST + 1):
            row = connection.execute(workflows.HEAD_BY_PK, {"workflow_pk": workflow_pk}).one_or_none()
            if row is None or not is_visible(row, caller):
                continue
            with suppress(ConflictError, DecryptionError, IntegrityError):
                workflow = self.ledger.open(row, caller)
                found.append(_Linked(workflow, self.ledger.operations(connection, workflow), self.now_us(connection)))
        return found


@dataclass(frozen=True, slots=True)
class _Linked:
    """A workflow of which an attempt belongs to the run."""

    opened: Opened
    operations: Sequence[Operation]
    now_us: int

    def to_json(self) -> dict[str, Any]:
        summary = documents.summary(self.opened, self.operations, workspace="", now_us=self.now_us)
        return {name: summary[name] for name in ("workflow_id", "workflow_key", "phase", "enabled")}


@dataclass(slots=True)
class _Chain:
    """Follows a run's chain from one record to the next."""

    opened: OpenedRun
    seq: int
    hash: bytes
    faults: list[dict[str, Any]] = field(default_factory=list)

    def follow(self, row: AnyRow) -> None:
        if row.seq != self.seq + 1:
            self._fault(self.seq + 1, "a record is missing")
        linked = {"seq": row.seq, "received_at": row.received_at, "sealed_record": row.sealed_record}
        if runs.link(self.opened.evidence_id, linked, self.hash) != row.hash:
            self._fault(row.seq, "the record does not follow the one before")
        self.seq, self.hash = row.seq, row.hash

    def end(self) -> None:
        head = self.opened.head
        if self.seq < head.count:
            self._fault(self.seq + 1, "the last records are missing")
        elif (self.seq, self.hash) != (head.count, head.chain):
            self._fault(self.seq, "the last record is not the one that the run ends with")

    def _fault(self, seq: int, problem: str) -> None:
        self.faults.append({"seq": seq, "problem": problem})


def describe(opened: OpenedRun) -> dict[str, Any]:
    """Return what the wire says of a run."""
    head = opened.head
    return {
        "evidence_id": opened.evidence_id,
        "run_id": head.run_id,
        "workspace_id": opened.workspace,
        "records_total": head.count,
        "bytes": head.stored_bytes,
        "created": seconds(head.created_us),
        "last_received": seconds(head.received_us),
        "creator_id": head.creator,
    }


def record_to_json(row: AnyRow, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the wire says of a record, its content left out."""
    shown = {
        "seq": row.seq,
        **{name: record[name] for name in ("producer", "epoch", "event_id", "kind", "time")},
        "received": seconds(row.received_at),
        **{name: record[name] for name in ("type", "bytes", "sha256", "captured")},
    }
    return shown if record["tool"] is None else {**shown, "tool": record["tool"]}


def _within_bytes(rows: Sequence[AnyRow]) -> Sequence[AnyRow]:
    """Return the first rows whose content fits on a page, at least one of them."""
    total = 0
    for count, row in enumerate(rows):
        total += row.content_bytes or 0
        if total > limits.EVIDENCE_PAGE_BYTES:
            return rows[: max(count, 1)]
    return rows


def _operations(connection: Connection, linked: _Linked) -> list[dict[str, Any]]:
    """Return the operations of a linked workflow without arguments, receipts and keys."""
    written = documents.definitions(connection, linked.opened)
    return [
        {
            "name": definition["name"],
            "tool": definition["tool"],
            "capability": definition["capability"],
            "timeout_seconds": definition["timeout_seconds"],
            "retention_seconds": definition["retention_seconds"],
            "definition": _measured(definition),
            "arguments": _measured(definition["arguments"]),
            "status": operation.status.value,
            "attempts": [
                {
                    "attempt_id": attempt.attempt_id, "run_id": attempt.run_id, "mode": attempt.mode.value,
                    "started": seconds(attempt.started_us),
                }
                for attempt in operation.attempts
            ],
        }
        for definition, operation in zip(written, linked.operations, strict=True)
    ]  # fmt: skip


def _measured(value: Any) -> dict[str, Any]:
    raw = canonical_bytes(value)
    return {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}


def _tools(records: Sequence[Mapping[str, Any]], linked: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every tool once, in the order of its first use: records before workflows."""
    tools: dict[str, dict[str, Any]] = {}
    for record in records:
        if "tool" in record:
            tools.setdefault(record["tool"], {"tool": record["tool"], "records": 0, "operations": 0})["records"] += 1
    for workflow in linked:
        for operation in workflow["operations"]:
            tool = tools.setdefault(operation["tool"], {"tool": operation["tool"], "records": 0, "operations": 0})
            tool["operations"] += 1
            tool["capability"] = operation["capability"]
    return list(tools.values())
