"""The page of activity and that of one observed workflow as frozen values, made from what `Queries` returns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from app.pages import costchart, timeline
from app.pages.asking import SPANS, Question
from app.pages.money import Cost, Count, cost_of, cost_of_charge, dollars, input_tokens, output_tokens
from app.pages.wording import Named, span
from observations.answers import (
    DEMO,
    AttemptLine,
    AttemptPage,
    DaySums,
    NamedSums,
    Totals,
    WorkflowLine,
    WorkflowPage,
)
from observations.costs import Cause, Charge, CostState, Outcome

OUTCOMES: Final = {
    Outcome.COMPLETED: Named("Completed", "An event reports the effect.", "good"),
    Outcome.ABANDONED: Named("Abandoned", "An event reports that it was given up.", "quiet"),
    Outcome.BLOCKED: Named("Blocked", "An event reports that it was refused, or never left the host.", "bad"),
    Outcome.UNKNOWN: Named("Not known", "An event reports that nobody knows what became of it.", "warn"),
    Outcome.OPEN: Named("No outcome", "No event that reports an outcome was received.", "quiet"),
}
CAUSES: Final = {
    Cause.FIRST: Named("First attempt", "No event calls it a retry or a recovery."),
    Cause.RETRY: Named("Retry", "An event calls it a retry.", "info"),
    Cause.RECOVERY: Named("Recovery", "An event calls it a recovery.", "info"),
    Cause.BOTH: Named("Retry and recovery", "Events call it a retry and a recovery. It counts in both.", "info"),
}
STATES: Final = {
    CostState.REPORTED: Named("Reported", "An event names the amount. Nobody has checked it.", "good"),
    CostState.UNKNOWN: Named("Unknown", "No event names an amount. It is not counted as zero.", "warn"),
    CostState.CONFLICTING: Named("Conflicting", "Later events said otherwise and were refused. What came first"
                                 " counts.", "bad"),
}  # fmt: skip
_SHARE: Final = 100
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums of a range or of a workflow."""

    cost: Cost
    repeated: Cost
    attempts: int
    retries: int
    recoveries: int
    unpriced_attempts: int
    input: Count
    output: Count


@dataclass(frozen=True, slots=True)
class Source:
    """A line by source. `name` is None for charges that name none; `share` is of the known cost, in hundredths."""

    name: str | None
    is_other: bool
    cost: Cost
    input: Count
    output: Count
    share: int


@dataclass(frozen=True, slots=True)
class Ending:
    """Attempts of one outcome."""

    outcome: Outcome
    named: Named
    attempts: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class Line:
    """One workflow of the list. Times in Unix seconds. `repeated` is None when it has no retry or recovery."""

    workflow_id: str
    scope: str
    is_demo: bool
    first: float
    last: float
    runs: int
    attempts: int
    retries: int
    recoveries: int
    unpriced_attempts: int
    endings: tuple[tuple[Named, int], ...]
    cost: Cost
    repeated: str | None
    refused: int


@dataclass(frozen=True, slots=True)
class Activity:
    """The page. `is_first`: nothing newer stands before its list, so it is kept up to date."""

    question: Question
    scopes: tuple[str, ...]
    has_demo: bool
    shows_demo: bool
    summary: Summary
    chart: costchart.Chart | None
    sources: tuple[Source, ...]
    price_sources: tuple[Source, ...]
    endings: tuple[Ending, ...]
    lines: tuple[Line, ...]
    next_cursor: str | None
    is_first: bool
    spans: tuple[int, ...] = SPANS

    @property
    def is_empty_everywhere(self) -> bool:
        return not self.scopes


@dataclass(frozen=True, slots=True)
class Read:
    """What was read for the page."""

    totals: Totals
    days: Sequence[DaySums]
    sources: Sequence[NamedSums]
    price_sources: Sequence[NamedSums]
    page: WorkflowPage


@dataclass(frozen=True, slots=True)
class ChargeRow:
    """A charge beside the number of its attempt on the page."""

    number: int
    source: str
    charge_id: str
    facts: Charge
    cost: Cost
    state: Named
    at: float
    tokens: tuple[str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt. Times in Unix seconds; `unlisted` charges of it are in its sums and in no row."""

    number: int
    attempt_id: str
    operation_id: str
    run_id: str
    cause: Named
    outcome: Named
    outcome_value: Outcome
    first: float
    last: float
    took: str
    cost: Cost
    unlisted: int


@dataclass(frozen=True, slots=True)
class Observed:
    """One workflow's page. `pruned` attempts are in its sums and no longer kept; 0 where that takes another page."""

    line: Line
    summary: Summary
    attempts: tuple[AttemptRow, ...]
    charges: tuple[ChargeRow, ...]
    timeline: timeline.Timeline | None
    other_scopes: tuple[str, ...]
    pruned: int
    next_cursor: str | None
    is_first: bool


def activity(read: Read, question: Question, *, scopes: Sequence[str], is_first: bool) -> Activity:
    """Make the page's value."""
    asked = question.range(scopes)
    return Activity(
        question=question,
        scopes=tuple(scopes),
        has_demo=DEMO in scopes,
        shows_demo=DEMO in asked.scopes,
        summary=_summary(read.totals),
        chart=costchart.draw(read.days, first_day=asked.first_day, last_day=asked.last_day),
        sources=tuple(_sources(read.sources)),
        price_sources=tuple(_sources(read.price_sources)),
        endings=tuple(_endings(read.totals)),
        lines=tuple(line(each) for each in read.page.workflows),
        next_cursor=read.page.next_cursor,
        is_first=is_first,
    )


def observed(page: AttemptPage, *, other_scopes: Sequence[str], is_first: bool) -> Observed:
    """Make the value of one workflow's page."""
    rows = tuple(_attempt(number, each) for number, each in enumerate(page.attempts, 1))
    return Observed(
        line=line(page.workflow),
        summary=_of_workflow(page),
        attempts=rows,
        charges=tuple(
            _charge(number, each.charge, each.charge_source, each.charge_id)
            for number, attempt in enumerate(page.attempts, 1)
            for each in attempt.charges
        ),
        timeline=timeline.draw([_bar(row) for row in rows]),
        other_scopes=tuple(other_scopes),
        pruned=page.workflow.attempts - len(rows) if is_first and page.next_cursor is None else 0,
        next_cursor=page.next_cursor,
        is_first=is_first,
    )


def line(found: WorkflowLine) -> Line:
    """Make a line of the list."""
    known = dollars(found.repeated_microusd)
    repeated = f"at least {known}" if found.repeated_charges > found.repeated_priced else known
    return Line(
        workflow_id=found.workflow_id, scope=found.scope, is_demo=found.is_demo,
        first=found.first_us / _SECOND_US, last=found.last_us / _SECOND_US,
        runs=found.runs, attempts=found.attempts, retries=found.retries, recoveries=found.recoveries,
        unpriced_attempts=found.unpriced_attempts,
        endings=tuple((named, found.outcomes[outcome]) for outcome, named in OUTCOMES.items()
                      if found.outcomes[outcome]),
        cost=cost_of(found.sums),
        repeated=repeated if found.repeated_priced else None,
        refused=found.refused,
    )  # fmt: skip


def _summary(totals: Totals) -> Summary:
    return Summary(
        cost=cost_of(totals.sums), repeated=cost_of(totals.repeated),
        attempts=totals.attempts, retries=totals.retries, recoveries=totals.recoveries,
        unpriced_attempts=totals.unpriced_attempts,
        input=input_tokens(totals.sums), output=output_tokens(totals.sums),
    )  # fmt: skip


def _of_workflow(page: AttemptPage) -> Summary:
    found, sums = page.workflow, page.workflow.sums
    repeats = [each.sums.conflicting for each in page.attempts if each.attempt.cause is not Cause.FIRST]
    repeated = Cost(
        found.repeated_charges,
        dollars(found.repeated_microusd) if found.repeated_priced else None,
        found.repeated_charges - found.repeated_priced,
        # Of attempts on other pages it is not known here; their own rows say so.
        sum(repeats),
    )
    return Summary(
        cost=cost_of(sums), repeated=repeated,
        attempts=found.attempts, retries=found.retries, recoveries=found.recoveries,
        unpriced_attempts=found.unpriced_attempts, input=input_tokens(sums), output=output_tokens(sums),
    )  # fmt: skip


def _sources(found: Sequence[NamedSums]) -> Iterable[Source]:
    whole = sum(each.sums.cost_microusd for each in found)
    for each in found:
        share = each.sums.cost_microusd * _SHARE // whole if whole else 0
        yield Source(
            each.name, each.is_other, cost_of(each.sums), input_tokens(each.sums), output_tokens(each.sums), share
        )


def _endings(totals: Totals) -> Iterable[Ending]:
    for outcome, named in OUTCOMES.items():
        attempts, sums = totals.attempts_by_outcome[outcome], totals.by_outcome[outcome]
        if attempts or sums.charges:
            yield Ending(outcome, named, attempts, cost_of(sums))


def _attempt(number: int, found: AttemptLine) -> AttemptRow:
    attempt = found.attempt
    return AttemptRow(
        number=number, attempt_id=found.attempt_id, operation_id=attempt.operation_id, run_id=attempt.run_id,
        cause=CAUSES[attempt.cause], outcome=OUTCOMES[attempt.outcome], outcome_value=attempt.outcome,
        first=attempt.first_us / _SECOND_US, last=attempt.last_us / _SECOND_US,
        took=span((attempt.last_us - attempt.first_us) / _SECOND_US),
        cost=cost_of(found.sums), unlisted=found.sums.charges - len(found.charges),
    )  # fmt: skip


def _charge(number: int, charge: Charge, source: str, charge_id: str) -> ChargeRow:
    cached = _number(charge.cached_input_tokens)
    if cached is not None and charge.cached_basis is not None:
        cached = f"{cached} {_BASES[charge.cached_basis]}"
    return ChargeRow(
        number=number, source=source, charge_id=charge_id, facts=charge, cost=cost_of_charge(charge),
        state=STATES[charge.state], at=charge.first_us / _SECOND_US,
        tokens=(_number(charge.input_tokens), _number(charge.output_tokens), cached),
    )  # fmt: skip


_BASES: Final = {"included": "of the input", "separate": "beside the input"}


def _number(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _bar(row: AttemptRow) -> timeline.Bar:
    return timeline.Bar(
        label=f"{row.number} · {row.cause.name}" if row.cause is not CAUSES[Cause.FIRST] else f"{row.number}",
        words=row.outcome.name,
        tone=row.outcome.tone,
        started=row.first,
        ended=row.last,
        is_open=row.outcome_value is Outcome.OPEN,
    )
