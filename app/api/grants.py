"""Credentials: issue and revoke. People alone do either."""

from __future__ import annotations

from flask import Blueprint, Response

from app.auth.admission import admits, admitted
from app.auth.identity import auth
from app.auth.requests import GrantRequest, RevokeRequest
from app.body import SMALL_BODY_BYTES, read_json
from app.replies import json_response, request_id
from continuity.services.callers import Role

blueprint = Blueprint("grants", __name__)

_SECOND_US = 1_000_000
_ISSUERS = (Role.OPERATOR, Role.ADMINISTRATOR)


@blueprint.post("/v1/evidence/grants")
@admits(people=_ISSUERS, fresh=True)
def issue() -> Response:
    """Make a credential; the token is in this reply and nowhere else."""
    issuer = admitted()
    issued = auth().credentials.issue(issuer, GrantRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES)))
    return json_response({
        "principal_id": issued.principal_id,
        "role": issued.kind.value,
        "token": issued.token,
        "expires_at": issued.expires_at_us // _SECOND_US,
        "request_id": request_id(),
    })  # fmt: skip


@blueprint.post("/v1/evidence/revoke")
@admits(people=_ISSUERS)
def revoke() -> Response:
    """End the credentials of a principal, from the next request on."""
    by = admitted()
    asked = RevokeRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    revoked = auth().credentials.revoke(by, asked)
    return json_response({"principal_id": asked.principal_id, "revoked": revoked, "request_id": request_id()})
