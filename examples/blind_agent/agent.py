"""An agent that prints three labels on a printer that knows no keys and cannot be asked."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from continuity.client import Refused
from continuity.integrations import RegisteredTool
from examples import conversation
from examples.asking import ask

LABELS = ({"text": "Box 1 of 3"}, {"text": "Box 2 of 3"}, {"text": "Box 3 of 3"})


def tools(options: argparse.Namespace) -> list[RegisteredTool]:
    """Register the one tool, which can do nothing but print: its capability is ``none``."""

    def print_label(arguments: dict[str, Any], operation_id: str, _key: str, timeout_seconds: float) -> dict[str, Any]:
        status, reply = ask(options.printer, "POST", "/labels", body=arguments, timeout_s=timeout_seconds)
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:  # the printer's word for "no, and nothing was printed"
            raise Refused(reply["error"])
        if status != HTTPStatus.OK:
            # Nobody knows: whatever is raised, AtMem keeps the call uncertain.
            raise RuntimeError(f"The printer answered {status}.")
        # The printer names nothing that it has done, so that the label itself is the name.
        return {
            "outcome": "confirmed_succeeded",
            "operation_id": operation_id,
            "effect_id": arguments["text"],
            "result": reply,
        }

    return [RegisteredTool("print_label", print_label, destination="label printer")]


AGENT = conversation.Agent(
    name="blind_agent",
    tools=tools,
    calls=lambda _options: [("print_label", label) for label in LABELS],
    options={"printer": "address of the printer"},
)


def main(argv: Sequence[str] | None = None, *, trace: Callable[[str], None] | None = None) -> int:
    """Run the command line; see `examples.conversation.main`."""
    return conversation.main(AGENT, argv, trace=trace)


if __name__ == "__main__":
    sys.exit(main())
