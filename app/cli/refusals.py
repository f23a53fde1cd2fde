"""What a server's refusal means for whoever typed the command: which variable or option, and the way on."""

from __future__ import annotations

from typing import Final

from app.auth.tokens import LETTERS
from continuity.errors import (
    ContinuityError,
    ForbiddenError,
    NotReachedError,
    TransportError,
    TransportTimeoutError,
    UnauthenticatedError,
    error_from_code,
)

NOTHING_CHANGED: Final = "Nothing was changed."
_IS_IT_THERE: Final = "Is `atmem serve` running there? Else name the server's address with --url or ATMEM_URL."
_OPERATORS: Final = "atmem continuity credential --principal NAME --token-only"
_KIND_AT: Final = 4
_WIDEST: Final = "operator"
_KINDS: Final = {letter: kind.name.lower() for kind, letter in LETTERS.items()}


def of_credential(error: ContinuityError, *, variable: str, token: str) -> ContinuityError:
    """Return a refusal of the credential in `variable` as one that names both, every other error as it is."""
    if isinstance(error, UnauthenticatedError):
        return UnauthenticatedError(
            f"The credential in {variable} is not valid here: expired, revoked or mistyped. {NOTHING_CHANGED} "
            f"Issue another one: {_OPERATORS} (WORKFLOW_ID makes it a worker's); or sign in with --username NAME."
        )
    if isinstance(error, ForbiddenError) and error.code == ForbiddenError.code:
        kind = _KINDS.get(token[_KIND_AT : _KIND_AT + 1], "other")
        # An operator's is the widest that there is: what it may not do, no credential may.
        way_on = "Sign in with --username NAME" + ("." if kind == _WIDEST else f", or use an operator's: {_OPERATORS}")
        return ForbiddenError(
            f"The credential in {variable} is of the kind {kind}, which may not do this. {NOTHING_CHANGED} {way_on}"
        )
    return error


def of_a_change(error: ContinuityError) -> ContinuityError:
    """Return the server's refusal of a change as one that says so."""
    if NOTHING_CHANGED.lower() in error.message.lower():
        return error
    return error_from_code(error.code, f"{error.message} {NOTHING_CHANGED}")


def of_damage(error: ContinuityError, *, changes_nothing: bool) -> ContinuityError:
    """Return what the server says of something that does not open as one that says how to find out more."""
    unchanged = f" {NOTHING_CHANGED}" if changes_nothing else ""
    return error_from_code(
        error.code, f"{error.message}{unchanged} atmem vault check, on the server, names all that does not open."
    )


def of_a_look(error: TransportError, url: str) -> TransportError:
    """Return a failure on the way of a request that changes nothing: a reading one, or signing in."""
    if isinstance(error, NotReachedError):
        return NotReachedError(f"{error.message} {_IS_IT_THERE}")
    if isinstance(error, TransportTimeoutError):
        return TransportTimeoutError(f"{url} gave no answer in time. {NOTHING_CHANGED}")
    return TransportError(
        f"{url} gave no answer as AtMem gives it. {NOTHING_CHANGED} Is AtMem at this address, and is it http or https? "
        "Name another one with --url or ATMEM_URL."
    )
