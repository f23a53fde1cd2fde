"""Activity → Resume work: what was attempted and what it reportedly cost. Nothing here changes anything.

For investigators and administrators alone: of what was observed an operator gets no page, no fragment and no file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from flask import Blueprint, Response, url_for

from app import htmx
from app.auth.admission import admits, admitted
from app.auth.identity import auth, poll
from app.extensions import wiring
from app.pages import activity_downloads as downloads
from app.pages.activity_view import Activity, Observed, Read, activity, observed
from app.pages.asking import DATES, FILTERS, Question, read_question
from app.pages.notes import WORDS, leave_note
from app.pages.workflow_view import FINISHED
from app.paths import WORKFLOW_ID
from app.query import read_query
from app.replies import JSON_TYPE, json_bytes
from continuity.errors import MalformedError, NotFoundError, SealedError
from continuity.services.callers import Caller, Role
from observations.answers import AttemptLine, AttemptPage, WorkflowLine
from observations.costs import DAY_US
from observations.queries import PAGE_MOST, Queries
from observations.time_line import CHARGES_SHOWN

blueprint = Blueprint("activity", __name__)

VIEWERS: Final = (Role.INVESTIGATOR, Role.ADMINISTRATOR)
PAGE_SIZE: Final = 25
ATTEMPTS_SIZE: Final = 50
CSV_TYPE: Final = "text/csv; charset=utf-8"
_MARK_CHARS: Final = 16
_CURSOR_KEPT_US: Final = 300 * 1_000_000
"""How long an open page keeps the cursor of its next page, which is good for three times as long."""
_NO_CONTENT: Final = 204
_UNPROCESSABLE: Final = 422
_LOCAL: Final = "http://127.0.0.1:8768"
_GOVERNED: Final = re.compile(WORKFLOW_ID)
_FIRST_STEPS: Final = """\
export ATFLOWS_CONTINUITY_TOKEN="$(atmem continuity credential \\
  --principal my-observer --observer --scope local --token-only{option})"
python -m continuity.example run --workflow-id {workflow_id} \\
  --output ./published --atflows-url {url}"""

WORDS["activity_moved"] = "That place in the list is no longer kept. These are the newest workflows."
WORDS["attempts_moved"] = "That place in the list is no longer kept. These are the first attempts."


@blueprint.get("/activity")
@admits(people=VIEWERS)
def index() -> Response:
    given = read_query(*FILTERS, "cursor")
    cursor = given.pop("cursor", None)
    question, problem = _question(given)
    try:
        found = _activity(admitted(), question, cursor=cursor)
    except MalformedError:
        if cursor is None:
            raise
        answer = htmx.see_other(url_for("activity.index", **given))
        leave_note(answer, "activity_moved")
        return answer
    return _page(found, problem=problem)


@blueprint.get("/activity/live.html")
@admits(people=VIEWERS)
@poll
def live_index() -> Response:
    """Answer the page's poll: 204 while it would look the same. No workflow_id has a dot."""
    given = read_query(*FILTERS, "mark")
    mark = given.pop("mark", "")
    return _page(_activity(admitted(), read_question(given, today=_today())), seen=mark)


@blueprint.get("/activity/workflows.csv")
@admits(people=VIEWERS)
def workflows_csv() -> Response:
    question = read_question(read_query(*FILTERS), today=_today())
    lines, is_whole = _all_workflows(admitted(), question)
    return _file(
        downloads.workflows_csv(lines), CSV_TYPE, name=_named("workflows", question, is_whole=is_whole), ending="csv"
    )


@blueprint.get("/activity/workflows.json")
@admits(people=VIEWERS)
def workflows_json() -> Response:
    question = read_question(read_query(*FILTERS), today=_today())
    lines, is_whole = _all_workflows(admitted(), question)
    scopes = _queries().scopes()
    asked = question.range(scopes)
    body = downloads.activity_json(_read(admitted(), question, scopes), asked, question, lines=lines, is_whole=is_whole)
    return _file(json_bytes(body), JSON_TYPE, name=_named("activity", question, is_whole=is_whole), ending="json")


@blueprint.get("/activity/<workflow_id>")
@admits(people=VIEWERS)
def show(workflow_id: str) -> Response:
    given = read_query("scope", "cursor")
    try:
        return _workflow_page(admitted(), workflow_id, scope=given.get("scope"), cursor=given.get("cursor"))
    except MalformedError:
        if "cursor" not in given:
            raise
        answer = htmx.see_other(url_for("activity.show", workflow_id=workflow_id, scope=given.get("scope")))
        leave_note(answer, "attempts_moved")
        return answer


@blueprint.get("/activity/<workflow_id>/live.html")
@admits(people=VIEWERS)
@poll
def live(workflow_id: str) -> Response:
    """Answer the workflow's poll: 204 while it would look the same."""
    given = read_query("scope", "mark")
    return _workflow_page(admitted(), workflow_id, scope=given.get("scope"), seen=given.get("mark", ""))


@blueprint.get("/activity/<workflow_id>/attempts.csv")
@admits(people=VIEWERS)
def attempts_csv(workflow_id: str) -> Response:
    line, attempts = _all_attempts(admitted(), workflow_id)
    name = _named_attempts(line, attempts)
    return _file(downloads.attempts_csv(line, attempts), CSV_TYPE, name=name, ending="csv")


@blueprint.get("/activity/<workflow_id>/attempts.json")
@admits(people=VIEWERS)
def attempts_json(workflow_id: str) -> Response:
    line, attempts = _all_attempts(admitted(), workflow_id)
    body = downloads.attempts_json(line, attempts)
    return _file(json_bytes(body), JSON_TYPE, name=_named_attempts(line, attempts), ending="json")


# ---- the page


def _question(given: Mapping[str, str]) -> tuple[Question, str]:
    """Return what is asked, and what is wrong with the dates; without those then."""
    try:
        return read_question(given, today=_today()), ""
    except MalformedError as error:
        name, _, problem = error.message.partition(": ")
        if name not in DATES:
            raise
        kept = {each: value for each, value in given.items() if each not in DATES}
        return read_question(kept, today=_today()), f"The {'first' if name == 'from' else 'last'} day {problem}"


def _activity(caller: Caller, question: Question, *, cursor: str | None = None) -> Activity:
    scopes = _queries().scopes()
    read = _read(caller, question, scopes, cursor=cursor)
    return activity(read, question, scopes=scopes, is_first=cursor is None)


def _read(caller: Caller, question: Question, scopes: list[str], *, cursor: str | None = None) -> Read:
    queries, asked = _queries(), question.range(scopes)
    return Read(
        totals=queries.totals(asked),
        days=queries.over_time(asked),
        sources=queries.by_source(asked),
        price_sources=queries.by_price_source(asked),
        page=queries.workflows(question.filter(scopes), actor=caller.actor, limit=PAGE_SIZE, cursor=cursor),
    )


def _page(found: Activity, *, problem: str = "", seen: str = "") -> Response:
    return _unless_seen(
        _mark(found), seen, page="pages/activity/index.html", fragment="fragments/activity/overview.html",
        status=_UNPROCESSABLE if problem else 200, activity=found, problem=problem, first_steps=_first_steps(),
    )  # fmt: skip


def _mark(found: Activity | Observed, *more: object) -> str:
    """Return one word that differs whenever the page would look different.

    Cursors are new with every answer and hold for a while: they count by the time in which they are made.
    """
    period = wiring().clock.now_us() // _CURSOR_KEPT_US if found.next_cursor else None
    shown = repr((replace(found, next_cursor=None), period, more))
    return hashlib.sha256(shown.encode()).hexdigest()[:_MARK_CHARS]


def _unless_seen(mark: str, seen: str, *, page: str, fragment: str, status: int = 200, **context: object) -> Response:
    """Answer with page or fragment; with 204 when the browser that polls has this very one already."""
    if mark == seen and htmx.wants_fragment():
        return Response(status=_NO_CONTENT)
    return htmx.render(page=page, fragment=fragment, status=status, mark=mark, **context)


def _first_steps(workflow_id: str = "WORKFLOW_ID") -> str:
    url = auth().url
    option = "" if url == _LOCAL else f" --url {url}"
    return _FIRST_STEPS.format(option=option, url=url, workflow_id=workflow_id)


# ---- one workflow


def _workflow_page(
    caller: Caller, workflow_id: str, *, scope: str | None, cursor: str | None = None, seen: str = ""
) -> Response:
    lines = _find(workflow_id)
    phase = _phase_in_decisions(caller, workflow_id)
    in_decisions = phase is not None
    if not lines and not in_decisions:
        raise NotFoundError("There is no such workflow.")
    context = {"workflow_id": workflow_id, "in_decisions": in_decisions, "first_steps": _first_steps(workflow_id)}
    if not lines:
        return htmx.render(
            page="pages/activity/nothing.html", fragment="fragments/activity/nothing.html",
            is_finished=phase in FINISHED, **context,
        )  # fmt: skip
    chosen = _chosen(lines, scope)
    page = _attempts(caller, chosen, cursor)
    others = [line.scope for line in lines if line is not chosen]
    found = observed(page, other_scopes=others, is_first=cursor is None)
    return _unless_seen(
        _mark(found, in_decisions), seen, page="pages/activity/show.html",
        fragment="fragments/activity/workflow.html", found=found, **context,
    )  # fmt: skip


def _find(workflow_id: str) -> list[WorkflowLine]:
    """Return what every scope knows of a workflow, made-up data last."""
    queries = _queries()
    return sorted(queries.find(queries.scopes(), workflow_id), key=lambda line: (line.is_demo, line.scope))


def _chosen(lines: list[WorkflowLine], scope: str | None) -> WorkflowLine:
    for line in lines:
        if scope in {None, line.scope}:
            return line
    raise NotFoundError("There is no such workflow.")


def _attempts(caller: Caller, line: WorkflowLine, cursor: str | None, *, limit: int = ATTEMPTS_SIZE) -> AttemptPage:
    page = _queries().attempts(line.scope, line.workflow_id, actor=caller.actor, cursor=cursor, limit=limit)
    if page is None:
        raise NotFoundError("There is no such workflow.")
    return page


def _phase_in_decisions(caller: Caller, workflow_id: str) -> str | None:
    """Return the workflow's phase where the person may see its decisions, else None; of a locked vault, nothing."""
    if not _GOVERNED.fullmatch(workflow_id):
        return None
    try:
        return wiring().services.reviewing.pulse(caller, workflow_id).phase
    except (NotFoundError, SealedError):
        return None


# ---- files


def _all_workflows(caller: Caller, question: Question) -> tuple[list[WorkflowLine], bool]:
    """Return the workflows of the list, page by page, at most those of one file, and whether these are all."""
    queries = _queries()
    asked = question.filter(queries.scopes())
    lines: list[WorkflowLine] = []
    cursor = None
    while len(lines) < downloads.WORKFLOWS_MOST:
        page = queries.workflows(asked, actor=caller.actor, limit=PAGE_MOST, cursor=cursor)
        lines += page.workflows
        cursor = page.next_cursor
        if cursor is None:
            return lines, True
    return lines, False


def _all_attempts(caller: Caller, workflow_id: str) -> tuple[WorkflowLine, list[AttemptLine]]:
    """Return a workflow and its attempts, page by page, at most those of one file."""
    lines = _find(workflow_id)
    if not lines:
        read_query("scope")
        raise NotFoundError("There is no such workflow.")
    line = _chosen(lines, read_query("scope").get("scope"))
    attempts: list[AttemptLine] = []
    cursor = None
    while len(attempts) < downloads.ATTEMPTS_MOST:
        page = _attempts(caller, line, cursor, limit=PAGE_MOST)
        attempts += page.attempts
        cursor = page.next_cursor
        if cursor is None:
            break
    return line, attempts


def _named(what: str, question: Question, *, is_whole: bool) -> str:
    part = "" if is_whole else f"-newest-{downloads.WORKFLOWS_MOST}"
    demo = "-without-demo" if question.is_without_demo else ""
    return f"atmem-{what}-{question.first_date}-to-{question.last_date}{demo}{part}"


def _named_attempts(line: WorkflowLine, attempts: list[AttemptLine]) -> str:
    """Return a name that says what the file does not hold: a table has no other place for it."""
    part = "" if len(attempts) >= line.attempts else f"-{len(attempts)}-of-{line.attempts}-attempts"
    charges = "" if downloads.holds_all_charges(attempts) else f"-first-{CHARGES_SHOWN}-charges-an-attempt"
    return f"atmem-{line.workflow_id}{part}{charges}"


def _file(body: bytes, content_type: str, *, name: str, ending: str) -> Response:
    answer = Response(body, content_type=content_type)
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}.{ending}"'
    return answer


def _queries() -> Queries:
    return wiring().observations.queries


def _today() -> int:
    return wiring().clock.now_us() // DAY_US
