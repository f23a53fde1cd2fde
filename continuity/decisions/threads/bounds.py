"""Every number of threads, in one place. Times are whole microseconds (``_us``) or seconds (``_s``).

What stands here is a promise to clients: a change is a change of the contract (docs/threads.md).
"""

from __future__ import annotations

from typing import Final

CLAIM_S: Final = 60
HEARTBEAT_S: Final = 20
"""How often a worker renews its claim: two heartbeats may be lost before it runs out."""

RECORD_BYTES: Final = 64 * 1024
"""One record, one message of a client, one reply, one output, each in canonical form."""
RECORDS_PER_WRITE: Final = 100
MESSAGE_CHARS: Final = 256 * 1024
"""Text of one message, all its parts together: the snapshot holds it whole."""
STATE_BYTES: Final = 64 * 1024
"""All declared state of a thread together, in canonical form."""
SCHEMA_BYTES: Final = 16 * 1024

STEERS: Final = 32
FOLLOW_UPS: Final = 32
REQUESTS_PER_WAIT: Final = 32
OPEN_ITEMS: Final = 64
"""Messages and tool calls that have begun and not ended; a snapshot holds every one of them."""

JOURNAL_PAGE: Final = 200
SNAPSHOT_MESSAGES: Final = 50
SNAPSHOT_RUNS: Final = 20
HISTORY_PAGE: Final = 50
CURSOR_S: Final = 900

AGENTS_PER_WORKER: Final = 32
STATE_KEYS: Final = 32
PRINCIPALS_PER_AGENT: Final = 200
ITEM_ID_CHARS: Final = 128
