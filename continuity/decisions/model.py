"""What is known of a workflow when something is to be decided. Frozen values; times in microseconds UTC.

`Operation` holds everything a decision about it needs, so that a decision never scans: attempts are at
most 100, late receipts at most one a proved attempt and ten others. `Workflow` holds one short entry an
operation (`Standing`), so that "is earlier work finished?" needs no other row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from continuity.decisions.states import FINAL, Mode, Outcome, Status
from continuity.limits import LANDING_MARGIN_S, SECOND_US


@dataclass(frozen=True, slots=True)
class Reply:
    """What an outcome was answered with, kept so that its exact repeat answers the same.

    Attributes:
        accepted: Whether the receipt ended its attempt.
        status: The operation's state after it.
        revision: The workflow's revision after it.
        reason: ``stale_lease`` for late evidence, else None.
    """

    accepted: bool
    status: Status
    revision: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One authorised dispatch.

    Attributes:
        attempt_id: Chosen by the host, unique within the operation.
        run_id: The host's run.
        mode: What it may do.
        started_us: When it was granted.
        lease_until_us: When its lease runs out.
        lease_hash: Hex SHA-256 of its lease token.
        renewals: How often the lease was renewed, at most 10.
        ended_us: When its receipt was accepted; None while it has not ended.
        outcome: What that receipt said.
        digest: Hex SHA-256 of that receipt in canonical form.
        reply: How that receipt was answered.
        is_attested: A person's later "did not happen" covers it.
    """

    attempt_id: str
    run_id: str
    mode: Mode
    started_us: int
    lease_until_us: int
    lease_hash: str = field(repr=False)
    renewals: int = 0
    ended_us: int | None = None
    outcome: Outcome | None = None
    digest: str | None = None
    reply: Reply | None = None
    is_attested: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether a receipt ended it. Expiry of its lease does not."""
        return self.ended_us is not None

    @property
    def is_unresolved(self) -> bool:
        """Whether its effect may have happened and nobody has said otherwise."""
        return (
            self.mode is Mode.EXECUTE
            and not self.is_attested
            and self.outcome not in {Outcome.NOT_DISPATCHED, Outcome.REFUSED}
        )

    def is_live(self, now_us: int) -> bool:
        """Whether its lease still excludes others."""
        return not self.has_ended and now_us < self.lease_until_us


@dataclass(frozen=True, slots=True)
class LateReceipt:
    """A receipt that could not end an attempt and is kept as evidence.

    Attributes:
        attempt_id: The attempt it names, issued or not.
        run_id: The run it names.
        received_us: When it came.
        is_proved: Its lease token is that of the attempt and run it names.
        is_extra: It counts against the ten that need no proof.
        outcome: What it claims.
        digest: Hex SHA-256 of its canonical form.
        reply: How it was answered.
    """

    attempt_id: str
    run_id: str
    received_us: int
    is_proved: bool
    is_extra: bool
    outcome: Outcome
    digest: str
    reply: Reply


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation and all its attempts, oldest first.

    Attributes:
        ordinal: Its place in the workflow, from 0.
        operation_id: ``op_…``.
        name: The host's name for it.
        idempotency_key: ``ik_…``, the same for every execute.
        can_query: The destination can be asked what happened.
        is_idempotent: The destination enforces the key for `retention_us`.
        timeout_us: How long a callback may take.
        retention_us: How long the destination honours the key, from the first dispatch.
        absence_us: After so long absence is final; None when never.
        status: Its state.
        attempts: Oldest first, at most 100.
        late: Late receipts, oldest first.
        first_dispatch_us: When the first execute was granted; never changes.
        late_decided: How many of `late` a person has seen and decided on.
        epoch: Vault epoch of its creation or of its last confirm.
        change_seq: Sequence number of the event that changed it last.
    """

    ordinal: int
    operation_id: str
    name: str
    idempotency_key: str = field(repr=False)
    can_query: bool
    is_idempotent: bool
    timeout_us: int
    retention_us: int
    absence_us: int | None
    status: Status = Status.PENDING
    attempts: tuple[Attempt, ...] = ()
    late: tuple[LateReceipt, ...] = ()
    first_dispatch_us: int | None = None
    late_decided: int = 0
    epoch: int = 0
    change_seq: int = 1

    @property
    def is_final(self) -> bool:
        """Whether nothing can change its state any more."""
        return self.status in FINAL

    @property
    def last(self) -> Attempt | None:
        """The latest attempt."""
        return self.attempts[-1] if self.attempts else None

    def live_attempt(self, now_us: int) -> Attempt | None:
        """Return the attempt whose lease is live; only the last can be, and only while nothing is final."""
        last = self.last
        if last is None or last.is_attested or self.is_final or not last.is_live(now_us):
            return None
        return last

    @property
    def may_land_until_us(self) -> int:
        """Until when an effect of its execute attempts may still land; 0 without any."""
        return max((self.latest_landing_us(a) for a in self.attempts if a.mode is Mode.EXECUTE), default=0)

    def latest_landing_us(self, attempt: Attempt) -> int:
        """Return until when the effect of an execute attempt may still land by the host's own limits."""
        return attempt.started_us + self.timeout_us + LANDING_MARGIN_S * SECOND_US

    @property
    def has_undecided_success(self) -> bool:
        """Whether a proved late receipt claims success and no confirm has followed."""
        return any(late.is_proved and late.outcome is Outcome.SUCCEEDED for late in self.late[self.late_decided :])

    def has_others_unresolved(self, attempt: Attempt) -> bool:
        """Whether an attempt other than `attempt` is unresolved."""
        return any(other.is_unresolved for other in self.attempts if other is not attempt)

    def find(self, attempt_id: str) -> Attempt | None:
        """Return the attempt of that id, or None."""
        return next((a for a in self.attempts if a.attempt_id == attempt_id), None)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a workflow knows of one of its operations.

    Attributes:
        status: Its state.
        change_seq: Sequence number of the event that changed it last; an older row put back differs.
        epoch: Vault epoch of its creation or of its last confirm.
    """

    status: Status
    change_seq: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Workflow:
    """The head of a workflow.

    Attributes:
        workflow_id: ``wf_…``.
        revision: Rises by one with every change a person must see; never skips.
        is_enabled: New attempts may be granted.
        was_enabled: It has been enabled at least once.
        clock_high_water_us: The latest time at which it changed.
        epoch: Vault epoch of its creation.
        standings: One entry an operation, in order.
        is_deleting: Its deletion has begun.
    """

    workflow_id: str
    revision: int
    is_enabled: bool
    was_enabled: bool
    clock_high_water_us: int
    epoch: int
    standings: tuple[Standing, ...]
    is_deleting: bool = False

    @property
    def done_prefix(self) -> int:
        """How many operations from the first on are completed without a gap."""
        for ordinal, standing in enumerate(self.standings):
            if standing.status is not Status.COMPLETED:
                return ordinal
        return len(self.standings)

    @property
    def is_finished(self) -> bool:
        """Whether nothing of it can run any more: all completed, or the next one abandoned or refused."""
        prefix = self.done_prefix
        return prefix == len(self.standings) or self.standings[prefix].status in FINAL

    @property
    def is_unfinished_work(self) -> bool:
        """Whether it counts against a coordinator's unfinished workflows."""
        return not self.is_finished or any(s.status is Status.UNCERTAIN for s in self.standings)


@dataclass(frozen=True, slots=True)
class VaultFacts:
    """What a decision must know of the vault.

    Attributes:
        is_capture_full: The capture mode is ``full``.
        clock_high_water_us: The vault's mark.
        epoch: Rises with every restore.
        restored_us: When the last restore was, None without one.
        is_recovery_open: The recovery window after a restore has not been closed.
    """

    is_capture_full: bool
    clock_high_water_us: int
    epoch: int
    restored_us: int | None = None
    is_recovery_open: bool = False
