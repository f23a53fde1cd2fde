"""Evidence at rest: deleting what is finished."""

from __future__ import annotations

from flask import Blueprint, Response

from app.auth.admission import admits, admitted
from app.body import SMALL_BODY_BYTES, read_json
from app.extensions import wiring
from app.replies import json_response
from continuity.services.callers import CallerKind, Role
from continuity.wire import DeleteRequest

blueprint = Blueprint("evidence", __name__)


@blueprint.post("/v1/evidence/delete")
@admits(CallerKind.OPERATOR, people=(Role.OPERATOR, Role.ADMINISTRATOR), fresh=True)
def delete() -> Response:
    """Destroy a finished workflow's content; its key can never be used again."""
    asked = DeleteRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return json_response({"deleted": wiring().services.deletions.delete(admitted(), asked.run_id)})
