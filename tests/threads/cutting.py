"""A proxy between a reader and the server that cuts connections after a random number of bytes, one way or another."""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
from contextlib import suppress
from typing import Self

from tests.patience import PATIENCE_S

_LINGER_NOT = struct.pack("ii", 1, 0)
_CHUNK_BYTES = 4_096


class Cutter:
    """Listens on a port of its own; every connection ends after a budget of bytes, in the middle of whatever it tells.

    Half of the ends are resets, half are orderly closes.
    """

    def __init__(self, target: tuple[str, int], *, seed: int, most_bytes: int) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._most_bytes = most_bytes
        self._is_over = threading.Event()
        self.cuts = 0

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(timeout=PATIENCE_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            budget, is_reset = self._random.randrange(1, self._most_bytes), self._random.random() < 0.5
            thread = threading.Thread(target=self._carry, args=(client, budget, is_reset))
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket, budget: int, is_reset: bool) -> None:
        with client, socket.create_connection(self._target, timeout=PATIENCE_S) as server:
            while not self._is_over.is_set():
                ready, _, _ = select.select([client, server], [], [], 0.1)
                for source in ready:
                    try:
                        piece = source.recv(_CHUNK_BYTES)
                    except ConnectionError:
                        return
                    if not piece:
                        return
                    if source is client:
                        server.sendall(piece)
                        continue
                    with suppress(ConnectionError):
                        client.sendall(piece[:budget])
                    budget -= len(piece)
                    if budget <= 0:
                        self.cuts += 1
                        if is_reset:
                            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
                        return
