"""A form of a thread's page as somebody sent it, to be shown again with what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.pages.forms import texts_of


@dataclass(frozen=True, slots=True)
class Sent:
    """`form` is ``say, stop, resume, delete``, or the id of a waiting request.

    `is_outdated`: it was sent from a page of an earlier session.
    """

    form: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    is_outdated: bool = False

    def value(self, form: str, name: str) -> str:
        return self.values.get(name, "") if self.form == form else ""

    def problem(self, form: str, name: str) -> str:
        return self.problems.get(name, "") if self.form == form else ""

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """What somebody took the trouble to write, as labels and texts."""
        return texts_of(self.values)
