"""A way to PostgreSQL that can be cut at COMMIT: before it reaches the server, or before its answer comes back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

import sqlalchemy as sa

from tests.patience import PATIENCE_S

# Of a simple query, and of the name of a prepared statement.
COMMIT = b"COMMIT\0"


@dataclass(frozen=True)
class Ends:
    """One connection: the store's end, the server's end, and what the store just sent with COMMIT in it."""

    store: socket.socket
    server: socket.socket
    sent: bytes

    def cut(self) -> None:
        """End both, without a word to either."""
        for end in (self.store, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut_store(self) -> None:
        """End the store's side alone: the server still believes that somebody is there."""
        with suppress(OSError):
            self.store.shutdown(socket.SHUT_RDWR)


Fault = Callable[[Ends], None]


def before(ends: Ends) -> None:
    """COMMIT does not arrive."""
    ends.cut()


def after(ends: Ends) -> None:
    """COMMIT is carried out, and its answer lost."""
    ends.cut_store()
    ends.server.sendall(ends.sent)
    ends.server.shutdown(socket.SHUT_WR)


@dataclass
class Wire:
    """Carries connections to the server of `url`; `faults` are what happens to the next COMMITs, in turn."""

    url: str
    faults: list[Fault] = field(default_factory=list)
    is_down: bool = False

    def __enter__(self) -> Self:
        self._socket = f"{sa.make_url(self.url).query['host']}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self._ends: list[socket.socket] = []
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=PATIENCE_S)
        for end in (self._listener, *self._ends):
            end.close()

    @property
    def here(self) -> str:
        """The address that goes this way."""
        port = self._listener.getsockname()[1]
        plain = {"sslmode": "disable", "gssencmode": "disable"}
        return sa.make_url(self.url).set(host="127.0.0.1", port=port, query=plain).render_as_string(hide_password=False)

    def _accept(self) -> None:
        while True:
            try:
                store, _ = self._listener.accept()
            except OSError:
                return
            if self.is_down:
                store.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._socket)
            self._ends += [store, server]
            for carry in (self._out, self._back):
                self._threads.append(threading.Thread(target=carry, args=(store, server)))
                self._threads[-1].start()

    def _out(self, store: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := store.recv(65_536):
                if COMMIT in chunk and self.faults:
                    self.faults.pop(0)(Ends(store, server, chunk))
                    return
                server.sendall(chunk)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _back(self, store: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := server.recv(65_536):
                store.sendall(chunk)
        with suppress(OSError):
            store.shutdown(socket.SHUT_RDWR)
