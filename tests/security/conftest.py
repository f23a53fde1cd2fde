"""Fixtures of the tests of single security requirements: the whole application, with work in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import Instance
from tests.web.scenes import Stage
from tests.web.site import Site, site_on


@pytest.fixture
def site(fresh_instance: Instance) -> Iterator[Site]:
    with site_on(fresh_instance.folder) as made:
        yield made


@pytest.fixture
def scenes(site: Site) -> Stage:
    """An administrator ``adm``, an operator's credential, and ways to make work."""
    return Stage(site)
