"""Exports: one run of evidence, or one workflow, as lines of JSON; sealed under a passphrase, or in the clear.

The first line says what it is and who took it, each further line is a record (of a workflow: its view with history),
the last one counts them and has the SHA-256 of all lines before it: a file that was cut off has no last line. A record
that does not open is a line that says so, with its place; it does not keep the others.

It is read from one state of the database. Before anything leaves, the audit log says so, in a transaction in which
what was read is still there and the vault still open; where that cannot be written, nothing leaves.

An export is in memory as a whole, several times over. So few are made at a time in a process, and who would wait for
long is told to ask again.
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from continuity.errors import ForbiddenError, MalformedError, UnavailableError
from continuity.evidence import WORKFLOW_ID
from continuity.services import documents
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.documents import seconds
from continuity.services.evidence_reading import EvidenceReading, describe
from continuity.vault.passphrase import Cost, check_new
from continuity.vault.sealed_file import SealedReader, SealedWriter

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.evidence_runs import EvidenceRuns
    from continuity.services.ledger import Ledger
    from continuity.store.store import Store

FORMAT: Final = "atmem-evidence-export-v1"
PURPOSE: Final = "evidence"
"""Of the sealed file, so that none of another purpose is taken for it."""
LINE_BYTES: Final = 256 * 1024 * 1024
"""Longest line that is read back: the view of the largest workflow."""
AT_ONCE: Final = 2
"""Exports that a process makes at a time: 200 MiB each for a run as large as runs may be."""
WAIT_S: Final = 2.0
RETRY_AFTER_S: Final = 5
_READ_BYTES: Final = 1024 * 1024
_WRITER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Exported:
    """A file for a person.

    Attributes:
        filename: Made of an id of the server alone.
        body: What is in it.
    """

    filename: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Exporting:
    """Use cases that let content leave.

    Attributes:
        store: Where it is read, and who took it is written.
        ledger: Opens workflows.
        runs: Opens runs of evidence.
        reading: Reads a run, and writes into the audit log.
        cost: What deriving a key from a passphrase costs.
        wait_s: How long an export waits for its turn.
    """

    store: Store
    ledger: Ledger
    runs: EvidenceRuns
    reading: EvidenceReading
    cost: Cost
    wait_s: float = WAIT_S
    _turns: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(AT_ONCE), repr=False)

    def encrypted(self, caller: Caller, run: str, passphrase: str) -> Exported:
        """Return a run or workflow sealed under a passphrase, for whoever may see exact evidence of it.

        Args:
            caller: Who asks; their role was looked at before.
            run: A workflow_id, an evidence_id or a run_id.
            passphrase: 12 to 1,024 characters.

        Raises:
            MalformedError: The passphrase is too short or too long. Nothing has happened.
            NotFoundError: No such run for this caller.
            ConflictError: ``workflow_deleted, evidence_deleted``, ``request_conflict``.
            SealedError: The vault is locked.
            UnavailableError: The audit log could not be written, or others are exporting. Nothing left.
        """
        check_new(passphrase)
        with self._turn():
            filename, lines = self._taken(caller, run, "evidence.exported")
            stream = io.BytesIO()
            writer = SealedWriter(stream, passphrase, purpose=PURPOSE, cost=self.cost)
            writer.write(lines)
            writer.finish()
            return Exported(f"{filename}.atmem", stream.getvalue())

    def plaintext(self, caller: Caller, run: str) -> Exported:
        """Return a run or workflow in the clear, for administrators. Raises as `encrypted`, and `ForbiddenError`."""
        if caller.kind is not CallerKind.PERSON or caller.role is not Role.ADMINISTRATOR:
            raise ForbiddenError("Administrators alone export in the clear.")
        with self._turn():
            filename, lines = self._taken(caller, run, "evidence.exported_in_clear")
        return Exported(f"{filename}.jsonl", lines)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=self.wait_s):
            raise UnavailableError("Others are exporting. Nothing left; ask again.", retry_after_s=RETRY_AFTER_S)
        try:
            yield
        finally:
            self._turns.release()

    def _taken(self, caller: Caller, run: str, action: str) -> tuple[str, bytes]:
        """Read a run or workflow and write into the audit log that it was taken."""
        collect = self._workflow if WORKFLOW_ID.fullmatch(run) else self._evidence
        object_id, lines = self.store.read(lambda connection: collect(connection, caller, run))

        def note(connection: Connection) -> None:
            if WORKFLOW_ID.fullmatch(object_id):
                self.ledger.peek(connection, caller, object_id)
            else:
                self.runs.open_found(connection, caller, object_id)
            self.reading.note(connection, caller, action, object_id)

        self.store.write(note)
        return object_id, lines

    def _evidence(self, connection: Connection, caller: Caller, run: str) -> tuple[str, bytes]:
        opened = self.runs.open_found(connection, caller, run)
        lines = _Lines({**self._head(connection, caller, "evidence"), **describe(opened)})
        for part in self.reading.parts(connection, opened, with_content=True):
            for record in part.records:
                lines.add({"record": record})
            for fault in part.faults:
                lines.add({"fault": fault})
        return opened.evidence_id, lines.ended()

    def _workflow(self, connection: Connection, caller: Caller, workflow_id: str) -> tuple[str, bytes]:
        opened = self.ledger.peek(connection, caller, workflow_id)
        operations = self.ledger.operations(connection, opened)
        view = documents.view(connection, opened, operations, now_us=self.reading.now_us(connection))
        history = documents.history(connection, opened, [operation.name for operation in operations])
        lines = _Lines({**self._head(connection, caller, "workflow"), "workflow_id": workflow_id})
        lines.add({"workflow": {**view, "history": history}})
        return workflow_id, lines.ended()

    def _head(self, connection: Connection, caller: Caller, kind: str) -> dict[str, Any]:
        exported = seconds(self.reading.now_us(connection))
        return {"format": FORMAT, "kind": kind, "exported": exported, "exported_by": caller.actor}


class _Lines:
    """Collects the lines of an export."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        self._lines: list[bytes] = []
        self._digest = hashlib.sha256()
        self.add(head)

    def add(self, value: Mapping[str, Any]) -> None:
        line = _WRITER.encode(value).encode() + b"\n"
        self._digest.update(line)
        self._lines.append(line)

    def ended(self) -> bytes:
        self.add({"end": len(self._lines), "sha256": self._digest.hexdigest()})
        return b"".join(self._lines)


def opened_lines(stream: BinaryIO, passphrase: str) -> Iterator[bytes]:
    """Give the lines of an encrypted export, each proven, and the last one only when the whole file is.

    Args:
        stream: The file.
        passphrase: Under which it was sealed.

    Raises:
        SealedFileError: It is no such file, was changed or cut off, or the passphrase is another.
        MalformedError: What was sealed is no export of this format.
    """
    reader = SealedReader(stream, passphrase, purpose=PURPOSE)
    yield from checked_lines(lambda: reader.read(_READ_BYTES))


def checked_lines(read: Callable[[], bytes]) -> Iterator[bytes]:
    """Give the lines of an export, the last one only when it counts the others and has their SHA-256.

    Args:
        read: Gives the next bytes; none at the end.

    Raises:
        MalformedError: It is no export of this format, or what its last line says is not so.
        SealedFileError: As `read` raises it.
    """
    digest, count, rest, last = hashlib.sha256(), 0, b"", b""
    while block := read():
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) > LINE_BYTES:
            raise _no_export()
        for line in lines:
            if count == 0:
                _check_first(line)
            if last:
                digest.update(last + b"\n")
                yield last + b"\n"
            count, last = count + 1, line
    if rest or not last or not _is_end(last, count - 1, digest.hexdigest()):
        raise _no_export()
    yield last + b"\n"


def _check_first(line: bytes) -> None:
    head = _parsed(line)
    if head.get("format") != FORMAT:
        raise _no_export()


def _is_end(line: bytes, count: int, digest: str) -> bool:
    return _parsed(line) == {"end": count, "sha256": digest}


def _parsed(line: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        raise _no_export() from None
    if not isinstance(value, dict):
        raise _no_export()
    return value


def _no_export() -> MalformedError:
    return MalformedError("This is no whole export of evidence of this program.")
