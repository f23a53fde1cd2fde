"""The audit log as files: its clear columns as CSV or JSON, and a checkpoint. Nothing that is sealed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from app.pages.spreadsheet import csv_bytes
from continuity.errors import TooLargeError

CHECKPOINT_LINES: Final = 20_000
"""Workflows of a checkpoint that a page gives: some 3 MB."""
_COLUMNS: Final = ("entry", "time_utc", "unix_seconds", "action", "actor", "object", "result", "request")
_SECOND_US: Final = 1_000_000


def csv(entries: Iterable[Any]) -> bytes:
    """Write one row an entry, newest first."""
    return csv_bytes(_COLUMNS, (_row(each) for each in entries))


def document(entries: Sequence[Any]) -> dict[str, Any]:
    """Write the same as JSON; what people typed stays in the vault."""
    return {
        "format": "atmem-audit-entries-v1",
        "note": "Clear columns, newest first. Details stay sealed. Not proved: that does atmem audit verify.",
        "entries": [
            {
                "seq": each.seq, "at": each.at_us / _SECOND_US if isinstance(each.at_us, int) else None,
                "action": each.entry.action, "actor": each.entry.actor, "object_id": each.entry.object_id,
                "result": each.entry.result, "request_id": each.entry.request_id,
                "has_detail": each.detail_state != "none",
            }
            for each in entries
        ],
    }  # fmt: skip


def checkpoint(lines: Iterable[bytes]) -> bytes:
    """Write a checkpoint.

    Raises:
        TooLargeError: There are more workflows than a page gives.
        IntegrityError: The log or a history has no true end.
    """
    written: list[bytes] = []
    for line in lines:
        if len(written) > CHECKPOINT_LINES:
            raise TooLargeError(
                f"There are more than {CHECKPOINT_LINES:,} workflows. Make the checkpoint on the server: atmem audit "
                "checkpoint."
            )
        written.append(line)
    return b"".join(written)


def _row(listed: Any) -> tuple[str | int | None, ...]:
    entry, seconds = listed.entry, listed.at_us // _SECOND_US if isinstance(listed.at_us, int) else None
    return (
        listed.seq, None if seconds is None else f"{_moment(seconds)}", seconds, entry.action, entry.actor,
        entry.object_id, entry.result, entry.request_id,
    )  # fmt: skip


def _moment(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return ""
