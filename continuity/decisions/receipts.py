"""What a receipt means. A receipt is what the host reports; it is kept as it came, whatever it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from continuity.decisions.states import Mode, Outcome

_EXECUTE_ONLY: Final = frozenset({Outcome.REFUSED, Outcome.NOT_DISPATCHED})
_QUERY_ONLY: Final = frozenset({Outcome.ABSENT})


def classify(receipt: Mapping[str, Any], *, operation_id: str, mode: Mode | None) -> Outcome:
    """Say what a receipt claims about its attempt.

    Args:
        receipt: Any JSON object.
        operation_id: The operation it was sent for; a receipt that names another claims nothing.
        mode: The mode of the attempt it names; None when that attempt was never issued.

    Returns:
        Its outcome; `Outcome.UNKNOWN` for an object that is none of the known receipts, or one that an
        attempt of this mode cannot give.

    Source: operations.md "Receipts".
    """
    claim = receipt.get("outcome")
    if not isinstance(claim, str) or claim not in _CLAIMS or receipt.get("operation_id") != operation_id:
        return Outcome.UNKNOWN
    outcome = Outcome(claim)
    if outcome is Outcome.SUCCEEDED and not _is_success(receipt):
        return Outcome.UNKNOWN
    if outcome is Outcome.REFUSED and receipt.get("reason") is None:
        return Outcome.UNKNOWN
    if (mode is Mode.EXECUTE and outcome in _QUERY_ONLY) or (mode is Mode.QUERY and outcome in _EXECUTE_ONLY):
        return Outcome.UNKNOWN
    return outcome


def _is_success(receipt: Mapping[str, Any]) -> bool:
    effect_id = receipt.get("effect_id")
    return isinstance(effect_id, str) and bool(effect_id) and "result" in receipt


_CLAIMS: Final = frozenset(outcome.value for outcome in Outcome) - {Outcome.UNKNOWN.value}
