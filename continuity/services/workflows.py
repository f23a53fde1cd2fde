"""Creating, reading and reviewing workflows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import IntegrityError as ConstraintError

from continuity.decisions import clocks, coordinators
from continuity.errors import ConflictError, IntegrityError, KeyNotFoundError
from continuity.jsontext import canonical_bytes
from continuity.services import documents, proofs
from continuity.services.audit import AuditEntry
from continuity.services.callers import Caller, CallerKind
from continuity.services.columns import operation_columns
from continuity.services.drafts import CREATED, Draft, Sealed, new_draft, seal_draft, workflow_row
from continuity.services.opened import COORDINATORS, OPERATORS, Opened
from continuity.services.reviewing import note_view
from continuity.store import workflows as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.decisions.model import VaultFacts
    from continuity.services.attempts import Attempts, Begun
    from continuity.services.audit import AuditLog
    from continuity.services.ledger import Ledger
    from continuity.services.proofs import Counters
    from continuity.store.store import Store
    from continuity.store.workflows import AnyRow
    from continuity.wire import BeginRequest, CreateWorkflow

WORKFLOW_FORMAT: Final = 3
"""Format of a vault that holds workflows; the first of them opts it in."""
_WORD: Final = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class _Made:
    """What a creation has come to.

    Attributes:
        opened: The workflow before its begin.
        begun: What its begin has come to, where one was asked for.
        draft: What was inserted; None for a workflow that was known.
        workspace: Name of its workspace.
    """

    opened: Opened
    begun: Begun | None
    draft: Draft | None
    workspace: str


@dataclass(frozen=True, slots=True)
class Workflows:
    """Use cases around whole workflows.

    Attributes:
        store: Where everything is written.
        ledger: Opens and records workflows.
        attempts: For the begin that may come with a creation.
        audit: The audit log.
    """

    store: Store
    ledger: Ledger
    attempts: Attempts
    audit: AuditLog
    _namespaces: dict[int, int] = field(default_factory=dict, repr=False)
    _workspaces: dict[int, str] = field(default_factory=dict, repr=False)

    def create(self, caller: Caller, request: CreateWorkflow) -> dict[str, Any]:
        """Create a workflow, or find the one of the same key and definition.

        Returns:
            Its view; with ``begin`` in the request also ``begin``, decided in the same transaction. Durable when
            this returns.

        Raises:
            MalformedError: A coordinator's workflow of more than one operation. Nothing has happened.
            KeyNotFoundError: Only a known one was asked for and there is none. Nothing has happened.
            ConflictError: ``definition_conflict, workflow_deleted, capture_not_full,
                clock_moved_backwards, coordinator_open_limit`` or ``coordinator_history_limit``; with the
                workflow's id if there is one of this key. Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
            StorageLowError: The disk is nearly full. Nothing has happened.
            UnavailableError: Storage cannot answer; asking again is safe.
            VaultError: What a known key has behind it does not open.

        The view of a known one is read after the commit. If the vault is locked or storage fails just there, a grant
        is one whose reply was lost.
        """
        if caller.kind is CallerKind.COORDINATOR:
            coordinators.require_one_operation(len(request.operations))

        def work(connection: Connection) -> _Made:
            return self._create(connection, caller, request)

        try:
            made = self.store.write(work)
        except ConstraintError:
            # Somebody created the same key between our look and our insert: look again.
            made = self.store.write(work)
        view = self._view_of(made, caller)
        return view if made.begun is None else {**view, "begin": self.attempts.tally.begun(made.begun.reply)}

    def _view_of(self, made: _Made, caller: Caller) -> dict[str, Any]:
        if made.draft is not None:
            return _new_view(made, made.draft)
        # After the commit: what a known key has behind it must not keep other writers waiting.
        workflow_id = made.opened.workflow_id
        return self.store.read(lambda connection: documents.current(connection, self.ledger, caller, workflow_id))

    def view(self, caller: Caller, workflow_id: str) -> dict[str, Any]:
        """Return the view of a workflow and its history.

        A person's look is written to the audit log before anything is returned.

        Raises:
            NotFoundError: No such workflow for this caller.
            ConflictError: ``workflow_deleted``.
            SealedError: The vault is locked.
        """

        def read(connection: Connection) -> tuple[dict[str, Any], int]:
            opened = self.ledger.peek(connection, caller, workflow_id)
            operations = self.ledger.operations(connection, opened)
            now_us = self._now_us(connection)
            view = documents.view(connection, opened, operations, now_us=now_us)
            names = [operation.name for operation in operations]
            return {**view, "history": documents.history(connection, opened, names)}, now_us

        view, now_us = self.store.read(read)
        if caller.kind is CallerKind.PERSON:
            note_view(self.store, self.audit, caller, workflow_id, now_us=now_us)
        return view

    def _now_us(self, connection: Connection) -> int:
        return self.ledger.read_clock(connection.execute(statements.VAULT).one().now_us).now_us

    # ---- creating

    def _create(self, connection: Connection, caller: Caller, request: CreateWorkflow) -> _Made:
        """Create or find a workflow inside a writing transaction, and decide its begin."""
        [row] = statements.LOCKED_VAULT_HOT.all(connection, {})
        facts = self.ledger.facts(row)
        owner_pk = caller.owner_pk or self._namespace(connection, caller.home_workspace)
        key_ix = self.ledger.vault.index("workflow_key", owner_pk, request.workflow_key)
        definition_ix = self.ledger.vault.index("definition", request.definition_bytes())
        known = statements.LOCKED_HEAD_BY_KEY_HOT.one_or_none(connection, {"key_ix": key_ix})
        has_opted_in, draft = False, None
        if known is not None:
            opened = self._known(connection, known, caller, request, definition_ix)
        elif request.only_known:
            raise KeyNotFoundError("There is no workflow of this key. Nothing was created.")
        else:
            reading = self.ledger.read_clock(row.now_us)
            now_us = clocks.dispatch_time_us(reading, facts.clock_high_water_us)
            if not facts.is_capture_full:
                raise ConflictError(
                    "The vault's capture mode must be full before work is created. Nothing was created.",
                    code="capture_not_full",
                )
            has_opted_in = row.format < WORKFLOW_FORMAT and statements.raise_format(connection, WORKFLOW_FORMAT)
            self.ledger.require_room()
            draft = new_draft(caller, request, facts, owner_pk=owner_pk, now_us=now_us)
            self.ledger.note_change(now_us)
            opened = self._insert(
                connection, draft, facts, key_ix=key_ix, definition_ix=definition_ix, key_id=row.vault_key_id
            )
        begun = None
        if request.begin is not None:
            begun = self._begin(connection, caller, opened, request.begin, is_known=known is not None)
        if has_opted_in:
            self._note_opt_in(connection, caller)
        return _Made(opened, begun, draft, self._workspace(connection, opened.origin.workspace_pk))

    def _known(
        self, connection: Connection, row: AnyRow, caller: Caller, request: CreateWorkflow, definition_ix: bytes
    ) -> Opened:
        opened = self.ledger.open(row, caller)
        is_same = canonical_bytes(documents.definitions(connection, opened)) == request.definition_bytes()
        if opened.origin.workflow_key != request.workflow_key or (row.definition_ix == definition_ix) != is_same:
            raise IntegrityError("The workflow's indexes contradict its sealed content. Nothing was done.")
        if not is_same:
            raise ConflictError(
                "A workflow of this key exists with another definition. Nothing was changed; "
                "use a new key for new work.",
                code="definition_conflict",
                workflow_id=opened.workflow_id,
            )
        return opened

    def _begin(
        self, connection: Connection, caller: Caller, opened: Opened, request: BeginRequest, *, is_known: bool
    ) -> Begun:
        try:
            return self.attempts.begin_opened(connection, caller, opened, request)
        except ConflictError as error:
            # A new workflow is taken back with the transaction: nobody may be sent to its page.
            error.workflow_id = opened.workflow_id if is_known else ""
            raise

    def _namespace(self, connection: Connection, workspace_pk: int) -> int:
        """Return the key namespace that the operators of a workspace share."""
        known = self._namespaces.get(workspace_pk)
        if known is not None:
            return known
        principal_ix = self.ledger.vault.index("principal", OPERATORS, workspace_pk)
        owner_pk = connection.execute(statements.OWNER, {"principal_ix": principal_ix}).scalar_one_or_none()
        if owner_pk is not None:
            self._namespaces[workspace_pk] = owner_pk
            return owner_pk
        # Not remembered yet: this transaction may still roll back.
        return statements.ensure_owner(
            connection, {"workspace_pk": workspace_pk, "kind": OPERATORS, "principal_ix": principal_ix}
        )

    def _workspace(self, connection: Connection, workspace_pk: int) -> str:
        """Return the name of a workspace, which never changes."""
        name = self._workspaces.get(workspace_pk)
        if name is None:
            name = self._workspaces[workspace_pk] = documents.workspace_name(connection, workspace_pk)
        return name

    def _note_opt_in(self, connection: Connection, caller: Caller) -> None:
        """Write that the vault's format was raised; the audit head is locked last."""
        entry = AuditEntry(
            action="vault.format_raised", actor=caller.actor, result="done", request_id=caller.request_id,
            detail={"format": WORKFLOW_FORMAT},
        )  # fmt: skip
        self.audit.append(connection, entry, now_us=self._now_us(connection))

    def _insert(
        self, connection: Connection, draft: Draft, facts: VaultFacts, *, key_ix: bytes, definition_ix: bytes,
        key_id: int,
    ) -> Opened:  # fmt: skip
        workflow_id = draft.workflow.workflow_id
        # The master key of now, as the locked row says: a rotation may have begun since this process looked.
        key, wrapped = self.ledger.vault.new_partition(workflow_id, key_id=key_id)
        sealed = seal_draft(key, draft)
        workflow_pk = statements.insert_workflow(
            connection,
            partition={
                "partition_id": workflow_id, "kind": "workflow", "key_id": wrapped.key_id,
                "wrapped_key": wrapped.wrapped,
            },
            workflow=workflow_row(draft, sealed, facts, key_ix=key_ix, definition_ix=definition_ix),
            operation_rows=[
                {
                    **operation_columns(operation, state), "ordinal": operation.ordinal,
                    "operation_id": operation.operation_id, "name_ix": self.ledger.name_index(operation.name),
                }
                for operation, state in zip(draft.operations, sealed.states, strict=True)
            ],
            definition_rows=[
                {"ordinal": ordinal, "sealed_definition": value} for ordinal, value in enumerate(sealed.definitions)
            ],
            term_indexes=self.term_indexes(words_of(draft.origin.workflow_key, (o.name for o in draft.operations))),
        )  # fmt: skip
        statements.insert_event(connection, {
            "workflow_pk": workflow_pk, "seq": 1, "kind": CREATED, "at": draft.origin.created_us,
            "hash": sealed.chain, "sealed_event": sealed.event,
        })  # fmt: skip
        counters = self._admit(connection, draft, sealed)
        return Opened(
            workflow_pk=workflow_pk, key=key, workflow=draft.workflow, origin=draft.origin, vault=facts,
            chain_seq=1, chain_hash=sealed.chain, head_bytes=len(sealed.head),
            retained_bytes=sealed.stored_bytes, reserved_bytes=0, deleting_at=None, counters=counters,
        )  # fmt: skip

    def _admit(self, connection: Connection, draft: Draft, sealed: Sealed) -> Counters | None:
        """Count the workflow against its coordinator, last of all."""
        if draft.origin.namespace != COORDINATORS:
            return None
        return proofs.count(
            connection, self.ledger.vault, draft.origin.owner_pk, known=None,
            change={"unfinished": 1, "retained": sealed.stored_bytes, "reserved": 0},
            budget_bytes=self.ledger.history_bytes,
        )  # fmt: skip

    def term_indexes(self, words: Iterable[str]) -> list[bytes]:
        """Return the blind indexes of words, in a fixed order."""
        return sorted(self.ledger.vault.index("term", word) for word in words)


def _new_view(made: _Made, draft: Draft) -> dict[str, Any]:
    """Return the view of a new workflow as it was committed: its draft, and its begin."""
    opened, operations = made.opened, list(draft.operations)
    if made.begun is not None:
        opened = replace(opened, workflow=made.begun.workflow)
        operations[made.begun.operation.ordinal] = made.begun.operation
    return documents.new_view(
        opened, operations, draft.definitions, workspace=made.workspace, now_us=draft.origin.created_us
    )


def words_of(workflow_key: str, names: Iterable[str]) -> set[str]:
    """Return the words by which a workflow is found, and its whole key as ``key:<key>``."""
    words = {f"key:{workflow_key}"}
    for text in (workflow_key, *names):
        words.update(_WORD.findall(text.lower()))
    return words


def search_words(query: str) -> list[str]:
    """Return the whole words of a search, distinct, in their order."""
    return list(dict.fromkeys(_WORD.findall(query.lower())))
