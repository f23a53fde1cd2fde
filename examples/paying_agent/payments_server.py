"""A payments service that enforces idempotency keys for a window, and no longer.

``python -m examples.paying_agent.payments_server --records payments.jsonl``
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

from examples.local_server import Answer, Records, serve

WINDOW_S = 3_600


def answer(
    method: str, path: str, headers: Mapping[str, str], body: Any, *, records: Records, options: argparse.Namespace
) -> Answer:
    """``POST /payments`` pays, ``GET /payments`` lists what was paid."""
    if path != "/payments":
        return 404, {"error": "There is nothing here."}
    if method == "GET":
        return 200, [_told(payment) for payment in records.all()]
    key, now_s = headers.get("Idempotency-Key", ""), time.time()  # noqa: TID251 - a service has a clock of its own
    if body["amount_cents"] <= 0:
        return 422, {"error": "Only what is above zero can be paid."}
    for payment in records.all():
        if key and payment["key"] == key and now_s < payment["at_s"] + options.window:
            # The same key within the window: this is the same payment, not another one.
            same = payment["what"] == body
            return (200, _told(payment)) if same else (422, {"error": "That key paid something else."})
    payment = {"id": f"pay_{len(records.all()) + 1}", "key": key, "what": body, "at_s": now_s}
    records.add(payment)
    return 201, _told(payment)


def _told(payment: dict[str, Any]) -> dict[str, Any]:
    return {"id": payment["id"], **payment["what"]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.paying_agent.payments_server")
    parser.add_argument("--window", type=float, default=WINDOW_S, help="seconds for which a key is remembered")
    serve(answer, parser)
