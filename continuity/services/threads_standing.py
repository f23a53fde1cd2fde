"""What a page must know beside a snapshot: what somebody may do, one question, and how many threads stand where.

Nothing here changes anything. Whoever shows what `question` returns reads the snapshot as well, and that look is in the
audit log first.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from continuity.decisions.threads.states import RequestState, ThreadState
from continuity.errors import ConflictError, DecryptionError, ForbiddenError, IntegrityError, NotFoundError
from continuity.services import threads_rights as rights
from continuity.services.callers import Caller
from continuity.services.threads_ledger import ThreadLedger
from continuity.services.threads_rights import Right
from continuity.store import threads as statements
from continuity.store import workflows

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

    from continuity.store.store import Store
    from continuity.store.workflows import AnyRow

RUNS_LOOKED_AT: Final = 8
"""Of one thread all attempts of a call are: more than the last few say nothing more."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What somebody who may see a thread may do with it, as far as rights go.

    Attributes:
        is_owner: It is the caller's own.
        may_say: The owner, and the agent's policy lets the caller in: message, steer, follow-up, reply.
        may_control: Resume and stop.
        may_delete: Delete.
    """

    is_owner: bool
    may_say: bool
    may_control: bool
    may_delete: bool


@dataclass(frozen=True, slots=True)
class ThreadStanding:
    """Use cases of those who look and are about to act.

    Attributes:
        store: Where everything is read.
        ledger: Opens threads.
    """

    store: Store
    ledger: ThreadLedger

    def of(self, caller: Caller, thread_id: str) -> Standing:
        """Say what the caller may do with a thread.

        Raises:
            NotFoundError: No such thread for this caller.
            ConflictError: ``thread_deleted``.
            SealedError: The vault is locked.
            VaultError: It does not open.
        """
        owner_ix = self.ledger.caller_ix(caller)

        def read(connection: Connection) -> Standing:
            row = connection.execute(statements.HEAD, {"thread_id": thread_id}).one_or_none()
            opened = self.ledger.open(row, caller, Right.SEE)
            agent = self.ledger.agent_of(connection, opened)
            may = {right: _is_admitted(caller, row, right, owner_ix) for right in Right}
            return Standing(
                is_owner=row is not None and row.owner_ix == owner_ix,
                may_say=may[Right.FEED] and rights.may_use(caller, agent),
                may_control=may[Right.CONTROL],
                may_delete=may[Right.DELETE],
            )

        return self.store.read(read)

    def thread_of(self, caller: Caller, run_ids: Sequence[str], *, workspace: str) -> tuple[str, str] | None:
        """Return the thread whose runs are named as those of attempts, for a caller who may see it.

        Args:
            caller: Who asks.
            run_ids: As hosts have chosen them; at most `RUNS_LOOKED_AT` of them count, the last ones.
            workspace: Name of the workspace of the work: a run of any other is not meant.

        Returns:
            ``thread_id`` and its name; None where there is none for this caller.

        Raises:
            SealedError: The vault is locked.
        """

        def read(connection: Connection) -> tuple[str, str] | None:
            for run_id in list(dict.fromkeys(run_ids))[-RUNS_LOOKED_AT:]:
                row = connection.execute(statements.HEAD_BY_RUN, {"run_id": run_id}).one_or_none()
                # Not there, not for this caller, deleted or unreadable: then this run leads nowhere, the next may.
                with suppress(NotFoundError, ConflictError, DecryptionError, IntegrityError):
                    opened = self.ledger.open(row, caller, Right.SEE)
                    place = {"workspace_pk": opened.origin.workspace_pk}
                    if connection.execute(workflows.WORKSPACE_NAME, place).scalar_one() == workspace:
                        return opened.thread_id, opened.origin.name
            return None

        return self.store.read(read)

    def question(self, caller: Caller, thread_id: str, waiting_id: str) -> dict[str, Any]:
        """Return a waiting request of a thread, however long ago it was asked.

        Returns:
            ``waiting_id, revision, state`` (``open, answered, cancelled``), ``kind, schema, shown, run_id, at``; of an
            answered one also ``reply, answered`` (Unix seconds) and ``answered_by`` (the actor).

        Raises:
            NotFoundError: No such thread or request for this caller.
            ConflictError: ``thread_deleted``.
            SealedError: The vault is locked.
            VaultError: It does not open.
        """

        def read(connection: Connection) -> dict[str, Any]:
            opened = self.ledger.peek(connection, caller, thread_id)
            place = {"thread_pk": opened.thread_pk, "waiting_id": waiting_id}
            row = connection.execute(statements.REQUEST, place).one_or_none()
            if row is None:
                raise NotFoundError("There is no such waiting request.")
            question = self.ledger.request(opened, row)
            found = {
                "waiting_id": waiting_id, "revision": row.revision, "state": row.state,
                **{name: question[name] for name in ("kind", "schema", "shown", "run_id", "at")},
            }  # fmt: skip
            if row.state != RequestState.ANSWERED:
                return found
            reply = self.ledger.reply(opened, row)
            return {**found, "reply": reply["reply"], "answered": reply["at"], "answered_by": reply["actor"]}

        return self.store.read(read)

    def counts(self, workspaces: Collection[int], *, most: int) -> dict[str, int]:
        """Count the threads of workspaces that do something or want something; those that are idle are not counted.

        Args:
            workspaces: ``workspace_pk`` of each.
            most: Counting ends at one more than so many of a state.

        Returns:
            A number by state: ``needs_attention, waiting, running``.

        Raises:
            UnavailableError: Storage cannot answer.
        """
        states = [state.value for state in ThreadState if state is not ThreadState.IDLE]
        return self.store.read(
            lambda connection: statements.counts(connection, states, sorted(workspaces), most=most + 1)
        )


def _is_admitted(caller: Caller, row: AnyRow | None, right: Right, owner_ix: bytes) -> bool:
    try:
        rights.require(caller, row, right, owner_ix=owner_ix)
    except ForbiddenError:
        return False
    return True
