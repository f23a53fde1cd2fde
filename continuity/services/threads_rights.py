"""Who may do what with a thread. Reads rows and the caller, never what a request says of itself.

| | owner | operator of the workspace | administrator | others |
|---|---|---|---|---|
| see | yes | yes | yes | as if there were none |
| resume, stop | yes | yes | yes | as if there were none |
| message, steer, follow-up, reply | yes | no | no | as if there were none |
| delete | yes | no | yes | as if there were none |

An owner is a person, or a subject of an application. What feeds the agent also needs the agent's policy: it is public
in the workspace, or names the caller. Losing the workspace loses its threads.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from continuity.errors import ConflictError, ForbiddenError, MalformedError, NotFoundError, SealedError
from continuity.services.callers import Caller, CallerKind, Role

if TYPE_CHECKING:
    from continuity.thread_requests import AgentDeclaration


class Right(StrEnum):
    """What somebody wants to do with a thread."""

    SEE = "see"
    CONTROL = "resume or stop"
    FEED = "say something to"
    DELETE = "delete"


_OVERSEERS: Final[dict[Role, frozenset[Right]]] = {
    Role.OPERATOR: frozenset({Right.SEE, Right.CONTROL}),
    Role.INVESTIGATOR: frozenset(),
    Role.ADMINISTRATOR: frozenset({Right.SEE, Right.CONTROL, Right.DELETE}),
}
"""What people may do with threads of others, by role."""


def no_such_thread() -> NotFoundError:
    """Make the one answer to an id that is not the caller's to know."""
    return NotFoundError("There is no such thread.")


def no_such_run() -> NotFoundError:
    """Make the one answer to a run that is not the worker's to know."""
    return NotFoundError("There is no such run.")


def no_such_agent() -> NotFoundError:
    """Make the one answer to an agent that was not declared, or that the caller may not use."""
    return NotFoundError("There is no such agent.")


def was_deleted() -> ConflictError:
    """Make the answer to whoever may know of a thread that was deleted."""
    return ConflictError("This thread was deleted; its name cannot be used again.", code="thread_deleted")


def owner_key(caller: Caller) -> str:
    """Return the key by which the caller owns threads.

    Raises:
        ForbiddenError: Callers of this kind own none. Nothing has happened.
        MalformedError: An application that names no subject. Nothing has happened.
    """
    if caller.kind is CallerKind.PERSON:
        return f"person:{caller.actor}"
    if caller.kind is not CallerKind.APPLICATION:
        raise ForbiddenError("Threads are for people and applications.")
    if caller.subject is None:
        raise MalformedError("subject is required: an application acts for one of its subjects.")
    return f"application:{caller.owner_pk}:{caller.subject}"


def owner_name(caller: Caller) -> str:
    """Return what people are shown of the owner."""
    return caller.principal if caller.subject is None else f"{caller.principal} for {caller.subject}"


def principal_key(caller: Caller) -> str:
    """Return whose request_ids and cursors the caller's are: of the principal, whichever credential is used."""
    principal = caller.actor if caller.owner_pk is None else f"owner:{caller.owner_pk}"
    return principal if caller.subject is None else f"{principal}:{caller.subject}"


def require(caller: Caller, row: Any, right: Right, *, owner_ix: bytes) -> None:
    """Check that a thread is there for the caller, and that the caller may do this with it.

    Args:
        caller: Who asks.
        row: The thread's row.
        right: What for.
        owner_ix: Blind index of the caller's `owner_key`.

    Raises:
        NotFoundError: Not the caller's to know.
        ForbiddenError: The caller may see it, and not do this. Nothing has happened.
    """
    is_inside = caller.workspaces is None or row.workspace_pk in caller.workspaces
    if not is_inside:
        raise no_such_thread()
    if row.owner_ix == owner_ix:
        return
    may = frozenset() if caller.kind is not CallerKind.PERSON or caller.role is None else _OVERSEERS[caller.role]
    if Right.SEE not in may:
        raise no_such_thread()
    if right not in may:
        raise ForbiddenError(f"Only the owner may {right} this thread. Nothing was changed.")


def may_use(caller: Caller, agent: AgentDeclaration) -> bool:
    """Say whether the agent's policy lets the caller use it; the workspace has been checked."""
    return agent.is_public or caller.principal in agent.principals


def require_use(caller: Caller, agent: AgentDeclaration) -> None:
    """Check the agent's policy for whoever knows that the thread is there.

    Raises:
        ForbiddenError: The policy does not name the caller any more. Nothing has happened.
    """
    if not may_use(caller, agent):
        raise ForbiddenError("The agent may not be used by you any more. Nothing was changed.")


def require_worker(caller: Caller) -> int:
    """Return the workspace of a thread worker.

    Raises:
        ForbiddenError: The caller is none. Nothing has happened.
        SealedError: The vault was locked when the credential was read. Nothing has happened.
    """
    if caller.kind is not CallerKind.THREAD_WORKER:
        raise ForbiddenError("Runs are for thread workers.")
    if not caller.agents:
        # Every credential of a thread worker names an agent, and their names are sealed. "No such run" would make the
        # worker give up a claim that is alive.
        raise SealedError("The vault is locked. Nothing was done.")
    return caller.home_workspace
