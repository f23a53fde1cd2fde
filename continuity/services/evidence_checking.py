"""Proves that what is stored of runs of evidence agrees with itself: chains, ends, digests of content.

A read of a run proves it as well, for whoever looks at it; this goes over all of them, one at a time while the server
runs, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from continuity.services.checking import BATCH, Finding, check_each, findings_of
from continuity.store import evidence as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.evidence_reading import EvidenceReading
    from continuity.services.evidence_runs import EvidenceRuns, OpenedRun
    from continuity.store.store import Store

FAULTS_AT_MOST: Final = 20
"""Of one run: who reads more has the run to look at."""


@dataclass(frozen=True, slots=True)
class EvidenceChecker:
    """Checks everything that is stored about evidence.

    Attributes:
        store: Where it is read.
        runs: Opens runs.
        reading: Walks one.
    """

    store: Store
    runs: EvidenceRuns
    reading: EvidenceReading

    def check(self, progress: Callable[[int], None] = lambda _count: None) -> list[Finding]:
        """Check all runs.

        Args:
            progress: Called after each batch with how many runs were checked so far.

        Returns:
            What contradicts itself; empty when nothing does.

        Raises:
            SealedError: The vault is locked.
        """
        return check_each(self._batch, self._check_one, progress)

    def _batch(self, after: int | None) -> list[tuple[int, str]]:
        rows = self.store.read(lambda connection: statements.living_after(connection, after=after or 0, count=BATCH))
        return [(row.run_pk, row.evidence_id) for row in rows]

    def _check_one(self, evidence_id: str) -> list[Finding]:
        return findings_of(
            evidence_id, lambda: self.store.read(lambda connection: self._problems(connection, evidence_id))
        )

    def _problems(self, connection: Connection, evidence_id: str) -> list[str]:
        row = connection.execute(statements.RUN_BY_ID, {"evidence_id": evidence_id}).one_or_none()
        if row is None or row.deleted_at is not None or row.deleting_at is not None:
            return []
        opened = self.runs.open(row)
        problems: list[str] = []
        # With content, which is compared with the digest that its record holds.
        for part in self.reading.parts(connection, opened, with_content=True):
            problems += [f"record {fault['seq']}: {fault['problem']}" for fault in part.faults]
        return _bounded(problems, opened)


def _bounded(problems: list[str], opened: OpenedRun) -> list[str]:
    if len(problems) <= FAULTS_AT_MOST:
        return problems
    rest = len(problems) - FAULTS_AT_MOST
    return [*problems[:FAULTS_AT_MOST], f"and {rest:,} more in its {opened.head.count:,} records"]
