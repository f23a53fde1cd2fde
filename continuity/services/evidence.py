"""Recording evidence: what an agent says it did, kept as the capture mode says.

A record is one transaction: the vault's row (which holds the mode), the run, the record, what it is found by. It is
not a decision: nothing here grants or repeats an effect.

In the mode ``off`` a record is refused and nothing is kept. It is not taken and dropped: an agent would believe its
word to be kept, and a repeat could not be answered as the first time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import IntegrityError as ConstraintError

from continuity import limits
from continuity.decisions import clocks
from continuity.errors import ConflictError
from continuity.services import evidence_runs as runs
from continuity.services.chains import GENESIS
from continuity.services.evidence_runs import EvidenceRuns, Head, OpenedRun
from continuity.services.identifiers import body_digest, new_id
from continuity.services.partitions import ensure_partition
from continuity.services.sealing import seal_json, to_bytes
from continuity.store import evidence as statements
from continuity.store import workflows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.evidence import RecordEvidence
    from continuity.services.callers import Caller
    from continuity.services.ledger import Ledger
    from continuity.store.store import Store
    from continuity.store.workflows import AnyRow

FULL: Final = "full"
OFF: Final = "off"
_LOOKS: Final = 3
"""The run may be somebody else's new one, and then the event."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The use case of whoever records.

    Attributes:
        store: Where everything is written.
        ledger: Reads the vault's row and the clock.
        runs: Opens runs.
    """

    store: Store
    ledger: Ledger
    runs: EvidenceRuns

    def record(self, caller: Caller, request: RecordEvidence) -> dict[str, Any]:
        """Keep one record in the caller's own workspace.

        Returns:
            ``accepted, replayed, evidence_id, seq, captured``; an exact repeat answers as the first time, with
            ``replayed`` true. Durable when this returns.

        Raises:
            ConflictError: ``event_conflict`` (known with another content), ``capture_off``, ``evidence_deleted`` or
                ``evidence_limit_reached``. Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
            UnavailableError: Storage cannot answer; asking again is safe.
            VaultError: The run does not open. Nothing has happened.
        """

        def work(connection: Connection) -> dict[str, Any]:
            return self._record(connection, caller, request)

        for _ in range(_LOOKS - 1):
            try:
                return self.store.write(work)
            except ConstraintError:
                # Somebody recorded the same event, or the first one of the run, between our look and our insert.
                continue
        return self.store.write(work)

    def _record(self, connection: Connection, caller: Caller, request: RecordEvidence) -> dict[str, Any]:
        vault_row = connection.execute(workflows.LOCKED_VAULT).one()
        facts = self.ledger.facts(vault_row)
        workspace_pk, vault = caller.home_workspace, self.runs.vault
        run_ix = runs.run_index(vault, workspace_pk, request.run_id)
        run = self._locked_run(connection, run_ix)
        event_ix = vault.index("evidence_event", workspace_pk, request.producer, request.epoch, request.event_id)
        known = connection.execute(statements.RECORD_BY_EVENT, {"event_ix": event_ix}).one_or_none()
        if known is not None:
            # On PostgreSQL the first record of the run may have been committed between the two looks.
            return self._repeated(run or self._locked_run(connection, run_ix), known, request)
        mode: str = vault_row.capture_mode
        if mode == OFF:
            raise ConflictError("The vault's capture mode is off. Nothing was recorded.", code="capture_off")
        self.ledger.require_room()
        mark_us = facts.clock_high_water_us if run is None else max(facts.clock_high_water_us, run.head.received_us)
        now_us = clocks.stamp_us(self.ledger.read_clock(vault_row.now_us), mark_us)
        if run is None:
            run = self._begin_run(connection, caller, request, run_ix=run_ix, now_us=now_us)
        return self._append(connection, run, _Recorded(caller, request, mode, now_us, event_ix))

    def _locked_run(self, connection: Connection, run_ix: bytes) -> OpenedRun | None:
        row = connection.execute(statements.LOCKED_RUN, {"run_ix": run_ix}).one_or_none()
        return None if row is None else self.runs.open(row)

    def _repeated(self, run: OpenedRun | None, known: AnyRow, request: RecordEvidence) -> dict[str, Any]:
        """Answer an event that is known: as the first time if it is the same in everything."""
        conflict = ConflictError(
            "This event of this producer was recorded with another content. Nothing was changed.", code="event_conflict"
        )
        if run is None or known.run_pk != run.run_pk:
            raise conflict
        record = self.runs.record(run.key, run.evidence_id, known)
        if record["digest"] != body_digest(request.body()):
            raise conflict
        return _reply(run, known.seq, record["captured"], is_replayed=True)

    def _begin_run(
        self, connection: Connection, caller: Caller, request: RecordEvidence, *, run_ix: bytes, now_us: int
    ) -> OpenedRun:
        evidence_id = new_id("er")
        key = ensure_partition(connection, self.runs.vault, evidence_id, kind="evidence")
        head = Head(
            run_id=request.run_id, workspace_pk=caller.home_workspace, creator=caller.principal, created_us=now_us,
            received_us=now_us, count=0, stored_bytes=0, chain=GENESIS,
        )  # fmt: skip
        run_pk = statements.insert_run(connection, {
            "evidence_id": evidence_id, "workspace_pk": caller.home_workspace, "run_ix": run_ix, **head.columns(),
            "sealed_head": runs.seal_head(key, evidence_id, head),
        })  # fmt: skip
        return OpenedRun(run_pk, evidence_id, "", key, head)

    def _append(self, connection: Connection, run: OpenedRun, recorded: _Recorded) -> dict[str, Any]:
        seq, is_full = run.head.count + 1, recorded.mode == FULL
        content = recorded.seal_content(run, seq) if is_full else None
        sealed = seal_json(run.key, recorded.to_json(content), runs.record_place(run.evidence_id, seq))
        stored_bytes = len(sealed) + len(content or b"")
        if seq > limits.EVIDENCE_RECORDS or run.head.stored_bytes + stored_bytes > limits.EVIDENCE_RUN_BYTES:
            raise ConflictError(
                f"A run holds at most {limits.EVIDENCE_RECORDS} records and {limits.EVIDENCE_RUN_BYTES >> 20} MiB: "
                "go on under another run_id. Nothing was recorded.",
                code="evidence_limit_reached",
            )
        row = {"seq": seq, "received_at": recorded.now_us, "sealed_record": sealed}
        chain = runs.link(run.evidence_id, row, run.head.chain)
        statements.insert_record(
            connection,
            {
                **row, "run_pk": run.run_pk, "workspace_pk": run.head.workspace_pk, "event_ix": recorded.event_ix,
                "hash": chain,
            },
            sealed_content=content,
            term_indexes=self._terms(recorded, run.head.workspace_pk),
        )  # fmt: skip
        head = runs.grown(run.head, received_us=recorded.now_us, stored_bytes=stored_bytes, chain=chain)
        statements.update_run(
            connection, run.run_pk,
            {**head.columns(), "sealed_head": runs.seal_head(run.key, run.evidence_id, head)},
        )  # fmt: skip
        return _reply(run, seq, recorded.mode, is_replayed=False)

    def _terms(self, recorded: _Recorded, workspace_pk: int) -> list[bytes]:
        request, vault = recorded.request, self.runs.vault
        terms = [("run", request.run_id), ("producer", request.producer), ("kind", request.kind)]
        if recorded.mode == FULL:
            # What is not kept is not indexed either: an index of words tells of them.
            terms += [("word", word) for word in request.words()]
        return sorted(runs.term_index(vault, workspace_pk, kind, word) for kind, word in terms)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A request that is about to be kept."""

    caller: Caller
    request: RecordEvidence
    mode: str
    now_us: int
    event_ix: bytes

    def seal_content(self, run: OpenedRun, seq: int) -> bytes:
        place = runs.content_place(run.evidence_id, seq)
        return run.key.seal(to_bytes({"content": self.request.content}), place=place)

    def to_json(self, sealed_content: bytes | None) -> dict[str, Any]:
        request, is_full = self.request, self.mode == FULL
        return {
            "producer": request.producer, "epoch": request.epoch, "event_id": request.event_id, "kind": request.kind,
            "time": request.time, "received_us": self.now_us, "captured": self.mode, **request.facts,
            "tool": request.tool if is_full else None, "actor": self.caller.actor,
            "digest": body_digest(request.body()),
            "content_hash": None if sealed_content is None else runs.content_digest(sealed_content),
        }  # fmt: skip


def _reply(run: OpenedRun, seq: int, captured: str, *, is_replayed: bool) -> dict[str, Any]:
    return {
        "accepted": True, "replayed": is_replayed, "evidence_id": run.evidence_id, "seq": seq, "captured": captured,
    }  # fmt: skip
