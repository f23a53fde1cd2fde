"""Values for tests of the decision core: valid by default, one field changed a test. Times count from `T0`."""

from dataclasses import replace

from continuity.decisions.beginning import Question, decide_begin
from continuity.decisions.clocks import Reading
from continuity.decisions.events import AttemptGranted, OutcomeRecorded, evolve
from continuity.decisions.model import (
    Attempt,
    LateReceipt,
    Operation,
    Reply,
    Standing,
    VaultFacts,
    Workflow,
)
from continuity.decisions.outcomes import Report
from continuity.decisions.states import Mode, Outcome, Status

S = 1_000_000
T0 = 1_800_000_000 * S
TIMEOUT = 30 * S
LANDING = TIMEOUT + 30 * S
LEASE = 120 * S
RETENTION = 600 * S
ABSENCE = 40 * S

NONE = {"can_query": False, "is_idempotent": False}
QUERY = {"can_query": True, "is_idempotent": False}
IDEMPOTENT = {"can_query": False, "is_idempotent": True, "retention_us": RETENTION}
BOTH = {"can_query": True, "is_idempotent": True, "retention_us": RETENTION}
CAPABILITIES = {"none": NONE, "query": QUERY, "idempotent": IDEMPOTENT, "both": BOTH}


def token_hash(attempt_id):
    """A made-up token hash, one for each attempt."""
    return f"hash-of-{attempt_id}"


def make_attempt(attempt_id="a1", **over):
    values = {
        "attempt_id": attempt_id, "run_id": "r1", "mode": Mode.EXECUTE, "started_us": T0,
        "lease_until_us": T0 + LEASE, "lease_hash": token_hash(attempt_id),
    }  # fmt: skip
    return Attempt(**{**values, **over})


def make_ended(attempt_id="a1", outcome=Outcome.UNKNOWN, **over):
    """An attempt that a receipt ended."""
    values = {"ended_us": T0 + 5 * S, "outcome": outcome, "digest": f"body-of-{attempt_id}"}
    reply = Reply(accepted=True, status=Status.UNCERTAIN, revision=4)
    return make_attempt(attempt_id, **{**values, "reply": reply, **over})


def make_late(attempt_id="a1", **over):
    values = {
        "attempt_id": attempt_id, "run_id": "r1", "received_us": T0 + 200 * S, "is_proved": True, "is_extra": False,
        "outcome": Outcome.SUCCEEDED, "digest": f"late-body-of-{attempt_id}",
        "reply": Reply(accepted=False, status=Status.UNCERTAIN, revision=5, reason="stale_lease"),
    }  # fmt: skip
    return LateReceipt(**{**values, **over})


def make_operation(status=Status.PENDING, attempts=(), **over):
    executes = [attempt.started_us for attempt in attempts if attempt.mode is Mode.EXECUTE]
    values = {
        "ordinal": 0, "operation_id": "op_1", "name": "publish", "idempotency_key": "ik_1", "can_query": False,
        "is_idempotent": False, "timeout_us": TIMEOUT, "retention_us": 0, "absence_us": None,
        "first_dispatch_us": executes[0] if executes else None,
    }  # fmt: skip
    return Operation(**{**values, "status": status, "attempts": tuple(attempts), **over})


def make_workflow(*operations, **over):
    """A head that agrees with its operations."""
    values = {
        "workflow_id": "wf_1", "revision": 5, "is_enabled": True, "was_enabled": True, "clock_high_water_us": T0,
        "epoch": 0, "standings": tuple(Standing(o.status, o.change_seq, o.epoch) for o in operations),
    }  # fmt: skip
    return Workflow(**{**values, **over})


def make_vault(**over):
    return VaultFacts(**{"is_capture_full": True, "clock_high_water_us": T0, "epoch": 0, **over})


def ask(operation, *, now, attempt_id="new", workflow=None, vault=None, stepped=None):
    """The verdict of a begin at `now`."""
    workflow = make_workflow(operation) if workflow is None else workflow
    vault = make_vault() if vault is None else vault
    return decide_begin(Question(workflow, operation, vault, attempt_id, now, Reading(now, stepped)))


def answer(operation, *, now, **over):
    """The verdict of a begin as a pair of texts."""
    verdict = ask(operation, now=now, **over)
    return verdict.action.value, verdict.reason.value


def make_report(attempt_id="a1", **over):
    values = {
        "attempt_id": attempt_id, "run_id": "r1", "lease_hash": token_hash(attempt_id), "outcome": Outcome.SUCCEEDED,
        "digest": "body", "actor": "cred:1",
    }  # fmt: skip
    return Report(**{**values, **over})


def grant(workflow, operation, attempt_id, *, mode=Mode.EXECUTE, at, run_id="r1"):
    """Workflow and operation after a grant; the sequence number follows the revision."""
    event = AttemptGranted(
        at_us=at, actor="cred:1", ordinal=operation.ordinal, attempt_id=attempt_id, run_id=run_id, mode=mode,
        lease_hash=token_hash(attempt_id),
    )  # fmt: skip
    return evolve(workflow, operation, event, seq=workflow.revision + 1)


def end(workflow, operation, outcome, *, at, digest="body"):
    """Workflow and operation after a receipt of the last attempt."""
    last = operation.attempts[-1]
    event = OutcomeRecorded(
        at_us=at, actor="cred:1", ordinal=operation.ordinal, attempt_id=last.attempt_id, outcome=outcome,
        digest=digest, renewals=last.renewals, lease_until_us=last.lease_until_us,
    )  # fmt: skip
    return evolve(workflow, operation, event, seq=workflow.revision + 1)


def with_changes(value, **over):
    """`dataclasses.replace`, for test tables."""
    return replace(value, **over)
