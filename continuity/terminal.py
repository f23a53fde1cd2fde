"""How the example commands speak: one JSON object for what came of it, one line for what went wrong.

Exit codes: 0 done, 1 refused or failed with one clear line, 2 stopped safely or wrong usage. The credential comes
from the environment (``ATMEM_EVIDENCE_TOKEN``), never from the command line. A refusal of the server is one line
that begins with its code; whatever else went wrong begins with ``Error``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from continuity.client import AtFlowsObserver, OutcomeNotRecorded, RecoveryBlocked
from continuity.errors import ContinuityError, MalformedError, NotReachedError, TooLargeError, TransportError

URL: Final = "http://127.0.0.1:8768"
DONE: Final = 0
FAILED: Final = 1
STOPPED_SAFELY: Final = 2
EPILOG: Final = "The credential is read from ATMEM_EVIDENCE_TOKEN. Exit codes: 0 done, 1 failed, 2 stopped safely."
_OWN: Final = (MalformedError, TooLargeError, TransportError)
"""What is found out here or on the way; every other error is the server's, and named by its code."""


class MistakeError(Exception):
    """Something that whoever calls must put right; the message says what."""


def tell(command: Callable[[], Mapping[str, Any]], *, ask_again: str) -> int:
    """Run a command and print what came of it.

    Args:
        command: Returns the answer to print.
        ask_again: One sentence on what to do when a receipt was not recorded.

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
        print(_line(error), file=sys.stderr)
        return FAILED
    _print(answer)
    return DONE


def add_addresses(command: argparse.ArgumentParser, *, with_atflows: bool = True) -> None:
    """Give a command the options that say where its servers are."""
    command.add_argument("--url", default=os.environ.get("ATMEM_URL", URL), help="the server's address (ATMEM_URL)")
    if with_atflows:
        command.add_argument("--atflows-url", help="report attempts to this AtFlows address (ATFLOWS_CONTINUITY_TOKEN)")


def credential() -> str:
    """Return the credential that the environment holds; raises `MistakeError` if it holds none."""
    token = os.environ.get("ATMEM_EVIDENCE_TOKEN", "").strip()
    if not token:
        raise MistakeError("Set ATMEM_EVIDENCE_TOKEN to the credential: atmem continuity credential … --token-only")
    return token


def observer_at(url: str | None) -> AtFlowsObserver | None:
    """Return an observer of an address, None for none; raises `MistakeError` without a secret for it."""
    if url is None:
        return None
    token = os.environ.get("ATFLOWS_CONTINUITY_TOKEN")
    if not token:
        raise MistakeError("Set ATFLOWS_CONTINUITY_TOKEN to report to AtFlows, or leave --atflows-url out.")
    return AtFlowsObserver(url, token)


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
        return f"Error: {error.filename}: {said}." if error.filename is not None else f"Error: {said}."
    if isinstance(error, NotReachedError):
        return f"Error: {error} Is `atmem serve` running? Else name the server's address with --url or ATMEM_URL."
    if isinstance(error, ContinuityError) and not isinstance(error, _OWN):
        return f"{error.code}: {error}"
    return f"Error: {error}"


def _print(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer, ensure_ascii=False, indent=2))
