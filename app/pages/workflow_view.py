"""The workflow page as one frozen value, made from what `Reviewing.review` returns. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.pages import wording
from app.pages.explanations import ALL_DONE, Control, Explanation
from app.pages.histories import HistoryLine, lines
from app.pages.jsonview import JSONView, json_view
from app.pages.late import LateView, late_view
from app.pages.situations import confirmed_since, explain, following
from app.pages.timeline import Bar, Timeline, draw
from app.pages.wording import Named
from continuity import limits
from continuity.decisions.beginning import Reason
from continuity.decisions.phases import Phase
from continuity.decisions.states import FINAL, Mode, Status
from continuity.jsontext import canonical_bytes

FINISHED: Final = frozenset({Phase.DONE, Phase.ENDED})
"""Phases in which nothing can run any more: no more polls, and the workflow may be deleted."""
DRAWN: Final = 20
"""So many attempts are drawn, the latest; the table has all of them."""
_DESTINATIONS: Final = (
    "destination", "url", "uri", "endpoint", "output", "path", "directory", "bucket", "repository", "host", "to",
    "recipient", "channel", "account",
)  # fmt: skip
"""Names under which tools usually take where they act, the plainest first."""
_DECIDES_PENDING: Final = frozenset({
    Reason.LATE_RECEIPT, Reason.RESTORED, Reason.ATTEMPT_LIMIT, Reason.REVISION_LIMIT,
})  # fmt: skip
_NO_REPEAT: Final = frozenset({Reason.ATTEMPT_LIMIT, Reason.REVISION_LIMIT})


@dataclass(frozen=True, slots=True)
class ReceiptView:
    json: JSONView
    digest: str
    assurance: Named | None = None


@dataclass(frozen=True, slots=True)
class AttemptLine:
    number: int
    attempt_id: str
    run_id: str
    mode: Named
    started: float
    ended: float | None
    took: str
    outcome: Named
    renewals: int
    receipt: ReceiptView | None


@dataclass(frozen=True, slots=True)
class Moment:
    """Something to watch: a time, and what happens then. `left` seconds of it are counted down."""

    label: str
    at: float
    left: int | None = None


@dataclass(frozen=True, slots=True)
class Confirming:
    """What a person may confirm. `wait` seconds must pass before absence may be attested, at `absence_from`."""

    may_deny: bool
    wait: int
    absence_from: float
    late_receipts: int


@dataclass(frozen=True, slots=True)
class OperationView:
    number: int
    name: str
    operation_id: str
    status: str
    tool: str
    destination: str | None
    arguments: JSONView
    capability: Named
    timeout: str
    explanation: Explanation
    is_following: bool
    moments: tuple[Moment, ...]
    attempts: tuple[AttemptLine, ...]
    undrawn: int
    timeline: Timeline | None
    receipt: ReceiptView | None
    late: LateView | None
    may_stop: bool
    confirming: Confirming | None

    @property
    def is_interesting(self) -> bool:
        """Whether it is worth more than a line in a long list."""
        return self.is_following or self.late is not None or self.status == Status.UNCERTAIN


@dataclass(frozen=True, slots=True)
class WorkflowView:
    workflow_id: str
    key: str
    title: str
    phase: str
    is_paused: bool
    workspace: str
    creator: str
    created: float
    revision: int
    mark: str
    is_finished: bool
    lead: Explanation
    focus: OperationView | None
    operations: tuple[OperationView, ...]
    history: tuple[HistoryLine, ...]
    may_enable: bool
    may_pause: bool
    may_delete: bool

    @property
    def progress(self) -> str:
        done = sum(operation.status == Status.COMPLETED for operation in self.operations)
        return f"{done} of {len(self.operations)} completed"

    @property
    def contradicted(self) -> tuple[OperationView, ...]:
        """Operations that are over, and of which a late receipt says otherwise."""
        return tuple(
            operation for operation in self.operations
            if operation.late is not None and operation.late.is_against and operation.status in FINAL
        )  # fmt: skip

    def offers(self, control: Control) -> bool:
        """Say whether a control applies to the workflow, or to what it waits for."""
        focus = self.focus
        return {
            Control.ENABLE: self.may_enable,
            Control.PAUSE: self.may_pause,
            Control.DELETE: self.may_delete,
            Control.STOP: focus is not None and focus.may_stop,
            Control.CONFIRM: focus is not None and focus.confirming is not None,
        }[control]


def workflow_view(view: Mapping[str, Any], names: Mapping[str, str]) -> WorkflowView:
    """Make the page's value. `names` are those of the actors in the history."""
    operations = tuple(_operation(view, index) for index in range(len(view["operations"])))
    place = following(view["operations"])
    focus = None if place is None else operations[place]
    is_finished = view["phase"] in FINISHED
    is_held = not view["enabled"] and view["phase"] not in {Phase.REVIEW, Phase.PAUSED}
    return WorkflowView(
        workflow_id=view["workflow_id"], key=view["workflow_key"],
        title=wording.work_title(view["workflow_key"], [each.name for each in operations]), phase=view["phase"],
        is_paused=is_held and not is_finished, workspace=view["scope"]["workspace_id"], creator=view["creator_id"],
        created=view["created"], revision=view["revision"], mark=view["pulse"], is_finished=is_finished,
        lead=ALL_DONE if focus is None else focus.explanation, focus=focus, operations=operations,
        history=tuple(lines(view["history"], names)),
        may_enable=not view["enabled"] and not is_finished, may_pause=view["enabled"] and not is_finished,
        may_delete=is_finished,
    )  # fmt: skip


def _operation(view: Mapping[str, Any], index: int) -> OperationView:
    operation = view["operations"][index]
    standing, now = operation["standing"], view["now"]
    outcomes = _outcomes(operation, view["history"])
    attempts = tuple(_attempt(operation, number, outcomes[number]) for number in range(len(operation["attempts"])))
    receipt = None
    if operation["receipt"] is not None:
        receipt = receipt_view(operation["receipt"], wording.ASSURANCES[operation["assurance"]])
    is_open = operation["status"] not in FINAL and not standing["is_live"] and view["phase"] not in FINISHED
    return OperationView(
        number=index + 1, name=operation["name"], operation_id=operation["operation_id"],
        status=operation["status"], tool=operation["tool"], destination=_destination(operation["arguments"]),
        arguments=json_view(operation["arguments"]), capability=wording.capability(operation),
        timeout=wording.span(operation["timeout_seconds"]), explanation=explain(view, index),
        is_following=index == following(view["operations"]), moments=tuple(_moments(operation, now)),
        attempts=attempts, undrawn=max(0, len(attempts) - DRAWN), timeline=draw(_bars(operation, outcomes, now=now)),
        receipt=receipt, late=late_view(operation, view["history"]), may_stop=is_open,
        confirming=_confirming(operation, now) if is_open else None,
    )  # fmt: skip


def receipt_view(receipt: Mapping[str, Any], assurance: Named | None = None) -> ReceiptView:
    """Lay out a receipt with the digest of its canonical form."""
    return ReceiptView(json_view(receipt), hashlib.sha256(canonical_bytes(receipt)).hexdigest(), assurance)


def _destination(arguments: Mapping[str, Any]) -> str | None:
    for name in _DESTINATIONS:
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return value
    return None


def _outcomes(operation: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Sequence[Named]:
    """Return what became of each attempt, by its receipt or by what a person confirmed since."""
    past = [event for event in history if event.get("name") == operation["name"]]
    return [
        wording.outcome(
            attempt, is_live=_is_live(operation, index), happened=confirmed_since(past, attempt["attempt_id"])
        )
        for index, attempt in enumerate(operation["attempts"])
    ]


def _attempt(operation: Mapping[str, Any], index: int, outcome: Named) -> AttemptLine:
    attempt = operation["attempts"][index]
    ended = attempt.get("ended")
    return AttemptLine(
        number=index + 1, attempt_id=attempt["attempt_id"], run_id=attempt["run_id"],
        mode=wording.MODES[Mode(attempt["mode"])], started=attempt["started"], ended=ended,
        took="" if ended is None else wording.span(ended - attempt["started"]),
        outcome=outcome, renewals=attempt["renewals"],
        receipt=receipt_view(attempt["receipt"]) if "receipt" in attempt else None,
    )  # fmt: skip


def _is_live(operation: Mapping[str, Any], index: int) -> bool:
    return bool(operation["standing"]["is_live"]) and index == len(operation["attempts"]) - 1


def _moments(operation: Mapping[str, Any], now: float) -> Sequence[Moment]:
    standing = operation["standing"]
    if operation["status"] in FINAL:
        return []
    found = []
    if standing["lease_until"] is not None:
        found.append(Moment("The lease runs out", standing["lease_until"], _left(standing["lease_until"], now)))
    if standing["window_end"] is not None:
        is_over = standing["window_end"] <= now
        label = "Repeats under the key were allowed until" if is_over else "Repeats under the key are allowed until"
        found.append(Moment(label, standing["window_end"]))
    if standing["absence_final_from"] is not None and operation["status"] == Status.UNCERTAIN:
        found.append(Moment("“Not there” is final from", standing["absence_final_from"]))
    return found


def _left(at: float, now: float) -> int:
    return max(0, -int(-(at - now) // 1))


def _confirming(operation: Mapping[str, Any], now: float) -> Confirming | None:
    standing = operation["standing"]
    reason = Reason(standing["reason"])
    if operation["status"] != Status.UNCERTAIN and reason not in _DECIDES_PENDING:
        return None
    may_deny = reason not in _NO_REPEAT and standing["attempts_left"] > 0
    wait = _left(standing["absence_from"], now)
    return Confirming(may_deny, wait, standing["absence_from"], operation["late_receipts"])


def _bars(operation: Mapping[str, Any], outcomes: Sequence[Named], *, now: float) -> list[Bar]:
    attempts = operation["attempts"]
    first = max(0, len(attempts) - DRAWN)
    return [_bar(operation, index, named=outcomes[index], now=now) for index in range(first, len(attempts))]


def _bar(operation: Mapping[str, Any], index: int, *, named: Named, now: float) -> Bar:
    attempt = operation["attempts"][index]
    is_live = _is_live(operation, index)
    mode = wording.MODES[Mode(attempt["mode"])].name
    late = tuple(late["received"] for late in operation["late"]
                 if late["proved"] and late["attempt_id"] == attempt["attempt_id"])  # fmt: skip
    lease_until = None if "ended" in attempt else _lease_end(operation, index)
    ended = attempt.get("ended", now if is_live else lease_until)
    return Bar(
        label=f"{index + 1} · {mode}", words=named.name, tone=named.tone, started=attempt["started"], ended=ended,
        lease_until=lease_until, is_open="ended" not in attempt, late=late,
    )  # fmt: skip


def _lease_end(operation: Mapping[str, Any], index: int) -> float:
    """Return when the lease of an attempt without receipt ended: known for the last one, else at most what it had."""
    attempts = operation["attempts"]
    if index == len(attempts) - 1 and "lease_until" in operation:
        return float(operation["lease_until"])
    most = attempts[index]["started"] + limits.LEASE_S * (attempts[index]["renewals"] + 1)
    following_start = attempts[index + 1]["started"] if index + 1 < len(attempts) else most
    return float(min(most, following_start))
