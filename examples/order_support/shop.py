"""The shop that the agent talks to: orders to look at, and one effect that cannot be taken back.

Everything lies in the folder that ``ORDER_SUPPORT_FOLDER`` names (``order-support`` without it): the cancellations, the
agent's checkpoints and its memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from examples.local_server import Records

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

ORDERS: Final = {
    "17": {"order": "17", "item": "blue teapot", "state": "packed"},
    "18": {"order": "18", "item": "two cups", "state": "packed"},
    "19": {"order": "19", "item": "tea towel", "state": "delivered"},
}


def folder() -> Path:
    """Return the folder of the example, made where it is missing, for its owner alone."""
    found = Path(os.environ.get("ORDER_SUPPORT_FOLDER") or "order-support").absolute()
    found.mkdir(mode=0o700, parents=True, exist_ok=True)
    return found


def cancellations() -> Records:
    """Return what was cancelled, in order: the shop's own books."""
    return Records(folder() / "cancellations.jsonl")


def look_up(order: str) -> dict[str, Any]:
    """Return an order as it is now."""
    known = ORDERS.get(order)
    if known is None:
        return {"order": order, "state": "unknown"}
    is_cancelled = any(each["order"] == order for each in cancellations().all())
    return {**known, "state": "cancelled"} if is_cancelled else dict(known)


def cancel(arguments: dict[str, Any], operation_id: str, _key: str, _timeout_s: float) -> dict[str, Any]:
    """Cancel an order. The operation is the durable key: a process that slept and comes late finds it in the books."""
    with _alone():
        if not _is_known(operation_id):
            cancellations().add({"order": arguments["order"], "operation_id": operation_id})
    return _receipt(arguments, operation_id)


def find(arguments: dict[str, Any], operation_id: str, _key: str, _timeout_s: float) -> dict[str, Any]:
    """Say what became of a cancellation whose receipt was lost: the books know the operation."""
    if _is_known(operation_id):
        return _receipt(arguments, operation_id)
    return {"outcome": "absent", "operation_id": operation_id}


def _is_known(operation_id: str) -> bool:
    return any(each["operation_id"] == operation_id for each in cancellations().all())


@contextmanager
def _alone() -> Iterator[None]:
    """Let one process write at a time; the lock goes with whoever holds it."""
    with (folder() / "books.lock").open("w") as lock:
        if sys.platform == "win32":
            # Its first byte, which need not be there. It asks for ten seconds, and then raises: nothing was done.
            msvcrt.locking(lock.fileno(), msvcrt.LK_LOCK, 1)
        else:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _receipt(arguments: dict[str, Any], operation_id: str) -> dict[str, Any]:
    return {
        "outcome": "confirmed_succeeded", "operation_id": operation_id, "effect_id": f"cancellation-{operation_id}",
        "result": {"order": arguments["order"], "state": "cancelled"},
    }  # fmt: skip
