"""What a person sees a workflow as, and when that changes by itself.

Order of the questions: is it over, is something under way, was it ever reviewed, must a person decide,
is it paused, and only then what a worker would find. A workflow that needs a decision says so even while
it is paused.

Source: wire.md, "phase".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from continuity.decisions.beginning import NEEDS_PERSON, Action, Question, Verdict, decide_begin, window_end_us
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
    live = following.live_attempt(now_us)
    if live is not None:
        later = standpoint(workflow, following, vault, now_us=live.lease_until_us)
        return Standpoint(Phase.RUNNING, live.lease_until_us, later.phase)
    if following.is_final:
        return Standpoint(Phase.ENDED)
    if not workflow.was_enabled:
        return Standpoint(Phase.REVIEW)
    verdict = _verdict(workflow, following, vault, now_us)
    if verdict.reason in NEEDS_PERSON:
        return Standpoint(Phase.DECISION)
    if not workflow.is_enabled:
        return Standpoint(Phase.PAUSED)
    if following.status is Status.PENDING:
        return Standpoint(Phase.READY)
    return _resumable(workflow, following, vault, now_us, verdict)


def _resumable(workflow: Workflow, following: Operation, vault: VaultFacts, now_us: int, verdict: Verdict) -> Standpoint:
    end_us = window_end_us(following)
    if verdict.action is Action.EXECUTE and end_us is not None and now_us < end_us:
        later = standpoint(workflow, following, vault, now_us=end_us)
        if later.phase is not Phase.RESUMABLE:
            return Standpoint(Phase.RESUMABLE, end_us, later.phase)
    return Standpoint(Phase.RESUMABLE)


def _verdict(workflow: Workflow, following: Operation, vault: VaultFacts, now_us: int) -> Verdict:
    """Return what a fresh begin would be told if the workflow were enabled and everything captured."""
    enabled = Workflow(
        workflow_id=workflow.workflow_id, revision=workflow.revision, is_enabled=True, was_enabled=True,
        clock_high_water_us=workflow.clock_high_water_us, epoch=workflow.epoch, standings=workflow.standings,
    )  # fmt: skip
    captured = VaultFacts(True, vault.clock_high_water_us, vault.epoch, vault.restored_us, vault.is_recovery_open)
    return decide_begin(Question(enabled, following, captured, "", now_us, Reading(now_us)))
