"""Decisions → Resume work: the list of work, and what one workflow is about. Nothing here changes anything."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, Final

from flask import Blueprint, Response, render_template, url_for

from app import errors, htmx
from app.auth.admission import admits, admitted
from app.auth.identity import auth, poll
from app.extensions import wiring
from app.pages.conflicts import GONE
from app.pages.explanations import Control, Explanation
from app.pages.forms import Filled
from app.pages.notes import WORDS, leave_note
from app.pages.problems import HTML_TYPE
from app.pages.workflow_view import workflow_view
from app.pages.worklist import Question, WorkList, recovered_view, work_list
from app.query import read_query
from app.replies import request_id
from continuity import limits
from continuity.errors import ConflictError, DecryptionError, IntegrityError, MalformedError, VaultError
from continuity.services.callers import Caller, Role
from continuity.wire import ListRequest

blueprint = Blueprint("resume_work", __name__)

EVERY_ROLE: Final = (Role.OPERATOR, Role.INVESTIGATOR, Role.ADMINISTRATOR)
DECIDING_ROLES: Final = (Role.OPERATOR, Role.ADMINISTRATOR)
PAGE_SIZE: Final = 25
_FILTERS: Final = ("state", "workspace", "q")
_MARK_CHARS: Final = 16
_CURSOR_KEPT_S: Final = 300
"""How long an open list keeps the cursor of its next page, which is good for three times as long."""
_LOCAL: Final = "http://127.0.0.1:8768"
_FIRST_STEPS: Final = """\
export ATMEM_EVIDENCE_TOKEN="$(atmem continuity credential \\
  --principal document-operator --token-only{url})"
python -m continuity.example prepare --workflow-key publish-my-document \\
  --document README.md --output ./published{url}"""
_NO_CONTENT: Final = 204
_CONFLICT: Final = 409
_UNPROCESSABLE: Final = 422

WORDS["list_moved"] = "That place in the list is no longer kept. This is the newest page."


@blueprint.get("/resume-work")
@admits(people=EVERY_ROLE)
def index() -> Response:
    given = read_query(*_FILTERS, "cursor")
    caller = admitted()
    try:
        found, problem = _list(caller, given), ""
    except MalformedError as error:
        if "cursor" in given:
            return _newest(given)
        if "q" not in given:
            raise
        found, problem = _no_list(caller, given), error.message.partition(" ")[2]
    return _list_page(found, problem=problem, status=_UNPROCESSABLE if problem else 200)


@blueprint.get("/resume-work/live")
@admits(people=EVERY_ROLE)
@poll
def live_index() -> Response:
    """Answer the list's poll: 204 while it would look the same."""
    given = read_query(*_FILTERS, "mark")
    mark = given.pop("mark", "")
    return _list_page(_list(admitted(), given), seen=mark)


@blueprint.get("/resume-work/<workflow:workflow_id>")
@admits(people=EVERY_ROLE)
def show(workflow_id: str) -> Response:
    read_query()
    return workflow_page(admitted(), workflow_id)


@blueprint.get("/resume-work/<workflow:workflow_id>/live")
@admits(people=EVERY_ROLE)
@poll
def live(workflow_id: str) -> Response:
    """Answer the workflow's poll: 204 while nothing changed, and then nothing was opened or written either."""
    mark = read_query("mark").get("mark")
    caller = admitted()
    if mark == wiring().services.reviewing.pulse(caller, workflow_id).mark:
        return Response(status=_NO_CONTENT)
    return workflow_page(caller, workflow_id)


def workflow_page(
    caller: Caller,
    workflow_id: str,
    *,
    conflict: Explanation | None = None,
    filled: Filled | None = None,
    status: int | None = None,
) -> Response:
    """Answer with the workflow as it is now, beside why a control was refused or what a form lacks.

    `status` is what these two give unless it is named.
    """
    try:
        review = wiring().services.reviewing.review(caller, workflow_id)
    except ConflictError as error:
        if error.code != "workflow_deleted":
            raise
        return _gone(conflict or GONE)
    except (DecryptionError, IntegrityError) as error:
        return _unreadable(caller, workflow_id, error)
    names = auth().names.of(event["actor"] for event in review["history"])
    return htmx.render(
        page="pages/resume_work/show.html",
        fragment="fragments/resume_work/workflow.html",
        status=_status(conflict, filled) if status is None else status,
        workflow=workflow_view(review, names),
        thread=wiring().threads.standing.thread_of(
            caller,
            [attempt["run_id"] for each in review["operations"] for attempt in each["attempts"]],
            workspace=review["scope"]["workspace_id"],
        ),
        conflict=conflict,
        filled=filled or Filled(),
        may_control=caller.role in DECIDING_ROLES,
        is_fresh=caller.is_fresh,
        Control=Control,
        limits=limits,
    )


def _status(conflict: Explanation | None, filled: Filled | None) -> int:
    if conflict is not None:
        return _CONFLICT
    return _UNPROCESSABLE if filled is not None and filled.problems else 200


def _gone(why: Explanation) -> Response:
    body = render_template("pages/resume_work/gone.html", why=why)
    return Response(body, _CONFLICT, content_type=HTML_TYPE)


def _unreadable(caller: Caller, workflow_id: str, error: VaultError) -> Response:
    """Say of a workflow what stands beside its content, and which master key that is under."""
    if htmx.is_htmx():
        # The page that asks stays as it is, with a notice.
        raise error
    found = wiring().services.listing.page(caller, ListRequest(search=workflow_id))["workflows"]
    if not found or "unreadable" not in found[0]:
        raise error
    answer = errors.render(error)
    answer.set_data(render_template("pages/resume_work/unreadable.html", work=found[0], request_id=request_id()))
    answer.content_type = HTML_TYPE
    return answer


def _list(caller: Caller, given: dict[str, str]) -> WorkList:
    asked = replace(ListRequest.from_query(given), limit=PAGE_SIZE)
    page = wiring().services.listing.page(caller, asked)
    return _listed(caller, page, given)


def _no_list(caller: Caller, given: dict[str, str]) -> WorkList:
    """Return the frame of a list for a search that cannot be made."""
    return _listed(caller, {"workflows": [], "next_cursor": None}, given)


def _listed(caller: Caller, page: dict[str, Any], given: dict[str, str]) -> WorkList:
    names = auth().names.workspaces(caller.workspaces)
    numbers = {name: number for number, name in names.items()}
    wanted = numbers.get(given.get("workspace", ""))
    counted = caller if wanted is None else replace(caller, workspaces=frozenset({wanted}))
    return work_list(
        page,
        wiring().services.listing.counts(counted),
        Question(**{name: given.get(name) for name in _FILTERS}),
        is_first="cursor" not in given,
        workspaces=sorted(numbers) if len(numbers) > 1 else [],
    )


def _list_page(found: WorkList, *, problem: str = "", seen: str = "", status: int = 200) -> Response:
    """Answer with the list; with 204 when the browser that polls has this very list already."""
    recovery = wiring().recovery.status()
    mark = _mark(found, recovery)
    if mark == seen and htmx.wants_fragment():
        return Response(status=_NO_CONTENT)
    return htmx.render(
        page="pages/resume_work/index.html",
        fragment="fragments/resume_work/list.html",
        status=status,
        work=found,
        recovery=recovered_view(recovery) if recovery.is_open else None,
        problem=problem,
        mark=mark,
        first_steps=_first_steps(),
    )


def _mark(found: WorkList, recovery: object) -> str:
    """Return one word that differs whenever the list would look different.

    Cursors are new with every answer and hold for a while: they count by the time in which they are made.
    """
    period = wiring().clock.now_us() // (_CURSOR_KEPT_S * limits.SECOND_US) if found.next_cursor else None
    shown = repr((replace(found, next_cursor=None), period, recovery))
    return hashlib.sha256(shown.encode()).hexdigest()[:_MARK_CHARS]


def _first_steps() -> str:
    """Return the commands for a first try, at the address of this server."""
    url = auth().url
    return _FIRST_STEPS.format(url="" if url == _LOCAL else f" --url {url}")


def _newest(given: dict[str, str]) -> Response:
    kept = {name: value for name, value in given.items() if name != "cursor"}
    answer = htmx.see_other(url_for("resume_work.index", **kept))
    leave_note(answer, "list_moved")
    return answer
