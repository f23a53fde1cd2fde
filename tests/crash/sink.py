"""The independent truth: what really happened at a destination, one fsynced line each, and the destination itself.

Nothing here knows the product. The file is appended to by whoever performs an effect, and read by the test
afterwards: what the product says must explain it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Effect:
    """One request that reached the destination; `applied` is false when a known key made it a repeat."""

    operation_id: str
    attempt_id: str
    key: str
    applied: bool
    at_s: float

    @property
    def effect_id(self) -> str:
        return f"effect-of-{self.attempt_id}"


class Sink:
    """A file of effects."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, effect: Effect) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(asdict(effect)).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def effects(self) -> list[Effect]:
        if not self._path.exists():
            return []
        return [Effect(**json.loads(line)) for line in self._path.read_text().splitlines()]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let one process at a time look and append; a killed one leaves no lock behind."""
        with self._path.with_suffix(".lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield


@dataclass(frozen=True)
class Destination:
    """Something with side effects. With a retention it enforces the idempotency key for so many seconds.

    Attributes:
        sink: Where every request that reaches it is written.
        retention_s: 0: it takes every request for a new one.
    """

    sink: Sink
    retention_s: float = 0

    def execute(self, operation_id: str, attempt_id: str, key: str, *, now_s: float) -> dict[str, Any]:
        with self.sink.locked():
            first = self._known(key, now_s)
            effect = Effect(operation_id, attempt_id, key, applied=first is None, at_s=now_s)
            self.sink.append(effect)
        return _success(operation_id, first or effect)

    def query(self, operation_id: str) -> dict[str, Any]:
        found = [effect for effect in self.sink.effects() if effect.operation_id == operation_id]
        return _success(operation_id, found[0]) if found else {"outcome": "absent", "operation_id": operation_id}

    def _known(self, key: str, now_s: float) -> Effect | None:
        for effect in self.sink.effects():
            if effect.applied and effect.key == key and now_s < effect.at_s + self.retention_s:
                return effect
        return None


def _success(operation_id: str, effect: Effect) -> dict[str, Any]:
    return {
        "outcome": "confirmed_succeeded", "operation_id": operation_id, "effect_id": effect.effect_id,
        "result": {"published": effect.effect_id},
    }  # fmt: skip
