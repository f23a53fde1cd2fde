"""What travels about evidence: what an agent records of itself, and what is asked of the records.

Taking evidence away and letting go of it stand in `continuity.letting_go`, and are found here as well.

Frozen dataclasses with a strict ``from_json`` or ``from_query``, as in `continuity.wire`. What a record is indexed by
and what is kept of its content stand here too: they are decided by the content alone.

Source: wire.md "Paths"; vault.md "Formats and capture".
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from continuity import limits, members
from continuity.errors import MalformedError
from continuity.jsontext import canonical_bytes
from continuity.letting_go import (
    CAPTURE_MODES,
    RETAINED_KINDS,
    CaptureMode,
    EncryptedExport,
    PlaintextExport,
    Retention,
)
from continuity.members import TIME_MAX_S
from continuity.wire import Fields

__all__ = [
    "CAPTURE_MODES",
    "EVIDENCE_ID",
    "PAGE_PARAMETERS",
    "RETAINED_KINDS",
    "RUNS_PARAMETERS",
    "SEARCH_PARAMETERS",
    "TIME_MAX_S",
    "WORKFLOW_ID",
    "CaptureMode",
    "EncryptedExport",
    "ListRuns",
    "ManifestRequest",
    "PlaintextExport",
    "Reconstruct",
    "RecordEvidence",
    "Retention",
    "RunPage",
    "SearchEvidence",
    "type_of",
    "words_of",
]

WORKFLOW_ID: Final = re.compile(r"wf_[0-9a-f]{32}")
EVIDENCE_ID: Final = re.compile(r"er_[0-9a-f]{32}")
SEARCH_PARAMETERS: Final = ("limit", "cursor", "run", "producer", "kind", "q", "since", "until", "workspace")
"""What the query of a list of records may hold."""
RUNS_PARAMETERS: Final = ("limit", "cursor", "workspace")
PAGE_PARAMETERS: Final = ("limit", "after")
_WORD: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class RecordEvidence:
    """``POST /v1/evidence``: one thing that an agent says it did, read or was told.

    Attributes:
        run_id: Identifier of the run that the host chose; no ``wf_…`` or ``er_…`` of this server. That of a thread or
            of its run may stand there and says nothing to the thread.
        producer: Identifier of who records.
        epoch: Which life of the producer; an event_id is unique in one.
        event_id: Identifier of the event, for repeats.
        kind: Identifier of what it is: ``text``, ``tool_call``, ``tool_result``, or the host's own word.
        content: Any JSON value but null, at most `limits.EVIDENCE_BYTES` in canonical form.
        time: When, by the host's clock, Unix seconds.
    """

    run_id: str
    producer: str
    epoch: int
    event_id: str
    kind: str
    content: Any = field(repr=False)
    time: float

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        request = cls(
            run_id=_run_id(fields),
            producer=fields.identifier("producer"),
            epoch=fields.count("epoch"),
            event_id=fields.identifier("event_id"),
            kind=fields.identifier("kind"),
            content=fields.need("content"),
            time=_time(fields),
        )
        fields.finish()
        if len(canonical_bytes(request.content)) > limits.EVIDENCE_BYTES:
            raise fields.fail("content", f"at most {limits.EVIDENCE_BYTES} bytes in canonical form")
        return request

    def body(self) -> bytes:
        """Return the canonical request; a repeat is exact when these bytes are the same."""
        return canonical_bytes([
            self.run_id, self.producer, self.epoch, self.event_id, self.kind, self.content, self.time,
        ])  # fmt: skip

    @property
    def raw(self) -> bytes:
        """The content as it is measured: the UTF-8 of a text, the canonical form of anything else."""
        return self.content.encode() if isinstance(self.content, str) else canonical_bytes(self.content)

    @property
    def facts(self) -> dict[str, Any]:
        """What the mode ``metadata`` keeps in place of the content: ``type, bytes, sha256``."""
        raw = self.raw
        return {"type": type_of(self.content), "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}

    @property
    def tool(self) -> str | None:
        """The tool that an object of content names in its member ``tool``, None without one."""
        named = self.content.get("tool") if isinstance(self.content, Mapping) else None
        is_name = isinstance(named, str) and 0 < len(named) <= limits.TOOL_CHARS and named.isprintable()
        return named if is_name else None

    def words(self) -> list[str]:
        """Return the distinct words of the content's texts by which it is found, in their order, so many at most."""
        found: dict[str, None] = {}
        for text in _texts(self.content):
            for word in words_of(text):
                found.setdefault(word)
                if len(found) == limits.EVIDENCE_WORDS:
                    return list(found)
        return list(found)


def type_of(content: Any) -> str:
    """Return what JSON calls a value, and ``text`` for a string."""
    if isinstance(content, str):
        return "text"
    if isinstance(content, bool):
        return "boolean"
    if isinstance(content, int | float):
        return "number"
    return "object" if isinstance(content, Mapping) else "array"


def words_of(text: str) -> list[str]:
    """Return the whole words of a text as they are compared: letters and digits, case folded, cut at 64 characters."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return list(dict.fromkeys(word[: limits.EVIDENCE_WORD_CHARS] for word in _WORD.findall(plain)))


def _texts(content: Any) -> Iterator[str]:
    """Give every string and number of a value; keys are the host's own and the same in each record."""
    waiting = [content]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield str(item)


def _run_id(fields: Fields) -> str:
    run_id = fields.identifier("run_id")
    if WORKFLOW_ID.fullmatch(run_id) or EVIDENCE_ID.fullmatch(run_id):
        raise fields.fail("run_id", "an identifier of the host's own, not one of this server")
    return run_id


def _time(fields: Fields) -> float:
    fields.need("time")
    return fields.seconds(
        "time", default=0, must="Unix seconds, from 0 to the end of the year 9999",
        holds=lambda seconds: 0 <= seconds <= TIME_MAX_S,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SearchEvidence:
    """``GET /v1/evidence`` and ``POST /v1/evidence/search``; every filter may be left out.

    Attributes:
        limit: At most so many, 1 to 200.
        cursor: Where to go on, from the page before.
        run: Only this run: its run_id or its evidence_id.
        producer: Only this producer.
        kind: Only this kind.
        search: Whole words that the content must all have.
        since: Received at or after, Unix seconds by the server's clock.
        until: Received before, Unix seconds by the server's clock.
        workspace: Only this workspace, by name.
    """

    limit: int = limits.PAGE_DEFAULT
    cursor: str | None = None
    run: str | None = None
    producer: str | None = None
    kind: str | None = None
    search: str | None = None
    since: float | None = None
    until: float | None = None
    workspace: str | None = None

    @property
    def question(self) -> str:
        """Everything the answer depends on but the position."""
        asked = [self.run, self.producer, self.kind, self.search, self.since, self.until, self.workspace]
        return json.dumps(["evidence", *asked])

    @property
    def words(self) -> list[str]:
        """The words to look for; raises `MalformedError` for too many, or for a search without any."""
        return self.checked_words("q")

    def checked_words(self, name: str) -> list[str]:
        """Return the words to look for; raises `MalformedError`, which calls the search `name`."""
        if self.search is None:
            return []
        if len(self.search) > limits.EVIDENCE_SEARCH_CHARS:
            raise MalformedError(f"{name} must be at most {limits.EVIDENCE_SEARCH_CHARS} characters.")
        words = words_of(self.search)
        if not words or len(words) > limits.EVIDENCE_SEARCH_WORDS:
            raise MalformedError(f"{name} must be 1 to {limits.EVIDENCE_SEARCH_WORDS} words of letters and digits.")
        return words

    @classmethod
    def from_query(cls, given: Mapping[str, str]) -> Self:
        """Read the parameters of a query, each of which is there at most once; raises `MalformedError`."""
        members.check_names(given, SEARCH_PARAMETERS)
        asked = cls(
            limit=members.whole_in(given, "limit", default=limits.PAGE_DEFAULT, least=1, most=limits.PAGE_MAX),
            cursor=given.get("cursor"),
            run=members.identifier_in(given, "run"),
            producer=members.identifier_in(given, "producer"),
            kind=members.identifier_in(given, "kind"),
            search=given.get("q"),
            since=members.moment_in(given, "since"),
            until=members.moment_in(given, "until"),
            workspace=members.identifier_in(given, "workspace"),
        )
        _check(asked, search="q")
        return asked

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check ``{query, …}`` with the filters of the list beside it; raises `MalformedError`."""
        fields = Fields(value)
        asked = cls(
            limit=members.count(fields, "limit", default=limits.PAGE_DEFAULT, least=1, most=limits.PAGE_MAX),
            cursor=members.text(fields, "cursor"),
            run=members.identifier(fields, "run_id"),
            producer=members.identifier(fields, "producer"),
            kind=members.identifier(fields, "kind"),
            search=members.text(fields, "query"),
            since=members.seconds(fields, "since"),
            until=members.seconds(fields, "until"),
            workspace=members.identifier(fields, "workspace_id"),
        )
        fields.finish()
        _check(asked, search="query")
        return asked


def _check(asked: SearchEvidence, *, search: str) -> None:
    if asked.since is not None and asked.until is not None and asked.since > asked.until:
        raise MalformedError("since must not be later than until.")
    asked.checked_words(search)


@dataclass(frozen=True, slots=True)
class ListRuns:
    """``GET /v1/evidence/runs``.

    Attributes:
        limit: At most so many, 1 to 200.
        cursor: Where to go on, from the page before.
        workspace: Only this workspace, by name.
    """

    limit: int = limits.PAGE_DEFAULT
    cursor: str | None = None
    workspace: str | None = None

    @property
    def question(self) -> str:
        """Everything the answer depends on but the position."""
        return json.dumps(["evidence_runs", self.workspace])

    @classmethod
    def from_query(cls, given: Mapping[str, str]) -> Self:
        """Read the parameters of a query; raises `MalformedError`."""
        members.check_names(given, RUNS_PARAMETERS)
        return cls(
            limit=members.whole_in(given, "limit", default=limits.PAGE_DEFAULT, least=1, most=limits.PAGE_MAX),
            cursor=given.get("cursor"),
            workspace=members.identifier_in(given, "workspace"),
        )


@dataclass(frozen=True, slots=True)
class RunPage:
    """Which part of a run is read.

    Attributes:
        limit: At most so many records, 1 to 200.
        after: Only records with a larger ``seq``.
    """

    limit: int = limits.PAGE_MAX
    after: int = 0

    @classmethod
    def from_query(cls, given: Mapping[str, str]) -> Self:
        """Read the parameters of a query; raises `MalformedError`."""
        members.check_names(given, PAGE_PARAMETERS)
        return cls(
            limit=members.whole_in(given, "limit", default=limits.PAGE_MAX, least=1, most=limits.PAGE_MAX),
            after=members.whole_in(given, "after", default=0, least=0, most=999_999_999),
        )


@dataclass(frozen=True, slots=True)
class Reconstruct:
    """``POST /v1/evidence/reconstruct``: a run in order, a page at a time."""

    run_id: str
    limit: int = limits.PAGE_MAX
    after: int = 0

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        asked = cls(
            run_id=fields.identifier("run_id"),
            limit=members.count(fields, "limit", default=limits.PAGE_MAX, least=1, most=limits.PAGE_MAX),
            after=members.count(fields, "after", default=0, least=0, most=999_999_999),
        )
        fields.finish()
        return asked


@dataclass(frozen=True, slots=True)
class ManifestRequest:
    """``POST /v1/evidence/replay-manifest``: what would be needed to run it again."""

    run_id: str

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        asked = cls(run_id=fields.identifier("run_id"))
        fields.finish()
        return asked
