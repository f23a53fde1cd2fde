"""Creating work: operators' credentials and coordinators'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, request

from app.auth.admission import admits, admitted
from app.body import DEFINITION_BODY_BYTES, json_of
from app.extensions import wiring
from app.replies import json_response
from app.wiring import Wiring
from continuity.services.callers import Caller, CallerKind
from continuity.wire import CreateWorkflow

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

blueprint = Blueprint("coordinators", __name__)


@blueprint.post("/v1/continuity")
@admits(CallerKind.OPERATOR, CallerKind.COORDINATOR)
def create() -> Response:
    """Create a workflow, or find the one of this key and definition; begin its work when asked to."""
    return json_response(created(wiring(), admitted(), request.environ))


def created(wired: Wiring, caller: Caller, environ: WSGIEnvironment) -> dict[str, Any]:
    """Do what a request for a workflow asks on behalf of a caller who is admitted. For `app.api.lane` as well."""
    asked = CreateWorkflow.from_json(json_of(environ, limit_bytes=DEFINITION_BODY_BYTES))
    return wired.services.workflows.create(caller, asked)
