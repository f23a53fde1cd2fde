"""A workflow that is about to be created: what it is, and what is stored of it. Nothing is written here.

`continuity.services.workflows` inserts it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from continuity.decisions import records
from continuity.decisions.events import EventKind
from continuity.decisions.model import Operation, Standing, Workflow
from continuity.decisions.phases import standpoint
from continuity.limits import SECOND_US
from continuity.services import chains
from continuity.services.callers import Caller, CallerKind
from continuity.services.columns import head_columns
from continuity.services.identifiers import new_id
from continuity.services.opened import COORDINATORS, OPERATORS, Origin
from continuity.services.sealing import definition_place, event_place, seal_head, seal_json, state_place

if TYPE_CHECKING:
    from continuity.decisions.model import VaultFacts
    from continuity.vault.partition import PartitionKey
    from continuity.wire import CreateWorkflow, OperationDefinition

CREATED: Final = EventKind.CREATED.value
"""Kind of the first event."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A workflow that is about to be inserted.

    Attributes:
        workflow: Its head.
        origin: What never changes about it.
        operations: Its operations, in their order.
        definitions: What each was defined as, in canonical form and in the same order.
        actor: Who creates it, as events name people and programs.
    """

    workflow: Workflow
    origin: Origin
    operations: tuple[Operation, ...]
    definitions: tuple[bytes, ...]
    actor: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """The sealed columns of a draft.

    Attributes:
        head: Of the workflow.
        event: The first event.
        chain: Hash of that event, 32 bytes.
        states: Of the operations, in their order.
        definitions: Of the operations, in their order.
    """

    head: bytes
    event: bytes
    chain: bytes
    states: list[bytes]
    definitions: list[bytes]

    @property
    def stored_bytes(self) -> int:
        """Size of all sealed columns together."""
        return sum(map(len, (self.head, self.event, *self.states, *self.definitions)))


def new_draft(caller: Caller, request: CreateWorkflow, facts: VaultFacts, *, owner_pk: int, now_us: int) -> Draft:
    """Return what a request creates, with new ids.

    Args:
        caller: Who asks.
        request: What for.
        facts: What is known of the vault.
        owner_pk: Key namespace of the workflow.
        now_us: Time of its creation.
    """
    operations = tuple(
        new_operation(definition, ordinal=ordinal, epoch=facts.epoch)
        for ordinal, definition in enumerate(request.operations)
    )
    # While the window after a restore is open, work of the lost time may have happened already.
    is_enabled = request.activate and not facts.is_recovery_open
    workflow = Workflow(
        workflow_id=new_id("wf"), revision=1, is_enabled=is_enabled, was_enabled=is_enabled,
        clock_high_water_us=now_us, epoch=facts.epoch,
        standings=tuple(Standing(o.status, o.change_seq, o.epoch) for o in operations),
    )  # fmt: skip
    origin = Origin(
        workflow_key=request.workflow_key,
        workspace_pk=caller.home_workspace,
        owner_pk=owner_pk,
        namespace=COORDINATORS if caller.kind is CallerKind.COORDINATOR else OPERATORS,
        creator=caller.principal,
        creator_role=caller.kind.value,
        created_us=now_us,
    )
    return Draft(workflow, origin, operations, request.definitions(), caller.actor)


def new_operation(definition: OperationDefinition, *, ordinal: int, epoch: int) -> Operation:
    """Return an operation as it is created from its definition."""
    absence_s = definition.absence_final_after_seconds
    return Operation(
        ordinal=ordinal,
        operation_id=new_id("op"),
        name=definition.name,
        idempotency_key=new_id("ik"),
        can_query="query" in definition.capability,
        is_idempotent="idempotent" in definition.capability,
        # Parts of a microsecond count against us: longer to wait, shorter to repeat.
        timeout_us=math.ceil(definition.timeout_seconds * SECOND_US),
        retention_us=math.floor(definition.retention_seconds * SECOND_US),
        absence_us=None if absence_s is None else math.ceil(absence_s * SECOND_US),
        epoch=epoch,
    )


def seal_draft(key: PartitionKey, draft: Draft) -> Sealed:
    """Seal everything that is stored of a draft, each for its place."""
    workflow_id = draft.workflow.workflow_id
    event = seal_json(key, _created(draft), event_place(workflow_id, 1))
    chain = chains.link(
        workflow_id, seq=1, kind=CREATED, at_us=draft.origin.created_us, sealed_event=event, previous=chains.GENESIS
    )
    return Sealed(
        head=seal_head(key, draft.workflow, draft.origin, seq=1, chain=chain),
        event=event,
        chain=chain,
        states=[
            seal_json(key, records.operation_to_json(operation), state_place(workflow_id, operation.ordinal))
            for operation in draft.operations
        ],
        definitions=[
            key.seal(value, place=definition_place(workflow_id, ordinal))
            for ordinal, value in enumerate(draft.definitions)
        ],
    )


def workflow_row(
    draft: Draft, sealed: Sealed, facts: VaultFacts, *, key_ix: bytes, definition_ix: bytes
) -> dict[str, Any]:
    """Return the row of a new workflow, without its ``workflow_pk``.

    Args:
        draft: The workflow.
        sealed: What is stored of it.
        facts: What is known of the vault, for the phase that it begins in.
        key_ix: Blind index of its key.
        definition_ix: Blind index of its definition.
    """
    created_us = draft.origin.created_us
    return {
        **head_columns(draft.workflow, standpoint(draft.workflow, draft.operations[0], facts, now_us=created_us)),
        "workflow_id": draft.workflow.workflow_id,
        "workspace_pk": draft.origin.workspace_pk,
        "owner_pk": draft.origin.owner_pk,
        "key_ix": key_ix,
        "definition_ix": definition_ix,
        "operation_count": len(draft.operations),
        "created_at": created_us,
        "changed_at": created_us,
        "epoch": draft.workflow.epoch,
        "retained_bytes": sealed.stored_bytes,
        "reserved_bytes": 0,
        "sealed_head": sealed.head,
    }


def _created(draft: Draft) -> dict[str, Any]:
    """Return the first event: enough to replay all later ones onto."""
    return {
        "kind": CREATED,
        "at_us": draft.origin.created_us,
        "actor": draft.actor,
        "enabled": draft.workflow.is_enabled,
        "epoch": draft.workflow.epoch,
        "operations": [records.operation_to_json(operation) for operation in draft.operations],
    }
