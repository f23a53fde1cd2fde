"""How the example commands speak: one JSON object for what came of it, one line for what went wrong.

Exit codes: 0 done, 1 refused or failed with one clear line, 2 stopped safely or wrong usage. The credential comes
from the environment (``ATMEM_EVIDENCE_TOKEN``), never from the command line. The line begins with ``Error``, and
with its code after that when it is the server's refusal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from continuity.addresses import checked_url
from continuity.client import AtFlowsObserver, ContinuityClient, OutcomeNotRecorded, RecoveryBlocked
from continuity.errors import (
    ContinuityError,
    ForbiddenError,
    MalformedError,
    NotReachedError,
    TooLargeError,
    TransportError,
    UnauthenticatedError,
)

URL: Final = "http://127.0.0.1:8768"
DONE: Final = 0
FAILED: Final = 1
STOPPED_SAFELY: Final = 2
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
"""As shells have it for Ctrl-C."""
TOKEN: Final = "ATMEM_EVIDENCE_TOKEN"  # noqa: S105 - the name of a variable
EPILOG: Final = (
    "The credential is read from ATMEM_EVIDENCE_TOKEN. Exit codes: 0 done, 1 failed, 2 stopped safely or used wrongly."
)
_ISSUE: Final = "atmem continuity credential [WORKFLOW_ID] --principal NAME --token-only"
_KINDS: Final = {"o": "operator", "w": "worker", "c": "coordinator", "b": "observer"}
_KIND_AT: Final = 4
_REPORT_WITH: Final = (
    "ATFLOWS_CONTINUITY_TOKEN must be the one that the server at --atflows-url was started with, or a credential of "
    "`atmem continuity credential --principal NAME --observer --scope SCOPE --token-only`."
)
_REPORT_TO: Final = "Look whether --atflows-url is the address of the server, and whether `atmem serve` runs there."
_LATER: Final = "Nothing needs to be put right: the server was busy or slow, and later attempts will be reported."
_OBSERVATION_STEPS: Final = {
    "unauthenticated": _REPORT_WITH, "forbidden": _REPORT_WITH,
    "server_not_reached": _REPORT_TO, "transport_error": _REPORT_TO, "not_found": _REPORT_TO,
    "throttled": _LATER, "storage_unavailable": _LATER, "transport_timeout": _LATER,
    "observation_workers_busy": _LATER,
}  # fmt: skip
"""By code: what to do where attempts could not be reported."""
_OWN: Final = (MalformedError, TooLargeError, TransportError)
"""What is found out here or on the way; every other error is the server's, and named by its code."""


class MistakeError(Exception):
    """Something that whoever calls must put right; the message says what."""


class WrongUsageError(MistakeError):
    """An option or a variable that cannot be what it is. Nothing was sent."""


def tell(command: Callable[[], Mapping[str, Any]], *, ask_again: str) -> int:
    """Run a command and print what came of it.

    Args:
        command: Returns the answer to print.
        ask_again: One sentence on what to do when a receipt was not recorded, or somebody pressed Ctrl-C.

    Returns:
        The exit code.
    """
    try:
        answer = command()
    except RecoveryBlocked as stop:
        _print({"stopped_safely": stop.code, "next": stop.next_step, **_where(stop)})
        return STOPPED_SAFELY
    except OutcomeNotRecorded as stop:
        _print({"stopped_safely": stop.code, "next": ask_again, "page": stop.page})
        return STOPPED_SAFELY
    except (ContinuityError, OSError, MistakeError) as error:
        print(f"Error: {_line(error)}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, WrongUsageError) else FAILED
    except KeyboardInterrupt:
        # What was begun has been reported by now, or the message of the next run says what it waits for.
        print(f"Interrupted. {ask_again}", file=sys.stderr)
        return INTERRUPTED
    _print(answer)
    return DONE


def add_addresses(command: argparse.ArgumentParser, *, with_atflows: bool = True) -> None:
    """Give a command the options that say where its servers are."""
    command.add_argument("--url", default=os.environ.get("ATMEM_URL", URL), help="the server's address (ATMEM_URL)")
    if with_atflows:
        command.add_argument("--atflows-url", help="report attempts to this AtFlows address (ATFLOWS_CONTINUITY_TOKEN)")


def address(options: argparse.Namespace) -> str:
    """Return the server's address; raises `WrongUsageError` if no credential may be sent there."""
    return _checked(options.url, "--url or ATMEM_URL")


def credential() -> str:
    """Return the credential that the environment holds; raises `WrongUsageError` if it holds none."""
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        raise WrongUsageError(f"Set {TOKEN} to the credential: {_ISSUE}")
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise WrongUsageError(f"{TOKEN} holds no credential: {_ISSUE}")
    return token


def observer_at(url: str | None) -> AtFlowsObserver | None:
    """Return an observer of an address, None for none; raises `WrongUsageError` without a secret for it."""
    if url is None:
        return None
    token = os.environ.get("ATFLOWS_CONTINUITY_TOKEN")
    if not token:
        raise WrongUsageError("Set ATFLOWS_CONTINUITY_TOKEN to report to AtFlows, or leave --atflows-url out.")
    return AtFlowsObserver(_checked(url, "--atflows-url"), token)


def observed(client: ContinuityClient) -> dict[str, Any]:
    """Return what an answer says of attempts that could not be reported to AtFlows; nothing when all could."""
    if not client.observation_error_count:
        return {}
    return {
        "observation_errors": Counter(client.observation_error_codes),
        "observation_next": f"The work itself is not touched by this. {_observation_step(client)}",
    }


def _observation_step(client: ContinuityClient) -> str:
    """Return what to do about the first failure that something can be done about."""
    steps = (_OBSERVATION_STEPS[code] for code in client.observation_error_codes if code in _OBSERVATION_STEPS)
    return next(steps, "Look into the log of the server at --atflows-url.")


def _checked(url: str, where: str) -> str:
    try:
        return checked_url(url)
    except MalformedError as error:
        raise WrongUsageError(f"{where}: {error}") from None


def _where(stop: RecoveryBlocked) -> dict[str, Any]:
    """Return what helps to go on: the page, when to ask again, and what the tool itself said."""
    answer: dict[str, Any] = {"workflow_id": stop.workflow_id} if stop.workflow_id else {}
    answer["page"] = stop.page
    if stop.lease_until is not None:
        answer["lease_until"] = stop.lease_until
    if stop.retry_after_s is not None:
        answer["retry_after_seconds"] = round(stop.retry_after_s, 3)
    if stop.because:
        answer["because"] = stop.because
    return answer


def _line(error: Exception) -> str:
    """Return the one line that says what went wrong."""
    if isinstance(error, OSError):
        said = error.strerror or type(error).__name__
        return f"{error.filename}: {said}." if error.filename is not None else f"{said}."
    if isinstance(error, NotReachedError):
        return f"{error} Is `atmem serve` running? Else name the server's address with --url or ATMEM_URL."
    if isinstance(error, UnauthenticatedError):
        return (
            f"{error.code}: The credential in {TOKEN} is not valid here: expired, revoked or mistyped. "
            f"Issue another one: {_ISSUE}"
        )
    if isinstance(error, ForbiddenError):
        token = os.environ.get(TOKEN, "").strip()
        kind = _KINDS.get(token[_KIND_AT : _KIND_AT + 1], "other")
        return f"{error.code}: The credential in {TOKEN} is of the kind {kind}, which may not do this."
    if isinstance(error, ContinuityError) and not isinstance(error, _OWN):
        return f"{error.code}: {error}"
    return str(error)


def _print(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer, ensure_ascii=False, indent=2))
