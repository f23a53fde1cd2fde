"""The event ``atmem.continuity.v1``: its fields and their rules. Pure; for producers and for the server.

Rules:

* Ids, an event name and a time are required; everything else may be absent, and ``null`` means absent.
* Nothing beyond the fields here is taken: an event carries no text, arguments, results or receipts.
* ``charge_id`` and ``charge_source`` need each other; a known cost needs both and a ``price_source``;
  tokens need a charge.
* Amounts are whole numbers. Nothing is coerced: ``true`` is not 1, ``"1"`` is not 1, and over the wire ``1.0`` is
  not 1 either, as whoever keeps money in floats has rounded it already.

Source: observations.md "Event".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from continuity import jsontext
from continuity.errors import MalformedError

FORMAT: Final = "atmem.continuity.v1"
EVENT_BYTES: Final = 8 * 1024
TIME_MAX: Final = 253_402_300_799
"""The last second of the year 9999."""
AMOUNT_MAX: Final = 2**53 - 1
CHARGE_ID_CHARS: Final = 256
CHARGE_SOURCE_CHARS: Final = 128
PRICE_SOURCE_CHARS: Final = 256
MODEL_CHARS: Final = 128

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_UNSAFE: Final = re.compile("[\x00\ud800-\udfff]")


class EventName(StrEnum):
    """What was seen of an attempt."""

    EXECUTE = "execute"
    QUERY = "query"
    COMPLETED = "completed"
    UNKNOWN = "unknown"
    BLOCKED = "blocked"
    ABANDONED = "abandoned"
    USAGE = "usage"


class CachedBasis(StrEnum):
    """Whether cached input tokens are part of the input tokens or come on top."""

    INCLUDED = "included"
    SEPARATE = "separate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One observation. Making one checks every rule.

    Attributes:
        event_id: Unique in its scope; the same id with another body is a conflict.
        workflow_id: Opaque id, 1 to 128 of ``A-Z a-z 0-9 _ -``; so are the next three.
        operation_id: See `workflow_id`.
        run_id: See `workflow_id`.
        attempt_id: Belongs to one workflow, operation and run.
        event: What was seen.
        time: Unix seconds as the host says, 0 to the end of the year 9999.
        retry: The attempt repeats an earlier execute.
        recovery: The attempt was made while it was open what had become of an earlier one.
        charge_id: The provider's id of what it charged for, at most 256 characters.
        charge_source: The provider's account, at most 128 characters.
        cost_microusd: Millionths of a US dollar, 0 to 2^53 - 1; so are the token counts.
        input_tokens: See `cost_microusd`.
        output_tokens: See `cost_microusd`.
        cached_input_tokens: See `cost_microusd`.
        cached_basis: How cached tokens relate to the input tokens.
        price_source: Where the rate comes from, with its version; at most 256 characters.
        model: At most 128 characters.
    """

    event_id: str
    workflow_id: str
    operation_id: str
    run_id: str
    attempt_id: str
    event: EventName
    time: float
    retry: bool | None = None
    recovery: bool | None = None
    charge_id: str | None = None
    charge_source: str | None = None
    cost_microusd: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cached_basis: CachedBasis | None = None
    price_source: str | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        """Check the fields one by one, then against each other.

        Raises:
            MalformedError: A field is not what it must be. The message names it and holds no value.
        """
        for name in ("event_id", "workflow_id", "operation_id", "run_id", "attempt_id"):
            value = getattr(self, name)
            _require(isinstance(value, str) and _ID.fullmatch(value), f"{name} must be 1 to 128 of A-Z a-z 0-9 _ -.")
        _require(isinstance(self.event, EventName), "event must be the name of an event.")
        _require(_is_time(self.time), f"time must be Unix seconds from 0 to {TIME_MAX}.")
        for name in ("retry", "recovery"):
            value = getattr(self, name)
            _require(value is None or isinstance(value, bool), f"{name} must be true or false.")
        for name, most in _TEXTS.items():
            _require(_is_text(getattr(self, name), most), f"{name} must be text of 1 to {most} characters.")
        for name in _AMOUNTS:
            _require(_is_amount(getattr(self, name)), f"{name} must be a whole number from 0 to 2^53-1.")
        _require(
            self.cached_basis is None or isinstance(self.cached_basis, CachedBasis),
            "cached_basis must be included or separate.",
        )
        self._check_charge()

    def _check_charge(self) -> None:
        has_charge = self.charge_id is not None
        _require(has_charge == (self.charge_source is not None), "charge_id and charge_source need each other.")
        has_amount = any(getattr(self, name) is not None for name in _AMOUNTS)
        _require(has_charge or not has_amount, "A cost or a number of tokens needs a charge_id.")
        _require(self.cost_microusd is None or self.price_source is not None, "A cost needs a price_source.")

    def to_json(self) -> dict[str, Any]:
        """Return the event as it travels: the format first, absent fields left out."""
        value: dict[str, Any] = {"format": FORMAT}
        for name in _NAMES:
            member = getattr(self, name)
            if member is not None:
                value[name] = member.value if isinstance(member, StrEnum) else member
        return value


def read_event(body: bytes) -> Event:
    """Read an event from its text.

    Args:
        body: JSON, at most `EVENT_BYTES`; the caller has checked its size.

    Raises:
        MalformedError: The text breaks a rule of `jsontext`, or the event one of `parse_event`; an amount is
            written as a fraction or with an exponent.
    """
    event = parse_event(jsontext.loads_strict(body))
    # The loader keeps numbers by value, so that 5.0 is 5 and 9007199254740990.6 has become a whole number.
    written = json.loads(body, parse_float=_Fraction)
    for name in _AMOUNTS:
        _require(not isinstance(written.get(name), _Fraction), f"{name} must be a whole number from 0 to 2^53-1.")
    return event


def parse_event(value: object) -> Event:
    """Read an event that came over the wire.

    Args:
        value: What a strict JSON loader returned.

    Raises:
        MalformedError: Not an object of this format, an unknown field, or a field that breaks a rule.
    """
    if not isinstance(value, Mapping):
        raise MalformedError("The event must be an object.")
    given = {name: member for name, member in value.items() if member is not None}
    _require(given.pop("format", None) == FORMAT, f"format must be {FORMAT}.")
    _require(set(value) <= {*_NAMES, "format"}, "The event has a field that is not of its format.")
    for name in ("event_id", "workflow_id", "operation_id", "run_id", "attempt_id", "event", "time"):
        _require(name in given, f"{name} is required.")
    given["event"] = _member(EventName, given["event"])
    if "cached_basis" in given:
        given["cached_basis"] = _member(CachedBasis, given["cached_basis"])
    return Event(**given)


class _Fraction(str):
    """How a number was written that is no integer of JSON."""

    __slots__ = ()


_TEXTS: Final = {
    "charge_id": CHARGE_ID_CHARS,
    "charge_source": CHARGE_SOURCE_CHARS,
    "price_source": PRICE_SOURCE_CHARS,
    "model": MODEL_CHARS,
}
_AMOUNTS: Final = ("cost_microusd", "input_tokens", "output_tokens", "cached_input_tokens")
_NAMES: Final = tuple(field.name for field in fields(Event))


def _require(holds: object, message: str) -> None:
    if not holds:
        raise MalformedError(message)


def _member(enum: type[StrEnum], value: object) -> object:
    """Return the member of that value; anything else goes on as it is and is refused by `Event`."""
    return enum(value) if isinstance(value, str) and value in set(enum) else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_time(value: float) -> bool:
    return _is_number(value) and math.isfinite(value) and 0 <= value <= TIME_MAX


def _is_amount(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= AMOUNT_MAX)


def _is_text(value: object, most: int) -> bool:
    return value is None or (isinstance(value, str) and 0 < len(value) <= most and not _UNSAFE.search(value))
