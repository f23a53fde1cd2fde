"""Addresses of servers: to which a token may be sent. Pure; nothing is looked up or connected."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from continuity.errors import MalformedError

_HOST: Final = re.compile(r"[A-Za-z0-9._:-]{1,253}")
_BASE_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")
_WANTED: Final = "The address must be https://host, or http:// and a loopback host, with port and path prefix at most."


def checked_url(url: str) -> str:
    """Return `url` without its trailing slash, if a token may be sent there.

    Raises:
        MalformedError: Not ``https://host[:port][/prefix]`` (``http`` for loopback); with user
            information, query or fragment; or with characters that parsers read differently.
    """
    try:
        parts = urlsplit(str(url))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise MalformedError(_WANTED) from None
    path = parts.path.rstrip("/")
    if not _HOST.fullmatch(host) or port == 0 or not _BASE_PATH.fullmatch(path) or {".", ".."} & {*path.split("/")}:
        raise MalformedError(_WANTED)
    written = f"[{host}]" if ":" in host else host
    plain = f"{parts.scheme}://{written}" + ("" if port is None else f":{port}") + path
    # Comparing with what was understood refuses user information, query, fragment, spaces and backslashes alike.
    if str(url).rstrip("/").casefold() != plain.casefold():
        raise MalformedError(_WANTED)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        raise MalformedError("The address must be https; http is for loopback addresses only.")
    return plain


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
