"""The application in this process, served on a free port, with a clock that the test moves.

Nobody waits for a lease to run out, and tests make workflows through the services while a browser looks on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import waitress

from continuity.services.callers import Role
from tests.servers import Instance
from tests.web.scenes import Stage
from tests.web.site import Site, site_on

THREADS = 4


@dataclass
class Hall:
    """A site at an address, with ``adm``, ``op`` and ``inv`` in it and a stage to make workflows on."""

    site: Site
    stage: Stage
    url: str

    def password(self, username: str) -> str:
        return self.site.passwords[username]


@contextmanager
def opened(instance: Instance) -> Iterator[Hall]:
    """Serve the instance for as long as the block lasts."""
    with site_on(instance.folder) as site:
        stage = Stage(site)
        for username, role in (("op", Role.OPERATOR), ("inv", Role.INVESTIGATOR)):
            site.person(username, role)
        server = waitress.create_server(
            site.app, listen="127.0.0.1:0", threads=THREADS, clear_untrusted_proxy_headers=True
        )
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield Hall(site, stage, f"http://127.0.0.1:{server.effective_port}")
        finally:
            server.close()
            thread.join()
