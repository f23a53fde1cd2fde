"""Threads: the list of conversations, and one of them. Nothing here changes anything but a claim that has run out.

A thread's page has two parts that are brought up to date apart, so that streamed text never takes away what somebody
is writing: the conversation, and what may be done with it.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

from flask import Blueprint, Response, render_template, url_for

from app import errors, htmx
from app.auth.admission import admits, admitted
from app.auth.identity import auth, poll
from app.extensions import wiring
from app.pages.notes import WORDS, leave_note
from app.pages.problems import HTML_TYPE
from app.pages.threads_asks import AskView, ask_views
from app.pages.threads_conflicts import Refusal, refusal
from app.pages.threads_list import ALL, FILTERS, OWN, Question, ThreadList, thread_list
from app.pages.threads_sent import Sent
from app.pages.threads_view import acts_mark, answerers, item_view, thread_view
from app.query import read_query
from app.replies import new_request_id, request_id
from continuity import limits
from continuity.decisions.threads import bounds
from continuity.errors import ConflictError, DecryptionError, IntegrityError, MalformedError, NotFoundError, VaultError
from continuity.services.callers import Caller, Role
from continuity.thread_requests import ListThreads

blueprint = Blueprint("threads", __name__)

EVERY_ROLE: Final = tuple(Role)
"""Whoever signs in may own threads; which of them one sees is the product's own decision."""
OVERSEEING_ROLES: Final = (Role.OPERATOR, Role.ADMINISTRATOR)
PAGE_SIZE: Final = 25
_MARK_CHARS: Final = 16
_CURSOR_KEPT_S: Final = 300
"""How long an open list keeps the cursor of its next page, which is good for three times as long."""
_LOCAL: Final = "http://127.0.0.1:8768"
_FIRST_STEPS: Final = """\
export ATMEM_THREADS_TOKEN="$(atmem continuity credential --thread-worker \\
  --agents order_support --workspace default \\
  --principal order-worker --token-only{url})"
export ATMEM_EVIDENCE_TOKEN="$(atmem continuity credential --coordinator \\
  --workspace default --principal order-tools --token-only{url})"
atmem threads worker examples.order_support.agent:agent{url}"""
_NO_CONTENT: Final = 204
_CONFLICT: Final = 409

WORDS["threads_moved"] = "That place in the list is no longer kept. These are the newest threads."
WORDS["thread_history_moved"] = "That page of the conversation is no longer kept. This is the newest part of it."


@dataclass(frozen=True, slots=True)
class New:
    """The form for a new thread as somebody sent it, with what it lacks."""

    values: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    refused: Refusal | None = None
    is_outdated: bool = False


# ---- the list


@blueprint.get("/threads")
@admits(people=EVERY_ROLE)
def index() -> Response:
    given = read_query(*FILTERS, "cursor")
    try:
        return list_page(_list(admitted(), given))
    except MalformedError:
        if "cursor" not in given:
            raise
    kept: dict[str, Any] = {name: value for name, value in given.items() if name != "cursor"}
    answer = htmx.see_other(url_for("threads.index", **kept))
    leave_note(answer, "threads_moved")
    return answer


@blueprint.get("/threads/live")
@admits(people=EVERY_ROLE)
@poll
def live_index() -> Response:
    """Answer the list's poll: 204 while it would look the same."""
    given = read_query(*FILTERS, "mark")
    mark = given.pop("mark", "")
    return list_page(_list(admitted(), given), seen=mark)


def newest(caller: Caller) -> ThreadList:
    """Return the first page of what somebody sees when they open the list."""
    return _list(caller, {})


def list_page(found: ThreadList, *, new: New | None = None, seen: str = "", status: int = 200) -> Response:
    """Answer with the list; with 204 when the browser that polls has this very list already."""
    is_asked_for = found.is_empty_everywhere or not htmx.wants_fragment()
    agents = wiring().threads.reading.agents(admitted()) if is_asked_for else []
    mark = _mark(found, [each["name"] for each in agents] if found.is_empty_everywhere else [])
    if mark == seen and htmx.wants_fragment():
        return Response(status=_NO_CONTENT)
    return htmx.render(
        page="pages/threads/index.html", fragment="fragments/threads/list.html", status=status, work=found, mark=mark,
        agents=[(each["name"], each["name"]) for each in agents], new=new or New(), request_id=new_request_id(),
        first_steps=_first_steps(), limits=limits,
    )  # fmt: skip


def _list(caller: Caller, given: dict[str, str]) -> ThreadList:
    is_wide = caller.role in OVERSEEING_ROLES
    scope = given.get("scope", ALL if is_wide else OWN)
    asked = ListThreads.from_query({**given, "scope": scope, "limit": str(PAGE_SIZE)})
    names = auth().names.workspaces(caller.workspaces)
    # Those of one owner stand in no index by state: nothing is counted there.
    counts = wiring().threads.standing.counts(names, most=limits.EXACT_COUNT_MAX) if scope == ALL else {}
    return thread_list(
        wiring().threads.reading.page(caller, asked), counts, Question(given.get("state"), given.get("scope")),
        is_first="cursor" not in given, is_wide=is_wide, workspaces=list(names.values()),
    )  # fmt: skip


def _mark(found: ThreadList, agents: list[str]) -> str:
    """Return one word that differs whenever the list would look different (as for the list of work)."""
    period = wiring().clock.now_us() // (_CURSOR_KEPT_S * limits.SECOND_US) if found.next_cursor else None
    shown = repr((replace(found, next_cursor=None), period, agents))
    return hashlib.sha256(shown.encode()).hexdigest()[:_MARK_CHARS]


def _first_steps() -> str:
    url = auth().url
    return _FIRST_STEPS.format(url="" if url == _LOCAL else f" --url {url}")


# ---- one thread


@blueprint.get("/threads/<thread:thread_id>")
@admits(people=EVERY_ROLE)
def show(thread_id: str) -> Response:
    read_query()
    return thread_page(admitted(), thread_id)


@blueprint.get("/threads/<thread:thread_id>/live")
@admits(people=EVERY_ROLE)
@poll
def live(thread_id: str) -> Response:
    """Answer the poll of the conversation: 204 while it has no further record."""
    mark = read_query("mark").get("mark")
    if mark == str(wiring().threads.reading.pulse(admitted(), thread_id).checkpoint):
        return Response(status=_NO_CONTENT)
    return _part(thread_id, "conversation")


@blueprint.get("/threads/<thread:thread_id>/acts")
@admits(people=EVERY_ROLE)
@poll
def acts(thread_id: str) -> Response:
    """Answer the poll of what may be done: 204 while that is the same."""
    mark = read_query("mark").get("mark")
    pulse = wiring().threads.reading.pulse(admitted(), thread_id)
    if mark == acts_mark(str(pulse.checkpoint), pulse.revision):
        return Response(status=_NO_CONTENT)
    return _part(thread_id, "acts")


@blueprint.get("/threads/<thread:thread_id>/claim")
@admits(people=EVERY_ROLE)
@poll
def claim(thread_id: str) -> Response:
    """Say how long the worker's claim lives yet: it is renewed without any record."""
    read_query()
    context = {"claim": _claim(admitted(), thread_id), "thread_id": thread_id}
    return Response(render_template("fragments/threads/claim.html", **context), content_type=HTML_TYPE)


@blueprint.get("/threads/<thread:thread_id>/history")
@admits(people=EVERY_ROLE)
def history(thread_id: str) -> Response:
    """Show older messages, as they were when the newest were shown."""
    reading, caller = wiring().threads.reading, admitted()
    cursor = read_query("cursor").get("cursor", "")
    try:
        found = reading.history(caller, thread_id, cursor)
    except NotFoundError:
        reading.pulse(caller, thread_id)
        answer = htmx.see_other(url_for("threads.show", thread_id=thread_id))
        leave_note(answer, "thread_history_moved")
        return answer
    except ConflictError as error:
        return gone(thread_id, error)
    is_owner = wiring().threads.standing.of(caller, thread_id).is_owner
    names = auth().names.of(answerers(found["messages"]))
    return _page(
        "history", thread_id=thread_id, items=[item_view(item, {}, names) for item in found["messages"]],
        older=found["history_cursor"], owner="You" if is_owner else "The owner",
    )  # fmt: skip


def thread_page(
    caller: Caller, thread_id: str, *, sent: Sent | None = None, refused: Refusal | None = None,
    recorded: AskView | None = None, status: int = 200,
) -> Response:  # fmt: skip
    """Answer with the thread as it is now, beside why a control was refused or what a form lacks.

    `recorded` is the question that was answered before.
    """
    try:
        context = _context(caller, thread_id, sent=sent or Sent(), refused=refused)
        context["recorded"] = recorded
    except ConflictError as error:
        return gone(thread_id, error)
    except (DecryptionError, IntegrityError) as error:
        return _unreadable(caller, thread_id, error)
    return Response(render_template("pages/threads/show.html", **context), status, content_type=HTML_TYPE)


def _part(thread_id: str, name: str) -> Response:
    """Answer a poll with one part; asked for as a page, with the whole page."""
    context = _context(admitted(), thread_id, sent=Sent(), refused=None, is_following=True)
    return htmx.render(page="pages/threads/show.html", fragment=f"fragments/threads/{name}.html", **context)


def _context(
    caller: Caller, thread_id: str, *, sent: Sent, refused: Refusal | None, is_following: bool = False
) -> dict[str, Any]:
    threads = wiring().threads
    snapshot = threads.reading.snapshot(caller, thread_id, is_following=is_following)
    return {
        "thread": thread_view(snapshot, auth().names.of(answerers(snapshot["messages"]))),
        "asks": asks(caller, thread_id, snapshot, sent),
        "standing": threads.standing.of(caller, thread_id),
        "claim": _claim(caller, thread_id),
        "sent": sent,
        "refused": refused,
        "recorded": None,
        "request_id": new_request_id(),
        "is_fresh": caller.is_fresh,
        "bounds": bounds,
        "first_steps": _first_steps(),
    }


def _claim(caller: Caller, thread_id: str) -> int | None:
    """Return how many seconds the worker's claim lives yet; None where there is none."""
    left_s = wiring().threads.reading.pulse(caller, thread_id).claim_left_s
    return None if left_s is None else math.ceil(left_s)


def asks(caller: Caller, thread_id: str, snapshot: dict[str, Any], sent: Sent) -> tuple[AskView, ...]:
    """Return what a thread waits for, with forms; of what is answered already, by whom."""
    questions = [
        request
        if request["state"] == "open"
        else wiring().threads.standing.question(caller, thread_id, request["waiting_id"])
        for request in snapshot["waiting"]
    ]
    return ask_views(questions, sent, _answerers(questions))


def recorded_view(caller: Caller, thread_id: str, waiting_id: str) -> AskView:
    """Return a question with the answer that counts."""
    question = wiring().threads.standing.question(caller, thread_id, waiting_id)
    return ask_views([question], Sent(), _answerers([question]))[0]


def _answerers(questions: list[dict[str, Any]]) -> dict[str, str]:
    return auth().names.of(each["answered_by"] for each in questions if "answered_by" in each)


def gone(thread_id: str, error: ConflictError) -> Response:
    """Answer of a thread that was deleted; any other conflict goes on."""
    if error.code != "thread_deleted":
        raise error
    return _page("gone", _CONFLICT, why=refusal("", error.code), thread_id=thread_id)


def _unreadable(caller: Caller, thread_id: str, error: VaultError) -> Response:
    """Say of a thread that it does not open; the error is logged and put on record as any other."""
    state = wiring().threads.reading.pulse(caller, thread_id).state
    answer = errors.render(error)
    answer.set_data(render_template(
        "pages/threads/unreadable.html", thread_id=thread_id, state=state, request_id=request_id()
    ))  # fmt: skip
    answer.content_type = HTML_TYPE
    return answer


def _page(name: str, status: int = 200, **context: Any) -> Response:
    return Response(render_template(f"pages/threads/{name}.html", **context), status, content_type=HTML_TYPE)
