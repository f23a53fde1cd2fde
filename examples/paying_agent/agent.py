"""An agent that pays three invoices at a service that enforces idempotency keys for an hour."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from continuity.client import Refused
from continuity.integrations import RegisteredTool
from continuity.tools import JsonResponseTool
from examples import conversation
from examples.asking import ask
from examples.paying_agent.payments_server import WINDOW_S

INVOICES = (
    {"invoice": "2026-071", "to": "Northern Paper", "amount_cents": 12_900},
    {"invoice": "2026-072", "to": "Harbour Coffee", "amount_cents": 4_250},
    {"invoice": "2026-073", "to": "Bright Windows", "amount_cents": 38_000},
)


def tools(options: argparse.Namespace) -> list[RegisteredTool]:
    """Register the one tool, with what the payments service promises."""

    def pay(arguments: dict[str, Any], _operation_id: str, idempotency_key: str, timeout_seconds: float) -> Any:
        status, payment = ask(
            options.payments, "POST", "/payments", body=arguments, timeout_s=timeout_seconds,
            headers={"Idempotency-Key": idempotency_key},
        )  # fmt: skip
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:  # the service's word for "no, and nothing was paid"
            raise Refused(payment["error"])
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            # Nobody knows: whatever is raised, AtMem keeps the call uncertain.
            raise RuntimeError(f"The payments service answered {status}.")
        return payment

    return [
        RegisteredTool(
            "pay",
            JsonResponseTool(pay).execute,
            capability="idempotent",
            retention_seconds=WINDOW_S,
            destination="payments service",
        )
    ]


AGENT = conversation.Agent(
    name="paying_agent",
    tools=tools,
    calls=lambda _options: [("pay", invoice) for invoice in INVOICES],
    options={"payments": "address of the payments server"},
)


def main(argv: Sequence[str] | None = None, *, trace: Callable[[str], None] | None = None) -> int:
    """Run the command line; see `examples.conversation.main`."""
    return conversation.main(AGENT, argv, trace=trace)


if __name__ == "__main__":
    sys.exit(main())
