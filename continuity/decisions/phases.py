"""What a person sees a workflow as, and when that changes by itself.

Order of the questions: is it over, is something under way, was it ever reviewed, must a person decide,
is it paused, and only then what a worker would find. A workflow that needs a decision says so even while
it is paused.

Source: wire.md, "phase".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from continuity.decisions.beginning import NEEDS_PERSON, Question, Verdict, decide_begin, window_end_us
from continuity.decisions.clocks import Reading
from continuity.decisions.model import Operation, VaultFacts, Workflow
from continuity.decisions.states import Status


class Phase(StrEnum):
    """Phase of a workflow, as stored, listed and filtered."""

    REVIEW = "review"
    PAUSED = "paused"
    READY = "ready"
    RUNNING = "running"
    RESUMABLE = "resumable"
    DECISION = "decision"
    DONE = "done"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Standpoint:
    """A phase and when it will change by itself.

    Attributes:
        phase: The phase now.
        due_us: When it changes without any event; None when it does not.
        after_due: The phase from then on.
    """

    phase: Phase
    due_us: int | None = None
    after_due: Phase | None = None


def standpoint(workflow: Workflow, following: Operation | None, vault: VaultFacts, *, now_us: int) -> Standpoint:
    """Say which phase a workflow is in.

    Args:
        workflow: The head.
        following: Its first operation that is not completed, None when all are.
        vault: What must be known of the vault.
        now_us: The time.

    Returns:
        The phase, and when and to what it changes by itself.
    """
    if following is None:
        return Standpoint(Phase.DONE)
    phase = _phase(workflow, following, vault, now_us)
    due_us = _next_change_us(following, phase, now_us)
    if due_us is None:
        return Standpoint(phase)
    after_due = _phase(workflow, following, vault, due_us)
    return Standpoint(phase) if after_due is phase else Standpoint(phase, due_us, after_due)


def _phase(workflow: Workflow, following: Operation, vault: VaultFacts, now_us: int) -> Phase:
    if following.live_attempt(now_us) is not None:
        return Phase.RUNNING
    if following.is_final:
        return Phase.ENDED
    if not workflow.was_enabled:
        return Phase.REVIEW
    if _verdict(workflow, following, vault, now_us).reason in NEEDS_PERSON:
        return Phase.DECISION
    if not workflow.is_enabled:
        return Phase.PAUSED
    return Phase.READY if following.status is Status.PENDING else Phase.RESUMABLE


def _next_change_us(following: Operation, phase: Phase, now_us: int) -> int | None:
    """Return when time alone may change the phase: a lease runs out, or the destination forgets the key."""
    live = following.live_attempt(now_us)
    if live is not None:
        return live.lease_until_us
    end_us = window_end_us(following)
    if phase not in {Phase.RESUMABLE, Phase.PAUSED} or end_us is None or end_us <= now_us:
        return None
    return end_us


def _verdict(workflow: Workflow, following: Operation, vault: VaultFacts, now_us: int) -> Verdict:
    """Return what a fresh begin would be told if the workflow were enabled and everything captured."""
    enabled = Workflow(
        workflow_id=workflow.workflow_id, revision=workflow.revision, is_enabled=True, was_enabled=True,
        clock_high_water_us=workflow.clock_high_water_us, epoch=workflow.epoch, standings=workflow.standings,
    )  # fmt: skip
    captured = VaultFacts(
        is_capture_full=True, clock_high_water_us=vault.clock_high_water_us, epoch=vault.epoch,
        restored_us=vault.restored_us, is_recovery_open=vault.is_recovery_open,
    )  # fmt: skip
    return decide_begin(Question(enabled, following, captured, "", now_us, Reading(now_us)))
