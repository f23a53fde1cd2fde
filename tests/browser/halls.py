"""The application in this process, served on a free port, with a clock that the test moves.

Nobody waits for a lease to run out, and tests make workflows through the services while a browser looks on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from app.connections import Patience
from app.serving import Server, address_of, listen
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
        listener = listen("127.0.0.1", 0)
        settings = replace(site.wiring.settings, threads=THREADS)
        server = Server(site.app, listener, settings, patience=Patience(drain_s=0.1))
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        try:
            yield Hall(site, stage, address_of(listener))
        finally:
            server.stop()
            thread.join()
