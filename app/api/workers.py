"""Doing work: begin, outcome, renew. Operators' credentials, workers' and coordinators'; never people.

The hot path: strict body, one service call, one reply.
"""

from __future__ import annotations

from flask import Blueprint, Response

from app.auth.admission import admits, admitted
from app.body import RECEIPT_BODY_BYTES, SMALL_BODY_BYTES, read_json
from app.extensions import wiring
from app.replies import json_response
from continuity.services.callers import CallerKind
from continuity.wire import BeginRequest, OutcomeRequest, RenewRequest

blueprint = Blueprint("workers", __name__)

_hosts = admits(CallerKind.OPERATOR, CallerKind.WORKER, CallerKind.COORDINATOR)


@blueprint.post("/v1/continuity/<workflow:workflow_id>/begin")
@_hosts
def begin(workflow_id: str) -> Response:
    """Ask for the right to attempt an operation."""
    asked = BeginRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return json_response(wiring().services.attempts.begin(admitted(), workflow_id, asked))


@blueprint.post("/v1/continuity/<workflow:workflow_id>/outcome")
@_hosts
def outcome(workflow_id: str) -> Response:
    """Report what became of an attempt."""
    asked = OutcomeRequest.from_json(read_json(limit_bytes=RECEIPT_BODY_BYTES))
    return json_response(wiring().services.attempts.outcome(admitted(), workflow_id, asked))


@blueprint.post("/v1/continuity/<workflow:workflow_id>/renew")
@_hosts
def renew(workflow_id: str) -> Response:
    """Keep a live lease for another 120 seconds."""
    asked = RenewRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return json_response(wiring().services.attempts.renew(admitted(), workflow_id, asked))
