"""``python -m continuity.example``: publish a document that is published once, whatever happens.

``prepare`` defines the work for a person to review; ``run`` brings it to its result, as often as it is
called. The credential comes from the environment (``ATMEM_EVIDENCE_TOKEN``), never from the command line.

Exit codes: 0 done, 1 refused or failed with one clear line, 2 stopped safely or wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from continuity.client import AtFlowsObserver, ContinuityClient, OutcomeNotRecorded, RecoveryBlocked
from continuity.errors import ContinuityError, MalformedError
from continuity.tools import DirectoryPublisher, publish_operation

URL: Final = "http://127.0.0.1:8768"
OPERATION: Final = "publish"
DONE: Final = 0
FAILED: Final = 1
STOPPED_SAFELY: Final = 2


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
    except (ContinuityError, OSError) as error:
        print(f"{_code(error)}: {error}", file=sys.stderr)
        return FAILED
    _print(answer)
    return DONE


def _prepare(options: argparse.Namespace, _trace: object) -> dict[str, Any]:
    with ContinuityClient(options.url, _token()) as client:
        operation = publish_operation(options.document, options.output, name=OPERATION)
        view = client.create_workflow(options.workflow_key, [operation])
        workflow_id = str(view.get("workflow_id"))
        return {
            "workflow_id": workflow_id,
            "workflow_key": options.workflow_key,
            "enabled": view.get("enabled"),
            "output": operation["arguments"]["output"],
            "sha256": operation["arguments"]["sha256"],
            "bytes": operation["arguments"]["bytes"],
            "page": client.page(workflow_id),
            "next": f"Review the work on its page and enable recovery there, or: atmem continuity enable {workflow_id}",
        }


def _run(options: argparse.Namespace, trace: Callable[[str], None] | None) -> dict[str, Any]:
    observer = _observer(options.atflows_url)
    with ContinuityClient(options.url, _token(), observer=observer, trace=trace) as client:
        tools = {DirectoryPublisher.TOOL: DirectoryPublisher(options.output)}
        result = client.run_operation(options.workflow_id, OPERATION, tools)
        answer = {"workflow_id": options.workflow_id, "result": result}
        if client.observation_error_count:
            answer["observation_errors"] = client.observation_errors
        return answer


def _observer(url: str | None) -> AtFlowsObserver | None:
    if url is None:
        return None
    token = os.environ.get("ATFLOWS_CONTINUITY_TOKEN")
    if not token:
        raise MalformedError("Set ATFLOWS_CONTINUITY_TOKEN to report to AtFlows, or leave --atflows-url out.")
    return AtFlowsObserver(url, token)


def _token() -> str:
    token = os.environ.get("ATMEM_EVIDENCE_TOKEN", "").strip()
    if not token:
        raise MalformedError("Set ATMEM_EVIDENCE_TOKEN to the credential: atmem continuity credential … --token-only")
    return token


def _where(stop: RecoveryBlocked) -> dict[str, Any]:
    """Return what helps to go on: the page, when to ask again, and what the tool itself said."""
    answer: dict[str, Any] = {"workflow_id": stop.workflow_id, "page": stop.page}
    if stop.lease_until is not None:
        answer["lease_until"] = stop.lease_until
    if stop.retry_after_s is not None:
        answer["retry_after_seconds"] = round(stop.retry_after_s, 3)
    if isinstance(stop.__cause__, ContinuityError):
        answer["because"] = stop.__cause__.message
    return answer


def _code(error: ContinuityError | OSError) -> str:
    return error.code if isinstance(error, ContinuityError) else "not_possible"


def _print(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer, ensure_ascii=False, indent=2))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m continuity.example", description="Publish a document once.")
    commands = parser.add_subparsers(required=True, metavar="{prepare,run}")
    prepare = commands.add_parser("prepare", help="define the work for a person to review")
    prepare.add_argument("--workflow-key", required=True, help="your name for the work; new work needs a new one")
    prepare.add_argument("--document", required=True, help="the file to publish, at most 128 KiB")
    prepare.set_defaults(command=_prepare)
    run = commands.add_parser("run", help="bring the work to its result; repeat as often as you like")
    run.add_argument("--workflow-id", required=True, help="the workflow_id that prepare returned")
    run.add_argument("--atflows-url", help="report attempts to this AtFlows address (ATFLOWS_CONTINUITY_TOKEN)")
    run.set_defaults(command=_run)
    for command in (prepare, run):
        command.add_argument("--output", required=True, help="the directory to publish into; part of the definition")
        command.add_argument("--url", default=os.environ.get("ATMEM_URL", URL), help="the server's address")
    return parser


if __name__ == "__main__":
    sys.exit(main())
