"""Settings → Audit: who did what, and whether the log that says so is whole. For administrators.

The list shows clear columns alone and works while the vault is locked. What people typed is opened one entry at a
time, after the log says by whom.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from flask import Blueprint, Response, render_template, url_for

from app import htmx
from app.auth.admission import admits, admitted
from app.auth.identity import auth, poll, visit
from app.body import read_file, read_form, takes_file
from app.extensions import wiring
from app.pages import audit_files
from app.pages.audit_view import FILTERS, RESULTS, Asked, AuditList, checked, entry_of, line_of, read_asked
from app.pages.audit_words import ACTIONS, NOUNS
from app.pages.notes import WORDS, leave_note
from app.pages.problems import HTML_TYPE
from app.query import read_query
from app.replies import JSON_TYPE, json_bytes
from continuity.errors import (
    ConflictError,
    IntegrityError,
    MalformedError,
    NotFoundError,
    TooLargeError,
    VaultError,
)
from continuity.services.callers import Caller, Role

blueprint = Blueprint("audit_pages", __name__)

ADMINISTRATORS: Final = (Role.ADMINISTRATOR,)
PAGE_SIZE: Final = 50
CSV_TYPE: Final = "text/csv; charset=utf-8"
_CHECKPOINT_TYPE: Final = "application/x-ndjson; charset=utf-8"
_FILE: Final = "checkpoint"
_USERNAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_NOBODY: Final = frozenset({"cli", "system", "nobody"})
_UNPROCESSABLE: Final = 422
_CONFLICT: Final = 409
_NO_CONTENT: Final = 204
_COMMANDS: Final = """\
atmem audit verify && atmem audit checkpoint --output checkpoint.jsonl
atmem audit verify --against checkpoint.jsonl"""
_SECOND_US: Final = 1_000_000
_SEQ: Final = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)

WORDS["audit_moved"] = "That place in the log is no longer kept. These are the newest entries."
WORDS["check_begun"] = "The log is being verified. You may leave this page: it goes on by itself."


@blueprint.get("/settings/audit")
@admits(people=ADMINISTRATORS)
def index() -> Response:
    given = read_query(*FILTERS, "cursor")
    cursor = given.pop("cursor", None)
    try:
        asked, problem = read_asked(given), ""
    except MalformedError as error:
        asked, problem = read_asked({}), error.message
    try:
        found = _list(admitted(), asked, given if problem else asked.given, cursor=cursor)
    except MalformedError:
        if cursor is None:
            raise
        answer = htmx.see_other(url_for("audit_pages.index", **given))
        leave_note(answer, "audit_moved")
        return answer
    body = render_template(
        "pages/audit/index.html", log=found, problem=problem, given=given, actions=ACTIONS, nouns=NOUNS, results=RESULTS
    )
    return Response(body, _UNPROCESSABLE if problem else 200, content_type=HTML_TYPE)


@blueprint.get("/settings/audit/entries/<seq>")
@admits(people=ADMINISTRATORS)
def entry(seq: str) -> Response:
    """Show one entry, its detail opened: the look is one more entry, written before."""
    read_query()
    if not _SEQ.fullmatch(seq):
        raise NotFoundError("There is no such entry.")
    caller, audits = admitted(), wiring().audits
    listed = audits.reading.open(int(seq), reader=audits.reader(caller.actor, visit().request_id))
    names = _names([listed])
    body = render_template("pages/audit/entry.html", entry=entry_of(listed, names))
    return Response(body, content_type=HTML_TYPE)


@blueprint.get("/settings/audit/entries.csv")
@admits(people=ADMINISTRATORS, fresh=True)
def entries_csv() -> Response:
    asked, lines = _exported("csv")
    return _file(audit_files.csv(lines), CSV_TYPE, name=f"{asked.file_name}.csv")


@blueprint.get("/settings/audit/entries.json")
@admits(people=ADMINISTRATORS, fresh=True)
def entries_json() -> Response:
    asked, lines = _exported("json")
    return _file(json_bytes(audit_files.document(lines)), JSON_TYPE, name=f"{asked.file_name}.json")


@blueprint.get("/settings/audit/checkpoint.jsonl")
@admits(people=ADMINISTRATORS)
def checkpoint() -> Response:
    """Give the ends of log and histories as a file to keep elsewhere."""
    read_query()
    audits = wiring().audits
    try:
        body = audit_files.checkpoint(audits.auditing().checkpoint())
    except (TooLargeError, IntegrityError) as error:
        return _check_page(problem=error.message, status=_CONFLICT)
    # Behind it, since an entry more would hide that the last one is gone; and before it leaves.
    audits.reading.record("audit.checkpointed", reader=audits.reader(admitted().actor, visit().request_id))
    day = datetime.fromtimestamp(wiring().clock.now_us() // _SECOND_US, UTC).date()
    return _file(body, _CHECKPOINT_TYPE, name=f"atmem-checkpoint-{day}.jsonl")


@blueprint.get("/settings/audit/check")
@admits(people=ADMINISTRATORS)
def check() -> Response:
    read_query()
    return _check_page()


@blueprint.get("/settings/audit/check/live")
@admits(people=ADMINISTRATORS)
@poll
def check_live() -> Response:
    """Answer the page's poll: 204 while it would look the same."""
    mark = read_query("mark").get("mark", "")
    audits = wiring().audits
    is_seen = mark == checked(audits.checks.last(), audits.auditing().head()).mark
    return Response(status=_NO_CONTENT) if is_seen and htmx.wants_fragment() else _check_page()


@blueprint.post("/settings/audit/check")
@admits(people=ADMINISTRATORS)
@takes_file
def check_begin() -> Response:
    """Begin to verify, against the checkpoint that the form brings if it brings one."""
    wanted = read_form().get("against", "")
    against = read_file(_FILE)
    if wanted and not against:
        return _check_page(problem="Choose the file of a checkpoint.", status=_UNPROCESSABLE)
    caller = admitted()
    try:
        wiring().audits.checks.begin(by=caller.actor, request_id=visit().request_id, against=against)
    except MalformedError as error:
        return _check_page(problem=error.message, status=_UNPROCESSABLE)
    except ConflictError:
        return _check_page(busy=True, status=_CONFLICT)
    answer = htmx.see_other(url_for("audit_pages.check"))
    leave_note(answer, "check_begun")
    return answer


def _check_page(*, problem: str = "", busy: bool = False, status: int = 200) -> Response:
    audits = wiring().audits
    last = audits.checks.last()
    names = auth().names.of([] if last is None else [last.by])
    return htmx.render(
        page="pages/audit/check.html", fragment="fragments/audit/check.html", status=status,
        check=checked(last, audits.auditing().head(), names=names), problem=problem, busy=busy,
        commands=_COMMANDS,
    )  # fmt: skip


# ---- the list


def _list(caller: Caller, asked: Asked, given: Mapping[str, str], *, cursor: str | None) -> AuditList:
    audits, now_us = wiring().audits, wiring().clock.now_us()
    question = [caller.actor, audits.reading.epoch(), *(f"{name}={value}" for name, value in sorted(given.items()))]
    before = None
    if cursor is not None:
        [before] = audits.cursors.read(cursor, asked=question, now_us=now_us)
    wanted = audits.question(**{**asked.question, "actor": _actor(asked.question["actor"])})
    shown, after = audits.reading.page(wanted, count=PAGE_SIZE, before=before)
    names = _names(shown)
    return AuditList(
        lines=tuple(line_of(each, names) for each in shown), given=dict(given), is_first=cursor is None,
        next_cursor=None if after is None else audits.cursors.write([after], asked=question, now_us=now_us),
        standing=audits.checks.standing(),
    )  # fmt: skip


def _actor(text: str | None) -> str | None:
    """Read an actor as people write one: a username stands for its account."""
    if text is None or ":" in text or text in _NOBODY or not _USERNAME.fullmatch(text):
        return text
    user_id = auth().names.user_id(text)
    return text if user_id is None else f"user:{user_id}"


def _names(entries: list[Any]) -> dict[str, str]:
    """Return names of whoever stands in `entries`; while the vault is locked, credentials keep their ids."""
    actors = {each.entry.actor for each in entries}
    objects = {f"user:{each.entry.object_id}" for each in entries if (each.entry.object_id or "").startswith("usr_")}
    names = auth().names
    try:
        return names.of(actors | objects)
    except VaultError:
        return names.of(actor for actor in actors | objects if not actor.startswith("cred:"))


def _exported(form: str) -> tuple[Asked, list[Any]]:
    asked = read_asked(read_query(*FILTERS))
    audits = wiring().audits
    wanted = audits.question(**{**asked.question, "actor": _actor(asked.question["actor"])})
    return asked, audits.reading.export(wanted, form=form, reader=audits.reader(admitted().actor, visit().request_id))


def _file(body: bytes, content_type: str, *, name: str) -> Response:
    answer = Response(body, content_type=content_type)
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
