"""Server-sent events as they come in pieces: bytes in, events out. Pure.

Only what the server of AtMem writes is read: ``id``, ``event`` and one line of ``data``; comments and ``retry`` are
passed over, and so is an event that was cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from continuity.errors import TransportError

EVENT_BYTES: Final = 4 * 1024 * 1024
"""A record of 64 KiB, every character escaped, twice, fits in."""
_END: Final = b"\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        name: What kind it is.
        data: Its JSON text.
        id: Position of its record; empty where nothing was read.
    """

    name: str
    data: bytes = field(repr=False)
    id: str = ""


def read_events(pieces: Iterable[bytes]) -> Iterator[Event]:
    """Read events from pieces of a stream, each as soon as it is whole.

    Raises:
        TransportError: An event larger than any that the contract knows.
    """
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(_END)
        for block in whole:
            event = _event(block)
            if event is not None:
                yield event
        if len(rest) > EVENT_BYTES:
            raise TransportError("The stream holds an event larger than any the contract knows.")


def _event(block: bytes) -> Event | None:
    fields: dict[bytes, bytes] = {}
    for line in block.split(b"\n"):
        name, _, value = line.partition(b": ")
        fields[name] = value
    if b"data" not in fields:
        return None
    return Event(fields.get(b"event", b"").decode("ascii", "replace"), fields[b"data"], _text(fields.get(b"id", b"")))


def _text(value: bytes) -> str:
    return value.decode("ascii", "replace")
