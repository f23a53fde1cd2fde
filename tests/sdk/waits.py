"""How long callers of an observer were ready to wait, which no machine makes longer or shorter."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from observations import client
from tests.patience import wait_for


class _Noting(threading.Event):
    def __init__(self, waits_s: list[float | None]) -> None:
        super().__init__()
        self._waits_s = waits_s

    def wait(self, timeout: float | None = None) -> bool:
        self._waits_s.append(timeout)
        return super().wait(timeout)


def until_nobody_sends() -> None:
    """Wait for senders of a test that is over: they hold places of the process until their server lets them go."""
    wait_for(lambda: not any(thread.name == "atflows-sender" for thread in threading.enumerate()))


@contextmanager
def noted() -> Iterator[list[float | None]]:
    """Give a list that holds, for each event that is delivered, the seconds for which its caller would wait."""
    waits_s: list[float | None] = []
    make = client._Sending

    def sending(*arguments: Any) -> Any:
        return make(*arguments, done=_Noting(waits_s))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_Sending", sending)
        yield waits_s
