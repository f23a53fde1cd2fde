"""Creating work: operators' credentials and coordinators'."""

from __future__ import annotations

from flask import Blueprint, Response

from app.auth.admission import admits, admitted
from app.body import DEFINITION_BODY_BYTES, read_json
from app.extensions import wiring
from app.replies import json_response
from continuity.services.callers import CallerKind
from continuity.wire import CreateWorkflow

blueprint = Blueprint("coordinators", __name__)


@blueprint.post("/v1/continuity")
@admits(CallerKind.OPERATOR, CallerKind.COORDINATOR)
def create() -> Response:
    """Create a workflow, or find the one of this key and definition; begin its work when asked to."""
    asked = CreateWorkflow.from_json(read_json(limit_bytes=DEFINITION_BODY_BYTES))
    return json_response(wiring().services.workflows.create(admitted(), asked))
