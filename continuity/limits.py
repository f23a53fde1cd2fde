"""Every limit of governed operations, in one place. Times are whole microseconds (``_us``) or seconds (``_s``).

What stands here is a promise to clients: a change is a change of the contract (docs/limits.md).
"""

from __future__ import annotations

from typing import Final

SECOND_US: Final = 1_000_000

OPERATIONS_PER_WORKFLOW: Final = 200
ATTEMPTS_PER_OPERATION: Final = 100
REVISIONS_PER_WORKFLOW: Final = 2_000
CONTROL_HEADROOM: Final = 2
"""Pause, stop and confirm may go this many revisions, plus one an operation, past the limit."""

DEFINITION_BYTES: Final = 256 * 1024
RECEIPT_BYTES: Final = 64 * 1024
ENVELOPE_BYTES: Final = 4 * 1024
"""Room a request body has around its definition or receipt."""

TIMEOUT_MAX_S: Final = 90
TIMEOUT_DEFAULT_S: Final = 30
RETENTION_MAX_S: Final = 315_360_000
"""Ten years: longer than any destination keeps keys, short enough for exact microseconds."""
ABSENCE_MAX_S: Final = 2_592_000
LANDING_MARGIN_S: Final = 30
"""How long after its timeout an effect may still land: the SDK starts until 30 s after it sent begin."""

LEASE_S: Final = 120
RENEWALS: Final = 10
UNPROVED_LATE_RECEIPTS: Final = 10

CLOCK_TOLERANCE_S: Final = 2
"""A shortfall of the controller clock up to this counts as equal; a step forward beyond it is reported."""
FORWARD_STEP_QUIET_S: Final = 120
"""After a forward step absence is not final, and "did not happen" is refused, so long plus the declared seconds."""
RESTORE_QUIET_S: Final = 120

COORDINATOR_OPERATIONS: Final = 1
COORDINATOR_UNFINISHED: Final = 500
COORDINATOR_HISTORY_BYTES: Final = 64 * 1024 * 1024
ATTEMPT_RESERVATION_BYTES: Final = 68 * 1024
"""One receipt of the largest size and its event, kept free for every attempt granted to a coordinator."""

IDENTIFIER_CHARS: Final = 128
TOOL_CHARS: Final = 256
REASON_CHARS: Final = 1_000
EFFECT_ID_CHARS: Final = 1_024

JSON_DEPTH: Final = 32
JSON_KEYS_PER_OBJECT: Final = 2_000
JSON_VALUES: Final = 10_000
INTEGER_MAX: Final = 2**53 - 1

PAGE_DEFAULT: Final = 50
PAGE_MAX: Final = 200
EXACT_COUNT_MAX: Final = 1_000

EVIDENCE_BYTES: Final = 256 * 1024
"""One record of evidence, its content in canonical form."""
EVIDENCE_RECORDS: Final = 10_000
EVIDENCE_RUN_BYTES: Final = 64 * 1024 * 1024
"""Stored bytes of one run: what is exported at once is held in memory."""
EVIDENCE_WORDS: Final = 256
"""Distinct words by which one record is found: the first ones of its content."""
EVIDENCE_WORD_CHARS: Final = 64
EVIDENCE_SEARCH_CHARS: Final = 200
EVIDENCE_SEARCH_WORDS: Final = 8
EVIDENCE_PAGE_BYTES: Final = 2 * 1024 * 1024
"""Content on one page of a run; one record alone may be larger."""
RETENTION_MOST_DAYS: Final = 36_500
