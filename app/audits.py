"""The audit log of a serving process: verified at the start and on demand, anchored beside the key.

Rules:

* A start looks at the last entries at once, and at the whole log in the background: no start waits for a long log.
* A walk works in short steps and rests after each, so that requests do not feel it. One at a time in an instance,
  whichever of its processes; it ends with its process.
* How far it is and what it found stand in notes of the instance's folder and not in the database, since who can
  edit the log could edit them there.
* What is wrong with the log is said in the server's log, at the page and by `atmem status`, and stops nothing:
  docs/adr/0017. An older database than the anchor's stops the start.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from app import instance, logs
from app.config import Settings
from app.denials import Denials
from continuity.errors import ConflictError, ContinuityError, RolledBackError
from continuity.services.anchoring import Anchoring
from continuity.services.audit import AuditLog
from continuity.services.audit_reading import AuditReading, Reader
from continuity.services.audit_search import AuditQuestion
from continuity.services.auditing import Auditing, Progress, Verdict
from continuity.services.histories import Finding
from continuity.store.store import Store
from continuity.vault import AnchorFile
from observations.cursors import Cursors

KEEP_S: Final = 5.0
"""How much may be lost to a database that is put back without being noticed."""
AT_START: Final = "start"
WHOLE: Final = "whole"
COMPARED: Final = "compared"
RUNNING: Final = "running"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
FINISHED: Final = "finished"
CHECK_NOTE: Final = "audit-check"
VERDICT_NOTE: Final = "audit-verdict"
_LOCK: Final = "audit-check.lock"
_SHOWN: Final = 20
"""Findings that a note holds; the command tells all."""
_REST: Final = 1.0
"""How long a walk rests after each step, in times of the step; at a start three times as long."""
_REST_AT_START: Final = 3.0
_NOTE_S: Final = 0.5
_STALE_S: Final = 30.0
"""After which a walk that says nothing has ended with its process."""
_OF_CHECKPOINT: Final = frozenset({"checkpoint", "newer", "other_log"})
"""Findings that a wrong or old file explains as well: they are told to who brought it, and to nobody else."""


@dataclass(frozen=True, slots=True)
class Check:
    """A walk as the page shows it. Times in microseconds; `findings` are lines for people.

    `kind` is one of `AT_START`, `WHOLE`, `COMPARED`, `state` of `RUNNING`, `STOPPED`, `FAILED`, `FINISHED`.
    """

    kind: str
    state: str
    by: str
    started_us: int
    seen_us: int
    what: str
    count: int
    of: int
    entries: int = 0
    workflows: int = 0
    compared: int = 0
    kept: str = ""
    has_heads: bool = False
    findings: tuple[str, ...] = ()
    findings_more: int = 0
    kinds: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_sound(self) -> bool:
        return self.state == FINISHED and not self.findings


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of the log: the verdict of the last walk that came to its end. Times in microseconds."""

    checked_us: int
    entries: int
    faults: int
    first: str


class AuditChecks:
    """Walks the log in the background. One for a process; safe to share between threads."""

    def __init__(
        self, settings: Settings, auditing: Callable[[], Auditing], reading: AuditReading, *, now_us: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._auditing = auditing
        self._reading = reading
        self._now_us = now_us
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def look_at_end(self) -> None:
        """Look at the last entries, and say what is wrong with them."""
        finding = self._auditing().look_at_end()
        if finding is not None:
            self._tell([finding], entries=0)

    def begin_at_start(self) -> None:
        """Walk the log in the background, unless another process of the instance does."""
        with suppress(ConflictError):
            self._begin(AT_START, by="system", request_id=None, make=lambda: self._auditing().log_steps())

    def begin(self, *, by: str, request_id: str, against: bytes | None) -> None:
        """Walk log and histories in the background, and compare them with a checkpoint if one is given.

        Raises:
            ConflictError: A walk is under way.
            MalformedError: `against` is no checkpoint. Nothing was begun.
        """
        stream = None if against is None else io.BytesIO(against)
        steps = self._auditing().steps(against=stream)
        kind = WHOLE if against is None else COMPARED
        # The first step reads the checkpoint: who brought a wrong file is told so, and no walk begins.
        first = [] if against is None else [next(steps)]
        self._begin(kind, by=by, request_id=request_id, make=lambda: _after(first, steps))

    def last(self) -> Check | None:
        """Return the walk that was begun last, in whichever process; None when there was none."""
        return _read_check(instance.read_note(self._settings, CHECK_NOTE), self._now_us())

    def standing(self) -> Standing | None:
        """Return what the last finished walk found, in whichever process; None before the first one."""
        return standing(self._settings)

    def stop(self) -> None:
        """End the walk of this process after its step."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def wait(self, timeout_s: float) -> None:
        """Wait for the walk of this process, for whoever has begun one and shows nothing meanwhile."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _begin(self, kind: str, *, by: str, request_id: str | None, make: Callable[[], Iterator[Progress]]) -> None:
        with self._starting:
            lock = instance.claim(self._settings, _LOCK)
            if lock is None:
                raise ConflictError("The log is being verified already.", code="request_conflict")
            walk = _Walk(kind, by, request_id, self._now_us(), of=self._auditing().head().seq)
            self._note(walk, RUNNING)
            self._thread = threading.Thread(target=self._run, args=(walk, make, lock), name="audit-check", daemon=True)
            self._thread.start()

    def _run(self, walk: _Walk, make: Callable[[], Iterator[Progress]], lock: int) -> None:
        try:
            self._walk(walk, make())
        except ContinuityError as error:
            logs.failure(error, task="audit_check")
            self._note(walk, FAILED, problem=error.message)
        except Exception as error:  # noqa: BLE001 - the end of a thread: nobody above it would hear of this
            logs.failure(error, task="audit_check")
            self._note(walk, FAILED, problem="The server met a defect of its own; its log says where.")
        finally:
            os.close(lock)

    def _walk(self, walk: _Walk, steps: Iterator[Progress]) -> None:
        noted = time.monotonic()
        rest = _REST_AT_START if walk.kind == AT_START else _REST
        while True:
            began = time.monotonic()
            step = next(steps)
            walk.what, walk.count = step.what, step.count
            if step.verdict is not None:
                self._finish(walk, step.verdict)
                return
            if (now := time.monotonic()) - noted > _NOTE_S:
                noted = now
                self._note(walk, RUNNING)
            if self._stopping.wait((now - began) * rest):
                self._note(walk, STOPPED)
                return

    def _finish(self, walk: _Walk, verdict: Verdict) -> None:
        faults = [each for each in verdict.findings if each.kind not in _OF_CHECKPOINT]
        if faults or walk.kind != AT_START:
            # Before anybody can see it: who asked, and what came of it.
            self._record(walk, verdict)
        self._tell(faults, entries=verdict.entries)
        self._note(walk, FINISHED, verdict=verdict)

    def _record(self, walk: _Walk, verdict: Verdict) -> None:
        result = "vault_integrity_error" if verdict.findings else "done"
        try:
            self._reading.record(
                "audit.verified", reader=Reader(walk.by, walk.request_id or ""), object_id=f"1-{verdict.entries}",
                result=result,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - a log that takes no entry is a reason to say what was found
            logs.failure(error, task="audit_check")

    def _tell(self, faults: Sequence[Finding], *, entries: int) -> None:
        for each in faults[:_SHOWN]:
            logs.event(
                logging.ERROR, "audit_fault", kind=each.kind, seq=each.seq, workflow_id=each.workflow_id or "",
                problem=each.problem,
            )  # fmt: skip
        self._leave(VERDICT_NOTE, {
            "checked_us": self._now_us(), "entries": entries, "faults": len(faults),
            "first": str(faults[0]) if faults else "",
        })  # fmt: skip

    def _note(self, walk: _Walk, state: str, *, verdict: Verdict | None = None, problem: str = "") -> None:
        note: dict[str, int | str] = {
            "kind": walk.kind, "state": state, "by": walk.by, "started_us": walk.started_us,
            "seen_us": self._now_us(), "what": walk.what, "count": walk.count, "of": walk.of, "problem": problem,
        }  # fmt: skip
        if verdict is not None:
            found = verdict.findings
            note |= {
                "entries": verdict.entries, "workflows": verdict.workflows, "compared": verdict.compared or 0,
                "kept": "" if verdict.kept is None else verdict.kept.time, "has_heads": int(verdict.has_heads),
                "findings": json.dumps([str(each) for each in found[:_SHOWN]]),
                "kinds": json.dumps(sorted({each.kind for each in found})),
                "findings_more": max(0, len(found) - _SHOWN),
            }  # fmt: skip
        self._leave(CHECK_NOTE, note)

    def _leave(self, name: str, note: dict[str, int | str]) -> None:
        try:
            instance.leave_note(self._settings, name, note)
        except OSError as error:
            # A full disk: what was found is in the server's log.
            logs.failure(error, task="audit_check")


@dataclass(slots=True)
class _Walk:
    kind: str
    by: str
    request_id: str | None
    started_us: int
    of: int
    what: str = "entries"
    count: int = 0


@dataclass(slots=True)
class Anchors:
    """Keeps the anchor of a serving process up, and says once what contradicts it."""

    anchoring: Anchoring
    _told: str = field(default="", init=False)

    def check(self) -> None:
        """Refuse a database that is older than its anchor.

        Raises:
            RolledBackError: It is. Nothing was changed.
        """
        fault = self.anchoring.compare()
        if fault is not None:
            raise RolledBackError(
                f"The database is not the one that {self.anchoring.file.path} knows: {fault.problem}. An older one was "
                "put back, or its last commits were lost: what was done since might be done again. Nothing was "
                "changed. If this is meant, say so: atmem vault accept-restore."
            )

    def keep(self) -> None:
        """Bring the anchor up to the database. For the housekeeping, and for the end of serving."""
        fault = self.anchoring.keep()
        problem = "" if fault is None else fault.problem
        if problem and problem != self._told:
            logs.event(logging.ERROR, "database_rolled_back", problem=problem)
        self._told = problem


@dataclass(frozen=True, slots=True)
class Audits:
    """What pages and the server's start do with the audit log, beside writing to it."""

    auditing: Callable[[], Auditing]
    reading: AuditReading
    checks: AuditChecks
    anchors: Anchors
    cursors: Cursors
    denials: Denials

    def reader(self, actor: str, request_id: str) -> Reader:
        """Say who reads, for the log."""
        return Reader(actor, request_id)

    def question(self, **asked: Any) -> AuditQuestion:
        """Say which entries are wanted: the fields of `AuditQuestion`. Raises MalformedError."""
        return AuditQuestion(**asked)


def build(
    settings: Settings, store: Store, *, log: AuditLog, auditing: Callable[[], Auditing], now_us: Callable[[], int],
    secret_keys: Sequence[bytes],
) -> Audits:  # fmt: skip
    """Put together what serves the log of an instance. Starts no thread. `secret_keys`: the newest first."""
    reading = AuditReading(store, log, now_us)
    anchors = Anchors(Anchoring(store, AnchorFile(settings.anchor_file)))
    # Keys for this purpose alone, derived so that they need not be kept: a locked vault's log is read as well.
    current, *older = (hmac.digest(key, b"cursors of the audit log", hashlib.sha256) for key in secret_keys)
    checks = AuditChecks(settings, auditing, reading, now_us=now_us)
    return Audits(
        auditing, reading, checks, anchors, Cursors(current, tuple(older)), Denials(store, log, now_us=now_us)
    )


def standing(settings: Settings) -> Standing | None:
    """Return what the last finished walk found; None before the first one."""
    note = instance.read_note(settings, VERDICT_NOTE)
    try:
        return Standing(int(note["checked_us"]), int(note["entries"]), int(note["faults"]), str(note["first"]))
    except (KeyError, ValueError):
        return None


def _after(first: Sequence[Progress], steps: Iterator[Progress]) -> Iterator[Progress]:
    yield from first
    yield from steps


def _read_check(note: Mapping[str, Any], now_us: int) -> Check | None:
    try:
        check = Check(
            kind=str(note["kind"]), state=str(note["state"]), by=str(note["by"]), started_us=int(note["started_us"]),
            seen_us=int(note["seen_us"]), what=str(note["what"]), count=int(note["count"]), of=int(note["of"]),
            entries=int(note.get("entries", 0)), workflows=int(note.get("workflows", 0)),
            compared=int(note.get("compared", 0)), kept=str(note.get("kept", "")),
            has_heads=bool(note.get("has_heads", 0)), findings=tuple(json.loads(note.get("findings", "[]"))),
            findings_more=int(note.get("findings_more", 0)), kinds=tuple(json.loads(note.get("kinds", "[]"))),
            problem=str(note["problem"]),
        )  # fmt: skip
    except (KeyError, ValueError, TypeError):
        return None
    is_gone = check.state == RUNNING and now_us - check.seen_us > _STALE_S * 1_000_000
    return _stopped(check) if is_gone else check


def _stopped(check: Check) -> Check:
    return Check(
        kind=check.kind, state=STOPPED, by=check.by, started_us=check.started_us, seen_us=check.seen_us,
        what=check.what, count=check.count, of=check.of,
    )  # fmt: skip
