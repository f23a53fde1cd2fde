"""What a reply of the server means: the object of wire.md, or the error it names. Pure; no HTTP here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from continuity.errors import (
    ConflictError,
    ContinuityError,
    MalformedError,
    SealedError,
    ThrottledError,
    TransportError,
    UnauthenticatedError,
    UnavailableError,
    error_from_code,
)
from continuity.wire import IDENTIFIER

RETRY_AFTER_MAX_S: Final = 3_600
_SUCCESS: Final = range(200, 300)
_REDIRECTION: Final = range(300, 400)
_REFUSAL: Final = 400
_DEPTH: Final = 64
"""Twice the depth of a request: a reply puts what was sent a few levels further down."""


def read_reply(status: int, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the object of a 2xx reply.

    Args:
        status: The status of the reply.
        headers: Its headers, looked up without regard to case.
        body: All of its body.

    Raises:
        TransportError: The reply is outside the contract, a redirect for example. Whether the request
            took effect is unknown.
        ContinuityError: The class for the code that the server names; a throttled or unavailable server's
            error carries its Retry-After.
    """
    if status in _REDIRECTION:
        raise TransportError(f"The server answered {status}; redirects are never followed.")
    try:
        value = load_reply(body)
    except MalformedError as error:
        value = {}
        unread: MalformedError | None = error
    else:
        unread = None
    if status in _SUCCESS and unread is None:
        return value
    if status < _REFUSAL:
        raise TransportError(f"The server answered {status} with something that is not its contract.") from unread
    raise _refusal(status, headers, value)


def _refusal(status: int, headers: Mapping[str, str], value: Mapping[str, Any]) -> ContinuityError:
    """Return the error that a reply of 400 and above names, by its status when it names none."""
    named = value.get("error")
    error: ContinuityError
    if isinstance(named, dict) and isinstance(named.get("code"), str) and isinstance(named.get("message"), str):
        error = error_from_code(named["code"], named["message"], workflow_id=_identifier(named.get("workflow_id")))
    else:
        message = f"The server answered {status} without saying why."
        cls = _BY_STATUS.get(status, TransportError)
        error = cls(message)
    if isinstance(error, ConflictError) and isinstance(named, dict) and isinstance(named.get("current"), dict):
        error.current = named["current"]
    retry_after_s = _retry_after_s(headers)
    if retry_after_s is not None and isinstance(error, ThrottledError | UnavailableError):
        error.retry_after_s = retry_after_s
    return error


_BY_STATUS: Final[dict[int, type[ContinuityError]]] = {
    401: UnauthenticatedError,
    423: SealedError,
    429: ThrottledError,
    503: UnavailableError,
}
"""What a proxy may answer in the server's place without a body of ours."""


def _identifier(value: object) -> str:
    """Return an identifier of a reply, which becomes part of an address; empty if it is none."""
    return value if isinstance(value, str) and IDENTIFIER.fullmatch(value) else ""


def _retry_after_s(headers: Mapping[str, str]) -> int | None:
    value = headers.get("Retry-After", "")
    return min(int(value), RETRY_AFTER_MAX_S) if re.fullmatch(r"[0-9]{1,9}", value) else None


def load_reply(body: bytes) -> dict[str, Any]:
    """Read the JSON object of a reply: the rules of `continuity.jsontext` without its counts.

    A view holds what many requests brought, so that number of values, keys and digits are bounded by the
    size of the reply alone.

    Raises:
        MalformedError: Not UTF-8, a byte order mark, a key twice, NaN, Infinity, a number beyond a
            double, nesting above 64 levels, or no object at the top.
    """
    try:
        text = body.decode("utf-8", "strict")
        if text.startswith("\ufeff") or _is_deep(text):
            raise MalformedError("The reply is not JSON as the contract writes it.")
        value = _REPLY.decode(text)
    except (ValueError, RecursionError):
        raise MalformedError("The reply is not JSON as the contract writes it.") from None
    if not isinstance(value, dict):
        raise MalformedError("The reply is not a JSON object.")
    return value


_STRUCTURE: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def _is_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= _DEPTH:
        return False
    depth = 0
    for match in _STRUCTURE.finditer(text):
        first = match[0][0]
        depth += (first in "[{") - (first in "]}")
        if depth > _DEPTH:
            return True
    return False


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("The same key twice.")
    return value


def _constant(text: str) -> NoReturn:
    raise ValueError(text)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("A number beyond a double.")
    return number


_REPLY: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)
