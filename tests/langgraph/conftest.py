"""Fixtures of the tests of governed tool calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.langgraph.hall import Destination, Hall, sqlite_saver
from tests.servers import Instance, RunningServer, start, stop


@pytest.fixture(scope="session")
def hall(instance_template: Instance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hall]:
    """One server for all: each test is a coordinator of its own."""
    server: RunningServer = start(instance_template.copy_to(tmp_path_factory.mktemp("hall") / "instance"))
    try:
        yield Hall(server)
    finally:
        stop(server)


@pytest.fixture
def destination() -> Destination:
    return Destination()


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[Any]:
    """A SqliteSaver on a file."""
    with sqlite_saver(tmp_path / "checkpoints.db") as made:
        yield made
