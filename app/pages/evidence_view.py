"""What the pages of evidence show, as frozen values made from what the product returns. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Final

from app.pages.jsonview import JSONView, json_view
from app.pages.wording import size
from continuity.errors import MalformedError

KINDS: Final = {
    "text": ("Text", "chat-bubble-bottom-center-text", "quiet"),
    "tool_call": ("Tool call", "wrench-screwdriver", "info"),
    "tool_result": ("Tool result", "arrow-uturn-left", "good"),
}
"""What each kind of record is called, its icon and its tone; a host's own word is shown as it is."""
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DAY_S: Final = 86_400
_LINES: Final = 24
_CHARS: Final = 1_600


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run of the list. `key_id` is set of one that does not open."""

    evidence_id: str
    run_id: str
    workspace: str
    records: int
    size: str
    last: float
    creator: str
    key_id: int | None


@dataclass(frozen=True, slots=True)
class RunList:
    """A page of the runs."""

    lines: tuple[RunLine, ...]
    given: Mapping[str, str]
    next_cursor: str | None
    workspaces: tuple[str, ...]

    @property
    def is_first(self) -> bool:
        return "cursor" not in self.given

    @property
    def workspace(self) -> str:
        return self.given.get("workspace", "")


@dataclass(frozen=True, slots=True)
class TextView:
    """Text as it was recorded. A long one has a `preview`, and the whole is folded away."""

    text: str
    size: str
    preview: str | None


@dataclass(frozen=True, slots=True)
class Record:
    """One record: what stands beside its content, and the content where it is shown.

    `text` or `value` is the content; neither where only metadata was captured, where it does not open (`key_id` of the
    master key, None where that is not the reason), or where the list shows none.
    """

    seq: int
    evidence_id: str
    run_id: str
    workspace: str
    kind: str
    kind_name: str
    kind_icon: str
    kind_tone: str
    producer: str
    epoch: int
    event_id: str
    tool: str
    time: float | None
    received: float
    type: str
    size: str
    sha256: str
    is_metadata: bool
    is_unreadable: bool
    key_id: int | None
    text: TextView | None = None
    value: JSONView | None = None


@dataclass(frozen=True, slots=True)
class RecordList:
    """A page of records that were found."""

    records: tuple[Record, ...]
    given: Mapping[str, str]
    next_cursor: str | None
    workspaces: tuple[str, ...]

    @property
    def is_first(self) -> bool:
        return "cursor" not in self.given

    @property
    def is_filtered(self) -> bool:
        return bool(self.given.keys() - {"cursor"})

    def parameters(self, **other: str | None) -> dict[str, str]:
        """Return the query that asks the same, but for `other`."""
        kept = {name: value for name, value in self.given.items() if name != "cursor"}
        return {name: value for name, value in {**kept, **other}.items() if value}


@dataclass(frozen=True, slots=True)
class Run:
    """A part of a run in its order. `faults` are sentences about what does not hold in this part."""

    evidence_id: str
    run_id: str
    workspace: str
    total: int
    size: str
    created: float
    last: float
    creator: str
    records: tuple[Record, ...]
    after: int
    next_after: int | None
    is_whole: bool
    faults: tuple[tuple[int, str], ...]
    workflows: tuple[Mapping[str, Any], ...]
    workflows_more: bool
    has_costs: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """What running a run again would need."""

    evidence_id: str
    run_id: str
    total: int
    is_whole: bool
    faults: tuple[tuple[int, str], ...]
    tools: tuple[Any, ...]
    workflows: tuple[Mapping[str, Any], ...]
    text: str
    size: str


def query(given: Mapping[str, str], *, limit: int) -> dict[str, str]:
    """Return the query of the product's list for the page's own filters.

    Raises:
        MalformedError: A day is none.
    """
    asked = {name: given[name].strip() for name in ("q", "run", "producer", "kind", "workspace") if name in given}
    since, until = _day(given, "from"), _day(given, "to")
    if since is not None and until is not None and since > until:
        raise MalformedError("The first day must not be after the last one.")
    asked |= {} if since is None else {"since": str(since)}
    asked |= {} if until is None else {"until": str(until + _DAY_S)}
    asked |= {"cursor": given["cursor"]} if "cursor" in given else {}
    return {**{name: value for name, value in asked.items() if value}, "limit": str(limit)}


def run_list(
    found: Mapping[str, Any], given: Mapping[str, str], *, workspaces: Sequence[str], names: Mapping[str, str]
) -> RunList:
    """Make the page of runs."""
    lines = tuple(_run_line(each, names) for each in found["runs"])
    return RunList(lines, dict(given), found["next_cursor"], tuple(workspaces if len(workspaces) > 1 else ()))


def record_list(found: Mapping[str, Any], given: Mapping[str, str], *, workspaces: Sequence[str]) -> RecordList:
    """Make the page of records."""
    records = tuple(_record(each) for each in found["records"])
    return RecordList(records, dict(given), found["next_cursor"], tuple(workspaces if len(workspaces) > 1 else ()))


def transcript(found: Mapping[str, Any], *, after: int, names: Mapping[str, str], has_costs: bool) -> Run:
    """Make the page of a run."""
    creator = str(found["creator_id"])
    return Run(
        evidence_id=found["evidence_id"], run_id=found["run_id"], workspace=found["workspace_id"],
        total=found["records_total"], size=size(found["bytes"]), created=found["created"],
        last=found["last_received"], creator=names.get(creator, creator),
        records=tuple(_record({**each, "evidence_id": found["evidence_id"]}) for each in found["records"]),
        after=after, next_after=found["next_after"], is_whole=found["is_whole"], faults=_faults(found),
        workflows=tuple(found["workflows"]), workflows_more=found["workflows_more"], has_costs=has_costs,
    )  # fmt: skip


def manifest(found: Mapping[str, Any]) -> Manifest:
    """Make the page of a manifest."""
    shown = json_view(found)
    return Manifest(
        evidence_id=found["evidence_id"], run_id=found["run_id"], total=found["records_total"],
        is_whole=found["is_whole"], faults=_faults(found), tools=tuple(found["tools"]),
        workflows=tuple(found["workflows"]), text=shown.text, size=shown.size,
    )  # fmt: skip


def _faults(found: Mapping[str, Any]) -> tuple[tuple[int, str], ...]:
    return tuple((each["seq"], each["problem"]) for each in found["faults"])


def _run_line(run: Mapping[str, Any], names: Mapping[str, str]) -> RunLine:
    creator = str(run["creator_id"])
    return RunLine(
        evidence_id=run["evidence_id"], run_id=run["run_id"], workspace=run["workspace_id"],
        records=run["records_total"], size=size(run["bytes"]), last=run["last_received"],
        creator=names.get(creator, creator), key_id=run["key_id"] if run.get("unreadable") else None,
    )  # fmt: skip


def _record(record: Mapping[str, Any]) -> Record:
    kind = str(record.get("kind", ""))
    name, icon, tone = KINDS.get(kind, (kind, "document-text", "quiet"))
    content = record.get("content")
    return Record(
        seq=record["seq"], evidence_id=record["evidence_id"], run_id=record.get("run_id", ""),
        workspace=record.get("workspace_id", ""), kind=kind, kind_name=name, kind_icon=icon, kind_tone=tone,
        producer=str(record.get("producer", "")), epoch=record.get("epoch", 0),
        event_id=str(record.get("event_id", "")), tool=str(record.get("tool") or ""), time=record.get("time"),
        received=record["received"], type=str(record.get("type", "")), size=size(record.get("bytes", 0)),
        sha256=str(record.get("sha256", "")), is_metadata=record.get("captured") == "metadata",
        is_unreadable=bool(record.get("unreadable")), key_id=record.get("key_id"),
        text=_text(content) if isinstance(content, str) else None,
        value=json_view(content) if content is not None and not isinstance(content, str) else None,
    )  # fmt: skip


def _text(text: str) -> TextView:
    is_long = text.count("\n") >= _LINES or len(text) > _CHARS
    preview = "\n".join(text.split("\n")[:_LINES])[:_CHARS].rstrip() + "\n…" if is_long else None
    return TextView(text, size(len(text.encode())), preview)


def _day(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    text = given[name]
    try:
        day = date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None or day.year < 1970:  # noqa: PLR2004
        raise MalformedError(f"The {'first' if name == 'from' else 'last'} day must be a date like 2026-11-30.")
    return int(datetime.combine(day, time(), UTC).timestamp())
