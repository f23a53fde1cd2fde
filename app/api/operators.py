"""Reviewing and controlling work: people, and operators' credentials. A worker may read its own workflow."""

from __future__ import annotations

from flask import Blueprint, Response

from app.auth.admission import admits, admitted
from app.body import RECEIPT_BODY_BYTES, SMALL_BODY_BYTES, read_json
from app.extensions import wiring
from app.query import read_query
from app.replies import json_response
from continuity.services.callers import CallerKind, Role
from continuity.wire import LIST_PARAMETERS, AbandonRequest, ConfigureRequest, ConfirmRequest, ListRequest

blueprint = Blueprint("operators", __name__)

_EVERY_ROLE = (Role.OPERATOR, Role.INVESTIGATOR, Role.ADMINISTRATOR)
_DECIDING_ROLES = (Role.OPERATOR, Role.ADMINISTRATOR)


@blueprint.get("/v1/continuity")
@admits(CallerKind.OPERATOR, people=_EVERY_ROLE)
def index() -> Response:
    """List workflows, newest first."""
    asked = ListRequest.from_query(read_query(*LIST_PARAMETERS))
    return json_response(wiring().services.listing.page(admitted(), asked))


@blueprint.get("/v1/continuity/<workflow:workflow_id>")
@admits(CallerKind.OPERATOR, CallerKind.WORKER, CallerKind.COORDINATOR, people=_EVERY_ROLE)
def show(workflow_id: str) -> Response:
    """Show a workflow and its history."""
    read_query()
    return json_response(wiring().services.workflows.view(admitted(), workflow_id))


@blueprint.post("/v1/continuity/<workflow:workflow_id>/configure")
@admits(CallerKind.OPERATOR, people=_DECIDING_ROLES)
def configure(workflow_id: str) -> Response:
    """Enable recovery, or pause new attempts."""
    asked = ConfigureRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return json_response(wiring().services.controls.configure(admitted(), workflow_id, asked))


@blueprint.post("/v1/continuity/<workflow:workflow_id>/abandon")
@admits(CallerKind.OPERATOR, people=_DECIDING_ROLES)
def abandon(workflow_id: str) -> Response:
    """Stop one operation for good."""
    asked = AbandonRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return json_response(wiring().services.controls.abandon(admitted(), workflow_id, asked))


@blueprint.post("/v1/continuity/<workflow:workflow_id>/confirm")
@admits(people=_DECIDING_ROLES, fresh=True)
def confirm(workflow_id: str) -> Response:
    """Record a person's word on whether the effect happened."""
    asked = ConfirmRequest.from_json(read_json(limit_bytes=RECEIPT_BODY_BYTES))
    return json_response(wiring().services.controls.confirm(admitted(), workflow_id, asked))
