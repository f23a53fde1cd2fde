"""A person's second factor: setting it up, new recovery codes, turning it off.

The secret and the recovery codes stand in the reply to the form that made them and on no page that has an address:
a reload shows neither. Whoever must set one up reaches this page and no other (`identity.check_enrolled`).

Source: security.md 3.1, 3.2, S12; ASVS 6.3.3, 6.5.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from flask import Blueprint, Response, render_template, url_for

from app import htmx
from app.auth.admission import sessions
from app.auth.identity import auth, signed_in, visit
from app.auth.one_time_codes import in_groups
from app.auth.second_factor import FAILED, Enrolment
from app.auth.sessions import SignedIn
from app.body import read_form
from app.pages import destinations, shell
from app.pages.forms import PASSWORD
from app.pages.notes import WORDS, leave_note
from app.pages.problems import HTML_TYPE
from app.pages.qr_code import qr_code_of
from continuity.errors import ConflictError, ForbiddenError, MalformedError, ThrottledError, UnauthenticatedError

blueprint = Blueprint("second_factor", __name__)

CODE: Final = "code"
_SECOND_US: Final = 1_000_000
_WRONG_CODE: Final = "The code is wrong, or was used already. Wait for the next one; is the clock of your device right?"
_TOO_LATE: Final = "It took too long, or your account has changed. Nothing was changed; begin again."
WORDS["second_factor_off"] = "Your second factor is off. Every other session of yours has ended."


class _Refused(Exception):
    """A form that is not taken: what to say, beside which field, with which status."""

    def __init__(self, field: str, problem: str, status: int = 422, retry_after_s: int | None = None) -> None:
        super().__init__(problem)
        self.field = field
        self.problem = problem
        self.status = status
        self.retry_after_s = retry_after_s


@blueprint.get("/account/second-factor")
@sessions
def show() -> Response:
    return _overview(_person())


@blueprint.post("/account/second-factor/start")
@sessions
def start() -> Response:
    """Make a secret, and show it with the form for its first code."""
    person = _person()
    try:
        person = _proved(person)
        made = auth().second_factors.start(person, visit=visit())
    except _Refused as refused:
        return _overview(person, "start", refused)
    except ConflictError:
        return _overview(person)
    return _enrolment(person, made)


@blueprint.post("/account/second-factor/confirm")
@sessions
def confirm() -> Response:
    """Take the first code, and show the recovery codes: this once."""
    person = _person()
    try:
        enrolled = auth().second_factors.confirm(person, read_form().get(CODE, ""), visit=visit())
    except (UnauthenticatedError, ThrottledError) as error:
        return _asked_again(person, _of_code(error))
    except (ConflictError, ForbiddenError):
        return _overview(person, "start", _Refused("", _TOO_LATE))
    shell.go_on_as(enrolled.welcome.session.session_id)
    return _codes(replace(person, must_enrol=False), enrolled.codes, is_new=True)


@blueprint.post("/account/second-factor/codes")
@sessions
def renew_codes() -> Response:
    """Replace the recovery codes, and show the new ones: this once."""
    person = _person()
    try:
        person = _proved(person)
        codes = auth().second_factors.renew_codes(person, read_form().get(CODE, ""), visit=visit())
    except _Refused as refused:
        return _overview(person, "codes", refused)
    except (UnauthenticatedError, ThrottledError) as error:
        return _overview(person, "codes", _of_code(error))
    except ConflictError:
        return _overview(person, "start", _Refused("", _TOO_LATE))
    return _codes(person, codes, is_new=False)


@blueprint.post("/account/second-factor/remove")
@sessions
def remove() -> Response:
    """Turn the second factor off."""
    person = _person()
    try:
        person = _proved(person)
        welcome = auth().second_factors.remove(person, read_form().get(CODE, ""), visit=visit())
    except _Refused as refused:
        return _overview(person, "remove", refused)
    except (UnauthenticatedError, ThrottledError) as error:
        return _overview(person, "remove", _of_code(error))
    except ConflictError:
        return _overview(person, "start", _Refused("", _TOO_LATE))
    answer = htmx.see_other(url_for("account.index"))
    shell.go_on_as(welcome.session.session_id)
    leave_note(answer, "second_factor_off")
    return answer


def _person() -> SignedIn:
    person = signed_in()
    if person.must_change:
        raise ForbiddenError("Choose a password of your own first.", code="password_change_required")
    return person


def _proved(person: SignedIn) -> SignedIn:
    """Return the person with a password given within ten minutes: the form brings it where it must."""
    if person.is_fresh:
        return person
    password = read_form().get(PASSWORD, "")
    if not password:
        raise _Refused(PASSWORD, "More than ten minutes have passed since you gave it.", 403)
    try:
        welcome = auth().sign_in.reauthenticate(person, password=password, visit=visit())
    except (UnauthenticatedError, MalformedError):
        raise _Refused(PASSWORD, "The password is wrong.") from None
    except ThrottledError as error:
        raise _too_often(PASSWORD, error) from None
    shell.go_on_as(welcome.session.session_id)
    return replace(person, session_id=welcome.session.session_id, is_fresh=True)


def _of_code(error: UnauthenticatedError | ThrottledError) -> _Refused:
    """Say what was wrong with a code; every other refusal of who asks goes its own way."""
    if isinstance(error, ThrottledError):
        return _too_often(CODE, error)
    if error.code != FAILED:
        raise error
    return _Refused(CODE, _WRONG_CODE)


def _too_often(field: str, error: ThrottledError) -> _Refused:
    return _Refused(field, f"Too many attempts. Try again in {error.retry_after_s} seconds.", 429, error.retry_after_s)


def _asked_again(person: SignedIn, refused: _Refused) -> Response:
    try:
        begun = auth().second_factors.pending(person)
    except ForbiddenError:
        begun = None
    if begun is None:
        return _overview(person, "start", _Refused("", _TOO_LATE))
    return _enrolment(person, begun, refused)


def _overview(person: SignedIn, form: str = "", refused: _Refused | None = None) -> Response:
    state = auth().second_factors.state(person.user_pk)
    return _page(
        "show", person, refused,
        form=form,
        since=None if state.since_us is None else state.since_us / _SECOND_US,
        codes_left=state.codes_left,
        needs_password=not person.is_fresh,
    )  # fmt: skip


def _enrolment(person: SignedIn, begun: Enrolment, refused: _Refused | None = None) -> Response:
    return _page("enrol", person, refused, secret=in_groups(begun.secret), qr=qr_code_of(begun.address))


def _codes(person: SignedIn, codes: tuple[str, ...], *, is_new: bool) -> Response:
    onward = destinations.address(destinations.given()) if destinations.given() else url_for("account.index")
    return _page("codes", person, None, codes="\n".join(codes), count=len(codes), is_new=is_new, onward_address=onward)


def _page(name: str, person: SignedIn, refused: _Refused | None, **more: Any) -> Response:
    body = render_template(
        f"pages/second_factor/{name}.html",
        layout="layouts/plain.html" if person.must_enrol else "layouts/signed_in.html",
        is_forced=person.must_enrol,
        username=person.username,
        next=destinations.given(),
        problem_field="" if refused is None else refused.field,
        problem="" if refused is None else refused.problem,
        **more,
    )
    answer = Response(body, 200 if refused is None else refused.status, content_type=HTML_TYPE)
    if refused is not None and refused.retry_after_s is not None:
        answer.headers["Retry-After"] = str(refused.retry_after_s)
    return answer
