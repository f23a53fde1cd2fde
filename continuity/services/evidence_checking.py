"""Proves that what is stored of runs of evidence agrees with itself: chains, ends, digests of content.

A read of a run proves it as well, for whoever looks at it; this goes over all of them, one at a time while the server
runs, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from continuity.errors import ConflictError, VaultError
from continuity.services.checking import Finding
from continuity.store import evidence as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.evidence_reading import EvidenceReading
    from continuity.services.evidence_runs import EvidenceRuns, OpenedRun
    from continuity.store.store import Store

BATCH: Final = 100
FAULTS_AT_MOST: Final = 20
"""Of one run: who reads more has the run to look at."""
PUT_BACK: Final = "its key was destroyed and its row is there: an older database was put back"


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
        findings: list[Finding] = []
        after = count = 0
        while True:
            rows = self.store.read(
                lambda connection, after=after: statements.living_after(connection, after=after, count=BATCH)  # type: ignore[misc]
            )
            for row in rows:
                findings += self._check_one(row.evidence_id)
            count += len(rows)
            progress(count)
            if len(rows) < BATCH:
                return findings
            after = rows[-1].run_pk

    def _check_one(self, evidence_id: str) -> list[Finding]:
        try:
            problems = self.store.read(lambda connection: self._problems(connection, evidence_id))
        except VaultError as error:
            problems = [error.message]
        except ConflictError:
            problems = [PUT_BACK]
        return [Finding(evidence_id, problem) for problem in problems]

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
