"""The forms of Settings: what they bring, and the one way from a form to its effect.

In this order: the password where it was given too long ago, what the form lacks, the deed, and why it was refused.
Whatever stands in the way, the page comes again with all that was written, and nothing was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from flask import Response

from app.auth.admission import admitted
from app.pages import forms, keeping
from app.pages.reauthentication import Unproved, proved
from app.pages.settings.refusals import Refusal, refusal
from continuity.errors import ConflictError, MalformedError
from continuity.services.callers import Caller

TICKED: Final = "yes"
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


def read(form: str, *names: str) -> Sent:
    """Read a form with these fields, and the password's. MalformedError when there are others."""
    return Sent(form, forms.fields(*names, secret=forms.PASSWORD))


def act(sent: Sent, work: Callable[[Caller], Done], *, show: Page, done: Callable[[Done], Response]) -> Response:
    """Do it for somebody who gave the password within ten minutes, as the module says.

    `work` may raise ConflictError, or MalformedError whose message begins with the name of a field.
    """
    proof = proved(admitted(), forms.password())
    if isinstance(proof, Unproved):
        return _ask_for_password(sent, proof, show=show)
    if sent.problems:
        return show(proof, sent=sent, status=_UNPROCESSABLE)
    try:
        made = work(proof)
    except ConflictError as error:
        return show(proof, sent=sent, refused=refusal(error), status=_CONFLICT)
    except MalformedError as error:
        name, _, rest = error.message.partition(" ")
        # A field for several of a thing has its name in the plural.
        found = next((each for each in (name, f"{name}s") if each in sent.values), None)
        if found is None:
            raise
        return show(proof, sent=sent.lacking(**{found: f"This {rest}"}), status=_UNPROCESSABLE)
    return done(made)


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
