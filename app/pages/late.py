"""Late receipts beside what they contradict. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.pages import wording
from app.pages.jsonview import JSONView, json_view
from app.pages.wording import Named
from continuity.decisions.states import Outcome, Status
from continuity.jsontext import canonical_bytes

_SETTLES_NOTHING: Final = "It claims nothing that would change this."
_STANDS: Final = {
    Status.PENDING: "No attempt stands open: it has not happened, as far as was said.",
    Status.UNCERTAIN: "No receipt was accepted. Whether it happened is not known.",
    Status.ABANDONED: "The work was stopped. Nobody has called it completed.",
}
_DENIED: Final = "A person confirmed that it did not happen."
_AGAINST: Final = {
    Status.PENDING: "It says the opposite: it happened.",
    Status.UNCERTAIN: "It says that it happened. If a later attempt was made, it may have happened twice.",
    Status.ABANDONED: "It says that it happened before, or although, the work was stopped.",
    Status.REFUSED: "It says that it happened, against the refusal.",
}


@dataclass(frozen=True, slots=True)
class LateLine:
    """One late receipt; `says` compares it with what stands, and `is_against` whether it speaks against that."""

    attempt_id: str
    run_id: str
    received: float
    proof: Named
    claim: Named
    says: str
    json: JSONView | None
    digest: str
    is_against: bool


@dataclass(frozen=True, slots=True)
class LateView:
    """All late receipts of an operation, and what stands instead of them."""

    stands: str
    standing_json: JSONView | None
    lines: tuple[LateLine, ...]

    @property
    def is_against(self) -> bool:
        """Whether any that is proved speaks against what stands."""
        return any(line.is_against and line.proof is wording.PROVED for line in self.lines)


def late_view(operation: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> LateView | None:
    """Compare the late receipts of an operation with what stands; None without any."""
    if not operation["late"]:
        return None
    receipt, past = operation["receipt"], [event for event in history if event.get("name") == operation["name"]]
    # What each claims was decided when it came, and stands in the history in the same order.
    claims = [Outcome(event["outcome"]) for event in past if event["event"] == "late_receipt_kept"]
    return LateView(
        stands=_stands(operation, past),
        standing_json=None if receipt is None else json_view(receipt),
        lines=tuple(_line(operation, late, claim) for late, claim in zip(operation["late"], claims, strict=True)),
    )


def _stands(operation: Mapping[str, Any], past: Sequence[Mapping[str, Any]]) -> str:
    status = Status(operation["status"])
    if status is Status.COMPLETED:
        return f"This receipt completed it ({wording.ASSURANCES[operation['assurance']].name})."
    if status is Status.REFUSED:
        return "This receipt says that the destination refused it."
    is_confirmed = any(event["event"] == "outcome_confirmed" for event in past)
    return _DENIED if status is Status.PENDING and is_confirmed else _STANDS[status]


def _line(operation: Mapping[str, Any], late: Mapping[str, Any], claim: Outcome) -> LateLine:
    receipt = late["receipt"]
    return LateLine(
        attempt_id=late["attempt_id"], run_id=late["run_id"], received=late["received"],
        proof=wording.PROVED if late["proved"] else wording.UNPROVED, claim=wording.OUTCOMES[claim],
        says=_says(operation, receipt, claim), json=None if receipt is None else json_view(receipt),
        digest="" if receipt is None else hashlib.sha256(canonical_bytes(receipt)).hexdigest(),
        is_against=claim is Outcome.SUCCEEDED and not _agrees(operation, receipt),
    )  # fmt: skip


def _says(operation: Mapping[str, Any], receipt: Mapping[str, Any] | None, claim: Outcome) -> str:
    status = Status(operation["status"])
    if claim is not Outcome.SUCCEEDED or receipt is None:
        if status is Status.COMPLETED and claim in {Outcome.REFUSED, Outcome.NOT_DISPATCHED, Outcome.ABSENT}:
            return "It says that its own attempt had no effect, which fits if another attempt had it."
        return _SETTLES_NOTHING
    if status is not Status.COMPLETED:
        return _AGAINST[status]
    if _agrees(operation, receipt):
        return "It names the same effect: both agree."
    return "Both say that it happened, under different effect ids: it may have happened twice."


def _agrees(operation: Mapping[str, Any], receipt: Mapping[str, Any] | None) -> bool:
    standing = operation["receipt"]
    if receipt is None or standing is None or operation["status"] != Status.COMPLETED:
        return False
    return bool(receipt.get("effect_id") == standing.get("effect_id"))
