"""``python -m continuity.example``: publish a document that is published once, whatever happens.

``prepare`` defines the work for a person to review; ``run`` brings it to its result, as often as it is
called. The credential comes from the environment (``ATMEM_EVIDENCE_TOKEN``), never from the command line.
A refusal of the server is one line that begins with its code; whatever else went wrong begins with ``Error``.

Exit codes: 0 done, 1 refused or failed with one clear line, 2 stopped safely or wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from continuity.client import AtFlowsObserver, ContinuityClient, OutcomeNotRecorded, RecoveryBlocked
from continuity.decisions.beginning import Reason
from continuity.errors import ContinuityError, MalformedError, NotReachedError, TooLargeError, TransportError
from continuity.tools import DirectoryPublisher, make_output, publish_operation

URL: Final = "http://127.0.0.1:8768"
OPERATION: Final = "publish"
DONE: Final = 0
FAILED: Final = 1
STOPPED_SAFELY: Final = 2
_WORKFLOW_ID: Final = re.compile(r"wf_[0-9a-f]{32}")
_LOOK_S: Final = 5.0
_OWN: Final = (MalformedError, TooLargeError, TransportError)
"""What is found out here or on the way; every other error is the server's, and named by its code."""


class _MistakeError(Exception):
    """Something that whoever calls must give in another way. Nothing was sent."""


def main(argv: Sequence[str] | None = None, *, trace: Callable[[str], None] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Its arguments without the program's name; those of the process when left out.
        trace: Told each point that a run passes.

    Returns:
        The exit code.
    """
    options = _parser().parse_args(argv)
    try:
        answer = options.command(options, trace)
    except RecoveryBlocked as stop:
        _print({"stopped_safely": stop.code, "next": stop.next_step, **_where(stop)})
        return STOPPED_SAFELY
    except OutcomeNotRecorded as stop:
        _print({"stopped_safely": stop.code, "next": "Run again: the output directory is asked.", "page": stop.page})
        return STOPPED_SAFELY
    except (ContinuityError, OSError, _MistakeError) as error:
        print(_line(error), file=sys.stderr)
        return FAILED
    _print(answer)
    return DONE


def _prepare(options: argparse.Namespace, _trace: object) -> dict[str, Any]:
    with ContinuityClient(options.url, _token()) as client:
        operation = publish_operation(options.document, options.output, name=OPERATION)
        view = client.create_workflow(options.workflow_key, [operation])
        workflow_id = str(view.get("workflow_id"))
        # Only now: a refusal must leave nothing behind.
        make_output(operation)
        return {
            "workflow_id": workflow_id,
            "workflow_key": options.workflow_key,
            "enabled": view.get("enabled"),
            "output": operation["arguments"]["output"],
            "sha256": operation["arguments"]["sha256"],
            "bytes": operation["arguments"]["bytes"],
            "page": client.page(workflow_id),
            "next": _next(view, workflow_id),
        }


def _next(view: Mapping[str, Any], workflow_id: str) -> str:
    """Say what a person does next with the work as it stands: it may be older than this command."""
    return _NEXT.get(str(view.get("phase")), _NEXT["review"]).format(workflow_id=workflow_id)


_NEXT: Final = {
    "review": "Review the work on its page and enable recovery there, or: atmem continuity enable {workflow_id}",
    "paused": "Recovery is paused. Enable it on the work's page, or: atmem continuity enable {workflow_id}",
    "ready": "Recovery is enabled: run the work, with a worker's credential for {workflow_id}.",
    "resumable": "Recovery is enabled: run the work again, and the destination is asked what happened.",
    "running": "A worker is at it. Run it again when that worker is done or its lease is over.",
    "decision": "A person must say on its page what happened, or: atmem continuity show {workflow_id}",
    "done": "It is published already: run returns the saved result. New work needs a new --workflow-key.",
    "ended": "It was stopped or refused for good and will not run. New work needs a new --workflow-key.",
}
"""By the phase of the work."""
_ENABLED: Final = frozenset({"ready", "resumable", "running"})


def _run(options: argparse.Namespace, trace: Callable[[str], None] | None) -> dict[str, Any]:
    if not _WORKFLOW_ID.fullmatch(options.workflow_id):
        raise _MistakeError("--workflow-id must be the one that prepare returned: wf_ and 32 hexadecimal digits.")
    observer = _observer(options.atflows_url)
    with ContinuityClient(options.url, _token(), observer=observer, trace=trace) as client:
        tools = {DirectoryPublisher.TOOL: DirectoryPublisher(options.output)}
        try:
            result = client.run_operation(options.workflow_id, OPERATION, tools)
        except RecoveryBlocked as stop:
            _be_exact(stop, client)
            raise
        answer = {"workflow_id": options.workflow_id, "result": result}
        if client.observation_error_count:
            answer["observation_errors"] = client.observation_errors
        return answer


def _be_exact(stop: RecoveryBlocked, client: ContinuityClient) -> None:
    """Replace the advice of work that is not enabled, which says why it may be so, by the one that is true of it."""
    if stop.code == Reason.DISABLED.value:
        with suppress(ContinuityError):
            view = client.get_workflow(stop.workflow_id, reply_timeout_s=_LOOK_S)
            if view.get("phase") not in _ENABLED:
                stop.next_step = _next(view, stop.workflow_id)


def _observer(url: str | None) -> AtFlowsObserver | None:
    if url is None:
        return None
    token = os.environ.get("ATFLOWS_CONTINUITY_TOKEN")
    if not token:
        raise _MistakeError("Set ATFLOWS_CONTINUITY_TOKEN to report to AtFlows, or leave --atflows-url out.")
    return AtFlowsObserver(url, token)


def _token() -> str:
    token = os.environ.get("ATMEM_EVIDENCE_TOKEN", "").strip()
    if not token:
        raise _MistakeError("Set ATMEM_EVIDENCE_TOKEN to the credential: atmem continuity credential … --token-only")
    return token


def _where(stop: RecoveryBlocked) -> dict[str, Any]:
    """Return what helps to go on: the page, when to ask again, and what the tool itself said."""
    answer: dict[str, Any] = {"workflow_id": stop.workflow_id, "page": stop.page}
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


_EPILOG: Final = "The credential is read from ATMEM_EVIDENCE_TOKEN. Exit codes: 0 done, 1 failed, 2 stopped safely."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m continuity.example", description="Publish a document once.", epilog=_EPILOG
    )
    commands = parser.add_subparsers(required=True, metavar="{prepare,run}")
    prepare = commands.add_parser("prepare", help="define the work for a person to review")
    prepare.add_argument("--workflow-key", required=True, help="your name for the work; new work needs a new one")
    prepare.add_argument("--document", required=True, help="the file to publish, 1 byte to 128 KiB")
    prepare.set_defaults(command=_prepare)
    run = commands.add_parser("run", help="bring the work to its result; repeat as often as you like")
    run.add_argument("--workflow-id", required=True, help="the workflow_id that prepare returned")
    run.add_argument("--atflows-url", help="report attempts to this AtFlows address (ATFLOWS_CONTINUITY_TOKEN)")
    run.set_defaults(command=_run)
    for command in (prepare, run):
        command.add_argument("--output", required=True, help="the directory to publish into; part of the definition")
        command.add_argument("--url", default=os.environ.get("ATMEM_URL", URL), help="the server's address (ATMEM_URL)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
