"""The vault's capture mode: what is kept of what agents do. Administrators alone."""

from __future__ import annotations

from flask import Blueprint, Response

from app.auth.admission import admits, admitted
from app.body import SMALL_BODY_BYTES, read_json
from app.extensions import wiring
from app.query import read_query
from app.replies import json_response
from continuity.evidence import CaptureMode
from continuity.services.callers import Role

blueprint = Blueprint("capture", __name__)


@blueprint.get("/v1/evidence/settings/capture-mode")
@admits(people=(Role.ADMINISTRATOR,))
def show() -> Response:
    """Show the mode, and what stands in the way of leaving full."""
    read_query()
    return json_response(wiring().services.capture.status(admitted()))


@blueprint.post("/v1/evidence/settings/capture-mode")
@admits(people=(Role.ADMINISTRATOR,), fresh=True)
def change() -> Response:
    """Change the mode; leaving full is refused while unfinished work needs it."""
    asked = CaptureMode.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return json_response(wiring().services.capture.set_mode(admitted(), asked.capture_mode))
