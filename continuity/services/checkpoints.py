"""The file that `atmem audit checkpoint` prints: what the histories were, for keeping where nobody can rewrite them.

JSON lines: the head of the audit log, one line for each living workflow, and a last line that says how many there
were and the SHA-256 of all lines before it. A file can be longer than memory, so it is written and read by lines.
Why it holds what it holds: docs/adr/0014.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Final, TypeGuard

from continuity import jsontext, limits
from continuity.errors import MalformedError
from continuity.services.audit import AuditHead

FORMAT: Final = "atmem-audit-checkpoint-1"
_FAMILY: Final = "atmem-audit-checkpoint-"
_LINE_BYTES: Final = 512
"""The longest line that is written has less than 300."""
_HASH: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ID: Final = re.compile(r"[!-~]{1,40}", re.ASCII)
_NONE_OF_OURS: Final = "The file is no checkpoint that `atmem audit checkpoint` has written."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The first line of a checkpoint.

    Attributes:
        time: When it was made, ISO 8601 in UTC.
        head: End of the audit log then.
        first: Hash of the log's first entry, by which the log is known again; None when there was no entry.
    """

    time: str
    head: AuditHead
    first: bytes | None


@dataclass(frozen=True, slots=True)
class WorkflowHead:
    """End of a workflow's history: the sequence and the hash of its last event."""

    workflow_id: str
    seq: int
    hash: bytes


def written(checkpoint: Checkpoint, heads: Iterable[WorkflowHead]) -> Iterator[bytes]:
    """Give the lines of a checkpoint, each with its line break. What has no last line is no checkpoint."""
    first = None if checkpoint.first is None else checkpoint.first.hex()
    digest, count = hashlib.sha256(), 0
    line = _line({
        "format": FORMAT, "time": checkpoint.time,
        "audit": {"seq": checkpoint.head.seq, "hash": checkpoint.head.hash.hex(), "first": first},
    })  # fmt: skip
    digest.update(line)
    yield line
    for head in heads:
        line = _line({"workflow_id": head.workflow_id, "seq": head.seq, "hash": head.hash.hex()})
        digest.update(line)
        count += 1
        yield line
    yield _line({"workflows": count, "sha256": digest.hexdigest()})


def read(stream: IO[bytes]) -> Checkpoint:
    """Read a checkpoint from its beginning to its end, and prove that it is whole.

    Returns:
        Its first line.

    Raises:
        MalformedError: It is no checkpoint, of another version, not whole, or not as it was written.
    """
    checkpoint = _first_line(stream)
    for _ in heads(stream):
        pass
    return checkpoint


def heads(stream: IO[bytes]) -> Iterator[WorkflowHead]:
    """Give the workflows of a checkpoint, whose file is read from its beginning. Raises as `read`."""
    stream.seek(0)
    digest, count = hashlib.sha256(), 0
    for number, line in enumerate(_lines(stream), start=1):
        value = _object(line, number)
        if "workflows" in value:
            is_right = value == {"workflows": count, "sha256": digest.hexdigest()}
            if not is_right or stream.read(1):
                raise MalformedError(f"The checkpoint is not as it was written: line {number} is not its true end.")
            return
        digest.update(line)
        if number > 1:
            count += 1
            yield _workflow(value, number)
    raise MalformedError("The checkpoint is not whole: its last line is missing.")


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Give each line with the line break that it was written with; a mail or an editor may have changed that."""
    while line := stream.readline(_LINE_BYTES):
        yield line.rstrip(b"\r\n") + b"\n"


def _object(line: bytes, number: int) -> dict[str, Any]:
    try:
        return jsontext.loads_strict(line)
    except MalformedError:
        raise MalformedError(f"The checkpoint is not as it was written: line {number} is none of its lines.") from None


def _first_line(stream: IO[bytes]) -> Checkpoint:
    stream.seek(0)
    try:
        value = jsontext.loads_strict(next(_lines(stream), b""))
    except MalformedError:
        raise MalformedError(_NONE_OF_OURS) from None
    named = value.get("format")
    if named != FORMAT and isinstance(named, str) and named.startswith(_FAMILY):
        raise MalformedError("The checkpoint is of a form that this version of the program does not read.")
    audit = value.get("audit")
    if named != FORMAT or not isinstance(audit, dict):
        raise MalformedError(_NONE_OF_OURS)
    seq, first, time = audit.get("seq"), audit.get("first"), value.get("time")
    if not _is_count(seq) or not isinstance(time, str) or (first is None) != (seq == 0):
        raise MalformedError(_NONE_OF_OURS)
    return Checkpoint(time, AuditHead(seq, _hash(audit.get("hash"), 1)), None if first is None else _hash(first, 1))


def _workflow(value: dict[str, Any], number: int) -> WorkflowHead:
    workflow_id, seq = value.get("workflow_id"), value.get("seq")
    if not isinstance(workflow_id, str) or not _ID.fullmatch(workflow_id) or not _is_count(seq) or seq == 0:
        raise MalformedError(f"The checkpoint is not as it was written: line {number} names no workflow.")
    return WorkflowHead(workflow_id, seq, _hash(value.get("hash"), number))


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limits.INTEGER_MAX


def _hash(value: object, number: int) -> bytes:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise MalformedError(f"The checkpoint is not as it was written: line {number} holds no SHA-256.")
    return bytes.fromhex(value)
