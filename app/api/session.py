"""Signing in and what a signed-in person does about the password. JSON below ``/api/auth``.

Every reply that begins a session has the one form of `_welcome`. A request with a bearer token is nobody here.
"""

from __future__ import annotations

from flask import Blueprint, Response

from app.auth.admission import sessions
from app.auth.identity import auth, check_enrolled, check_origin, presented_session, signed_in, visit
from app.auth.requests import ChangePasswordRequest, LoginRequest, ReauthenticateRequest
from app.auth.signin import Welcome
from app.body import SMALL_BODY_BYTES, read_json
from app.replies import json_response
from continuity.errors import ForbiddenError
from continuity.wire import Fields

blueprint = Blueprint("session", __name__)

_SECOND_US = 1_000_000


@blueprint.post("/api/auth/login")
@sessions
def login() -> Response:
    """Begin a session. Takes JSON alone, which no other site can send without asking, so it needs no token.

    Whoever has a second factor sends its code beside the password: nothing is kept between two requests.
    """
    asked = LoginRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    check_origin()
    return _welcome(
        auth().sign_in.sign_in(
            asked.username, asked.password, code=asked.code, visit=visit(), replaced=presented_session()
        )
    )


@blueprint.post("/api/auth/change-password")
@sessions
def change_password() -> Response:
    person = signed_in()
    check_enrolled(person)
    asked = ChangePasswordRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return _welcome(
        auth().sign_in.change_password(person, current=asked.current_password, new=asked.new_password, visit=visit())
    )


@blueprint.post("/api/auth/reauthenticate")
@sessions
def reauthenticate() -> Response:
    person = signed_in()
    if person.must_change:
        raise ForbiddenError("Choose a password of your own first.", code="password_change_required")
    check_enrolled(person)
    asked = ReauthenticateRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return _welcome(auth().sign_in.reauthenticate(person, password=asked.password, visit=visit()))


@blueprint.post("/api/auth/logout")
@sessions
def logout() -> Response:
    person = signed_in()
    Fields(read_json(limit_bytes=SMALL_BODY_BYTES)).finish()
    auth().sign_in.sign_out(person, visit=visit())
    response = json_response({"authenticated": False})
    auth().cookie.remove(response)
    response.headers["Clear-Site-Data"] = '"cache", "storage"'
    return response


def _welcome(welcome: Welcome) -> Response:
    response = json_response({
        "authenticated": True,
        "csrf_token": welcome.session.csrf_token,
        "expires_at": welcome.session.expires_at_us // _SECOND_US,
        "account": {
            "username": welcome.username,
            "role": welcome.role.value,
            "password_change_required": welcome.must_change,
        },
    })  # fmt: skip
    auth().cookie.set(response, welcome.session.session_id)
    return response
