"""Where each sealed record of a workflow stands, and how it is written there and read again.

A workflow's partition id is its workflow_id; a row is named by what names it in its table.
A new sealed column begins here, with its place.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from continuity.decisions import records
from continuity.vault.place import Place

if TYPE_CHECKING:
    from continuity.decisions.model import Workflow
    from continuity.services.opened import Opened, Origin
    from continuity.vault.partition import PartitionKey

# Kept, as `json.dumps` makes a new encoder for every value when it is told how to write.
_RECORD: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def head_place(workflow_id: str) -> Place:
    """Return where a sealed head stands."""
    return Place("continuity_workflows", workflow_id, workflow_id, "sealed_head")


def state_place(workflow_id: str, ordinal: int) -> Place:
    """Return where an operation's sealed state stands."""
    return Place("continuity_operations", workflow_id, str(ordinal), "sealed_state")


def definition_place(workflow_id: str, ordinal: int) -> Place:
    """Return where an operation's sealed definition stands."""
    return Place("continuity_definitions", workflow_id, str(ordinal), "sealed_definition")


def receipt_place(workflow_id: str, ordinal: int, seq: int) -> Place:
    """Return where a sealed receipt stands."""
    return Place("continuity_receipts", workflow_id, f"{ordinal}.{seq}", "sealed_receipt")


def event_place(workflow_id: str, seq: int) -> Place:
    """Return where a sealed event stands."""
    return Place("continuity_events", workflow_id, str(seq), "sealed_event")


def to_bytes(value: Any) -> bytes:
    """Write a record for sealing: compact JSON, UTF-8."""
    return _RECORD.encode(value).encode()


def seal_json(key: PartitionKey, value: Any, place: Place) -> bytes:
    """Seal a record for its place."""
    return key.seal(to_bytes(value), place=place)


def open_json(opened: Opened, sealed: bytes, place: Place) -> Any:
    """Open a sealed JSON value."""
    return json.loads(opened.key.open(sealed, place=place))


def seal_head(key: PartitionKey, workflow: Workflow, origin: Origin, *, seq: int, chain: bytes) -> bytes:
    """Seal a head: state, origin and the end of the event chain."""
    head = records.workflow_to_json(workflow)
    head["origin"] = [
        origin.workflow_key, origin.workspace_pk, origin.owner_pk, origin.namespace, origin.creator,
        origin.creator_role, origin.created_us,
    ]  # fmt: skip
    head["chain"] = [seq, chain.hex()]
    return seal_json(key, head, head_place(workflow.workflow_id))
