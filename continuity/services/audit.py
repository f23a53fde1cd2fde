"""The audit log: who did what, when and with what result, in one chain that shows every later change.

Usage::

    audit.append(connection, AuditEntry(action="user.sign_in", actor="user:u_1", result="done"), now_us=now_us)

Rules:

* An entry is written in the transaction of what it tells of, as the last thing before the commit: the head
  row is locked last, so that no two transactions wait for each other.
* Each entry holds the SHA-256 of itself and of the entry before; the head holds the last sequence and hash.
  The chain can be walked while the vault is locked.
* Clear text is ids, words and times. What people typed, and names that others chose, belong in ``detail``,
  which is sealed under the partition ``audit``.
* A locked vault writes no sealed text: the detail is dropped, the entry is written.
* begin, outcome and renew are not here: they stand in the chain of their workflow.
* Whoever can rewrite the whole database can make a new chain; a head kept elsewhere (`AuditLog.head`, given
  to `AuditLog.verify`) finds that too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from continuity import jsontext
from continuity.errors import DecryptionError, IntegrityError, SealedError
from continuity.services.partitions import ensure_partition, find_partition
from continuity.store.schema import AUDIT_START, audit, audit_head
from continuity.vault.place import Place, length_prefixed
from continuity.vault.vault import Vault

PARTITION_ID: Final = "audit"
PAGE_ROWS: Final = 1_000
"""How many entries `AuditLog.verify` holds at once."""

_ABSENT: Final = b"\xff\xff\xff\xff"
"""In place of a length: no value. A value of that length cannot be stored."""
_STORED: Final = (int, str, bytes)
_BEFORE_ALL: Final = -(2**63)
_CUT: Final = {column.name: column.type.length for column in audit.c if isinstance(column.type, sa.String)}


def _stored(column: sa.Column[Any]) -> sa.Label[Any]:
    """Read a column as the driver gives it: an edited row of SQLite may hold a value of another type."""
    return sa.type_coerce(column, sa.types.NullType()).label(column.name)


_LOCK_HEAD: Final = sa.select(audit_head.c.seq, audit_head.c.hash).where(audit_head.c.id == 1).with_for_update()
_READ_HEAD: Final = sa.select(_stored(audit_head.c.seq), _stored(audit_head.c.hash)).where(audit_head.c.id == 1)
_MOVE_HEAD: Final = (
    sa.update(audit_head).where(audit_head.c.id == 1).values(seq=sa.bindparam("new_seq"), hash=sa.bindparam("new_hash"))
)
_INSERT: Final = sa.insert(audit)
_AS_STORED: Final = [_stored(column) for column in audit.c]
_READ_PAGE: Final = (
    sa.select(*_AS_STORED).where(audit.c.seq > sa.bindparam("after")).order_by(audit.c.seq).limit(PAGE_ROWS)
)
_READ_HASH: Final = sa.select(_stored(audit.c.hash)).where(audit.c.seq == sa.bindparam("seq"))
_READ_DETAIL: Final = sa.select(_stored(audit.c.sealed_detail)).where(audit.c.seq == sa.bindparam("seq"))
_NEWEST: Final = sa.select(*_AS_STORED).order_by(audit.c.seq.desc()).limit(sa.bindparam("count"))
_NEWEST_BEFORE: Final = _NEWEST.where(audit.c.seq < sa.bindparam("before"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """What one entry says.

    Attributes:
        action: Noun and verb, for example ``user.sign_in``; at most 64 characters.
        actor: ``user:<user_id>``, ``cred:<credential_id>``, ``cli`` or ``system``.
        object_id: Id of what it was done to, if there is one.
        result: ``done``, or the code of the refusal.
        request_id: Id of the request, if there was one.
        detail: Anything that is not an id; a JSON object, sealed.
    """

    action: str
    actor: str
    result: str
    object_id: str | None = None
    request_id: str | None = None
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The end of the chain: a checkpoint when kept outside the database.

    Attributes:
        seq: Sequence of the last entry; 0 before the first.
        hash: Its SHA-256, 32 bytes; zeros before the first.
    """

    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class AuditFault:
    """Where the chain breaks first.

    Attributes:
        kind: ``missing`` (an entry is not there), ``changed`` (an entry is not what was written: edited, put in
            or moved), ``truncated`` (the last entries are gone), ``surplus`` (entries behind the head),
            ``head`` (the head is not that of the last entry), ``checkpoint`` (another chain than that of the
            checkpoint).
        seq: Sequence of the entry at which it was found.
    """

    kind: str
    seq: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What `AuditLog.verify` found.

    Attributes:
        entries: How many entries were read and right, from the first on.
        head: The head as stored.
        fault: The first fault; None when the whole chain holds.
    """

    entries: int
    head: AuditHead
    fault: AuditFault | None


@dataclass(frozen=True, slots=True)
class Step:
    """Where one step of a walk ended.

    Attributes:
        last: The last entry up to which the chain holds; sequence 0 before the first.
        fault: The first fault; None when there was none so far.
        is_end: Whether nothing is left to walk: all entries were read, or a fault was found.
    """

    last: AuditHead
    fault: AuditFault | None
    is_end: bool


class AuditLog:
    """Appends to the log and verifies it. Safe to share between threads; holds no key."""

    def __init__(self, vault: Vault | None) -> None:
        """Keep the vault that seals details; without one every detail is dropped."""
        self._vault = vault

    def append(self, connection: Connection, entry: AuditEntry, *, now_us: int) -> int:
        """Write one entry at the end of the chain. Last statement of a writing transaction.

        Args:
            connection: Of the transaction of what is told; the head stays locked until it ends.
            entry: What happened. Characters other than printable ASCII in its clear parts become ``?``, and
                what is longer than its column is cut: a log must not fail over a hostile name.
            now_us: Microseconds since 1970, UTC.

        Returns:
            The sequence of the entry.

        Raises:
            DecryptionError: The key of the partition was changed. Nothing was written: roll back.
            MalformedError: The detail is not JSON. Nothing was written: roll back.
        """
        last = connection.execute(_LOCK_HEAD).one()
        seq = last.seq + 1
        row: dict[str, Any] = {
            "seq": seq,
            "at": now_us,
            "action": _clean("action", entry.action),
            "actor": _clean("actor", entry.actor),
            "object_id": _clean("object_id", entry.object_id),
            "result": _clean("result", entry.result),
            "request_id": _clean("request_id", entry.request_id),
            "sealed_detail": self._seal(connection, entry.detail, seq),
        }
        row["hash"] = _hash(row, last.hash)
        # The head first: a trigger lets an entry in only at the head's sequence.
        connection.execute(_MOVE_HEAD, {"new_seq": seq, "new_hash": row["hash"]})
        connection.execute(_INSERT, row)
        return int(seq)

    def detail(self, connection: Connection, seq: int) -> Mapping[str, Any] | None:
        """Open the detail of one entry.

        Returns:
            The JSON object; None when the entry is not there or has none.

        Raises:
            SealedError: The vault is locked.
            DecryptionError: The detail or the key of the partition was changed.
        """
        sealed = connection.execute(_READ_DETAIL, {"seq": seq}).scalar_one_or_none()
        if sealed is None:
            return None
        if not isinstance(sealed, bytes):
            raise DecryptionError
        if self._vault is None:
            raise SealedError("The vault is locked.")
        key = find_partition(connection, self._vault, PARTITION_ID)
        if key is None:
            raise IntegrityError("The key of the audit log's details is not there.")
        return jsontext.loads_strict(key.open(sealed, place=_place(seq)))

    def head(self, connection: Connection) -> AuditHead:
        """Read the end of the chain; its hash is empty if somebody removed the row, or wrote something else in it."""
        row = connection.execute(_READ_HEAD).one_or_none()
        is_head = row is not None and type(row.seq) is int and type(row.hash) is bytes
        return AuditHead(row.seq, row.hash) if row is not None and is_head else AuditHead(0, b"")

    def newest(self, connection: Connection, *, count: int, before: int | None = None) -> Sequence[sa.Row[Any]]:
        """Read a page of entries as they are stored, newest first; details stay sealed.

        Args:
            connection: A transaction.
            count: At most so many.
            before: Only entries with a smaller sequence; None for the newest of all.
        """
        if before is None:
            return connection.execute(_NEWEST, {"count": count}).all()
        return connection.execute(_NEWEST_BEFORE, {"count": count, "before": before}).all()

    def hash_at(self, connection: Connection, seq: int) -> bytes | None:
        """Read the stored hash of one entry; None when the entry is not there."""
        return connection.execute(_READ_HASH, {"seq": seq}).scalar_one_or_none()

    def verify(
        self, connection: Connection, *, checkpoint: AuditHead | None = None,
        progress: Callable[[int], None] = lambda _count: None,
    ) -> AuditReport:  # fmt: skip
        """Walk the whole chain, `PAGE_ROWS` entries in memory at a time. Needs no key.

        Args:
            connection: Of one `Store.read`, so that the log does not grow meanwhile.
            checkpoint: A head kept elsewhere: everything up to it must be what it was then.
            progress: Called after every `PAGE_ROWS` entries with how many were read and right so far.

        Returns:
            How far the chain holds, and the first fault.
        """
        head = self.head(connection)
        step = Step(AuditHead(0, AUDIT_START), None, is_end=False)
        while not step.is_end:
            step = self.step(connection, step.last, checkpoint=checkpoint)
            if step.fault is None and not step.is_end:
                progress(step.last.seq)
        return AuditReport(step.last.seq, head, step.fault)

    def step(self, connection: Connection, last: AuditHead, *, checkpoint: AuditHead | None = None) -> Step:
        """Walk the next `PAGE_ROWS` entries. Needs no key; the log may grow between two steps.

        Args:
            connection: A transaction.
            last: The entry up to which the chain holds; sequence 0 and `AUDIT_START` for the first step.
            checkpoint: As `verify`.
        """
        after = last.seq or _BEFORE_ALL
        rows = connection.execute(_READ_PAGE, {"after": after}).all()
        last, fault = _followed(rows, last, checkpoint)
        is_end = fault is not None or len(rows) < PAGE_ROWS
        if is_end and fault is None:
            fault = _fault_at_end(last, self.head(connection), checkpoint)
        return Step(last, fault, is_end=is_end)

    def verify_end(self, connection: Connection, *, count: int = PAGE_ROWS) -> AuditReport:
        """Walk the last `count` entries, from a hash that is believed: the cheap look of a start.

        Returns:
            How many entries were read and right, and the first fault among them.
        """
        head = self.head(connection)
        newest = list(reversed(connection.execute(_NEWEST, {"count": count + 1}).all()))
        is_whole = len(newest) <= count
        last = AuditHead(0, AUDIT_START)
        if not is_whole:
            first = newest.pop(0)
            last = AuditHead(first.seq, first.hash) if type(first.hash) is bytes else last
        end, fault = _followed(newest, last, None)
        if fault is None:
            fault = _fault_at_end(end, head, None)
        return AuditReport(end.seq - last.seq, head, fault)

    def _seal(self, connection: Connection, detail: Mapping[str, Any] | None, seq: int) -> bytes | None:
        if detail is None or self._vault is None:
            return None
        plaintext = jsontext.canonical_bytes(dict(detail))
        try:
            # Asked for each time, not kept: the transaction that made the key may be rolled back.
            key = ensure_partition(connection, self._vault, PARTITION_ID, kind="audit")
            return key.seal(plaintext, place=_place(seq))
        except SealedError:
            return None


def _place(seq: int) -> Place:
    return Place("continuity_audit", PARTITION_ID, str(seq), "sealed_detail")


def _clean(column: str, text: str | None) -> str | None:
    if text is None:
        return None
    return "".join(char if " " <= char <= "~" else "?" for char in text[: _CUT[column]])


def _part(value: int | str | bytes | None) -> bytes:
    if value is None:
        return _ABSENT
    if isinstance(value, int):
        return length_prefixed(value.to_bytes(8, "big", signed=True))
    return length_prefixed(value.encode() if isinstance(value, str) else value)


def _hash(row: Mapping[str, Any], previous: bytes) -> bytes:
    """SHA-256 over seq, at (8 bytes each), action, actor, object id, result, request id, sealed detail, previous."""
    names = ("seq", "at", "action", "actor", "object_id", "result", "request_id", "sealed_detail")
    return hashlib.sha256(b"".join(_part(row[name]) for name in names) + _part(previous)).digest()


def _followed(
    rows: Sequence[sa.Row[Any]], last: AuditHead, checkpoint: AuditHead | None
) -> tuple[AuditHead, AuditFault | None]:
    """Follow the chain through `rows`; return how far it holds, and the first fault."""
    for each in rows:
        row = each._asdict()
        fault = _fault_of(row, last)
        if fault is None and checkpoint is not None and row["seq"] == checkpoint.seq:
            fault = None if row["hash"] == checkpoint.hash else AuditFault("checkpoint", row["seq"])
        if fault is not None:
            return last, fault
        last = AuditHead(row["seq"], row["hash"])
    return last, None


def _fault_of(row: Mapping[str, Any], last: AuditHead) -> AuditFault | None:
    if row["seq"] < last.seq + 1:
        return AuditFault("changed", row["seq"])
    if row["seq"] > last.seq + 1:
        return AuditFault("missing", last.seq + 1)
    is_written_by_us = all(value is None or type(value) in _STORED for value in row.values())
    is_right = is_written_by_us and _hash(row, last.hash) == row["hash"]
    return None if is_right else AuditFault("changed", row["seq"])


def _fault_at_end(last: AuditHead, head: AuditHead, checkpoint: AuditHead | None) -> AuditFault | None:
    if last.seq < head.seq:
        return AuditFault("truncated", last.seq + 1)
    if last.seq > head.seq:
        return AuditFault("surplus", head.seq + 1)
    if last.hash != head.hash:
        return AuditFault("head", head.seq)
    is_seen = checkpoint is None or (checkpoint.seq <= last.seq and (checkpoint.seq or checkpoint.hash == AUDIT_START))
    return None if is_seen else AuditFault("checkpoint", last.seq + 1)
