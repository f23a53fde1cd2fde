"""Opens runs of evidence and their records: who may know of one, what its head says, what a record says.

Rules:

* Head and records are sealed under the run's own partition; every clear column that is relied on stands in the sealed
  head or record too, and a difference is `IntegrityError`.
* A record is bound to its place in the run, and chained to the one before (`continuity.services.chains`, over the
  sealed bytes); the head knows how many there are and the hash of the last. An edit does not open, a record that was
  removed leaves a gap, and ends that were cut off contradict the head.
* Content is sealed apart from its record, which knows the SHA-256 of the sealed bytes.
* Whoever may not know of a run is answered as if there were none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from continuity.errors import ConflictError, DecryptionError, IntegrityError, NotFoundError
from continuity.evidence import EVIDENCE_ID
from continuity.services import chains
from continuity.services.opening import is_visible
from continuity.services.sealing import seal_json
from continuity.store import evidence as statements
from continuity.store import workflows
from continuity.vault.place import Place

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.callers import Caller
    from continuity.services.ledger import Ledger
    from continuity.store.workflows import AnyRow
    from continuity.vault.partition import PartitionKey
    from continuity.vault.vault import Vault

RECORDED: Final = "evidence_recorded"
"""Kind of every link of a run's chain."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a run's sealed head says.

    Attributes:
        run_id: The host's name of the run.
        workspace_pk: Its workspace.
        creator: Principal of its first record.
        created_us: When that was received.
        received_us: When the last record was received.
        count: How many records there are.
        stored_bytes: Sealed bytes of all of them.
        chain: Hash of the last one, 32 bytes.
        is_deleting: Whether its deletion has begun.
    """

    run_id: str
    workspace_pk: int
    creator: str
    created_us: int
    received_us: int
    count: int
    stored_bytes: int
    chain: bytes
    is_deleting: bool = False

    def to_json(self) -> list[Any]:
        """Return what is sealed."""
        return [
            self.run_id, self.workspace_pk, self.creator, self.created_us, self.received_us, self.count,
            self.stored_bytes, self.chain.hex(), self.is_deleting,
        ]  # fmt: skip

    @classmethod
    def from_json(cls, value: list[Any]) -> Head:
        """Read what was sealed."""
        run_id, workspace_pk, creator, created_us, received_us, count, stored_bytes, chain, is_deleting = value
        return cls(
            run_id, workspace_pk, creator, created_us, received_us, count, stored_bytes, bytes.fromhex(chain),
            is_deleting,
        )  # fmt: skip

    def columns(self) -> dict[str, Any]:
        """Return the clear columns that follow from it."""
        return {
            "record_count": self.count,
            "created_at": self.created_us,
            "received_at": self.received_us,
            "retained_bytes": self.stored_bytes,
        }


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run whose head was opened.

    Attributes:
        run_pk: Its row.
        evidence_id: ``er_…``, its partition.
        workspace: Name of its workspace.
        key: Its data key.
        head: What its head says.
    """

    run_pk: int
    evidence_id: str
    workspace: str
    key: PartitionKey = field(repr=False)
    head: Head


def head_place(evidence_id: str) -> Place:
    """Return where a run's head stands."""
    return Place("continuity_evidence_runs", evidence_id, evidence_id, "sealed_head")


def record_place(evidence_id: str, seq: int) -> Place:
    """Return where a record stands."""
    return Place("continuity_evidence", evidence_id, str(seq), "sealed_record")


def content_place(evidence_id: str, seq: int) -> Place:
    """Return where the content of a record stands."""
    return Place("continuity_evidence_contents", evidence_id, str(seq), "sealed_content")


def run_index(vault: Vault, workspace_pk: int, run_id: str) -> bytes:
    """Return the blind index of a run: the same in evidence and in the links of workflows."""
    return vault.index("run", workspace_pk, run_id)


def term_index(vault: Vault, workspace_pk: int, kind: str, word: str) -> bytes:
    """Return the blind index by which records of a workspace are found: `kind` is run, producer, kind or word."""
    return vault.index("evidence_term", workspace_pk, kind, word)


def seal_head(key: PartitionKey, evidence_id: str, head: Head) -> bytes:
    """Seal a run's head for its place."""
    return seal_json(key, head.to_json(), head_place(evidence_id))


def link(evidence_id: str, row: Mapping[str, Any], previous: bytes) -> bytes:
    """Return the hash that chains a record (``seq, received_at, sealed_record``) to the one before."""
    return chains.link(
        evidence_id, seq=row["seq"], kind=RECORDED, at_us=row["received_at"], sealed_event=row["sealed_record"],
        previous=previous,
    )  # fmt: skip


def no_such_run() -> NotFoundError:
    """Make the one answer to a run that is not the caller's to know."""
    return NotFoundError("There is no such evidence.")


def was_deleted() -> ConflictError:
    """Make the answer to whoever may know of a run that was deleted."""
    return ConflictError("This evidence was deleted; its run_id cannot be used again.", code="evidence_deleted")


@dataclass(frozen=True, slots=True)
class EvidenceRuns:
    """Finds and opens runs. Safe to share between threads; writes nothing.

    Attributes:
        ledger: Holds the vault, and reads its row and the clock.
    """

    ledger: Ledger

    @property
    def vault(self) -> Vault:
        """The vault."""
        return self.ledger.vault

    def find(self, connection: Connection, caller: Caller, run: str) -> AnyRow:
        """Return the row of a run by its evidence_id or its run_id.

        Raises:
            NotFoundError: There is none for this caller.
            ConflictError: ``request_conflict``: several workspaces that the caller sees have a run of this name.
            SealedError: The vault is locked.
        """
        self.ledger.facts(connection.execute(workflows.VAULT).one())
        if EVIDENCE_ID.fullmatch(run):
            rows = connection.execute(statements.RUN_BY_ID, {"evidence_id": run}).all()
        else:
            indexes = [run_index(self.vault, place, run) for place in self.places(connection, caller)]
            rows = connection.execute(statements.RUNS_BY_INDEX, {"run_indexes": indexes}).all() if indexes else []
        seen = [row for row in rows if is_visible(row, caller)]
        if not seen:
            raise no_such_run()
        if len(seen) > 1:
            raise ConflictError("Several workspaces have a run of this name: name it by its evidence_id.")
        return seen[0]

    def open_found(self, connection: Connection, caller: Caller, run: str) -> OpenedRun:
        """Find a run and open its head. Raises as `find` and `open`."""
        return self.open(self.find(connection, caller, run))

    def open(self, row: AnyRow) -> OpenedRun:
        """Open the head of a run's row and compare it with its columns.

        Raises:
            ConflictError: ``evidence_deleted``.
            SealedError: The vault is locked.
            VaultError: It does not open, or row and head differ.
        """
        if row.deleted_at is not None or row.deleting_at is not None:
            raise was_deleted()
        opened = self.unseal(row)
        if opened.head.is_deleting:
            raise IntegrityError("The run's columns contradict its sealed head. Nothing was done.")
        return opened

    def unseal(self, row: AnyRow) -> OpenedRun:
        """Open the head of a run's row, one whose deletion has begun too. Raises as `open`."""
        key = self.key_of(row)
        head = self.head(key, row)
        is_same = head.workspace_pk == row.workspace_pk and head.is_deleting == (row.deleting_at is not None)
        if not is_same or any(getattr(row, name) != value for name, value in head.columns().items()):
            raise IntegrityError("The run's columns contradict its sealed head. Nothing was done.")
        return OpenedRun(row.run_pk, row.evidence_id, row.workspace, key, head)

    def head(self, key: PartitionKey, row: AnyRow) -> Head:
        """Open the head of a run's row, without a look at its columns. Raises `VaultError`."""
        return Head.from_json(json.loads(key.open(row.sealed_head, place=head_place(row.evidence_id))))

    def key_of(self, row: AnyRow) -> PartitionKey:
        """Open the data key of a run's row. Raises as `open`."""
        try:
            return self.vault.open_partition(row.evidence_id, row.wrapped_key, key_id=row.wrapping_key_id)
        except DecryptionError:
            if self.vault.has_shredded(row.evidence_id):
                raise was_deleted() from None
            raise

    def places(self, connection: Connection, caller: Caller) -> list[int]:
        """Return the workspaces that a caller sees, each by its number."""
        if caller.workspaces is None:
            return statements.workspace_pks(connection)
        return sorted(caller.workspaces)

    def record(self, key: PartitionKey, evidence_id: str, row: AnyRow) -> dict[str, Any]:
        """Open a record's row. Raises `VaultError` when it does not open or contradicts its columns."""
        value: dict[str, Any] = json.loads(key.open(row.sealed_record, place=record_place(evidence_id, row.seq)))
        if value["received_us"] != row.received_at:
            raise IntegrityError("A record's columns contradict what is sealed.")
        return value

    def content(self, connection: Connection, run: OpenedRun, row: AnyRow, record: Mapping[str, Any]) -> Any:
        """Open the content of a record that has one. Raises `VaultError` when it is missing or another's."""
        sealed = connection.execute(statements.CONTENT, {"evidence_pk": row.evidence_pk}).scalar_one_or_none()
        if sealed is None or not hmac.compare_digest(content_digest(sealed), record["content_hash"]):
            raise IntegrityError("The content of a record is not what was kept.")
        return json.loads(run.key.open(sealed, place=content_place(run.evidence_id, row.seq)))["content"]


def content_digest(sealed: bytes) -> str:
    """Return the hex SHA-256 of sealed content, which its record knows."""
    return hashlib.sha256(sealed).hexdigest()


def grown(head: Head, *, received_us: int, stored_bytes: int, chain: bytes) -> Head:
    """Return a head with one record more."""
    return replace(
        head, received_us=received_us, count=head.count + 1, stored_bytes=head.stored_bytes + stored_bytes, chain=chain
    )
