"""Words for what the core calls by short names: capabilities, modes, outcomes, assurance, spans of time.

Pure: no request, no database, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from continuity.decisions.states import Mode, Outcome
from continuity.limits import LANDING_MARGIN_S

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_CALL_KEY: Final = re.compile(r"call-[0-9a-f]{64}")
"""As `continuity.integrations.identity` makes it."""
_MILLISECONDS_BELOW: Final = 1.0
_KIB: Final = 1_024


@dataclass(frozen=True, slots=True)
class Named:
    """A short name for people and the sentence behind it. `tone` is a kind of badge."""

    name: str
    sentence: str
    tone: str = "quiet"


MODES: Final = {
    Mode.EXECUTE: Named("Execute", "Does the thing itself.", "info"),
    Mode.QUERY: Named("Query", "Asks the destination what happened, and does nothing there.", "quiet"),
}

OUTCOMES: Final = {
    Outcome.SUCCEEDED: Named("It happened", "The host reports the effect by its id at the destination.", "good"),
    Outcome.UNKNOWN: Named("Not known", "The host itself cannot tell whether it happened.", "warn"),
    Outcome.REFUSED: Named("Refused", "The destination answered for certain that it did nothing.", "bad"),
    Outcome.NOT_DISPATCHED: Named("Never left", "This attempt did not reach the destination.", "quiet"),
    Outcome.ABSENT: Named("Not found", "The destination was asked and knew nothing of it.", "quiet"),
}
UNDER_WAY: Final = Named("Under way", "A worker holds the lease; its receipt is still to come.", "info")
NO_RECEIPT: Final = Named("No receipt", "The lease ended without a word. The effect may have happened.", "warn")
DENIED: Final = Named("No receipt", "The lease ended without a word. A person confirmed that it did not happen.")
AFFIRMED: Final = Named("No receipt", "The lease ended without a word. A person confirmed that it happened.")
ASKED_IN_VAIN: Final = Named("No answer", "The lease ended before the destination's answer was reported.", "warn")

ASSURANCES: Final = {
    "host_reported": Named(
        "host-reported",
        "The host says so. AtMem checked that the receipt belongs to this attempt, not that it is true.",
        "info",
    ),
    "operator_attested": Named(
        "operator-attested",
        "A signed-in person says so, with a reason that stands in the history. No host reported it.",
        "warn",
    ),
}

PROVED: Final = Named("proved", "It came with the lease token of the attempt that it names.", "info")
UNPROVED: Final = Named("not proved", "Its token is not that of the attempt it names: anybody with a credential"
                        " for this workflow can have sent it.", "quiet")  # fmt: skip

_CAPABILITY_NAMES: Final = {
    "": "Neither query nor idempotency key",
    "query": "Query",
    "idempotent": "Idempotency key",
    "idempotent query": "Query and idempotency key",
}


def outcome(attempt: Mapping[str, Any], *, is_live: bool, happened: bool | None = None) -> Named:
    """Return what became of an attempt. `happened` is what a person confirmed since it began, None for nothing."""
    if "outcome" in attempt:
        return OUTCOMES[Outcome(attempt["outcome"])]
    if is_live:
        return UNDER_WAY
    if attempt["mode"] != Mode.EXECUTE:
        return ASKED_IN_VAIN
    if happened is None:
        return NO_RECEIPT
    return AFFIRMED if happened else DENIED


def capability(definition: Mapping[str, Any]) -> Named:
    """Say what a destination can do, what that allows, and until when."""
    given = definition["capability"]
    names: Sequence[str] = [given] if isinstance(given, str) else sorted(given)
    if names == ["none"]:
        return Named(
            _CAPABILITY_NAMES[""],
            "The destination can neither be asked nor recognise a repeat. When a receipt is lost, only a person can"
            " say what happened.",
        )
    sentences = []
    if "idempotent" in names:
        kept = span(definition["retention_seconds"])
        used = span(max(0, definition["retention_seconds"] - definition["timeout_seconds"] - LANDING_MARGIN_S))
        sentences.append(
            f"The destination recognises a repeat by its key for {kept} from the first dispatch, so a repeat within"
            f" that time has no second effect. AtMem allows repeats for the first {used} of it."
        )
    if "query" in names:
        sentences.append(_query(definition.get("absence_final_after_seconds")))
    return Named(_CAPABILITY_NAMES[" ".join(names)], " ".join(sentences))


def _query(absence_s: float | None) -> str:
    asked = "The destination can be asked what happened, without doing anything."
    if absence_s is None:
        return f"{asked} That it knows nothing is no proof: a request under way may still land."
    return (
        f"{asked} That it knows nothing becomes final {span(absence_s)} after the last attempt can have landed;"
        " before that it is no proof."
    )


def span(seconds: float) -> str:
    """Write a length of time in at most two units: ``2 min 30 s``, ``24 h``, ``0.4 s``."""
    if 0 < seconds < _MILLISECONDS_BELOW:
        return f"{seconds:.1f} s" if seconds >= 0.05 else "0 s"  # noqa: PLR2004 - rounds to nothing
    rest = round(seconds)
    parts = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def size(count: int) -> str:
    """Write a number of bytes: ``312 bytes``, ``4.2 KiB``."""
    return f"{count} bytes" if count < _KIB else f"{count / _KIB:.1f} KiB"


def count(number: int, most: int) -> str:
    """Write an exact count up to `most`, and ``1,000+`` beyond."""
    return f"{number:,}" if number <= most else f"{most:,}+"


def work_title(key: str, names: Sequence[str]) -> str:
    """Return what to call work: its key; of a tool call that a model chose, whose key is a hash, the tool's name."""
    return names[0] if len(names) == 1 and _CALL_KEY.fullmatch(key) else key
