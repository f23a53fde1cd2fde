"""An agent that publishes three documents into a directory, where each can be looked for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from continuity.integrations import RegisteredTool
from continuity.tools import DirectoryPublisher, publish_arguments
from examples import conversation

DOCUMENTS = sorted((Path(__file__).parent / "documents").glob("*.md"))


def tools(options: argparse.Namespace) -> list[RegisteredTool]:
    """Register the publisher.

    A second after a publication can no longer be under way, a document that is not there will not come: the
    publisher gives it one name and never replaces it, so that publishing again then is safe.
    """
    publisher = DirectoryPublisher(options.output)
    return [
        RegisteredTool(
            DirectoryPublisher.TOOL,
            publisher.execute,
            publisher.query,
            capability="query",
            absence_final_after_seconds=1,
            destination=os.path.realpath(options.output),
        )
    ]


def calls(options: argparse.Namespace) -> conversation.Calls:
    """Ask for each document; its content and its directory are the arguments."""
    Path(options.output).mkdir(mode=0o700, parents=True, exist_ok=True)
    return [(DirectoryPublisher.TOOL, publish_arguments(document, options.output)) for document in DOCUMENTS]


AGENT = conversation.Agent(
    name="publishing_agent",
    tools=tools,
    calls=calls,
    options={"output": "the directory to publish into, the same at each call"},
)


def main(argv: Sequence[str] | None = None, *, trace: Callable[[str], None] | None = None) -> int:
    """Run the command line; see `examples.conversation.main`."""
    return conversation.main(AGENT, argv, trace=trace)


if __name__ == "__main__":
    sys.exit(main())
