"""What the pages of the audit log show, as frozen values, and what their list was asked for. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Final

from app.pages import audit_words
from continuity.errors import MalformedError

FILTERS: Final = ("action", "actor", "object", "result", "from", "to")
RESULTS: Final = (("", "any"), ("done", "done"), ("refused", "refused or failed"))
ORIGINS: Final = {
    "cli": "the command line on the server", "system": "the server itself", "nobody": "nobody who is known",
}  # fmt: skip
_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _SECOND_US
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WORKFLOW: Final = re.compile(r"wf_[0-9a-f]{32}")
_EVIDENCE: Final = re.compile(r"er_[0-9a-f]{32}")
_MARK_CHARS: Final = 16
_HEAD_CHARS: Final = 64
_DETAILS: Final = {
    "none": "This entry has no detail.",
    "sealed": (
        "The vault is locked. What people typed, and names that others chose, stay sealed until it is unlocked."
    ),
    "unreadable": "The vault is open and this does not open with it: it was changed. Verify the log.",
    "unrecorded": "It could not be written down that you looked, so it stays sealed.",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a list or a file was asked for. `question` are fields of the product's own."""

    given: Mapping[str, str]
    question: Mapping[str, Any]

    @property
    def file_name(self) -> str:
        """A name that says what part the file holds, from nothing but dates and words of ours."""
        days = "".join(f"-{word}-{self.given[word]}" for word in ("from", "to") if word in self.given)
        part = "-filtered" if self.given.keys() - {"from", "to"} else ""
        return f"atmem-audit{days}{part}"


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of the list. `at` in Unix seconds, None where somebody has put something else."""

    seq: int
    at: float | None
    action: str
    action_word: str
    actor: str
    actor_name: str
    object_id: str | None
    object_name: str
    place: str
    result: str
    is_done: bool
    request_id: str | None
    has_detail: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry opened: its line, and its detail as text or why there is none."""

    line: Line
    detail: str
    state: str
    why: str


@dataclass(frozen=True, slots=True)
class AuditList:
    """A page of the list. `standing`: what the last finished verification has found, None before the first."""

    lines: tuple[Line, ...]
    given: Mapping[str, str]
    is_first: bool
    next_cursor: str | None
    standing: Any

    @property
    def is_filtered(self) -> bool:
        return bool(self.given)

    def parameters(self, **other: str | None) -> dict[str, str]:
        """Return the query that asks the same, but for `other`."""
        return {name: value for name, value in {**self.given, **other}.items() if value}


@dataclass(frozen=True, slots=True)
class Checked:
    """A verification as the page shows it. `last` is what the server knows of it, None before the first."""

    last: Any
    by: str
    percent: int | None
    advice: tuple[str, ...]
    head_seq: int
    head_hash: str
    mark: str

    @property
    def is_running(self) -> bool:
        return self.last is not None and self.last.state == "running"


def read_asked(given: Mapping[str, str]) -> Asked:
    """Read the parameters of `FILTERS`.

    Raises:
        MalformedError: One of them is not what it must be.
    """
    kept = {name: given[name].strip() for name in FILTERS if given.get(name, "").strip()}
    since, until = _day_us("from", kept), _day_us("to", kept)
    if since is not None and until is not None and since > until:
        raise MalformedError("The first day must not be after the last one.")
    for name in ("action", "actor", "object", "result"):
        text = kept.get(name, "a")
        if not (text.isascii() and text.isprintable() and len(text) <= _LONGEST[name]):
            raise MalformedError(f"The {name} must be at most {_LONGEST[name]} printable ASCII characters.")
    question = {
        "action": kept.get("action"), "actor": kept.get("actor"), "object_id": kept.get("object"),
        "result": kept.get("result"), "since_us": since, "until_us": None if until is None else until + _DAY_US,
    }  # fmt: skip
    return Asked(kept, question)


_LONGEST: Final = {"action": 64, "actor": 160, "object": 160, "result": 64}


def line_of(listed: Any, names: Mapping[str, str]) -> Line:
    """Make a line of an entry; `names` says who stands behind an actor."""
    entry = listed.entry
    object_id = entry.object_id
    return Line(
        seq=listed.seq, at=listed.at_us / _SECOND_US if isinstance(listed.at_us, int) else None,
        action=entry.action, action_word=audit_words.action(entry.action),
        actor=entry.actor, actor_name=ORIGINS.get(entry.actor) or names.get(entry.actor, entry.actor),
        object_id=object_id, object_name=names.get(f"user:{object_id}", "") if object_id else "",
        place=_place(object_id), result=audit_words.result(entry.result), is_done=entry.result == "done",
        request_id=entry.request_id, has_detail=listed.detail_state != "none",
    )  # fmt: skip


def entry_of(listed: Any, names: Mapping[str, str]) -> Entry:
    """Make an entry's page."""
    detail = ""
    if listed.entry.detail is not None:
        detail = json.dumps(listed.entry.detail, ensure_ascii=False, indent=2, sort_keys=True)
    return Entry(line_of(listed, names), detail, listed.detail_state, _DETAILS.get(listed.detail_state, ""))


def checked(last: Any, head: Any, *, names: Mapping[str, str] | None = None) -> Checked:
    """Make the page of a verification; `head` is the end of the log now."""
    mark = hashlib.sha256(repr((last, head)).encode()).hexdigest()[:_MARK_CHARS]
    percent = None
    if last is not None and last.what == "entries" and last.of:
        percent = min(100, 100 * last.count // last.of)
    by = "" if last is None else ORIGINS.get(last.by) or (names or {}).get(last.by, last.by)
    advice = () if last is None else tuple(audit_words.advice(last.kinds))
    return Checked(last, by, percent, advice, head.seq, head.hash.hex() or "0" * _HEAD_CHARS, mark)


def _place(object_id: str | None) -> str:
    """Say which kind of page an object has."""
    if object_id is None:
        return ""
    return "workflow" if _WORKFLOW.fullmatch(object_id) else "evidence" if _EVIDENCE.fullmatch(object_id) else ""


def _day_us(name: str, given: Mapping[str, str]) -> int | None:
    if name not in given:
        return None
    which = "first" if name == "from" else "last"
    text = given[name]
    try:
        day = date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None or day.year < 1970:  # noqa: PLR2004
        raise MalformedError(f"The {which} day must be a date like 2026-11-30.")
    return int(datetime.combine(day, time(), UTC).timestamp()) * _SECOND_US
