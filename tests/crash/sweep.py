"""Unique secrets, where they were put, and the search for them in everything that is left behind."""

from __future__ import annotations

import base64
import http.client
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.patience import PATIENCE_S


@dataclass
class Secrets:
    """Every secret by what it is; each is looked for as it is and in the ways that programs write bytes."""

    known: dict[str, bytes] = field(default_factory=dict)

    def mint(self, what: str) -> str:
        """Make a secret that occurs nowhere else: 28 letters and digits, fit for any field."""
        secret = f"S3NT1NEL{secrets.token_hex(10)}"
        return self.learn(what, secret)

    def learn(self, what: str, secret: str) -> str:
        """Keep a secret that the product has made."""
        self.learn_bytes(what, secret.encode())
        return secret

    def learn_bytes(self, what: str, secret: bytes) -> None:
        self.known[f"{what} #{len(self.known)}"] = secret

    def found_in(self, content: bytes) -> list[str]:
        lowered = content.lower()
        return [
            f"{what} as {form}"
            for what, secret in self.known.items()
            for form, spelled in _spellings(secret)
            if (spelled in lowered if form == "hex" else spelled in content)
        ]


def _spellings(secret: bytes) -> Iterable[tuple[str, bytes]]:
    yield "it is", secret
    yield "hex", secret.hex().encode()
    written, in_addresses = (encode(secret).rstrip(b"=") for encode in (base64.b64encode, base64.urlsafe_b64encode))
    yield "base64", written
    if in_addresses != written:
        yield "base64url", in_addresses


@dataclass
class Wire:
    """A client that keeps what it was answered: every refusal with its headers."""

    url: str
    refusals: list[bytes] = field(default_factory=list)
    statuses: set[int] = field(default_factory=set)

    def send(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        """Send JSON, or bytes as they are; return status, object and headers."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE_S)
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, sent, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        self.statuses.add(response.status)
        if response.status >= 400:
            self.refusals.append(str(response.headers).encode() + content)
        # Files and pages are not read here.
        is_object = response.headers.get("Content-Type", "").startswith("application/json") and content[:1] == b"{"
        return response.status, json.loads(content) if is_object else {}, response.headers

    def cookie(self, headers: Mapping[str, str]) -> str:
        (morsel,) = SimpleCookie(headers["Set-Cookie"]).values()
        return str(morsel.value)


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below `folder`."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def tables(url: str) -> dict[str, bytes]:
    """Return every table of a PostgreSQL database as text."""
    with psycopg.connect(url) as connection:
        names = [row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        return {
            name: "\n".join(
                row[0] for row in connection.execute(sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(name)))
            ).encode()
            for name in names
        }
