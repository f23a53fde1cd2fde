"""Ids and secrets that the server makes. All from the operating system's generator."""

from __future__ import annotations

import hashlib
import secrets


def new_id(prefix: str) -> str:
    """Return ``<prefix>_`` and 32 hex digits: 128 random bits."""
    return f"{prefix}_{secrets.token_hex(16)}"


def new_lease_token() -> str:
    """Return a fresh lease token, 256 random bits as 43 base64url characters after ``lt_``."""
    return f"lt_{secrets.token_urlsafe(32)}"


def token_hash(token: str) -> str:
    """Return the hex SHA-256 under which a lease token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def body_digest(body: bytes) -> str:
    """Return the hex SHA-256 of a receipt in canonical form."""
    return hashlib.sha256(body).hexdigest()
