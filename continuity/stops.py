"""How a run ends without a result: the work stops, and says why and what is safe next.

Nothing here is an accident of the network or of the program: see `continuity.errors` for those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from continuity.errors import ContinuityError


class RecoveryBlocked(ContinuityError):
    """The operation has no result, and nothing was repeated to get one.

    Attributes:
        code: Why: a reason of the begin reply (``attempt_in_progress``, ``needs_confirmation`` …), or
            ``outcome_unknown``, ``effect_not_found``, ``not_dispatched``, ``refused_by_destination``,
            ``stale_lease`` or ``tool_unavailable`` for what this run itself met, or a code of
            docs/langgraph.md for what was refused before anything was begun.
        workflow_id: The workflow; empty when it was refused before the work was looked up, and where there is none.
        page: Address of the page where a person sees the work and decides about it.
        because: One sentence on what this run itself met, empty when the server alone stopped it.
        next_step: One sentence on what is safe next.
        lease_until: Unix seconds by the server's clock while another attempt holds the lease, else None.
        retry_after_s: Seconds after which another run may find more; None when only a person can go on.
    """

    code = "blocked"

    def __init__(
        self,
        code: str,
        workflow_id: str,
        *,
        page: str,
        because: str = "",
        lease_until: float | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """Keep what the attributes say; the message is made of them."""
        self.because = because
        self.next_step = NEXT_STEPS.get(code, "Look at the work on its page and decide there.")
        parts = (f"Stopped safely ({code}).", _sentence(because), self.next_step, page)
        super().__init__(" ".join(part for part in parts if part), code=code)
        self.workflow_id = workflow_id
        self.page = page
        self.lease_until = lease_until
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        return (_blocked, (self.code, self.workflow_id, self.page, self.because, self.lease_until, self.retry_after_s))


class OutcomeNotRecorded(ContinuityError):
    """An attempt has ended and the server did not take its receipt. The receipt is still in hand.

    The operation is uncertain at the server. Hand `receipt` to a person, or run again: the destination is
    asked if it can be. `__cause__` is the error of the last try.

    Attributes:
        receipt: What should have been recorded. It is in no message and no repr.
        workflow_id: The workflow.
        attempt_id: The attempt.
        page: Address of the page where a person can confirm the outcome.
    """

    code = "outcome_not_recorded"

    def __init__(self, receipt: Mapping[str, Any], *, workflow_id: str, attempt_id: str, page: str) -> None:
        """Keep the receipt out of the message."""
        super().__init__(
            f"The receipt of attempt {attempt_id} was not recorded; it is in this error's .receipt. {page}"
        )
        self.receipt = receipt
        self.workflow_id = workflow_id
        self.attempt_id = attempt_id
        self.page = page

    def __reduce__(self) -> tuple[Any, ...]:
        return (_not_recorded, (dict(self.receipt), self.workflow_id, self.attempt_id, self.page))


def _sentence(text: str) -> str:
    """End what a tool gave as its reason, so that it does not run into what follows."""
    return text if not text or text[-1] in ".!?…" else f"{text}."


def _blocked(code: str, workflow_id: str, page: str, because: str, *times_s: float | None) -> RecoveryBlocked:
    lease_until, retry_after_s = times_s
    return RecoveryBlocked(
        code, workflow_id, page=page, because=because, lease_until=lease_until, retry_after_s=retry_after_s
    )


def _not_recorded(receipt: Mapping[str, Any], workflow_id: str, attempt_id: str, *page: str) -> OutcomeNotRecorded:
    return OutcomeNotRecorded(receipt, workflow_id=workflow_id, attempt_id=attempt_id, page=page[0])


NEXT_STEPS: Final[Mapping[str, str]] = {
    "workflow_disabled_or_capture_unavailable": (
        "Recovery is not enabled: the work waits for its review, is paused, or is over, or the vault does not capture "
        "in full. Its page says which."
    ),
    "abandoned": "An operator stopped this work. New work needs a new workflow key.",
    "refused_by_destination": "The destination did nothing and will not. New work needs a new workflow key.",
    "earlier_work_unfinished": "Run the earlier operations of this workflow first.",
    "attempt_already_issued": "Run again: a new run asks with a new attempt id.",
    "attempt_in_progress": "Another attempt holds the lease. Run again when it has ended.",
    "attempt_limit_reached": "A person must look at the destination and confirm what happened.",
    "workflow_revision_limit_reached": "A person must look at the destination and confirm what happened.",
    "late_receipt_needs_decision": "A late receipt claims success. A person must decide what counts.",
    "restored_needs_decision": "A backup was restored. A person must look at the destination and confirm.",
    "idempotency_window_expired": "The destination no longer honours the key. A person must confirm what happened.",
    "needs_confirmation": "The effect may have happened and the destination cannot be asked. A person must confirm.",
    "outcome_unknown": "Run again to ask the destination if it can be asked; else a person must confirm.",
    "effect_not_found": (
        "The destination knows nothing of the effect, which may still arrive. Run again later, or let a person confirm."
    ),
    "not_dispatched": "Nothing has happened. Remove the cause and run again.",
    "stale_lease": "Another attempt has taken over; this receipt is kept as late evidence. Look at the work's page.",
    "tool_unavailable": "Register the tool or callback on this host and run again.",
    # Refused by continuity.integrations before anything was begun; each stands in docs/langgraph.md.
    "integration_not_enabled": "Nothing was begun. The application must opt in with enabled=True.",
    "version_not_tested": "Nothing was begun. Install a tested version, or accept this one in so many words.",
    "checkpointer_missing": "Nothing was begun. Compile the graph with a checkpointer that keeps its steps.",
    "checkpointer_unsupported": "Nothing was begun. Use SqliteSaver or PostgresSaver; with ainvoke, their async forms.",
    "checkpointer_in_memory": "Nothing was begun. Give the saver a file: what is in memory dies with the process.",
    "checkpointer_not_durable": (
        "Nothing was begun. The saver's connection must wait for the disk: on SQLite PRAGMA synchronous=FULL and a "
        "journal on disk, on PostgreSQL autocommit and synchronous_commit other than off."
    ),
    "durability_not_sync": 'Nothing was begun. Pass durability="sync" to invoke or stream.',
    "thread_missing": "Nothing was begun. Pass configurable.thread_id.",
    "continuity_namespace_malformed": "Nothing was begun. configurable.continuity_namespace must be a string.",
    "step_not_stored": "Nothing was begun. The graph that holds the node must itself be checkpointed.",
    "message_not_assistant": "Nothing was begun. The last message must be an assistant message.",
    "message_without_id": "Nothing was begun. The assistant message needs an id before its tools run.",
    "message_not_stored": "Nothing was begun. The assistant message must be checkpointed before its tools run.",
    "call_id_missing": "Nothing was begun. Every tool call needs an id.",
    "call_id_duplicate": "Nothing was begun. Every tool call of a message needs an id of its own.",
    "too_many_calls": "Nothing was begun. Let the model make fewer calls in one message.",
    "tool_not_registered": "Nothing was begun. Register the tool, or keep it registered as retired.",
    "tool_retired": "Nothing was done by this run. Register the tool anew, or stop the work on its page.",
    "call_changed": (
        "Nothing was begun. The call was recorded with other arguments or with another registration of its tool; "
        "bring those back, or let the model write a new message, which is new work."
    ),
    "earlier_call_unresolved": "Nothing was begun. An earlier call of the message must have its result first.",
    "middleware_passed_over": (
        "Nothing was begun. Put middleware that decides about single calls before the governed tools, or accept that "
        "it sees no governed call."
    ),
    "runner_mismatch": "Nothing was begun. GovernedToolRunner is for invoke, AsyncGovernedToolRunner for ainvoke.",
    "workflow_deleted": "Nothing was begun. The work of this call was done and deleted; a new message is new work.",
    "coordinator_open_limit": "Nothing was begun. Resolve or stop unfinished work of this coordinator first.",
    "coordinator_history_limit": "Nothing was begun. Export and delete finished work of this coordinator first.",
    "clock_moved_backwards": "Nothing was begun. Set the server's clock right.",
    "capture_not_full": "Nothing was begun. An administrator must set the vault to capture in full.",
}
"""What is safe next, by code, in one sentence for a person."""
