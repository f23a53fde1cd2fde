"""How long a test waits for what must come, before it says that it has not come.

Waiting costs time only where it fails, so this is longer than a loaded machine needs for anything. It is not for what
the product promises to do within a time, nor for what must not happen: those say their own seconds, and why.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

PATIENCE_S: Final = 60
PATIENCE_MS: Final = 1_000 * PATIENCE_S


def wait_for(holds: Callable[[], Any], *, timeout_s: float = PATIENCE_S, what: str = "it never came true") -> Any:
    """Ask until the answer is true; return it."""
    ends_at_s = time.monotonic() + timeout_s
    while time.monotonic() < ends_at_s:
        found = holds()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(what)
