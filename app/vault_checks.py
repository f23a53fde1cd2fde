"""What `atmem vault check` asks: does everything that is sealed open, and does it agree with itself?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from app.wiring import Wiring
from continuity.services.checking import Checker, Finding
from continuity.services.evidence_checking import EvidenceChecker
from continuity.services.sealed_walk import SealedWalk, Walked


def check(wiring: Wiring, progress: Callable[[str, int], None]) -> tuple[Walked, Sequence[Finding]]:
    """Open everything; say what does not open and what contradicts what is written beside it.

    Raises:
        SealedError: The vault is locked. UnavailableError: Storage cannot answer.
    """
    walked = SealedWalk(wiring.store, wiring.vault).walk(progress)
    services, store = wiring.services, wiring.store
    evidence = EvidenceChecker(store, services.evidence_reading.runs, services.evidence_reading)
    return walked, [
        *Checker(store, services.attempts.ledger).check(partial(progress, "workflows")),
        *evidence.check(partial(progress, "runs of evidence")),
        *wiring.threads.checker.check(partial(progress, "threads")),
    ]
