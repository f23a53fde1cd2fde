"""Which bytes are a request: the parser of the production server.

What two readers could frame differently is refused and the connection closed: any ``Transfer-Encoding`` (411), not
exactly one ``Host``, a ``Content-Length`` that is not one whole number, a target that is not a path (400). Waitress
by itself answers a request with both lengths, and hands on two Hosts as one.

Source: security.md J02, W13.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from waitress.parser import HTTPRequestParser, ParsingError

from app import logs
from app.errors import error_bytes
from app.headers import DATA_HEADERS
from app.replies import JSON_TYPE, new_request_id

HEADER_BYTES: Final = 16_384
BODY_BYTES: Final = 270_000
_PROBLEMS: Final[dict[int, tuple[str, str, str]]] = {
    400: ("400 Bad Request", "malformed", "The request cannot be read."),
    411: ("411 Length Required", "length_required", "The request needs a Content-Length and no Transfer-Encoding."),
    413: ("413 Content Too Large", "too_large", f"A body must be smaller than {BODY_BYTES} bytes."),
    431: ("431 Request Header Fields Too Large", "too_large", f"Headers must be smaller than {HEADER_BYTES} bytes."),
    500: ("500 Internal Server Error", "internal_error", "Something went wrong on the server."),
}


class ProtocolError:
    """A request that cannot be served, as a reply in the one error format."""

    def __init__(self, status: int) -> None:
        self.code = status if status in _PROBLEMS else 400

    def to_response(self, _ident: str | None = None) -> tuple[str, list[tuple[str, str]], bytes]:
        """Return status line, headers and body; waitress adds the length and closes the connection."""
        status, code, message = _PROBLEMS[self.code]
        identifier = new_request_id()
        headers = [("Content-Type", JSON_TYPE), ("X-Request-Id", identifier), ("Cache-Control", "no-store")]
        logs.event(logging.INFO, "request_refused", request_id=identifier, status=self.code)
        return status, [*headers, *DATA_HEADERS], error_bytes(code, message, identifier)


class StrictParser(HTTPRequestParser):
    """Refuses what waitress lets through."""

    _refusal: ProtocolError | None = None

    @property
    def error(self) -> ProtocolError | None:
        return self._refusal

    @error.setter
    def error(self, found: Any) -> None:
        # A refusal that this class has decided stands; waitress would call every one of them a bad request.
        if self._refusal is None:
            self._refusal = ProtocolError(found.code)

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        # Waitress would go on waiting for a body that was refused, or that nobody announced.
        if self.expect_continue and (self.error is not None or self.body_rcv is None):
            self.expect_continue = False
        return consumed

    def parse_header(self, header_plus: bytes) -> None:
        names = [line.partition(b":")[0].lower() for line in header_plus.split(b"\r\n")[1:]]
        if b"transfer-encoding" in names:
            self._refusal = ProtocolError(411)
            raise ParsingError("Transfer-Encoding")
        try:
            super().parse_header(header_plus)
        except ValueError:
            # More digits than Python makes an integer of: waitress would close without a reply.
            raise ParsingError("Content-Length") from None
        if self.header_bytes_received >= self.adj.max_request_header_size:
            # Waitress parses a made-up request in place of headers that are too large, and refuses that.
            return
        is_framed_once = names.count(b"host") == 1 and names.count(b"content-length") <= 1
        if not is_framed_once or self.version not in {"1.0", "1.1"} or not self.request_uri.startswith("/"):
            raise ParsingError("Host, Content-Length, version or target")
