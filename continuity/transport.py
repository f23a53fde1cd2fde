"""HTTP to one server, and nothing else: bytes of wire.md out, objects of wire.md in.

Example::

    transport = Transport("http://127.0.0.1:8768", token)
    view = transport.call("GET", "/v1/continuity/wf_…")

Rules:

* One request a call. Nothing is ever sent twice here: whoever may repeat a request says so itself.
* The token goes to the address given and nowhere else: no redirects, no proxies, no ``.netrc``, no
  cookies, no environment. It stands in no ``repr``, message or log.
* HTTPS with verification and TLS 1.2 or newer; plain HTTP to a loopback address only.
* A reply has a size, and a time from its first byte waited for to its last byte read, whatever the
  server does in between. It is never decompressed, and its JSON is read as strictly as a request's.
* What goes wrong on the way is a `TransportError`; what the server refuses is the error it names.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from types import TracebackType
from typing import Any, ClassVar, Final, NoReturn, Protocol, Self

import requests
import urllib3
from requests.adapters import BaseAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from continuity.addresses import checked_url
from continuity.connections import USER_AGENT, Connections, StreamConnections
from continuity.errors import (
    MalformedError,
    NotReachedError,
    TransportError,
    TransportTimeoutError,
    UnauthenticatedError,
)
from continuity.jsontext import canonical_bytes
from continuity.replies import read_reply

Adapter = BaseAdapter
"""What may carry requests in the place of sockets."""

CONNECT_TIMEOUT_S: Final = 5.0
REPLY_TIMEOUT_S: Final = 20.0
"""More than the server's own bound for a statement (15 s), less than the 30 s a grant may be used for."""

POOL_CONNECTIONS: Final = 64
"""Idle connections kept: as many threads may call at once without connecting anew each time."""

REPLY_BYTES: Final = 2 * 1024 * 1024
"""A definition (256 KiB) and a receipt (64 KiB), every character escaped, fit in."""
VIEW_BYTES: Final = 64 * 1024 * 1024
"""Room for the view of a workflow with 200 operations and their late receipts."""
_OK: Final = 200
_EVENTS: Final = "text/event-stream"

_PROOFS: Final = ("Authorization", "Cookie", "X-CSRF-Token")
_UNKNOWN: Final = "Whether the request took effect is unknown."
_READ_BYTES: Final = 64 * 1024
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,4096}")


class Connection:
    """A keep-alive connection to one server, as nobody: who asks is for a subclass to say. Threads may share it.

    Attributes:
        url: The address without a trailing slash.
    """

    _RENEWAL: ClassVar[str] = ""
    """Said after a refusal of who asks: how to become somebody who is known."""

    def __init__(
        self,
        url: str,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
        ca_file: str | os.PathLike[str] | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        """Check the address; nothing is sent yet.

        Args:
            url: ``https://host[:port][/prefix]``; ``http://`` for a loopback address only.
            connect_timeout_s: Seconds to connect, and again to send the request.
            reply_timeout_s: Seconds from the request's end to the last byte of the reply.
            ca_file: Authorities to trust instead of the built-in ones. Verification cannot be turned off.
            adapter: Carries requests in another way than over sockets, for example to an application in
                this process.

        Raises:
            MalformedError: The address is not what it must be.
        """
        self.url = checked_url(url)
        self._connect_timeout_s = connect_timeout_s
        self._reply_timeout_s = reply_timeout_s
        self._ca_file = None if ca_file is None else os.fspath(ca_file)
        self._adapter = adapter
        self._lock = threading.Lock()
        self._carrier: _Carrier | None = None
        self._streamer: _Carrier
        self._process = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"A {type(self).__name__} holds a token and cannot be pickled.")

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes its connections."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections. The transport stays usable and connects again when called."""
        with self._lock:
            carrier, self._carrier = self._carrier, None
        if carrier is not None and self._process == os.getpid():
            carrier.close()
            self._streamer.close()

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        most_bytes: int = REPLY_BYTES,
        reply_timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Send one request, once, and return the object of its reply.

        Args:
            method: ``GET`` or ``POST``.
            path: Path and query below the address, as wire.md spells it.
            body: The object to send, None for a request without body.
            most_bytes: Replies above this size are refused unread.
            reply_timeout_s: Seconds for this reply instead of the transport's own.

        Returns:
            The reply of a 2xx status.

        Raises:
            MalformedError: `body` cannot be written as JSON (nothing was sent), or the server says so.
            NotReachedError: No connection could be made. Nothing was sent.
            TransportTimeoutError: No whole reply in time. Whether the request took effect is unknown.
            TransportError: The reply was lost, or is outside the contract, redirects among them. Unknown too.
            ContinuityError: The class for the code of the server's error reply; `continuity.errors` says
                for each what has happened by then.
        """
        status, headers, reply = self._sent(method, path, body, most_bytes=most_bytes, reply_timeout_s=reply_timeout_s)
        return self._read(status, headers, reply)

    def fetch(
        self, path: str, body: Mapping[str, Any], *, most_bytes: int, reply_timeout_s: float | None = None
    ) -> bytes:  # fmt: skip
        """Send one POST, once, and return the file of its reply as it came.

        Args:
            path: As for `call`.
            body: As for `call`.
            most_bytes: As for `call`.
            reply_timeout_s: As for `call`.

        Raises:
            ContinuityError: As `call`.
        """
        status, headers, reply = self._sent("POST", path, body, most_bytes=most_bytes, reply_timeout_s=reply_timeout_s)
        if status == _OK:
            return reply
        self._read(status, headers, reply)
        raise TransportError(f"The server answered {status} with something that is not its contract.")

    @contextmanager
    def stream(self, path: str, *, headers: Mapping[str, str], idle_s: float) -> Iterator[Iterator[bytes]]:
        """Open one stream of events, once; leaving the block closes its connection.

        Args:
            path: As for `call`.
            headers: Headers beside those that say who asks, ``Last-Event-ID`` for example.
            idle_s: Seconds without a byte after which the stream is given up.

        Yields:
            Pieces of the stream as they come, until the server ends it.

        Raises:
            ContinuityError: As `call`; on the way too, where the stream breaks.
        """
        timeout, asking = (self._connect_timeout_s, idle_s), {**self._proof(), **headers, "Accept": "text/event-stream"}
        request = f"GET {path.partition('?')[0]}"
        with self._going_wrong(request):
            response = self._carrying(streams=True).send("GET", path, None, headers=asking, timeout=timeout)
        try:
            with self._going_wrong(request):
                if response.status != _OK or _EVENTS not in response.headers.get("Content-Type", ""):
                    self._read(response.status, response.headers, _read_bounded(response, REPLY_BYTES))
                    raise TransportError("The server answered with no stream of events.")
            yield self._pieces(response, request)
        finally:
            # Unread: the connection cannot serve another request.
            response.close()

    def _pieces(self, response: urllib3.BaseHTTPResponse, request: str) -> Iterator[bytes]:
        with self._going_wrong(request):
            while piece := response.read1(_READ_BYTES, decode_content=False):
                yield piece

    @contextmanager
    def _going_wrong(self, request: str) -> Iterator[None]:
        """Turn what goes wrong on the way into a `TransportError`."""
        try:
            yield
        except (
            requests.RequestException, urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError,
        ) as error:  # fmt: skip
            _forget_token(error)
            raise self._failure(error, request) from error

    def _sent(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, most_bytes: int,
        reply_timeout_s: float | None,
    ) -> tuple[int, Mapping[str, str], bytes]:  # fmt: skip
        data = None if body is None else canonical_bytes(body)
        timeout = (self._connect_timeout_s, self._reply_timeout_s if reply_timeout_s is None else reply_timeout_s)
        with self._going_wrong(f"{method} {path.partition('?')[0]}"):
            status, headers, reply = self._exchange(method, path, data, timeout=timeout, most_bytes=most_bytes)
        self._heard(headers)
        return status, headers, reply

    def _read(self, status: int, headers: Mapping[str, str], reply: bytes) -> dict[str, Any]:
        try:
            return read_reply(status, headers, reply)
        except UnauthenticatedError as error:
            error.message = f"{error.message}{self._RENEWAL}"
            error.args = (error.message,)
            raise

    def _proof(self) -> dict[str, str]:
        """Return the headers that say who asks."""
        return {}

    def _heard(self, headers: Mapping[str, str]) -> None:
        """Look at the headers of a reply."""

    def _failure(self, error: BaseException, request: str) -> TransportError:
        """Say what went wrong on the way, and whether anything can have happened by then."""
        why = _why_unsent(error)
        if why is not None:
            return NotReachedError(f"{self.url} was not reached: {why}. Nothing was sent.")
        if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError | TimeoutError):
            return TransportTimeoutError(f"{self.url} gave no answer in time to {request}. {_UNKNOWN}")
        return TransportError(f"The answer of {self.url} to {request} was lost ({type(error).__name__}). {_UNKNOWN}")

    def _exchange(
        self, method: str, path: str, data: bytes | None, *, timeout: tuple[float, float], most_bytes: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        headers = {**self._proof(), "Accept": "application/json", "Accept-Encoding": "identity"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        response = self._carrying().send(method, path, data, headers=headers, timeout=timeout)
        try:
            return response.status, response.headers, _read_bounded(response, most_bytes)
        finally:
            # Nothing is left to read on the good path, so that this keeps the connection for the next call.
            response.close()
            response.release_conn()

    def _carrying(self, *, streams: bool = False) -> _Carrier:
        """Return what carries requests in this process: a forked child must not read its parent's replies."""
        with self._lock:
            if self._carrier is None or self._process != os.getpid():
                self._carrier = _carrier_to(self.url, self._ca_file, self._adapter)
                self._streamer = _carrier_to(self.url, self._ca_file, self._adapter, made=StreamConnections)
                self._process = os.getpid()
            return self._streamer if streams else self._carrier


class Transport(Connection):
    """A connection with one bearer token."""

    _RENEWAL = (
        " This one is expired, revoked or mistyped; nothing was changed. "
        "Make a new one with: atmem continuity credential"
    )

    def __init__(
        self,
        url: str,
        token: str,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
        ca_file: str | os.PathLike[str] | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        """Check address and token; nothing is sent yet.

        Args:
            url: As for `Connection`.
            token: Bearer token, visible ASCII.
            connect_timeout_s: As for `Connection`.
            reply_timeout_s: As for `Connection`.
            ca_file: As for `Connection`.
            adapter: As for `Connection`.

        Raises:
            MalformedError: The address or the token is not what it must be.
        """
        super().__init__(
            url, connect_timeout_s=connect_timeout_s, reply_timeout_s=reply_timeout_s, ca_file=ca_file, adapter=adapter
        )
        if not _TOKEN.fullmatch(token or ""):
            raise MalformedError("The token must be 1 to 4096 visible ASCII characters.")
        self._authorization = f"Bearer {token}"

    def _proof(self) -> dict[str, str]:
        return {"Authorization": self._authorization}


def elapsed_s() -> float:
    """Return seconds on a clock that never goes back and, where there is one, counts suspension.

    Linux has ``CLOCK_BOOTTIME``; ``CLOCK_MONOTONIC`` of macOS and `time.monotonic` of Windows count
    suspension by themselves.
    """
    return _elapsed_s()


def _elapsed_clock() -> int | None:
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        clock: int | None = getattr(time, name, None)
        if clock is not None:
            return clock
    return None


_CLOCK: Final = _elapsed_clock()


def _elapsed_s() -> float:
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


def _why_unsent(error: BaseException) -> str | None:
    """Say why no connection came about, so that nothing can have been sent; None where it may have been."""
    # `requests` wraps what urllib3 met in the error of its last try.
    wrapped = error.args[0] if isinstance(error, requests.ConnectionError) and error.args else error
    reason = getattr(wrapped, "reason", wrapped)
    if isinstance(reason, urllib3.exceptions.NameResolutionError):
        return "its name is not known"
    if isinstance(reason, urllib3.exceptions.NewConnectionError):
        refusal = reason.__cause__
        return (refusal.strerror if isinstance(refusal, OSError) else None) or "no connection could be made"
    if isinstance(reason, urllib3.exceptions.ConnectTimeoutError):
        return "it takes no connection in time"
    if isinstance(reason, urllib3.exceptions.SSLError) and isinstance(reason.args[0], ssl.SSLCertVerificationError):
        return "its certificate is not one to trust"
    return None


def _forget_token(error: BaseException) -> None:
    """Take the token out of the request that an error of `requests` carries along."""
    request = getattr(error, "request", None)
    headers = getattr(request, "headers", None)
    if headers is not None:
        _forget_proof(headers)


def _forget_proof(headers: MutableMapping[str, str]) -> None:
    for name in _PROOFS:
        headers.pop(name, None)


def _read_bounded(response: urllib3.BaseHTTPResponse, most_bytes: int) -> bytes:
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ValueError("The reply is compressed, which nobody asked for.")
    chunks: list[bytes] = []
    size_bytes = 0
    while chunk := response.read(_READ_BYTES, decode_content=False):
        size_bytes += len(chunk)
        if size_bytes > most_bytes:
            raise ValueError("The reply is larger than any the contract knows.")
        chunks.append(chunk)
    return b"".join(chunks)


# --- Connections -----------------------------------------------------------------------------------


class _Carrier(Protocol):
    """Carries requests to one server, and decides nothing."""

    def send(
        self, method: str, path: str, data: bytes | None, *, headers: dict[str, str], timeout: tuple[float, float]
    ) -> urllib3.BaseHTTPResponse:
        """Send one request, once; as `Connections.send`."""

    def close(self) -> None:
        """Close the idle connections."""


def _carrier_to(
    url: str, ca_file: str | None, adapter: Adapter | None, *, made: type[Connections] = Connections
) -> _Carrier:
    if adapter is not None:
        return _Adapted(url, adapter)
    return made(url, most=POOL_CONNECTIONS, trusted=ca_file or DEFAULT_CA_BUNDLE_PATH)


class _Adapted:
    """An adapter of `requests` in the place of sockets, under a session that adds nothing."""

    def __init__(self, url: str, adapter: Adapter) -> None:
        self._url = url
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._session.headers["User-Agent"] = USER_AGENT
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def send(
        self, method: str, path: str, data: bytes | None, *, headers: dict[str, str], timeout: tuple[float, float]
    ) -> urllib3.BaseHTTPResponse:
        response = self._session.request(
            method, self._url + path, data=data, headers=headers, timeout=timeout, allow_redirects=False, stream=True
        )
        # The request holds the proof of who asks; whoever keeps the response must not keep that.
        _forget_proof(response.request.headers)
        raw: urllib3.BaseHTTPResponse = response.raw
        raw.status, raw.headers = response.status_code, urllib3.HTTPHeaderDict(response.headers)
        return raw

    def close(self) -> None:
        self._session.close()
