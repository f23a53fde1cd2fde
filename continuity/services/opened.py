"""A workflow and an operation as a decision reads them, once their rows are opened: values, and no database.

`continuity.services.opening` makes them, `continuity.services.ledger` writes what follows from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from continuity.decisions.model import Operation, VaultFacts, Workflow
from continuity.services.proofs import Counters

if TYPE_CHECKING:
    from continuity.vault.partition import PartitionKey

COORDINATORS: Final = "coordinator"
OPERATORS: Final = "operators"


@dataclass(frozen=True, slots=True)
class Origin:
    """What never changes about a workflow.

    Attributes:
        workflow_key: The host's key.
        workspace_pk: Its workspace.
        owner_pk: Its key namespace.
        namespace: ``operators`` or ``coordinator``.
        creator: Principal that created it.
        creator_role: Kind of that principal on the wire.
        created_us: When.
    """

    workflow_key: str
    workspace_pk: int
    owner_pk: int
    namespace: str
    creator: str
    creator_role: str
    created_us: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A workflow as a decision reads it, under its lock.

    Attributes:
        workflow_pk: Its row.
        key: Its data key.
        workflow: Its head.
        origin: What never changes.
        vault: What must be known of the vault.
        chain_seq: Sequence number of its last event.
        chain_hash: Hash of its last event.
        head_bytes: Stored size of the sealed head.
        retained_bytes: Stored size of all its sealed columns.
        reserved_bytes: Kept free for receipts of its attempts.
        deleting_at: When its deletion began.
        counters: Its coordinator's, where they were read with it.
    """

    workflow_pk: int
    key: PartitionKey = field(repr=False)
    workflow: Workflow
    origin: Origin
    vault: VaultFacts
    chain_seq: int
    chain_hash: bytes
    head_bytes: int
    retained_bytes: int
    reserved_bytes: int
    deleting_at: int | None
    counters: Counters | None = None

    @property
    def workflow_id(self) -> str:
        """``wf_…``."""
        return self.workflow.workflow_id


@dataclass(frozen=True, slots=True)
class OpenedOperation:
    """An operation as a decision reads it.

    Attributes:
        operation: Its state.
        state_bytes: Stored size of that state.
        database_us: The database's time when it was read, None where the host's clock decides.
        definition: Its definition as it was created, where it was asked for.
    """

    operation: Operation
    state_bytes: int
    database_us: int | None
    definition: Mapping[str, Any] | None = field(default=None, repr=False)
