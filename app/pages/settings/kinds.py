"""Kinds of credentials in words, by their name on the wire. Pure.

Source: wire.md, "Credentials".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from continuity.services.callers import CallerKind


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. `wire` is its ``role`` on the wire; `may` what its token can do."""

    wire: str
    name: str
    plural: str
    may: str


KINDS: Final[Mapping[str, Kind]] = {
    kind.wire: kind
    for kind in (
        Kind(
            CallerKind.OPERATOR.value, "Operator", "operators",
            "Everything a person decides about work: create, enable, pause, stop, delete. Not for an agent.",
        ),
        Kind(
            CallerKind.WORKER.value, "Worker", "workers",
            "Begins the operations of one workflow and reports what became of them. The one to give to an agent.",
        ),
        Kind(
            CallerKind.COORDINATOR.value, "Coordinator", "coordinators",
            "Creates and runs work of its own in one workspace. It enables nothing that somebody has paused.",
        ),
        Kind(
            CallerKind.OBSERVER.value, "Observer", "observers",
            "Reports attempts and charges into one scope of Activity, and does nothing else.",
        ),
        Kind("thread_worker", "Thread worker", "thread workers", "Claims and settles runs of threads."),
        Kind("thread_application", "Application", "applications", "Creates and uses threads of its own subjects."),
    )
}  # fmt: skip
