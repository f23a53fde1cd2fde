"""What is asked about evidence beside reading it: taking it away, letting go of what is old, what is kept at all.

Frozen dataclasses with a strict ``from_json``, as in `continuity.wire`.

Source: wire.md "Paths"; vault.md "Formats and capture", "Lock, rotate, back up, restore, delete, export".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final, Self

from continuity import limits, members
from continuity.wire import Fields

CAPTURE_MODES: Final = ("full", "metadata", "off")
RETAINED_KINDS: Final = ("workflows", "evidence", "threads")


@dataclass(frozen=True, slots=True)
class EncryptedExport:
    """``POST /v1/evidence/export/encrypted``: one run or workflow, sealed under a passphrase.

    Attributes:
        run_id: A workflow_id, an evidence_id or a run_id.
        passphrase: Shown in no repr; how long it must be is the container's to say.
    """

    run_id: str
    passphrase: str = field(repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        passphrase = fields.need("passphrase")
        if not isinstance(passphrase, str):
            raise fields.fail("passphrase", "a string")
        asked = cls(run_id=fields.identifier("run_id"), passphrase=passphrase)
        fields.finish()
        return asked


@dataclass(frozen=True, slots=True)
class PlaintextExport:
    """``POST /v1/evidence/export/plaintext``: one run or workflow, readable by whoever has the file.

    Attributes:
        run_id: A workflow_id, an evidence_id or a run_id.
        confirmation: The same again, so that nothing leaves in the clear by a slip.
    """

    run_id: str
    confirmation: str

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        asked = cls(run_id=fields.identifier("run_id"), confirmation=fields.identifier("confirmation"))
        fields.finish()
        if asked.confirmation != asked.run_id:
            raise fields.fail("confirmation", "the run_id again")
        return asked


@dataclass(frozen=True, slots=True)
class CaptureMode:
    """``POST /v1/evidence/settings/capture-mode``: ``full``, ``metadata`` or ``off``."""

    capture_mode: str

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        mode = fields.need("capture_mode")
        if mode not in CAPTURE_MODES:
            raise fields.fail("capture_mode", f"one of {', '.join(CAPTURE_MODES)}")
        fields.finish()
        return cls(mode)


@dataclass(frozen=True, slots=True)
class Retention:
    """``POST /v1/evidence/retention``: one batch of what is older than so many days.

    Attributes:
        older_than_days: Nothing that changed within so many days is touched; 1 to 36,500.
        kind: ``workflows``, ``evidence`` or ``threads`` (old records of journals).
        apply: Let go of it; otherwise it is only listed.
        limit: Look at so many at most, 1 to 200.
        cursor: Where to go on, from the batch before.
    """

    older_than_days: int
    kind: str
    apply: bool = False
    limit: int = limits.PAGE_DEFAULT
    cursor: str | None = None

    @property
    def question(self) -> str:
        """Everything the answer depends on but the position; one cursor serves a dry run and what follows it."""
        return json.dumps(["retention", self.kind, self.older_than_days])

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        fields.need("older_than_days")
        kind = fields.need("kind")
        if kind not in RETAINED_KINDS:
            raise fields.fail("kind", f"one of {', '.join(RETAINED_KINDS)}")
        asked = cls(
            older_than_days=members.count(
                fields, "older_than_days", default=0, least=1, most=limits.RETENTION_MOST_DAYS
            ),
            kind=kind,
            apply=fields.optional_boolean("apply"),
            limit=members.count(fields, "limit", default=limits.PAGE_DEFAULT, least=1, most=limits.PAGE_MAX),
            cursor=members.text(fields, "cursor"),
        )  # fmt: skip
        fields.finish()
        return asked
