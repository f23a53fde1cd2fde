"""What ends a run that has gone too far."""

from __future__ import annotations


class LimitReachedError(Exception):
    """A run has gone as far as its agent lets it; its message is what a person is told."""
