"""An agent that sends three mails through a service that sends twice what it is told twice, but can be asked."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from continuity.client import Refused
from continuity.integrations import RegisteredTool
from continuity.tools import JsonResponseTool
from examples import conversation
from examples.asking import ask

MAILS = (
    {"to": "ada@example.org", "subject": "Your order has left", "text": "It should arrive on Tuesday."},
    {"to": "grace@example.org", "subject": "Your order has left", "text": "It should arrive on Thursday."},
    {"to": "alan@example.org", "subject": "Your order is late", "text": "We are sorry; it leaves on Monday."},
)


def tools(options: argparse.Namespace) -> list[RegisteredTool]:
    """Register the one tool. The operation's id travels with the mail, so that it can be looked for."""

    def send(arguments: dict[str, Any], operation_id: str, _key: str, timeout_seconds: float) -> Any:
        mail = {**arguments, "reference": operation_id}
        status, sent = ask(options.mail, "POST", "/messages", body=mail, timeout_s=timeout_seconds)
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:  # the service's word for "no, and nothing was sent"
            raise Refused(sent["error"])
        if status != HTTPStatus.ACCEPTED:
            # Nobody knows: whatever is raised, AtMem keeps the call uncertain.
            raise RuntimeError(f"The mail service answered {status}.")
        return sent

    def find(_arguments: dict[str, Any], operation_id: str, _key: str, timeout_seconds: float) -> Any:
        path = f"/messages?{urlencode({'reference': operation_id})}"
        _, found = ask(options.mail, "GET", path, timeout_s=timeout_seconds)
        return found[0] if found else None

    tool = JsonResponseTool(send, find=find)
    # Not declared: absence_final_after_seconds. The service does not promise when a mail that it does not list can no
    # longer be sent, so that a person decides about one that was not found.
    return [RegisteredTool("send_mail", tool.execute, tool.query, capability="query", destination="mail service")]


AGENT = conversation.Agent(
    name="mailing_agent",
    tools=tools,
    calls=lambda _options: [("send_mail", mail) for mail in MAILS],
    options={"mail": "address of the mail server"},
)


def main(argv: Sequence[str] | None = None, *, trace: Callable[[str], None] | None = None) -> int:
    """Run the command line; see `examples.conversation.main`."""
    return conversation.main(AGENT, argv, trace=trace)


if __name__ == "__main__":
    sys.exit(main())
