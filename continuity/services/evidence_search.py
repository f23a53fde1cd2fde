"""Lists of evidence: records by run, producer, kind, words and time of receipt, and the runs themselves. No content.

A search by words asks what content holds without opening it; who did is in the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from continuity.decisions import clocks
from continuity.errors import ConflictError, DecryptionError, IntegrityError
from continuity.evidence import EVIDENCE_ID, ListRuns, SearchEvidence
from continuity.limits import SECOND_US
from continuity.services import evidence_runs as runs
from continuity.services.callers import Caller, CallerKind
from continuity.services.cursors import Cursors
from continuity.services.documents import seconds
from continuity.services.evidence_reading import EvidenceReading, describe, record_to_json
from continuity.services.evidence_runs import EvidenceRuns
from continuity.store import evidence as statements
from continuity.store import listing, workflows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.ledger import Ledger
    from continuity.store.store import Store
    from continuity.store.workflows import AnyRow
    from continuity.vault.partition import PartitionKey


@dataclass(frozen=True, slots=True)
class EvidenceSearch:
    """Use cases that read many records.

    Attributes:
        store: Where everything is read, and a search by words written to the audit log.
        ledger: Reads the vault's row and the clock.
        runs: Opens runs.
        reading: Writes who looked.
    """

    store: Store
    ledger: Ledger
    runs: EvidenceRuns
    reading: EvidenceReading

    def page(self, caller: Caller, request: SearchEvidence) -> dict[str, Any]:
        """Return one page of records, newest received first, without content.

        Returns:
            ``records`` and ``next_cursor`` (None at the end). A search of words that are all common looks at
            `LOOKED_AT_MOST` records: it may return few or none and a cursor that goes on. A record that does not
            open is listed by its clear columns, with ``unreadable: true`` and ``key_id``.

        Raises:
            MalformedError: The cursor is not one of this list.
            SealedError: The vault is locked.
        """
        page = self.store.read(lambda connection: self._page(connection, caller, request))
        if caller.kind is CallerKind.PERSON and request.words:
            self.store.write(
                lambda connection: self.reading.note(
                    connection, caller, "evidence.searched", "", words=request.words, question=request.question
                )
            )
        return page

    def runs_page(self, caller: Caller, request: ListRuns) -> dict[str, Any]:
        """Return one page of runs, newest first: ``runs`` and ``next_cursor``. Raises as `page`."""

        def work(connection: Connection) -> dict[str, Any]:
            cursors, now_us, before = self._position(connection, caller, request)
            places = self._places(connection, caller, request.workspace)
            rows = statements.runs(connection, places, before=before, count=request.limit + 1)
            shown = rows[: request.limit]
            return {
                "runs": [self._run(row) for row in shown],
                "next_cursor": cursors.write(shown[-1].run_pk, now_us=now_us) if len(rows) > len(shown) else None,
            }

        return self.store.read(work)

    def _position(
        self, connection: Connection, caller: Caller, request: SearchEvidence | ListRuns
    ) -> tuple[Cursors, int, int | None]:
        """Return the cursors of this question, the time, and where to go on."""
        row = connection.execute(workflows.VAULT).one()
        self.ledger.facts(row)
        # Never below the vault's mark: a clock that is set back prolongs no cursor.
        now_us = clocks.stamp_us(self.ledger.read_clock(row.now_us), row.vault_mark)
        cursors = Cursors(self.runs.vault, caller.actor, request.question, row.vault_epoch)
        return cursors, now_us, None if request.cursor is None else cursors.read(request.cursor, now_us=now_us)

    def _page(self, connection: Connection, caller: Caller, request: SearchEvidence) -> dict[str, Any]:
        cursors, now_us, before = self._position(connection, caller, request)
        asked = statements.Question(
            places=dict(self._terms(connection, caller, request)),
            before=before,
            since_us=_us(request.since),
            until_us=_us(request.until),
        )
        rows, floor = statements.page(connection, asked, count=request.limit + 1)
        shown = rows[: request.limit]
        after = shown[-1].evidence_pk if len(rows) > request.limit else floor
        return {
            "records": self._records(shown),
            "next_cursor": cursors.write(after, now_us=now_us) if after else None,
        }

    def _places(self, connection: Connection, caller: Caller, workspace: str | None) -> list[int]:
        places = self.runs.places(connection, caller)
        if workspace is None:
            return places
        wanted = listing.workspace_by_name(connection, workspace)
        return [place for place in places if place == wanted]

    def _terms(
        self, connection: Connection, caller: Caller, request: SearchEvidence
    ) -> list[tuple[int, Sequence[bytes]]]:
        """Return the workspaces to look in, each with what a record there must be found by."""
        places, run_id = self._places(connection, caller, request.workspace), request.run
        if run_id is not None and EVIDENCE_ID.fullmatch(run_id):
            row = connection.execute(statements.RUN_BY_ID, {"evidence_id": run_id}).one_or_none()
            if row is None or row.workspace_pk not in places or row.deleted_at is not None:
                return []
            try:
                places, run_id = [row.workspace_pk], self.runs.open(row).head.run_id
            except ConflictError:
                return []
        wanted = [("run", run_id), ("producer", request.producer), ("kind", request.kind)]
        wanted += [("word", word) for word in request.words]
        vault = self.runs.vault
        return [
            (place, [runs.term_index(vault, place, kind, word) for kind, word in wanted if word is not None])
            for place in places
        ]

    def _records(self, rows: Sequence[AnyRow]) -> list[dict[str, Any]]:
        keys: dict[str, tuple[PartitionKey, str] | None] = {}
        shown = []
        for row in rows:
            if row.evidence_id not in keys:
                keys[row.evidence_id] = self._key(row)
            shown.append(self._record(row, keys[row.evidence_id]))
        return shown

    def _key(self, row: AnyRow) -> tuple[PartitionKey, str] | None:
        """Return the data key of a record's run and the run's name; None when it does not open."""
        try:
            key = self.runs.key_of(row)
            return key, self.runs.head(key, row).run_id
        except (ConflictError, DecryptionError, IntegrityError):
            return None

    def _record(self, row: AnyRow, opened: tuple[PartitionKey, str] | None) -> dict[str, Any]:
        place: Mapping[str, Any] = {"evidence_id": row.evidence_id, "workspace_id": row.workspace}
        if opened is not None:
            key, run_id = opened
            try:
                record = self.runs.record(key, row.evidence_id, row)
                return {**place, "run_id": run_id, **record_to_json(row, record)}
            except (DecryptionError, IntegrityError):
                pass
        return {
            **place, "run_id": "", "seq": row.seq, "received": seconds(row.received_at), "unreadable": True,
            "key_id": row.wrapping_key_id,
        }  # fmt: skip

    def _run(self, row: AnyRow) -> dict[str, Any]:
        try:
            return describe(self.runs.unseal(row))
        except (ConflictError, DecryptionError, IntegrityError):
            return {
                "evidence_id": row.evidence_id, "run_id": "", "workspace_id": row.workspace,
                "records_total": row.record_count, "bytes": row.retained_bytes, "created": seconds(row.created_at),
                "last_received": seconds(row.received_at), "creator_id": "", "unreadable": True,
                "key_id": row.wrapping_key_id,
            }  # fmt: skip


def _us(moment: float | None) -> int | None:
    return None if moment is None else round(moment * SECOND_US)
