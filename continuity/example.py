"""``python -m continuity.example``: publish a document that is published once, whatever happens.

``prepare`` defines the work for a person to review; ``run`` brings it to its result, as often as it is
called. `continuity.terminal` says where the credential comes from, what is printed, and with which code
the commands end.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from continuity.client import ContinuityClient, RecoveryBlocked
from continuity.decisions.beginning import Reason
from continuity.errors import ContinuityError
from continuity.folder import folder_made
from continuity.terminal import EPILOG, WrongUsageError, add_addresses, address, credential, observed, observer_at, tell
from continuity.tools import DirectoryPublisher, publish_operation

OPERATION: Final = "publish"
_WORKFLOW_ID: Final = re.compile(r"wf_[0-9a-f]{32}")
_LOOK_S: Final = 5.0


def main(argv: Sequence[str] | None = None, *, trace: Callable[[str], None] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Its arguments without the program's name; those of the process when left out.
        trace: Told each point that a run passes.

    Returns:
        The exit code.
    """
    options = _parser().parse_args(argv)
    return tell(lambda: options.command(options, trace), ask_again="Run again: the output directory is asked.")


def _prepare(options: argparse.Namespace, _trace: object) -> dict[str, Any]:
    with ContinuityClient(address(options), credential()) as client:
        operation = publish_operation(options.document, options.output, name=OPERATION)
        # Before the work is defined, for its key is given once; a refusal leaves no directory behind.
        with folder_made(operation["arguments"]["output"]):
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
        raise WrongUsageError("--workflow-id must be the one that prepare returned: wf_ and 32 hexadecimal digits.")
    observer = observer_at(options.atflows_url)
    with ContinuityClient(address(options), credential(), observer=observer, trace=trace) as client:
        tools = {DirectoryPublisher.TOOL: DirectoryPublisher(options.output)}
        try:
            result = client.run_operation(options.workflow_id, OPERATION, tools)
        except RecoveryBlocked as stop:
            _be_exact(stop, client)
            raise
        return {"workflow_id": options.workflow_id, "result": result, **observed(client)}


def _be_exact(stop: RecoveryBlocked, client: ContinuityClient) -> None:
    """Replace the advice of work that is not enabled, which says why it may be so, by the one that is true of it."""
    if stop.code == Reason.DISABLED.value:
        with suppress(ContinuityError):
            view = client.get_workflow(stop.workflow_id, reply_timeout_s=_LOOK_S)
            if view.get("phase") not in _ENABLED:
                stop.next_step = _next(view, stop.workflow_id)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m continuity.example", description="Publish a document once.", epilog=EPILOG
    )
    commands = parser.add_subparsers(required=True, metavar="{prepare,run}")
    prepare = commands.add_parser("prepare", help="define the work for a person to review")
    prepare.add_argument("--workflow-key", required=True, help="your name for the work; new work needs a new one")
    prepare.add_argument("--document", required=True, help="the file to publish, 1 byte to 128 KiB")
    prepare.set_defaults(command=_prepare)
    run = commands.add_parser("run", help="bring the work to its result; repeat as often as you like")
    run.add_argument("--workflow-id", required=True, help="the workflow_id that prepare returned")
    run.set_defaults(command=_run)
    for command in (prepare, run):
        command.add_argument("--output", required=True, help="the directory to publish into; part of the definition")
        add_addresses(command, with_atflows=command is run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
