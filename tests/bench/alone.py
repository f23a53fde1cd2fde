"""The product without leader commit: each unit of SQLite is committed by itself. ``python -m tests.bench.alone serve``.

A baseline of the load lab; no setting of the product can do this.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from app.cli import main
from continuity.store.store import Store
from tests.entry import OVERRIDES


class StoreOfOne(Store):
    """Lets nobody in who would wait together with others."""

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(engine)
        self._turn = threading.Lock()

    def write(self, work: Callable[[sa.Connection], Any]) -> Any:
        with self._turn:
            return super().write(work)


if __name__ == "__main__":
    main(prog_name="atmem", obj=dataclasses.replace(OVERRIDES, make_store=StoreOfOne))
