"""Talk to the agent from a terminal: what is said is followed as it is written, and a question waits for your answer.

``python -m examples.order_support.talk --thread monday "Please cancel order 17."``
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from continuity.errors import ContinuityError
from continuity.threads import ThreadClient, Update

NAME = "order_support"
MODULE = "examples.order_support.agent:agent"
TOKEN = "ORDER_SUPPORT_TOKEN"  # noqa: S105 - the name of a variable
Answering = Callable[[str], str]


def main(argv: Sequence[str] | None = None, *, answer: Answering = input) -> int:
    """Say something, and go on until the thread is at rest; return the exit code."""
    options = _parser().parse_args(argv)
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        _tell(f"Error: {TOKEN} holds no credential: atmem continuity credential --application … makes one.")
        return 2
    try:
        with ThreadClient(options.url, token, subject=options.subject) as client:
            if NAME not in {agent["name"] for agent in client.agents()}:
                _tell(f"Error: Nobody runs {NAME} yet: start its worker, atmem threads worker {MODULE}")
                return 1
            thread = client.create(options.thread, NAME)["thread_id"]
            if options.message:
                client.message(thread, " ".join(options.message))
            return _follow(client, thread, answer)
    except ContinuityError as error:
        _tell(f"Error: {error.message} ({error.code})")
        return 1
    except (EOFError, KeyboardInterrupt):
        _tell("\nThe thread goes on without you. The same command without a message takes it up where it stands.")
        return 2


def _follow(client: ThreadClient, thread: str, answer: Answering) -> int:
    for update in client.follow(thread):
        _show(update)
        state = update.view["thread"]["state"]
        if state == "waiting":
            for waiting in update.view["waiting"]:
                if waiting["state"] == "open":
                    _reply(client, thread, waiting, answer)
        elif state == "needs_attention":
            last = update.view["runs"][-1]
            _tell(f"It needs attention: {last.get('message') or last['reason']} Look at it, then resume or stop it.")
            return 2
        elif state == "idle":
            return 0
    return 1


def _reply(client: ThreadClient, thread: str, waiting: Mapping[str, Any], answer: Answering) -> None:
    yes = answer(f"{waiting['shown']['tool']} {waiting['shown']['arguments']}? [y/N] ").strip().lower() in {"y", "yes"}
    client.reply(thread, waiting["waiting_id"], yes, revision=waiting["revision"])


def _show(update: Update) -> None:
    """Print what a record adds to the transcript."""
    record = update.record or {"kind": "", "data": {}}
    data = record["data"]
    if record["kind"] == "message_part":
        print(data["text"], end="", flush=True)  # noqa: T201 - it is what the program is for
    elif record["kind"] == "message_ended":
        print(flush=True)  # noqa: T201
    elif record["kind"] == "tool_started":
        print(f"[{data['tool']}]", flush=True)  # noqa: T201


def _tell(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.order_support.talk")
    parser.add_argument("message", nargs="*", help="what to say; without it the thread is followed where it stands")
    parser.add_argument("--thread", required=True, help="your name for the conversation")
    parser.add_argument("--subject", default="ann", help="for whom the application acts")
    parser.add_argument("--url", default=os.environ.get("ATMEM_URL") or "http://127.0.0.1:8768", help="the server")
    return parser


if __name__ == "__main__":
    sys.exit(main())
