"""Doing work: begin, outcome, renew. Operators' credentials, workers' and coordinators'; never people.

The hot path: strict body, one service call, one reply. `VERBS` says it once, for the views here and for `app.api.lane`,
which answers whoever brings a credential without Flask's machinery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, Response, request

from app.auth.admission import admits, admitted
from app.body import RECEIPT_BODY_BYTES, SMALL_BODY_BYTES, json_of
from app.extensions import wiring
from app.replies import json_response
from app.wiring import Wiring
from continuity.services.callers import Caller, CallerKind
from continuity.wire import BeginRequest, OutcomeRequest, RenewRequest

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

Verb = Callable[[Wiring, Caller, str, "WSGIEnvironment"], dict[str, Any]]
"""Reads the body of a request for a workflow, and does what it asks on behalf of a caller who is admitted."""

blueprint = Blueprint("workers", __name__)

_hosts = admits(CallerKind.OPERATOR, CallerKind.WORKER, CallerKind.COORDINATOR)


@blueprint.post("/v1/continuity/<workflow:workflow_id>/begin")
@_hosts
def begin(workflow_id: str) -> Response:
    """Ask for the right to attempt an operation."""
    return _answer(workflow_id, _begin)


@blueprint.post("/v1/continuity/<workflow:workflow_id>/outcome")
@_hosts
def outcome(workflow_id: str) -> Response:
    """Report what became of an attempt."""
    return _answer(workflow_id, _outcome)


@blueprint.post("/v1/continuity/<workflow:workflow_id>/renew")
@_hosts
def renew(workflow_id: str) -> Response:
    """Keep a live lease for another 120 seconds."""
    return _answer(workflow_id, _renew)


def _answer(workflow_id: str, verb: Verb) -> Response:
    return json_response(verb(wiring(), admitted(), workflow_id, request.environ))


def _begin(wired: Wiring, caller: Caller, workflow_id: str, environ: WSGIEnvironment) -> dict[str, Any]:
    asked = BeginRequest.from_json(json_of(environ, limit_bytes=SMALL_BODY_BYTES))
    return wired.services.attempts.begin(caller, workflow_id, asked)


def _outcome(wired: Wiring, caller: Caller, workflow_id: str, environ: WSGIEnvironment) -> dict[str, Any]:
    asked = OutcomeRequest.from_json(json_of(environ, limit_bytes=RECEIPT_BODY_BYTES))
    return wired.services.attempts.outcome(caller, workflow_id, asked)


def _renew(wired: Wiring, caller: Caller, workflow_id: str, environ: WSGIEnvironment) -> dict[str, Any]:
    asked = RenewRequest.from_json(json_of(environ, limit_bytes=SMALL_BODY_BYTES))
    return wired.services.attempts.renew(caller, workflow_id, asked)


VERBS: Final[dict[str, Verb]] = {"begin": _begin, "outcome": _outcome, "renew": _renew}
"""Each by the last part of its path, which is the name of its view too."""
