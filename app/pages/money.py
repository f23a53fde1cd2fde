"""What something cost, in words: a sum, at least a sum, not known, contradicted, or nothing reported at all. Pure.

Amounts are whole millionths of a dollar and are written exactly; no float ever holds one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from observations.answers import Sums
from observations.costs import Charge

_MILLION: Final = 1_000_000
_CENTS_DIGITS: Final = 2


@dataclass(frozen=True, slots=True)
class Cost:
    """What is known of what something cost.

    `amount` is the sum of what was reported, None when nothing was. `unknown` of the charges have no price;
    `conflicting` were contradicted, and count with what was reported first.
    """

    charges: int
    amount: str | None
    unknown: int
    conflicting: int

    @property
    def text(self) -> str:
        """All of it but the conflicts, for text without markup."""
        if not self.charges:
            return "no charge reported"
        if self.amount is None:
            return f"unknown, {self.unknown} {'charge' if self.unknown == 1 else 'charges'} without a price"
        return self.amount if not self.unknown else f"at least {self.amount}, {self.unknown} unknown"


@dataclass(frozen=True, slots=True)
class Count:
    """A number of tokens. None where no charge reported any; `missing` charges reported none."""

    number: str | None
    missing: int


def dollars(microusd: int) -> str:
    """Write an amount exactly: ``$1,234.50``, ``$0.000042``."""
    whole, rest = divmod(microusd, _MILLION)
    digits = f"{rest:06d}".rstrip("0").ljust(_CENTS_DIGITS, "0")
    return f"${whole:,}.{digits}"


def cost_of(sums: Sums) -> Cost:
    known = sums.known_cost
    return Cost(sums.charges, None if known is None else dollars(known), sums.unpriced, sums.conflicting)


def cost_of_charge(charge: Charge) -> Cost:
    known = charge.cost_microusd
    return Cost(1, None if known is None else dollars(known), int(known is None), int(charge.conflicts > 0))


def input_tokens(sums: Sums) -> Count:
    return _count(sums.input_tokens, sums.without_input)


def output_tokens(sums: Sums) -> Count:
    return _count(sums.output_tokens, sums.without_output)


def _count(number: int | None, missing: int) -> Count:
    return Count(None if number is None else f"{number:,}", missing)
