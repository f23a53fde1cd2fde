"""Observing work: producers submit what they saw. They learn whether it was taken, and nothing else.

Nothing here touches governed operations: its own connections, its own budget of requests and of threads.
"""

from __future__ import annotations

from flask import Blueprint, Response

from app.auth.admission import admits, admitted
from app.body import read_json_text
from app.extensions import wiring
from app.headers import EVENTS_PATH
from app.replies import json_response
from continuity.errors import ContinuityError, ForbiddenError
from continuity.services.callers import CallerKind
from observations.events import EVENT_BYTES, read_event

blueprint = Blueprint("observers", __name__)


@blueprint.post(EVENTS_PATH)
@admits(CallerKind.OBSERVER)
def submit() -> Response:
    """Take in one observation event."""
    scope = admitted().observation_scope
    if scope is None:
        raise ForbiddenError("This is not allowed.")
    count = wiring().metrics.observed
    try:
        event = read_event(read_json_text(limit_bytes=EVENT_BYTES))
        is_replay = wiring().observations.ingest.accept(scope, event)
    except ContinuityError:
        count("refused")
        raise
    count("replayed" if is_replay else "accepted")
    return json_response({"accepted": True, "replayed": is_replay})
