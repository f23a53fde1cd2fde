"""One server for the tests of threads; each has agents and threads of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import Instance, start, stop
from tests.threads.town import Town


@pytest.fixture(scope="session")
def town(instance_template: Instance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    server = start(instance_template.copy_to(tmp_path_factory.mktemp("town") / "instance"))
    try:
        yield Town(server)
    finally:
        stop(server)
