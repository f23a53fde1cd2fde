"""Keep-alive connections to one server: urllib3's, with the rules that it lacks. For `continuity.transport` alone.

A begin is one small request and one small reply. A session of `requests` prepares each request, merges settings
that are always the same, and looks for cookies, proxies and redirects that are never there; that took it longer
than the request itself, and none of it stands here.

Rules:

* A request is sent once, head and body together. Nothing is retried, redirected or inflated.
* The time for a reply ends at one moment, however its bytes trickle.
* HTTPS with verification and TLS 1.2 or newer.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from urllib3.util.ssl_ import create_urllib3_context

USER_AGENT: Final = "atmem-continuity"


class Connections:
    """Connections to one server. Threads may share them; no two processes may."""

    def __init__(self, url: str, *, most: int, trusted: str) -> None:
        """Connect to nothing yet.

        Args:
            url: ``http[s]://host[:port][/prefix]``, checked by the caller.
            most: Idle connections kept.
            trusted: File or folder with the authorities that an HTTPS server's certificate must come from.
        """
        parts = urlsplit(url)
        self._prefix = parts.path
        plain, secure = self._pools()
        self._pool: urllib3.HTTPConnectionPool
        if parts.scheme == "http":
            self._pool = plain(parts.hostname or "", parts.port, maxsize=most)
            return
        is_folder = Path(trusted).is_dir()
        self._pool = secure(
            parts.hostname or "", parts.port, maxsize=most, cert_reqs="CERT_REQUIRED",
            ssl_context=create_urllib3_context(ssl_minimum_version=ssl.TLSVersion.TLSv1_2),
            ca_certs=None if is_folder else trusted, ca_cert_dir=trusted if is_folder else None,
        )  # fmt: skip

    def send(
        self, method: str, path: str, data: bytes | None, *, headers: dict[str, str], timeout: tuple[float, float]
    ) -> urllib3.BaseHTTPResponse:
        """Send one request, once, and wait for the head of its reply.

        Args:
            method: ``GET`` or ``POST``.
            path: Path and query below the address.
            data: The body, None without one.
            headers: Who asks and what; everything else is added here.
            timeout: Seconds to connect and again to send; seconds from there to the last byte of the reply.

        Returns:
            The reply with its body unread. Whoever has read it closes it and releases its connection.

        Raises:
            urllib3.exceptions.HTTPError: No connection, or no head of a reply in time.
            OSError: The connection broke.
        """
        return self._pool.urlopen(
            method, self._prefix + path, body=data, headers={**headers, "User-Agent": USER_AGENT},
            timeout=urllib3.Timeout(connect=timeout[0], read=timeout[1]),
            retries=False, redirect=False, assert_same_host=False, preload_content=False, decode_content=False,
        )  # fmt: skip

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    @staticmethod
    def _pools() -> tuple[type[urllib3.HTTPConnectionPool], type[urllib3.HTTPSConnectionPool]]:
        return _HTTPPool, _HTTPSPool


class _DeadlineReader(io.RawIOBase):
    """Reads a socket until one moment in time; a socket's own timeout starts anew with every byte."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline_s: float) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline_s = deadline_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        remaining_s = self._deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError("The reply took too long.")
        self._sock.settimeout(remaining_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _DeadlineResponse(http.client.HTTPResponse):
    """A reply whose read timeout is the time for all of it, headers included."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        timeout_s = sock.gettimeout()
        if timeout_s is not None:
            raw = self.fp.detach()
            self.fp = io.BufferedReader(_DeadlineReader(raw, sock, time.monotonic() + timeout_s))


class _OneWrite:
    """Hands head and body of a request to the socket together: apart they wake the server twice."""

    _held: list[Any] | None = None

    def request(self, *args: Any, **options: Any) -> None:
        self._held = []
        try:
            super().request(*args, **options)  # type: ignore[misc]
            whole = b"".join(self._held)
        finally:
            self._held = None
        self.send(whole)

    def send(self, data: Any) -> None:
        if self._held is None:
            super().send(data)  # type: ignore[misc]
        else:
            self._held.append(data)


class _HTTPConnection(_OneWrite, urllib3.connection.HTTPConnection):
    response_class = _DeadlineResponse


class _HTTPSConnection(_OneWrite, urllib3.connection.HTTPSConnection):
    response_class = _DeadlineResponse


class _HTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HTTPConnection


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HTTPSConnection


class _PatientConnection(_OneWrite, urllib3.connection.HTTPConnection):
    """A reply may last: its read timeout is for each wait, not for the whole."""


class _PatientSecureConnection(_OneWrite, urllib3.connection.HTTPSConnection):
    """As `_PatientConnection`."""


class _PatientPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PatientConnection


class _PatientSecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _PatientSecureConnection


class StreamConnections(Connections):
    """Connections for replies that go on for minutes: seconds to read are those without a single byte."""

    @staticmethod
    def _pools() -> tuple[type[urllib3.HTTPConnectionPool], type[urllib3.HTTPSConnectionPool]]:
        return _PatientPool, _PatientSecurePool
