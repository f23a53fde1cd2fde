"""The edge: what happens to every request before Flask sees it and to every reply after Flask has made it.

It is one WSGI layer and not a set of Flask hooks, so that nothing gets past it: a request for an unknown host
is refused before routing, and the headers stand on errors, on static files and on what Flask itself refuses.

Before: a request id of our own, forwarded headers removed (or believed, from a configured proxy), the Host
checked against the configured names, plain HTTP refused where the address is HTTPS, the client's rate checked.
After: security headers, ``no-store``, one line of log.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from app import logs
from app.config import LOOPBACK_HOSTS, Settings
from app.errors import UNEXPECTED, error_bytes
from app.rates import RateLimiter
from app.replies import JSON_TYPE, REQUEST_ID_KEY, new_request_id
from continuity.services.clock import Clock

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

Headers = list[tuple[str, str]]
Count = Callable[[str, int, int], None]
"""Told method, status and microseconds of a request."""

PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'"
)
"""Content-Security-Policy of every HTML reply."""
DATA_POLICY: Final = "default-src 'none'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'; sandbox"
"""Content-Security-Policy of every other reply: opened as a document, it can do nothing."""
PERMISSIONS_POLICY: Final = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"
HSTS: Final = "max-age=63072000"
HX_HEADERS: Final = frozenset({"hx-redirect", "hx-location", "hx-push-url", "hx-replace-url", "hx-refresh"})
"""Headers by which a reply moves the browser."""
HX_PATHS: Final = frozenset(
    {"/login?ended=yes", "/password", "/reauthenticate", "/account/second-factor", "true", "false"}
)
"""All values they may have: the pages that must come first, never anything from a request."""
_ALWAYS: Final[Headers] = [
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", PERMISSIONS_POLICY),
]
PAGE_HEADERS: Final[Headers] = [*_ALWAYS, ("Content-Security-Policy", PAGE_POLICY)]
"""On every HTML reply."""
DATA_HEADERS: Final[Headers] = [*_ALWAYS, ("Content-Security-Policy", DATA_POLICY)]
"""On every other reply, those of the server itself included."""
_UNCACHED: Final[Headers] = [("Cache-Control", "no-store"), ("Vary", "Cookie"), ("Vary", "HX-Request")]
_OVERRIDABLE: Final = HX_HEADERS | {
    "cache-control", "content-security-policy", "cross-origin-opener-policy", "cross-origin-resource-policy",
    "permissions-policy", "referrer-policy", "strict-transport-security", "vary", "x-content-type-options",
}  # fmt: skip
"""Headers that need a closer look when the application has set them itself."""
_FORWARDED: Final = (
    "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO", "HTTP_X_FORWARDED_HOST", "HTTP_X_FORWARDED_PORT",
    "HTTP_X_FORWARDED_PREFIX", "HTTP_X_FORWARDED_BY", "HTTP_FORWARDED",
)  # fmt: skip
API_PATHS: Final = re.compile(r"/(v1|api)/|/(healthz|readyz|metrics|openapi\.json)\Z")
"""Where programs ask, who get no pages."""
EVENTS_PATH: Final = "/v1/continuity/events"
"""Where observation events are submitted."""
_UNLOGGED: Final = frozenset({"/healthz", "/readyz"})
_HOSTS_REMEMBERED: Final = 64
_SERVER_ERROR: Final = 500
_CLIENT_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a request goes no further: status line, (code, message), headers beside the usual ones."""

    status: str
    problem: tuple[str, str]
    headers: tuple[tuple[str, str], ...] = ()


_UNKNOWN_HOST: Final = _Refusal("400 Bad Request", ("malformed", "The Host of the request is not one of this server."))
_BAD_PATH: Final = _Refusal("400 Bad Request", ("malformed", "The address must be printable ASCII."))
_TOO_MANY: Final = _Refusal("429 Too Many Requests", ("throttled", "Too many requests."), (("Retry-After", "1"),))
_HTTPS_REQUIRED: Final = ("https_required", "This server is reached by HTTPS only.")
_DEFECT: Final = _Refusal("500 Internal Server Error", UNEXPECTED)


class Edge:
    """Wraps the Flask application."""

    def __init__(
        self, application: WSGIApplication, settings: Settings, clock: Clock, *, count: Count | None = None
    ) -> None:
        """Wrap `application`; `count` is told method, status and microseconds of every request."""
        self._application = application
        self._count = count
        self._clock = clock
        self._url = settings.url
        self._is_https = settings.is_https
        self._hosts = settings.trusted_hosts
        self._proxies = settings.trusted_proxies
        self._rates = RateLimiter(per_second=settings.requests_per_second)
        self._event_rates = RateLimiter(per_second=settings.events_per_second)
        self._known_hosts: set[str] = set()
        transport = [("Strict-Transport-Security", HSTS)] if self._is_https else []
        self._page_headers: Headers = [*PAGE_HEADERS, *transport, *_UNCACHED]
        self._data_headers: Headers = [*DATA_HEADERS, *transport, *_UNCACHED]

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        started_us = self._clock.monotonic_us()
        identifier = environ[REQUEST_ID_KEY] = new_request_id()
        status = 0

        def start(line: str, headers: Headers, exc_info: Any = None) -> Callable[[bytes], object]:
            nonlocal status
            status = int(line[:3])
            self._finish_headers(headers, identifier)
            return start_response(line, headers, exc_info)

        try:
            refusal = self._refusal(environ, started_us)
            if refusal is not None:
                body = _refuse(refusal, start, identifier)
                return [] if environ["REQUEST_METHOD"] == "HEAD" else body
            return self._application(environ, start)
        except Exception as error:  # noqa: BLE001 - the last one who can answer; the log gets the place
            logs.failure(error, request_id=identifier, code=UNEXPECTED[0])
            return _refuse(_DEFECT, start, identifier)
        finally:
            took_us = self._clock.monotonic_us() - started_us
            if self._count is not None:
                self._count(environ["REQUEST_METHOD"], status, took_us)
            self._log(environ, request_id=identifier, status=status, took_us=took_us)

    def _refusal(self, environ: dict[str, Any], now_us: int) -> _Refusal | None:
        self._read_forwarded(environ)
        path = environ["PATH_INFO"]
        if not self._is_known_host(environ.get("HTTP_HOST", "")):
            return _UNKNOWN_HOST
        if not (path.isascii() and path.isprintable()):
            return _BAD_PATH
        if self._is_https and environ["wsgi.url_scheme"] != "https" and not _is_loopback(environ["HTTP_HOST"]):
            return self._refuse_plain_http(environ["REQUEST_METHOD"], path)
        if not path.endswith("/outcome"):
            client = environ.get("HTTP_AUTHORIZATION") or environ.get("REMOTE_ADDR", "")
            # Observations have a budget of their own: a flood of them takes nothing from what is governed.
            rates = self._event_rates if path == EVENTS_PATH else self._rates
            if not rates.admit(client[:_CLIENT_CHARS], now_us):
                return _TOO_MANY
        return None

    def _refuse_plain_http(self, method: str, path: str) -> _Refusal:
        """Send a browser to HTTPS; refuse a program, whose credential has already travelled in the clear."""
        if method in {"GET", "HEAD"} and not API_PATHS.match(path):
            location = f"{self._url}/{quote(path.lstrip('/'))}"
            return _Refusal("308 Permanent Redirect", _HTTPS_REQUIRED, (("Location", location),))
        return _Refusal("403 Forbidden", _HTTPS_REQUIRED)

    def _is_known_host(self, host: str) -> bool:
        if host in self._known_hosts:
            return True
        name, _, port = host.lower().rpartition(":") if re.search(r":\d{1,5}\Z", host) else (host.lower(), "", "")
        if name not in self._hosts or (port and not port.isascii()):
            return False
        # Spelled hosts that were found good, so that the next request costs one look-up.
        if len(self._known_hosts) < _HOSTS_REMEMBERED:
            self._known_hosts.add(host)
        return True

    def _read_forwarded(self, environ: dict[str, Any]) -> None:
        """Take client address and scheme from configured proxies, then forget what was forwarded.

        The addresses are walked from the right, where the nearest proxy wrote, and only past proxies that are
        configured: what stands left of the first stranger was written by the stranger.
        """
        if self._proxies and self._is_proxy(environ.get("REMOTE_ADDR", "")):
            hops = [hop.strip() for hop in environ.get("HTTP_X_FORWARDED_FOR", "").split(",")]
            for hop in reversed(hops):
                if _address(hop) is None:
                    break
                environ["REMOTE_ADDR"] = hop
                if not self._is_proxy(hop):
                    break
            scheme = environ.get("HTTP_X_FORWARDED_PROTO", "").rpartition(",")[2].strip().lower()
            if scheme in {"http", "https"}:
                environ["wsgi.url_scheme"] = scheme
        for name in _FORWARDED:
            environ.pop(name, None)

    def _is_proxy(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self._proxies)

    def _finish_headers(self, headers: Headers, identifier: str) -> None:
        present = {name.lower(): value for name, value in headers}
        ours = self._page_headers if present.get("content-type", "").startswith("text/html") else self._data_headers
        if present.keys().isdisjoint(_OVERRIDABLE):
            headers += ours
        else:
            headers += [header for header in ours if _is_missing(header, present)]
            _check_moves(present)
        headers.append(("X-Request-Id", identifier))

    def _log(self, environ: dict[str, Any], *, request_id: str, status: int, took_us: int) -> None:
        if status >= _SERVER_ERROR or environ["PATH_INFO"] not in _UNLOGGED:
            logs.access(self._clock.now_us(), environ, request_id=request_id, status=status, took_us=took_us)


def _is_missing(header: tuple[str, str], present: dict[str, str]) -> bool:
    """Say whether a reply lacks one of our headers. Vary is a list, to which each of ours is added."""
    name, value = header[0].lower(), present.get(header[0].lower())
    return value is None or (name == "vary" and header[1].lower() not in value.lower())


def _check_moves(present: dict[str, str]) -> None:
    """Refuse to send a browser anywhere but to places that are written down here."""
    for name in HX_HEADERS & present.keys():
        if present[name] not in HX_PATHS:
            raise RuntimeError(f"{name} must have one of the values in HX_PATHS")


def _refuse(refusal: _Refusal, start: StartResponse, identifier: str) -> list[bytes]:
    body = error_bytes(*refusal.problem, identifier)
    start(refusal.status, [("Content-Type", JSON_TYPE), ("Content-Length", str(len(body))), *refusal.headers])
    return [body]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    return re.sub(r":\d{1,5}\Z", "", host.lower()) in LOOPBACK_HOSTS
