"""The forms of Settings: what they bring, and the one way from a form to its effect.

In this order: the password where it was given too long ago, what the form lacks, the deed, and why it was refused.
Whatever stands in the way, the page comes again with all that was written, and nothing was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from flask import Response

from app import errors
from app.auth.admission import admitted
from app.body import read_form
from app.pages import forms, keeping
from app.pages.problems import too_often
from app.pages.reauthentication import Unproved, proved
from app.pages.settings.refusals import NO_KEYS, Refusal, refusal
from continuity.errors import (
    ConflictError,
    ContinuityError,
    ForbiddenError,
    KeySourceError,
    MalformedError,
    ThrottledError,
)
from continuity.services.callers import Caller

TICKED: Final = "yes"
PASSPHRASE: Final = "passphrase"  # noqa: S105 - a name
WRONG_PASSPHRASE: Final = "wrong_passphrase"  # noqa: S105 - a code
_TOO_MANY: Final = 429
_CONFLICT: Final = 409
_UNPROCESSABLE: Final = 422
_FORBIDDEN: Final = 403
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Sent:
    """A form as somebody sent it, to be shown again with what it lacks.

    `form` tells the forms of a page apart. `is_outdated`: it was sent from a page of an earlier session.
    """

    form: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    is_outdated: bool = False

    def is_for(self, form: str) -> bool:
        return self.form == form

    def value(self, name: str, form: str, default: str = "") -> str:
        return self.values.get(name, default) if self.is_for(form) else default

    def problem(self, name: str, form: str) -> str:
        return self.problems.get(name, "") if self.is_for(form) else ""

    def lacking(self, **problems: str) -> Sent:
        """Return the same with these problems as well; empty ones are none."""
        found = {name: problem for name, problem in problems.items() if problem}
        return replace(self, problems={**self.problems, **found})


NOTHING_SENT: Final = Sent()


class Page(Protocol):
    """Shows the page of a form again."""

    def __call__(
        self, caller: Caller, *, sent: Sent = ..., refused: Refusal | None = ..., status: int = ...
    ) -> Response: ...


def read(form: str, *names: str, secrets: tuple[str, ...] = ()) -> Sent:
    """Read a form with these fields, and the password's. MalformedError when there are others.

    `secrets` may be there too and are not returned, as the password is not: see `secret`.
    """
    given = forms.fields(*names, *secrets, secret=forms.PASSWORD)
    return Sent(form, {name: given[name] for name in names})


def secret(name: str) -> str:
    """Return a secret of the form, empty when it brings none."""
    return read_form().get(name, "")


def act(sent: Sent, work: Callable[[Caller], Done], *, show: Page, done: Callable[[Done], Response]) -> Response:
    """Do it for somebody who gave the password within ten minutes, as the module says.

    `work` may raise ConflictError; MalformedError whose message begins with the name of a field; what a passphrase
    that is not the right one, or was given too often, raises; and KeySourceError.
    """
    proof = proved(admitted(), forms.password())
    if isinstance(proof, Unproved):
        return _ask_for_password(sent, proof, show=show)
    if sent.problems:
        return show(proof, sent=sent, status=_UNPROCESSABLE)
    try:
        made = work(proof)
    except (ConflictError, MalformedError, ForbiddenError, ThrottledError, KeySourceError) as error:
        if (answer := _refused(proof, sent, error, show=show)) is None:
            raise
        return answer
    return done(made)


def _refused(caller: Caller, sent: Sent, error: ContinuityError, *, show: Page) -> Response | None:
    """Show the page of the form again with why it was refused; None for what is no matter of the form."""
    if isinstance(error, ConflictError):
        return show(caller, sent=sent, refused=refusal(error), status=_CONFLICT)
    if isinstance(error, KeySourceError):
        # Its message names files of the host. Rendered, it stands in the log.
        status = errors.render(error).status_code
        return show(caller, sent=sent, refused=NO_KEYS, status=status)
    if isinstance(error, ThrottledError):
        answer = show(caller, sent=sent.lacking(**{PASSPHRASE: too_often(error)}), status=_TOO_MANY)
        answer.headers["Retry-After"] = str(error.retry_after_s)
        return answer
    if isinstance(error, ForbiddenError):
        is_ours = error.code == WRONG_PASSPHRASE
        wrong = sent.lacking(**{PASSPHRASE: "This is not the passphrase."})
        return show(caller, sent=wrong, status=_UNPROCESSABLE) if is_ours else None
    name, _, rest = error.message.partition(" ")
    # A field for several of a thing has its name in the plural.
    known = {*sent.values, PASSPHRASE}
    found = next((each for each in (name, f"{name}s") if each in known), None)
    return None if found is None else show(caller, sent=sent.lacking(**{found: f"This {rest}"}), status=_UNPROCESSABLE)


def keep(endpoint: str, show: Callable[..., Response], read_again: Callable[[], Sent]) -> None:
    """Have the form of `endpoint` come again when it was sent from a page of an earlier session."""

    def again(caller: Caller, **arguments: str) -> Response:
        sent = replace(read_again(), problems={}, is_outdated=True)
        return show(caller, **arguments, sent=sent, status=_FORBIDDEN)

    keeping.FORMS[endpoint] = again


def _ask_for_password(sent: Sent, proof: Unproved, *, show: Page) -> Response:
    asking = sent.lacking(**{forms.PASSWORD: proof.problem})
    answer = show(admitted(), sent=asking, status=proof.status)
    if proof.retry_after_s is not None:
        answer.headers["Retry-After"] = str(proof.retry_after_s)
    return answer
