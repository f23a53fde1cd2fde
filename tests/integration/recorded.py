"""Evidence beside governed operations, on any store: what the tests of evidence begin with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from continuity.evidence import ListRuns, RecordEvidence, Retention, SearchEvidence
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.capture import Capture
from continuity.services.evidence import Evidence
from continuity.services.evidence_deletion import EvidenceDeletions
from continuity.services.evidence_reading import EvidenceReading
from continuity.services.evidence_runs import EvidenceRuns
from continuity.services.evidence_search import EvidenceSearch
from continuity.services.exporting import Exporting
from continuity.services.retention import Retaining
from continuity.services.threads_ledger import ThreadLedger
from continuity.services.threads_retention import OldJournals
from continuity.services.threads_trimming import ThreadTrimming
from continuity.store.store import Store
from continuity.vault.passphrase import Cost
from tests.integration.governed import Governed, govern

CHEAP = Cost(8, 1, 1)
PASSPHRASE = "a long passphrase of tests"
EVENT: dict[str, Any] = {
    "run_id": "run-1", "producer": "agent", "epoch": 1, "event_id": "e-1", "kind": "text",
    "content": "Hello harbour", "time": 1_750_000_000,
}  # fmt: skip


class Recorded:
    """The services of evidence over those of `Governed`."""

    def __init__(self, at: Governed) -> None:
        self.at = at
        store, ledger, audit = at.store, at.ledger, at.home.audit
        self.runs = EvidenceRuns(ledger)
        self.evidence = Evidence(store, ledger, self.runs)
        self.reading = EvidenceReading(store, ledger, self.runs, audit)
        self.search = EvidenceSearch(store, ledger, self.runs, self.reading)
        self.deletions = EvidenceDeletions(store, ledger, self.runs, self.reading, audit)
        self.exporting = Exporting(store, ledger, self.runs, self.reading, CHEAP)
        self.capture = Capture(store, ledger, audit)
        threads = ThreadLedger(ledger)
        journals = OldJournals(threads, ThreadTrimming(store, threads, audit))
        self.retaining = Retaining(store, ledger, self.runs, self.reading, at.deletions, self.deletions, journals)
        self.operator = at.operator
        self.administrator = replace(at.person, actor="user:adm", role=Role.ADMINISTRATOR)
        self.investigator = replace(at.person, actor="user:inv", role=Role.INVESTIGATOR)

    def elsewhere(self, kind: CallerKind = CallerKind.OPERATOR, role: Role | None = None) -> Caller:
        """Return a caller of another workspace alone."""
        pk = self.at.home.workspace("other")
        return replace(
            self.operator, kind=kind, role=role, actor="cred:2", workspaces=frozenset({pk}), home_workspace=pk
        )

    def record(self, *, by: Caller | None = None, **over: Any) -> dict[str, Any]:
        return self.evidence.record(by or self.operator, RecordEvidence.from_json({**EVENT, **over}))

    def several(self, count: int, *, run: str = "run-1", start: int = 0, **over: Any) -> list[dict[str, Any]]:
        return [
            self.record(run_id=run, event_id=f"{run}-{number}", **{"content": f"word{number} common", **over})
            for number in range(start, start + count)
        ]

    def page(self, *, by: Caller | None = None, **asked: Any) -> dict[str, Any]:
        return self.search.page(by or self.operator, SearchEvidence(**asked))

    def found(self, *, by: Caller | None = None, **asked: Any) -> list[str]:
        """Return event_ids of every page of a list, in its order."""
        ids, cursor = [], None
        while True:
            page = self.page(by=by, **asked, cursor=cursor)
            ids += [record["event_id"] for record in page["records"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return ids

    def listed_runs(self, *, by: Caller | None = None, **asked: Any) -> list[dict[str, Any]]:
        return self.search.runs_page(by or self.operator, ListRuns(**asked))["runs"]

    def read(self, run: str = "run-1", *, by: Caller | None = None, **asked: Any) -> dict[str, Any]:
        return self.reading.run(by or self.operator, run, **asked)

    def retain(self, *, by: Caller | None = None, **asked: Any) -> dict[str, Any]:
        request = Retention(**{"older_than_days": 30, "kind": "workflows", **asked})
        return self.retaining.batch(by or self.administrator, request)


def recorded(store: Store, folder: Path) -> Recorded:
    """Install on an empty, migrated store; time is the test's."""
    return Recorded(govern(store, folder))
