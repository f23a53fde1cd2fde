"""Lists and counts of workflows, for people and operators' credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from continuity import limits
from continuity.decisions import clocks
from continuity.decisions.phases import Phase
from continuity.errors import ConflictError, DecryptionError, IntegrityError, MalformedError
from continuity.services import documents
from continuity.services.cursors import Cursors
from continuity.services.workflows import search_words
from continuity.store import listing
from continuity.store import workflows as statements
from continuity.wire import IDENTIFIER, ListRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from continuity.services.callers import Caller
    from continuity.services.ledger import Ledger
    from continuity.store.store import Store
    from continuity.store.workflows import AnyRow

SEARCH_CHARS: Final = 200
SEARCH_WORDS: Final = 8
_WORKFLOW_ID: Final = re.compile(r"wf_[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Listing:
    """Use cases that read many workflows.

    Attributes:
        store: Where everything is read.
        ledger: Opens workflows.
    """

    store: Store
    ledger: Ledger

    def page(self, caller: Caller, request: ListRequest) -> dict[str, Any]:
        """Return one page, newest first.

        Returns:
            ``workflows`` (summaries) and ``next_cursor`` (None at the end). A search of words that are all
            common looks at `LOOKED_AT_MOST` workflows: it may return few or none and a cursor that goes on.
            A workflow that does not open is listed by its clear columns, with ``unreadable: true``: one must not
            hide the others.

        Raises:
            MalformedError: A filter is not what it must be.
            SealedError: The vault is locked.
        """
        if not 1 <= request.limit <= limits.PAGE_MAX:
            raise MalformedError(f"limit must be a whole number from 1 to {limits.PAGE_MAX}.")

        def work(connection: Connection) -> dict[str, Any]:
            return self._page(connection, caller, request)

        return self.store.read(work)

    def counts(self, caller: Caller) -> dict[str, int]:
        """Return how many workflows stand in each phase, each counted to 1,001 at most.

        Phases that have changed by themselves within the last seconds are counted as they were.
        """

        def work(connection: Connection) -> dict[str, int]:
            return dict(listing.count_by_phase(connection, caller.workspaces, [phase.value for phase in Phase]))

        return self.store.read(work)

    def _page(self, connection: Connection, caller: Caller, request: ListRequest) -> dict[str, Any]:
        row = connection.execute(statements.VAULT).one()
        self.ledger.facts(row)
        # Never below the vault's mark: a clock that is set back prolongs no cursor.
        now_us = clocks.stamp_us(self.ledger.read_clock(row.now_us), row.vault_mark)
        cursors = Cursors(self.ledger.vault, caller.actor, request.question, row.vault_epoch)
        before = None if request.cursor is None else cursors.read(request.cursor, now_us=now_us)
        rows, floor = self._rows(connection, caller, request, before)
        shown = rows[: request.limit]
        # Where a search has stopped early, it goes on below the last row that it looked at.
        after = shown[-1].workflow_pk if len(rows) > request.limit else floor
        return {
            "workflows": self._summaries(connection, caller, shown, now_us),
            "next_cursor": cursors.write(after, now_us=now_us) if after else None,
        }

    def _rows(
        self, connection: Connection, caller: Caller, request: ListRequest, before: int | None
    ) -> tuple[Sequence[AnyRow], int]:
        seen = caller.workspaces
        if request.workspace is not None:
            wanted = listing.workspace_by_name(connection, request.workspace)
            if wanted is None or (seen is not None and wanted not in seen):
                return [], 0
            seen = frozenset({wanted})
        words, workflow_id = _search(request)
        asked = listing.Question(
            workspaces_seen=seen,
            phase=None if request.phase is None else request.phase.value,
            term_indexes=[self.ledger.vault.index("term", word) for word in words],
            before=before,
        )
        if workflow_id is not None:
            return listing.one(connection, workflow_id, asked), 0
        return listing.page(connection, asked, count=request.limit + 1)

    def _summaries(
        self, connection: Connection, caller: Caller, rows: Sequence[AnyRow], now_us: int
    ) -> list[dict[str, Any]]:
        if not rows:
            return []
        pks = [row.workflow_pk for row in rows]
        by_workflow: dict[int, list[AnyRow]] = {pk: [] for pk in pks}
        for operation in connection.execute(statements.OPERATIONS_OF, {"workflow_pks": pks}):
            by_workflow[operation.workflow_pk].append(operation)
        summaries = [self._summary(row, caller, by_workflow[row.workflow_pk], now_us) for row in rows]
        return [summary for summary in summaries if summary is not None]

    def _summary(
        self, row: AnyRow, caller: Caller, operation_rows: Sequence[AnyRow], now_us: int
    ) -> dict[str, Any] | None:
        try:
            opened = self.ledger.open(row, caller)
            operations = self.ledger.open_operations(operation_rows, opened)
        except (DecryptionError, IntegrityError):
            return documents.unreadable(row)
        except ConflictError:
            # Deleted since this state of the database was read.
            return None
        return documents.summary(opened, operations, workspace=row.workspace, now_us=now_us)


def _search(request: ListRequest) -> tuple[list[str], str | None]:
    """Return the words to look for, and the workflow id when the search is one."""
    words: list[str] = []
    workflow_id = None
    if request.key is not None:
        if not IDENTIFIER.fullmatch(request.key):
            raise MalformedError("key must be 1 to 128 characters of A-Z a-z 0-9 _ -.")
        words.append(f"key:{request.key}")
    if request.search is not None:
        if len(request.search) > SEARCH_CHARS:
            raise MalformedError(f"q must be at most {SEARCH_CHARS} characters.")
        if _WORKFLOW_ID.fullmatch(request.search.strip()):
            workflow_id = request.search.strip()
        else:
            words += search_words(request.search)
            if not words or len(words) > SEARCH_WORDS:
                raise MalformedError(f"q must be a workflow_id or 1 to {SEARCH_WORDS} words of letters and digits.")
    return words, workflow_id
