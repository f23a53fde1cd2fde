"""The hash chain of a workflow's history.

``hash`` = SHA-256 over, each length-prefixed (4 bytes, big endian): workflow_id, seq, kind, time, the
sealed event, the previous hash. It is computed over the sealed bytes, so a chain can be verified while
the vault is locked, and rotation does not touch it. The head of the chain stands in the workflow's
sealed head.
"""

from __future__ import annotations

import hashlib
from typing import Final

GENESIS: Final = bytes(32)
"""What the first event follows."""


def link(workflow_id: str, *, seq: int, kind: str, at_us: int, sealed_event: bytes, previous: bytes) -> bytes:
    """Return the 32 bytes that chain one event to the one before."""
    digest = hashlib.sha256()
    for part in (workflow_id.encode(), b"%d" % seq, kind.encode(), b"%d" % at_us, sealed_event, previous):
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.digest()
