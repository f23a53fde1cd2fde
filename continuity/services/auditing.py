"""What a person asks of the audit log: read it, prove that it is whole, keep its head, compare with a kept head.

Rules:

* Everything but opening details and comparing a history with its workflow's sealed head works while the vault is
  closed.
* Details are opened for whoever reads them after that was written to the log itself; where it cannot be written
  they stay sealed.
* Whatever the size of the log, one page of entries, events or workflows is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

from sqlalchemy.exc import SQLAlchemyError

from continuity.errors import IntegrityError, UnavailableError, VaultError
from continuity.limits import SECOND_US
from continuity.services import checkpoints
from continuity.services.audit import AuditEntry, AuditFault, AuditHead, AuditLog, Step
from continuity.services.checkpoints import Checkpoint, WorkflowHead
from continuity.services.histories import VAULT, Finding, Histories
from continuity.store.schema import AUDIT_START

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy import Connection

    from continuity.services.opening import Opener
    from continuity.store.store import Store

FINDINGS_AT_MOST: Final = 1_000
"""Who reads more has stopped reading; and they are all in memory."""
NEWER: Final = "newer"
OTHER_LOG: Final = "other_log"
_UNWALKED: Final = Step(AuditHead(0, AUDIT_START), None, is_end=False)
_UNPROVED: Final = "Nothing behind it is proved."


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """One entry for a reader.

    Attributes:
        seq: Its sequence.
        at_us: When, microseconds since 1970, UTC.
        entry: What it says; ``detail`` is None unless `detail_state` is ``open``.
        detail_state: ``none`` (it has none), ``open``, ``sealed`` (the vault does not open here, or the look could
            not be written to the log), ``unreadable`` (it does not open, though the vault does).
    """

    seq: int
    at_us: int
    entry: AuditEntry
    detail_state: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `Auditing.verify` found.

    Attributes:
        entries: Entries of the audit log that were read and right, from the first on.
        workflows: Workflows whose history was walked.
        compared: Workflows of the checkpoint that were compared; None without a checkpoint.
        kept: The checkpoint's first line; None without one.
        has_heads: Whether every history was also compared with its workflow's sealed head.
        findings: What is wrong, the audit log first; at most `FINDINGS_AT_MOST`.
    """

    entries: int
    workflows: int
    compared: int | None
    kept: Checkpoint | None
    has_heads: bool
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a walk is after one of its steps, each of which is short.

    Attributes:
        what: What is counted: ``entries``, ``workflows`` or ``compared``.
        count: How many of them there were so far.
        verdict: What was found, after the last step; None before.
    """

    what: str
    count: int
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Auditing:
    """Use cases around the audit log.

    Attributes:
        store: Where it is read, and where a look at details is written.
        log: The audit log; with an open vault if details shall be opened.
        opener: Opens heads of workflows; None where the vault does not open.
        now_us: The time, microseconds since 1970, UTC.
        damage: Why the vault does not open although its key is here; a finding.
    """

    store: Store
    log: AuditLog
    opener: Opener | None
    now_us: Callable[[], int]
    damage: str | None = None

    def entries(self, *, actor: str, count: int, before: int | None = None) -> list[ListedEntry]:
        """Read a page of the log, newest first.

        Args:
            actor: Who reads; if a detail is opened, the log says so from then on.
            count: At most so many.
            before: Only entries with a smaller sequence.

        Raises:
            UnavailableError: Storage cannot answer.
        """

        def look(connection: Connection) -> list[ListedEntry]:
            page = self._page(connection, count=count, before=before, can_open=True)
            if any(entry.detail_state == "open" for entry in page):
                seen = AuditEntry(
                    action="audit.viewed", actor=actor, object_id=f"{page[-1].seq}-{page[0].seq}", result="done"
                )
                self.log.append(connection, seen, now_us=self.now_us())
            return page

        closed = self.store.read(lambda c: self._page(c, count=count, before=before, can_open=False))
        if self.opener is None or all(entry.detail_state == "none" for entry in closed):
            return closed
        try:
            return self.store.write(look)
        except (UnavailableError, VaultError, SQLAlchemyError):
            # A full disk, or a log that is not whole: nobody could know afterwards that it was read. It stays sealed,
            # and the rest is shown.
            return closed

    def _page(self, connection: Connection, *, count: int, before: int | None, can_open: bool) -> list[ListedEntry]:
        rows = self.log.newest(connection, count=count, before=before)
        return [self._listed(connection, row, can_open=can_open) for row in rows]

    def _listed(self, connection: Connection, row: sa.Row[Any], *, can_open: bool) -> ListedEntry:
        state, detail = "none" if row.sealed_detail is None else "sealed", None
        if can_open and state == "sealed":
            state, detail = self._detail(connection, row.seq)
        clear = {name: _shown(getattr(row, name)) for name in ("action", "actor", "object_id", "result", "request_id")}
        entry = AuditEntry(
            action=clear["action"] or "", actor=clear["actor"] or "", object_id=clear["object_id"],
            result=clear["result"] or "", request_id=clear["request_id"], detail=detail,
        )  # fmt: skip
        return ListedEntry(row.seq, row.at, entry, state)

    def _detail(self, connection: Connection, seq: int) -> tuple[str, Mapping[str, Any] | None]:
        try:
            return "open", self.log.detail(connection, seq)
        except VaultError:
            return "unreadable", None

    def checkpoint(self) -> Iterator[bytes]:
        """Give the lines of a checkpoint of now. It walks nothing: verify first.

        Raises:
            IntegrityError: The log or a history has no true end. What was given so far is no checkpoint.
            UnavailableError: As before, storage cannot answer.
        """
        # The log before the workflows: whatever is deleted between them is told of behind the checkpoint.
        head, first = self.store.read(self._end)
        time = f"{datetime.fromtimestamp(self.now_us() // SECOND_US, UTC):%Y-%m-%dT%H:%M:%SZ}"
        yield from checkpoints.written(Checkpoint(time, head, first), Histories(self.store).heads())

    def _end(self, connection: Connection) -> tuple[AuditHead, bytes | None]:
        head = self.log.head(connection)
        newest = [AuditHead(row.seq, row.hash) for row in self.log.newest(connection, count=1)]
        if newest != ([head] if head.seq else []):
            raise IntegrityError("The audit log does not end where its head says. Run `atmem audit verify`.")
        return head, self.log.hash_at(connection, 1)

    def verify(
        self, progress: Callable[[str, int], None] = lambda _what, _count: None, *,
        against: IO[bytes] | None = None, most: int = FINDINGS_AT_MOST,
    ) -> Verdict:  # fmt: skip
        """Walk the audit log and the history of every workflow.

        Args:
            progress: Called now and then with what is counted (``entries``, ``workflows``, ``compared``) and how
                many there were so far.
            against: A checkpoint, seekable: everything up to it must be what it was then.
            most: How many findings are kept; the rest is walked all the same.

        Raises:
            MalformedError: `against` is no checkpoint. Nothing was looked at.
            KeySourceError, IntegrityError: The shred list cannot be read.
            UnavailableError: Storage cannot answer.
        """
        verdict = None
        for step in self.steps(against=against, most=most):
            verdict = step.verdict
            if verdict is None:
                progress(step.what, step.count)
        if verdict is None:
            raise RuntimeError("the walk ended without a verdict")
        return verdict

    def steps(self, *, against: IO[bytes] | None = None, most: int = FINDINGS_AT_MOST) -> Iterator[Progress]:
        """Do what `verify` does in short steps, each with a transaction of its own.

        Returns:
            After each step how far the walk is; the last one holds the verdict. What is written meanwhile is walked
            as far as the walk has not passed it.

        Raises:
            MalformedError, KeySourceError, IntegrityError, UnavailableError: As `verify`.
        """
        checkpoint = None if against is None else checkpoints.read(against)
        findings, is_other = self._findings_before(checkpoint)
        kept = None if checkpoint is None or is_other else checkpoint.head
        walked = _UNWALKED
        for walked in self._log_steps(kept):
            if not walked.is_end:
                yield Progress("entries", walked.last.seq)
        if walked.fault is not None:
            findings.append(_finding(walked.fault, head=self.store.read(self.log.head), kept=kept))
        histories = Histories(self.store, self.opener)
        workflows = compared = 0
        for workflows, found in histories.walk():
            findings += found[: most - len(findings)]
            yield Progress("workflows", workflows)
        if checkpoint is not None and against is not None and not is_other:
            ends: Iterator[WorkflowHead] = checkpoints.heads(against)
            for compared, found in histories.compare(ends, since=checkpoint.head.seq):
                findings += found[: most - len(findings)]
                yield Progress("compared", compared)
        verdict = Verdict(
            walked.last.seq,
            workflows,
            None if checkpoint is None else compared,
            checkpoint,
            histories.has_heads,
            findings,
        )
        yield Progress("workflows", workflows, verdict)

    def log_steps(self) -> Iterator[Progress]:
        """Walk the audit log alone, as `steps` does. Raises as `steps`."""
        walked = _UNWALKED
        for walked in self._log_steps(None):
            if not walked.is_end:
                yield Progress("entries", walked.last.seq)
        findings = (
            [] if walked.fault is None else [_finding(walked.fault, head=self.store.read(self.log.head), kept=None)]
        )
        yield Progress(
            "entries", walked.last.seq, Verdict(walked.last.seq, 0, None, None, has_heads=False, findings=findings)
        )

    def head(self) -> AuditHead:
        """Return the end of the log as stored; see `AuditLog.head`.

        Raises:
            UnavailableError: Storage cannot answer.
        """
        return self.store.read(self.log.head)

    def look_at_end(self) -> Finding | None:
        """Walk the last entries of the log, from a hash that is believed; return the first thing that is wrong.

        Raises:
            UnavailableError: Storage cannot answer.
        """
        report = self.store.read(self.log.verify_end)
        return None if report.fault is None else _finding(report.fault, head=report.head, kept=None)

    def _log_steps(self, kept: AuditHead | None) -> Iterator[Step]:
        walked = _UNWALKED
        while not walked.is_end:
            walked = self.store.read(partial(self.log.step, last=walked.last, checkpoint=kept))
            yield walked

    def _findings_before(self, checkpoint: Checkpoint | None) -> tuple[list[Finding], bool]:
        """Return what is wrong before anything is walked, and whether the checkpoint is another log's."""
        first = self.store.read(lambda connection: self.log.hash_at(connection, 1))
        is_other = checkpoint is not None and None not in (first, checkpoint.first) and first != checkpoint.first
        findings = [] if self.damage is None else [Finding(VAULT, None, 0, self.damage)]
        return [*findings, *([_other_log()] if is_other else [])], is_other


def _shown(value: Any) -> str | None:
    """Return a clear column as text, whatever somebody has put there."""
    return None if value is None else str(value)


def _other_log() -> Finding:
    return Finding(
        OTHER_LOG, None, 1,
        "the first entry is not the one that the checkpoint knows: the checkpoint is of another vault, or this log was "
        "written anew from its beginning.",
    )  # fmt: skip


def _finding(fault: AuditFault, *, head: AuditHead, kept: AuditHead | None) -> Finding:
    """Say what a fault of the audit log means."""
    problems = {
        "missing": f"the entry is not there, and later ones are. {_UNPROVED}",
        "changed": (
            "the entry is not what was written here: it was edited, put in or moved, as its hash does not follow from "
            f"what it says and the entry before. {_UNPROVED}"
        ),
        "truncated": f"the entry and all behind it are gone: {head.seq} were written.",
        "surplus": f"the entry stands behind the end of the log: {head.seq} were written.",
        "head": "the head of the log does not hold the hash of the last entry.",
        "checkpoint": "the entry is not the one that the checkpoint knows: up to here the log was written anew.",
    }
    if fault.kind == "checkpoint" and kept is not None and kept.seq > head.seq:
        return Finding(
            NEWER, None, kept.seq,
            f"the checkpoint is newer than the log, which ends with entry {head.seq}: an older database was put back, "
            "or the last entries were removed.",
        )  # fmt: skip
    return Finding(fault.kind, None, fault.seq, problems[fault.kind])
