"""Rows of many new workflows, made as `Workflows.create` makes them, to be written in bulk (`tests.bench.bulk`).

Every value is sealed for its place and every index is that of its content, so the product opens any of them and
`Checker` finds nothing. What is left out is what creating one at a time costs: statements, locks and commits.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import sqlalchemy as sa

from app import wiring
from continuity.services import drafts
from continuity.services import workflows as creating
from continuity.services.callers import Caller
from continuity.services.columns import operation_columns
from continuity.services.deletion import TOMBSTONES
from continuity.services.identifiers import new_id
from continuity.services.opened import OPERATORS
from continuity.services.opening import vault_facts
from continuity.services.partitions import ensure_partition
from continuity.services.sealing import seal_json
from continuity.store import deletion, schema
from continuity.store import workflows as statements
from continuity.vault.place import Place
from continuity.vault.shred import ShredHead
from continuity.vault.vault import SHRED_PURPOSE
from continuity.wire import CreateWorkflow
from tests.bench.bulk import Rows


class Sealer:
    """Makes rows that are newer than all that are there; `first` has the same definition, made by the services."""

    def __init__(self, built: wiring.Wiring, caller: Caller, first: str) -> None:
        self._built, self._caller = built, caller
        self._creating = built.services.workflows
        with built.store.engine.connect() as connection:
            self._facts = vault_facts(connection.execute(statements.VAULT).one())
            row = connection.execute(sa.select(schema.workflows).where(schema.workflows.c.workflow_id == first)).one()
            newest_pk = connection.execute(sa.select(sa.func.max(schema.workflows.c.workflow_pk))).scalar_one()
        self._owner_pk, self._definition_ix = row.owner_pk, row.definition_ix
        self._pks = count(newest_pk + 1)

    def rows(self, request: CreateWorkflow) -> Rows:
        """Return everything that creating this one workflow inserts."""
        vault = self._creating.ledger.vault
        draft = drafts.new_draft(
            self._caller, request, self._facts, owner_pk=self._owner_pk, now_us=wiring.SystemClock().now_us()
        )
        workflow_id, created_us = draft.workflow.workflow_id, draft.origin.created_us
        key, wrapped = vault.new_partition(workflow_id)
        sealed = drafts.seal_draft(key, draft)
        words = creating.words_of(draft.origin.workflow_key, (operation.name for operation in draft.operations))
        place = {"workflow_pk": next(self._pks)}
        return [
            (schema.partitions, [_partition(workflow_id, wrapped.key_id, wrapped.wrapped)]),
            (schema.workflows, [{
                **place,
                **drafts.workflow_row(
                    draft, sealed, self._facts, definition_ix=self._definition_ix,
                    key_ix=vault.index("workflow_key", self._owner_pk, request.workflow_key)),
                "deleting_at": None, "deleted_at": None, "sealed_tombstone": None,
            }]),
            (schema.operations, [
                {**place, **operation_columns(operation, state), "ordinal": operation.ordinal,
                 "operation_id": operation.operation_id, "name_ix": self._creating.ledger.name_index(operation.name)}
                for operation, state in zip(draft.operations, sealed.states, strict=True)
            ]),
            (schema.definitions, [
                {**place, "ordinal": ordinal, "sealed_definition": value}
                for ordinal, value in enumerate(sealed.definitions)
            ]),
            (schema.terms, [
                {**place, "workspace_pk": draft.origin.workspace_pk, "term_ix": index}
                for index in self._creating.term_indexes(words)
            ]),
            (schema.events, [{
                **place, "seq": 1, "kind": drafts.CREATED, "at": created_us, "hash": sealed.chain,
                "sealed_event": sealed.event,
            }]),
        ]  # fmt: skip

    def tombstones(self, connection: sa.Connection, keys: Iterable[str]) -> list[Rows]:
        """Put finished workflows of these keys on the shred list; return what their deletion leaves."""
        vault, origin = self._creating.ledger.vault, self._caller
        tombs = ensure_partition(connection, vault, TOMBSTONES, kind="settings")
        known = deletion.shred_head(connection)
        head = ShredHead(known.shred_length, known.shred_head)
        left: list[Rows] = []
        for key in keys:
            workflow_id, now_us = new_id("wf"), wiring.SystemClock().now_us()
            _, wrapped = vault.new_partition(workflow_id)
            head = vault.shred(workflow_id, recorded=head)
            value = {
                "workflow_key": key, "workspace": origin.home_workspace, "creator": origin.principal,
                "creator_role": origin.kind.value, "created": now_us, "owner": self._owner_pk, "namespace": OPERATORS,
                "retained": 0, "reserved": 0,
            }  # fmt: skip
            place = Place("continuity_workflows", TOMBSTONES, workflow_id, "sealed_tombstone")
            left.append([
                (schema.partitions, [_partition(workflow_id, wrapped.key_id, None)]),
                (schema.shredded, [{"partition_ix": vault.index(SHRED_PURPOSE, workflow_id), "at": now_us}]),
                (schema.workflows, [{
                    "workflow_pk": next(self._pks), "workflow_id": workflow_id, "workspace_pk": origin.home_workspace,
                    "owner_pk": self._owner_pk, "key_ix": vault.index("workflow_key", self._owner_pk, key),
                    "definition_ix": self._definition_ix, "enabled": True, "ever_enabled": True, "operation_count": 1,
                    "done_prefix": 1, "revision": 4, "clock_high_water": now_us, "phase": "deleted",
                    "phase_due_at": None, "phase_after_due": None, "created_at": now_us, "changed_at": now_us,
                    "epoch": self._facts.epoch, "deleting_at": None, "deleted_at": now_us, "retained_bytes": 0,
                    "reserved_bytes": 0, "sealed_head": None, "sealed_tombstone": seal_json(tombs, value, place),
                }]),
            ])  # fmt: skip
        deletion.advance_shred_head(connection, length=head.length, head=head.head)
        return left


def _partition(workflow_id: str, key_id: int, wrapped: bytes | None) -> dict[str, Any]:
    return {"partition_id": workflow_id, "kind": "workflow", "key_id": key_id, "wrapped_key": wrapped}
