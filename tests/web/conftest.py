"""Fixtures of the web tests. What they give: `tests/web/site.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import Instance
from tests.web.site import HTTPS, Site, site_on


@pytest.fixture
def site(fresh_instance: Instance) -> Iterator[Site]:
    """The application as people on this machine reach it, over plain HTTP."""
    with site_on(fresh_instance.folder) as made:
        yield made


@pytest.fixture
def https_site(fresh_instance: Instance) -> Iterator[Site]:
    """The application as people elsewhere reach it."""
    with site_on(fresh_instance.folder, HTTPS) as made:
        yield made
