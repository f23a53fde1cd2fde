"""Activity as files: JSON with everything, CSV with one table. Amounts are whole millionths of a dollar. Pure.

What is not known is null in JSON and an empty cell in CSV, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from app.pages.activity_view import Read
from app.pages.asking import Question, date_of
from app.pages.display import utc_iso
from app.pages.spreadsheet import Value, csv_bytes
from observations.answers import AttemptLine, NamedSums, Range, Sums, WorkflowLine
from observations.costs import Charge, Outcome

WORKFLOWS_MOST: Final = 10_000
"""Workflows of one file, the newest."""
ATTEMPTS_MOST: Final = 2_000
"""Attempts of one file, the oldest."""
NOTE: Final = "Reported charges, not a complete invoice. Received events only."
_SECOND_US: Final = 1_000_000
_SUMS: Final = ("charges", "priced_charges", "unpriced_charges", "conflicting_charges", "known_cost_microusd",
                "input_tokens", "output_tokens")  # fmt: skip
_WORKFLOW: Final = (
    "scope", "workflow_id", "first_seen", "last_seen", "runs", "attempts", "retries", "recoveries",
    "attempts_without_price", *(f"{outcome.word}_attempts" for outcome in Outcome), *_SUMS,
    "repeated_cost_microusd", "refused_events",
)  # fmt: skip
_CHARGE: Final = (
    "scope", "workflow_id", "attempt_id", "operation_id", "run_id", "cause", "outcome", "first_seen", "last_seen",
    "attempt_charges", "charge_source", "charge_id", "charge_time", "cost_state", "cost_microusd", "price_source",
    "model", "input_tokens", "output_tokens", "cached_input_tokens", "cached_basis", "conflicts",
)  # fmt: skip


def workflows_csv(lines: Iterable[WorkflowLine]) -> bytes:
    """Write one row a workflow."""
    return csv_bytes(_WORKFLOW, (_workflow(line) for line in lines))


def activity_json(
    read: Read, asked: Range, question: Question, *, lines: Sequence[WorkflowLine], is_whole: bool
) -> dict[str, Any]:
    """Write the page's sums and the workflows of its list; `is_whole` says whether those are all of them."""
    totals = read.totals
    return {
        "format": "atmem-activity-v1",
        "note": NOTE,
        "scopes": list(asked.scopes),
        "first_day": question.first_date,
        "last_day": question.last_date,
        "totals": {
            **totals.sums.to_json(), "attempts": totals.attempts, "retries": totals.retries,
            "recoveries": totals.recoveries, "attempts_without_price": totals.unpriced_attempts,
        },
        "retries_and_recoveries": totals.repeated.to_json(),
        "by_outcome": [
            {"outcome": outcome.word, "attempts": totals.attempts_by_outcome[outcome], **sums.to_json()}
            for outcome, sums in totals.by_outcome.items()
        ],
        "days": [
            {"day": date_of(day.day), "first_attempts": day.first.to_json(),
             "retries_and_recoveries": day.repeated.to_json()}
            for day in read.days
        ],
        "by_charge_source": [_named(each) for each in read.sources],
        "by_price_source": [_named(each) for each in read.price_sources],
        "workflows_first_seen": [line.to_json() for line in lines],
        "holds_all_workflows": is_whole,
    }  # fmt: skip


def attempts_csv(line: WorkflowLine, attempts: Iterable[AttemptLine]) -> bytes:
    """Write one row a charge, and one without charge for an attempt that has none."""
    return csv_bytes(_CHARGE, (row for attempt in attempts for row in _charges(line, attempt)))


def attempts_json(line: WorkflowLine, attempts: Sequence[AttemptLine]) -> dict[str, Any]:
    """Write a workflow with its attempts and their charges, and whether those are all that its sums count."""
    return {
        "format": "atmem-observed-workflow-v1",
        "note": NOTE,
        "workflow": line.to_json(),
        "attempts": [_attempt_json(attempt) for attempt in attempts],
        "holds_all_attempts": len(attempts) >= line.attempts,
        "holds_all_charges": len(attempts) >= line.attempts and holds_all_charges(attempts),
    }


def holds_all_charges(attempts: Iterable[AttemptLine]) -> bool:
    """Say whether every charge of these attempts is listed."""
    return all(found.sums.charges == len(found.charges) for found in attempts)


def _workflow(line: WorkflowLine) -> list[Value]:
    return [
        line.scope, line.workflow_id, _time(line.first_us), _time(line.last_us), line.runs, line.attempts,
        line.retries, line.recoveries, line.unpriced_attempts, *(line.outcomes[outcome] for outcome in Outcome),
        *_sums(line.sums), line.repeated_microusd if line.repeated_priced else None, line.refused,
    ]  # fmt: skip


def _sums(sums: Sums) -> list[Value]:
    return [sums.charges, sums.priced, sums.unpriced, sums.conflicting, sums.known_cost, sums.input_tokens,
            sums.output_tokens]  # fmt: skip


def _charges(line: WorkflowLine, found: AttemptLine) -> Iterator[list[Value]]:
    attempt = found.attempt
    place: list[Value] = [
        line.scope, line.workflow_id, found.attempt_id, attempt.operation_id, attempt.run_id, attempt.cause.word,
        attempt.outcome.word, _time(attempt.first_us), _time(attempt.last_us), found.sums.charges,
    ]  # fmt: skip
    if not found.charges:
        yield [*place, *[None] * (len(_CHARGE) - len(place))]
    for each in found.charges:
        charge = each.charge
        yield [
            *place, each.charge_source, each.charge_id, _time(charge.first_us), charge.state.value,
            charge.cost_microusd, charge.price_source, charge.model, charge.input_tokens, charge.output_tokens,
            charge.cached_input_tokens, charge.cached_basis, charge.conflicts,
        ]  # fmt: skip


def _attempt_json(found: AttemptLine) -> dict[str, Any]:
    attempt = found.attempt
    return {
        "attempt_id": found.attempt_id, "operation_id": attempt.operation_id, "run_id": attempt.run_id,
        "retry": attempt.is_retry, "recovery": attempt.is_recovery, "outcome": attempt.outcome.word,
        "first": attempt.first_us / _SECOND_US, "last": attempt.last_us / _SECOND_US, **found.sums.to_json(),
        "listed_charges": [
            _charge_json(each.charge) | {"charge_source": each.charge_source, "charge_id": each.charge_id}
            for each in found.charges
        ],
    }  # fmt: skip


def _charge_json(charge: Charge) -> dict[str, Any]:
    return {
        "time": charge.first_us / _SECOND_US, "cost_state": charge.state.value,
        "cost_microusd": _digits(charge.cost_microusd), "price_source": charge.price_source, "model": charge.model,
        "input_tokens": _digits(charge.input_tokens), "output_tokens": _digits(charge.output_tokens),
        "cached_input_tokens": _digits(charge.cached_input_tokens), "cached_basis": charge.cached_basis,
        "conflicts": charge.conflicts,
    }  # fmt: skip


def _named(found: NamedSums) -> Mapping[str, Any]:
    return {"name": found.name, "is_rest": found.is_other, **found.sums.to_json()}


def _digits(amount: int | None) -> str | None:
    return None if amount is None else str(amount)


def _time(at_us: int) -> str:
    return utc_iso(at_us / _SECOND_US)
