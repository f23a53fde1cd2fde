"""Who is asking: what app/auth found out about a request, as the services read it.

A `Caller` is made from a credential's row or a session's row, never from anything the request says of
itself. Ids in a body, path or query are checked against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CallerKind(StrEnum):
    """Kinds of principals; the values of credentials are those of the wire (``role``)."""

    PERSON = "person"
    OPERATOR = "evidence_collector"
    WORKER = "continuity_host"
    COORDINATOR = "continuity_coordinator"
    OBSERVER = "continuity_observer"
    THREAD_WORKER = "thread_worker"
    APPLICATION = "thread_application"
    MONITOR = "monitor"


class Role(StrEnum):
    """Roles of people."""

    OPERATOR = "operator"
    INVESTIGATOR = "investigator"
    ADMINISTRATOR = "administrator"


@dataclass(frozen=True, slots=True)
class Caller:
    """One authenticated principal.

    Attributes:
        kind: Which kind of principal.
        actor: ``user:<user_id>`` or ``cred:<credential_id>``, for history and audit.
        request_id: ``req_…`` of the request that is served.
        workspaces: ``workspace_pk`` of the workspaces it may see; None means all.
        home_workspace: ``workspace_pk`` in which it creates.
        owner_pk: A coordinator's namespace row in ``continuity_owners``; of a thread worker and an application, the row
            of its principal.
        workflow_id: A worker's only workflow.
        role: A person's role.
        is_fresh: A person gave the password within the last ten minutes.
        principal: Username or principal_id, shown as the creator of what it creates.
        observation_scope: The only scope into which an observer may submit events.
        agents: The only agents whose runs a thread worker may claim.
        subject: For whom an application acts in this request.
    """

    kind: CallerKind
    actor: str
    request_id: str
    workspaces: frozenset[int] | None
    home_workspace: int
    owner_pk: int | None = None
    workflow_id: str | None = None
    role: Role | None = None
    is_fresh: bool = False
    principal: str = ""
    observation_scope: str | None = None
    agents: frozenset[str] = frozenset()
    subject: str | None = None
