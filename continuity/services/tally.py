"""Counts what attempts were answered, for whoever watches the whole: words of the protocol, and no id.

A unit of work may run twice, so that nothing is counted in one; what is counted was committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Reply = TypeVar("Reply", bound="Mapping[str, Any]")


def _nobody(*_words: str) -> None:
    pass


class Tally:
    """Hands replies on and tells of them."""

    def __init__(
        self, decided: Callable[[str, str], None] = _nobody, received: Callable[[str, str], None] = _nobody
    ) -> None:
        """Keep whom to tell: `decided` action and reason of a begin, `received` status and reason of an outcome."""
        self._decided = decided
        self._received = received

    def begun(self, reply: Reply) -> Reply:
        """Count the reply to a begin."""
        self._decided(reply["action"], reply["reason"])
        return reply

    def reported(self, reply: Reply) -> Reply:
        """Count the reply to an outcome; an exact repeat counts as ``replayed``."""
        self._received(reply["status"], "replayed" if reply.get("replayed") else reply.get("reason", "accepted"))
        return reply
