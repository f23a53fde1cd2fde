"""Threads for those who talk: people, and applications for one of their subjects.

An application says in the header ``Atmem-Subject`` for whom it acts; at creation ``subject`` in the body says it too.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from flask import Blueprint, Response, request

from app.api.journal import answer_journal
from app.auth import identity
from app.auth.admission import admits, admitted
from app.body import RECEIPT_BODY_BYTES, SMALL_BODY_BYTES, read_json
from app.extensions import wiring
from app.query import read_query
from app.replies import json_response
from app.thread_services import ThreadServices
from continuity.errors import MalformedError
from continuity.services.callers import Caller, CallerKind, Role
from continuity.thread_requests import ControlRequest, ListThreads, NewThread, ReplyRequest, SayRequest

blueprint = Blueprint("threads_api", __name__)

SUBJECT_HEADER: Final = "Atmem-Subject"
SUBJECT: Final = re.compile(r"[A-Za-z0-9_.:@+-]{1,128}")
"""Whom an application acts for, as it knows them."""
LIST_PARAMETERS: Final = ("limit", "cursor", "state", "scope")
JOURNAL_PARAMETERS: Final = ("after", "limit", "wait")
_clients = admits(CallerKind.APPLICATION, people=tuple(Role))


@blueprint.post("/v1/threads")
@_clients
def create() -> Response:
    """Create a thread, or find the caller's own of this name and agent."""
    body = read_json(limit_bytes=SMALL_BODY_BYTES)
    caller = client(body.pop("subject", None))
    return _written(_threads().acting.create(caller, NewThread.from_json(body)))


@blueprint.get("/v1/threads")
@_clients
def index() -> Response:
    """List threads, newest first."""
    asked = ListThreads.from_query(read_query(*LIST_PARAMETERS))
    return json_response(_threads().reading.page(client(), asked))


@blueprint.get("/v1/threads/agents")
@_clients
def agents() -> Response:
    """List the agents that the caller may talk to."""
    read_query()
    return json_response({"agents": _threads().reading.agents(client())})


@blueprint.get("/v1/threads/<thread:thread_id>")
@_clients
def show(thread_id: str) -> Response:
    """Return everything that a client needs at one position of the journal."""
    read_query()
    return json_response(_threads().reading.snapshot(client(), thread_id))


@blueprint.get("/v1/threads/<thread:thread_id>/journal")
@identity.poll
@_clients
def journal(thread_id: str) -> Response:
    """Return the records behind a position: a page, after a wait if asked to, or a stream of events."""
    return answer_journal(client(), thread_id, read_query(*JOURNAL_PARAMETERS))


@blueprint.get("/v1/threads/<thread:thread_id>/history")
@_clients
def history(thread_id: str) -> Response:
    """Return older messages, as they were at the snapshot that the cursor comes from."""
    cursor = read_query("cursor").get("cursor")
    if cursor is None:
        raise MalformedError("cursor is required: the history_cursor of a snapshot, or of the page before.")
    return json_response(_threads().reading.history(client(), thread_id, cursor))


@blueprint.get("/v1/threads/<thread:thread_id>/receipts/<identifier:asked_id>")
@_clients
def receipt(thread_id: str, asked_id: str) -> Response:
    """Return the receipt of a request whose answer was lost."""
    read_query()
    return json_response(_threads().acting.receipt(client(), thread_id, asked_id))


@blueprint.post("/v1/threads/<thread:thread_id>/messages")
@_clients
def message(thread_id: str) -> Response:
    """Say something to an idle thread."""
    return _written(_threads().acting.message(client(), thread_id, _said()))


@blueprint.post("/v1/threads/<thread:thread_id>/steer")
@_clients
def steer(thread_id: str) -> Response:
    """Say something that the run going on reads before its next step."""
    return _written(_threads().acting.steer(client(), thread_id, _said()))


@blueprint.post("/v1/threads/<thread:thread_id>/follow-ups")
@_clients
def follow_up(thread_id: str) -> Response:
    """Say something that the next run begins with."""
    return _written(_threads().acting.follow_up(client(), thread_id, _said()))


@blueprint.post("/v1/threads/<thread:thread_id>/stop")
@_clients
def stop(thread_id: str) -> Response:
    """Stop what the thread does, once the effect that is in flight is settled."""
    return _written(_threads().acting.stop(client(), thread_id, _control()))


@blueprint.post("/v1/threads/<thread:thread_id>/resume")
@_clients
def resume(thread_id: str) -> Response:
    """Go on after an interruption or a failure."""
    return _written(_threads().acting.resume(client(), thread_id, _control()))


@blueprint.post("/v1/threads/<thread:thread_id>/waiting/<waiting:waiting_id>/reply")
@_clients
def reply(thread_id: str, waiting_id: str) -> Response:
    """Answer a waiting request, once."""
    asked = ReplyRequest.from_json(read_json(limit_bytes=RECEIPT_BODY_BYTES))
    return _written(_threads().acting.reply(client(), thread_id, waiting_id, asked))


@blueprint.delete("/v1/threads/<thread:thread_id>")
@admits(CallerKind.APPLICATION, people=tuple(Role), fresh=True)
def delete(thread_id: str) -> Response:
    """Destroy a thread's content; its name can never be used again."""
    return _written({"deleted": _threads().deletions.delete(client(), thread_id)})


def client(subject: object = None) -> Caller:
    """Return who asks, an application with the subject that it acts for.

    Raises:
        MalformedError: A subject that is none, two different ones, or one where there can be none.
    """
    caller, header = admitted(), request.headers.get(SUBJECT_HEADER)
    given = [name for name in (subject, header) if name is not None]
    if not given:
        return caller
    if caller.kind is not CallerKind.APPLICATION:
        raise MalformedError("subject: only applications act for somebody.")
    found, *others = given
    if others not in ([], [found]) or not isinstance(found, str) or not SUBJECT.fullmatch(found):
        raise MalformedError("subject must be one, 1 to 128 characters of A-Z a-z 0-9 _ . : @ + -")
    return replace(caller, subject=found)


def _threads() -> ThreadServices:
    return wiring().threads


def _said() -> SayRequest:
    return SayRequest.from_json(read_json(limit_bytes=RECEIPT_BODY_BYTES))


def _control() -> ControlRequest:
    return ControlRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))


def _written(body: dict[str, Any]) -> Response:
    """Answer, and wake whoever waits for what was written."""
    wiring().threads.streams.signals.give()
    return json_response(body)
