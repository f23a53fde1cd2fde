"""Where each sealed record of a thread stands, and what its head keeps beside the state.

A thread's partition id is its thread_id; a row is named by what names it in its table. Agents of workspaces share one
partition. A new sealed column begins here, with its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from continuity.decisions.model import VaultFacts
from continuity.decisions.threads import records
from continuity.decisions.threads.model import Head
from continuity.services.sealing import seal_json
from continuity.vault.place import Place

if TYPE_CHECKING:
    from continuity.vault.partition import PartitionKey

AGENTS: Final = "thread-agents"
"""Partition under which the declarations of agents are sealed."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What never changes about a thread.

    Attributes:
        name: The owner's name for it.
        agent: The agent that it is with.
        workspace_pk: Its workspace.
        owner: Key of its owner, as `threads_rights.owner_key` writes it.
        owner_name: What people are shown of the owner.
        created_us: When.
    """

    name: str
    agent: str
    workspace_pk: int
    owner: str
    owner_name: str
    created_us: int


@dataclass(frozen=True, slots=True)
class OpenedThread:
    """A thread as a decision reads it, under its lock.

    Attributes:
        thread_pk: Its row.
        key: Its data key.
        head: Its head.
        origin: What never changes.
        vault: What must be known of the vault.
        chain_hash: Hash of its last record.
        changed_us: When it changed last.
    """

    thread_pk: int
    key: PartitionKey = field(repr=False)
    head: Head
    origin: Origin
    vault: VaultFacts
    chain_hash: bytes
    changed_us: int

    @property
    def thread_id(self) -> str:
        """``th_…``."""
        return self.head.thread_id

    def position(self, seq: int | None = None) -> str:
        """Write a position in the journal; the last one without `seq`."""
        return f"{self.vault.epoch}-{self.head.last_seq if seq is None else seq}"


def place(table: str, thread_id: str, row: str, column: str) -> Place:
    """Return where a sealed column of a thread's row stands."""
    return Place(f"continuity_{table}", thread_id, row, column)


def head_place(thread_id: str) -> Place:
    """Return where a sealed head stands."""
    return place("threads", thread_id, thread_id, "sealed_head")


def record_place(thread_id: str, seq: int) -> Place:
    """Return where a sealed record stands."""
    return place("journal", thread_id, str(seq), "sealed_record")


def run_place(thread_id: str, number: int) -> Place:
    """Return where a sealed run stands."""
    return place("runs", thread_id, str(number), "sealed_run")


def item_place(thread_id: str, item_no: int) -> Place:
    """Return where a sealed item of the transcript stands."""
    return place("messages", thread_id, str(item_no), "sealed_item")


def input_place(thread_id: str, input_no: int) -> Place:
    """Return where a sealed input stands."""
    return place("inputs", thread_id, str(input_no), "sealed_input")


def request_place(thread_id: str, waiting_id: str) -> Place:
    """Return where a sealed waiting request stands."""
    return place("waiting", thread_id, waiting_id, "sealed_request")


def reply_place(thread_id: str, waiting_id: str) -> Place:
    """Return where the sealed reply to a waiting request stands."""
    return place("waiting", thread_id, waiting_id, "sealed_reply")


def receipt_place(thread_id: str, scope_ix: bytes, request_id: str) -> Place:
    """Return where a sealed receipt stands."""
    return place("requests", thread_id, f"{scope_ix.hex()}.{request_id}", "sealed_receipt")


def state_place(thread_id: str) -> Place:
    """Return where the sealed declared state stands."""
    return place("thread_states", thread_id, thread_id, "sealed_state")


def agent_place(workspace_pk: int, agent_ix: bytes) -> Place:
    """Return where the sealed declaration of an agent stands."""
    return place("agents", AGENTS, f"{workspace_pk}.{agent_ix.hex()}", "sealed_agent")


def seal_head(key: PartitionKey, head: Head, origin: Origin, chain_hash: bytes) -> bytes:
    """Seal a head: state, origin and the end of the journal's chain."""
    value: dict[str, Any] = records.head_to_json(head)
    value["origin"] = [
        origin.name, origin.agent, origin.workspace_pk, origin.owner, origin.owner_name, origin.created_us,
    ]  # fmt: skip
    value["chain"] = chain_hash.hex()
    return seal_json(key, value, head_place(head.thread_id))
