"""Liveness and readiness, for whoever restarts or routes: one word and no more. Metrics, for whoever watches."""

from __future__ import annotations

from flask import Blueprint, Response

from app.auth.admission import admits, public
from app.extensions import wiring
from app.metrics import CONTENT_TYPE
from app.replies import json_response
from continuity.errors import ContinuityError
from continuity.services.callers import CallerKind, Role

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
@public
def live() -> Response:
    """Say that this process answers. Looks at nothing."""
    return json_response({"status": "ok"})


@blueprint.get("/readyz")
@public
def ready() -> Response:
    """Say whether this process can serve: the database answers and the vault's key is there."""
    try:
        wiring().check_ready()
    except ContinuityError as error:
        return json_response({"status": "unavailable", "code": error.code}, 503)
    return json_response({"status": "ready"})


@blueprint.get("/metrics")
@admits(CallerKind.MONITOR, people=(Role.ADMINISTRATOR,))
def metrics() -> Response:
    """Give the numbers of this server in Prometheus's text format."""
    return Response(wiring().metrics_page.text(), content_type=CONTENT_TYPE)
