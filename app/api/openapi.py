"""Serves the contract that `app.api.documentation` makes, and makes it when somebody asks for it first.

Its models are a third of what a server would load to start, and most servers are never asked.
"""

from __future__ import annotations

from typing import Final

from flask import Blueprint, Response, current_app

from app.auth.admission import public
from app.replies import JSON_TYPE, json_bytes

blueprint = Blueprint("documentation", __name__)

_MADE: Final = "atmem.openapi"


@blueprint.get("/openapi.json")
@public
def openapi() -> Response:
    """Show the contract of this server."""
    from app.api.documentation import document  # noqa: PLC0415 - see above

    made = current_app.extensions.get(_MADE)
    if made is None:
        made = current_app.extensions[_MADE] = json_bytes(document(current_app))
    return Response(made, content_type=JSON_TYPE)
