"""What travels about evidence: what an agent records of itself, and what is asked of the records.

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

from continuity import limits
from continuity.errors import MalformedError
from continuity.jsontext import canonical_bytes
from continuity.wire import IDENTIFIER, Fields

WORKFLOW_ID: Final = re.compile(r"wf_[0-9a-f]{32}")
EVIDENCE_ID: Final = re.compile(r"er_[0-9a-f]{32}")
SEARCH_PARAMETERS: Final = ("limit", "cursor", "run", "producer", "kind", "q", "since", "until", "workspace")
"""What the query of a list of records may hold."""
RUNS_PARAMETERS: Final = ("limit", "cursor", "workspace")
PAGE_PARAMETERS: Final = ("limit", "after")
CAPTURE_MODES: Final = ("full", "metadata", "off")
RETAINED_KINDS: Final = ("workflows", "evidence", "threads")

TIME_MAX_S: Final = 253_402_300_799
"""The last second of the year 9999."""
_WORD: Final = re.compile(r"[^\W_]+")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_MOMENT: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class RecordEvidence:
    """``POST /v1/evidence``: one thing that an agent says it did, read or was told.

    Attributes:
        run_id: Identifier of the run that the host chose; not spelled like an id of this server.
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
        _check_names(given, SEARCH_PARAMETERS)
        asked = cls(
            limit=_whole(given, "limit", default=limits.PAGE_DEFAULT, least=1, most=limits.PAGE_MAX),
            cursor=given.get("cursor"),
            run=_filter(given, "run"),
            producer=_filter(given, "producer"),
            kind=_filter(given, "kind"),
            search=given.get("q"),
            since=_moment(given, "since"),
            until=_moment(given, "until"),
            workspace=_filter(given, "workspace"),
        )
        _check(asked, search="q")
        return asked

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check ``{query, …}`` with the filters of the list beside it; raises `MalformedError`."""
        fields = Fields(value)
        asked = cls(
            limit=_count(fields, "limit", default=limits.PAGE_DEFAULT, least=1, most=limits.PAGE_MAX),
            cursor=_text(fields, "cursor"),
            run=_identifier(fields, "run_id"),
            producer=_identifier(fields, "producer"),
            kind=_identifier(fields, "kind"),
            search=_text(fields, "query"),
            since=_seconds(fields, "since"),
            until=_seconds(fields, "until"),
            workspace=_identifier(fields, "workspace_id"),
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
        _check_names(given, RUNS_PARAMETERS)
        return cls(
            limit=_whole(given, "limit", default=limits.PAGE_DEFAULT, least=1, most=limits.PAGE_MAX),
            cursor=given.get("cursor"),
            workspace=_filter(given, "workspace"),
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
        _check_names(given, PAGE_PARAMETERS)
        return cls(
            limit=_whole(given, "limit", default=limits.PAGE_MAX, least=1, most=limits.PAGE_MAX),
            after=_whole(given, "after", default=0, least=0, most=999_999_999),
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
            limit=_count(fields, "limit", default=limits.PAGE_MAX, least=1, most=limits.PAGE_MAX),
            after=_count(fields, "after", default=0, least=0, most=999_999_999),
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


@dataclass(frozen=True, slots=True)
class EncryptedExport:
    """``POST /v1/evidence/export/encrypted``: one run or workflow, sealed under a passphrase.

    Attributes:
        run_id: A workflow_id, an evidence_id or a run_id.
        passphrase: Shown in no repr; how long it must be is the container's to say.
    """

    run_id: str
    passphrase: str = field(repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        passphrase = fields.need("passphrase")
        if not isinstance(passphrase, str):
            raise fields.fail("passphrase", "a string")
        asked = cls(run_id=fields.identifier("run_id"), passphrase=passphrase)
        fields.finish()
        return asked


@dataclass(frozen=True, slots=True)
class PlaintextExport:
    """``POST /v1/evidence/export/plaintext``: one run or workflow, readable by whoever has the file.

    Attributes:
        run_id: A workflow_id, an evidence_id or a run_id.
        confirmation: The same again, so that nothing leaves in the clear by a slip.
    """

    run_id: str
    confirmation: str

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        asked = cls(run_id=fields.identifier("run_id"), confirmation=fields.identifier("confirmation"))
        fields.finish()
        if asked.confirmation != asked.run_id:
            raise fields.fail("confirmation", "the run_id again")
        return asked


@dataclass(frozen=True, slots=True)
class CaptureMode:
    """``POST /v1/evidence/settings/capture-mode``: ``full``, ``metadata`` or ``off``."""

    capture_mode: str

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        mode = fields.need("capture_mode")
        if mode not in CAPTURE_MODES:
            raise fields.fail("capture_mode", f"one of {', '.join(CAPTURE_MODES)}")
        fields.finish()
        return cls(mode)


@dataclass(frozen=True, slots=True)
class Retention:
    """``POST /v1/evidence/retention``: one batch of what is older than so many days.

    Attributes:
        older_than_days: Nothing that changed within so many days is touched; 1 to 36,500.
        kind: ``workflows``, ``evidence`` or ``threads`` (old records of journals).
        apply: Let go of it; otherwise it is only listed.
        limit: Look at so many at most, 1 to 200.
        cursor: Where to go on, from the batch before.
    """

    older_than_days: int
    kind: str
    apply: bool = False
    limit: int = limits.PAGE_DEFAULT
    cursor: str | None = None

    @property
    def question(self) -> str:
        """Everything the answer depends on but the position; one cursor serves a dry run and what follows it."""
        return json.dumps(["retention", self.kind, self.older_than_days])

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        fields.need("older_than_days")
        kind = fields.need("kind")
        if kind not in RETAINED_KINDS:
            raise fields.fail("kind", f"one of {', '.join(RETAINED_KINDS)}")
        asked = cls(
            older_than_days=_count(
                fields, "older_than_days", default=0, least=1, most=limits.RETENTION_MOST_DAYS
            ),
            kind=kind,
            apply=fields.optional_boolean("apply"),
            limit=_count(fields, "limit", default=limits.PAGE_DEFAULT, least=1, most=limits.PAGE_MAX),
            cursor=_text(fields, "cursor"),
        )  # fmt: skip
        fields.finish()
        return asked


# ---- members of bodies and queries


def _check_names(given: Mapping[str, str], known: tuple[str, ...]) -> None:
    if given.keys() - set(known):
        raise MalformedError(f"The query may hold only: {', '.join(known)}.")


def _whole(given: Mapping[str, str], name: str, *, default: int, least: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise MalformedError(f"{name} must be a whole number from {least} to {most}.")
    return int(text)


def _moment(given: Mapping[str, str], name: str) -> float | None:
    text = given.get(name)
    if text is None:
        return None
    if not _MOMENT.fullmatch(text) or float(text) > TIME_MAX_S:
        raise MalformedError(f"{name} must be Unix seconds, with six digits behind the point at most.")
    return float(text)


def _filter(given: Mapping[str, str], name: str) -> str | None:
    text = given.get(name)
    if text is not None and not IDENTIFIER.fullmatch(text):
        raise MalformedError(f"{name} must be 1 to {limits.IDENTIFIER_CHARS} characters of A-Z a-z 0-9 _ -.")
    return text


def _count(fields: Fields, name: str, *, default: int, least: int, most: int) -> int:
    found = fields.optional_count(name)
    if found is None:
        return default
    if not least <= found <= most:
        raise fields.fail(name, f"a whole number from {least} to {most}")
    return found


def _identifier(fields: Fields, name: str) -> str | None:
    return None if fields.take(name) is None else fields.identifier(name)


def _text(fields: Fields, name: str) -> str | None:
    value = fields.take(name)
    if value is not None and not isinstance(value, str):
        raise fields.fail(name, "a string")
    return value


def _seconds(fields: Fields, name: str) -> float | None:
    if fields.take(name) is None:
        return None
    return fields.seconds(
        name, default=0, must="Unix seconds, from 0 to the end of the year 9999",
        holds=lambda seconds: 0 <= seconds <= TIME_MAX_S,
    )  # fmt: skip
