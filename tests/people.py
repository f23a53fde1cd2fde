"""An installation with people in it, on any store: what tests of accounts and credentials begin with."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from app.auth import services, workspaces
from app.auth.accounts import LOCAL
from app.auth.factor_seal import SecretKeys
from app.auth.requests import GrantRequest
from app.auth.services import Auth
from app.auth.settings import CHEAP_HASHING, AuthSettings
from app.auth.signin import Visit
from continuity.services import recounting
from continuity.services.audit import AuditLog
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.owners import Owners
from continuity.store import schema
from continuity.store.store import Store
from continuity.vault import FileKeyProvider, ShredList, Vault, create_vault, open_vault

START_US = 1_750_000_000_000_000
SECOND_US = 1_000_000
VISIT = Visit(address="192.0.2.7", request_id="req_test")
PASSWORD = "bright otter sails north"
SECRET_KEYS = SecretKeys(bytes(range(48)))


@dataclass
class FakeClock:
    """Stands still until it is told to go."""

    wall_us: int = START_US
    monotonic: int = 0

    def now_us(self) -> int:
        return self.wall_us

    def monotonic_us(self) -> int:
        return self.monotonic

    def advance(self, seconds: float) -> None:
        self.wall_us += int(seconds * SECOND_US)
        self.monotonic += int(seconds * SECOND_US)

    def set_back(self, seconds: float) -> None:
        """Move the wall clock alone, as a wrong time server does."""
        self.wall_us -= int(seconds * SECOND_US)


@dataclass
class Installation:
    """A store with an open vault, an empty account table, and the services under test."""

    store: Store
    vault: Vault
    clock: FakeClock
    auth: Auth
    owners: Owners
    audit: AuditLog
    passwords: dict[str, str] = field(default_factory=dict)

    def person(self, username: str, role: Role = Role.OPERATOR, *, at: tuple[str, ...] = ("default",)) -> str:
        """Make an account whose password has been changed; return the password."""
        made = self.auth.accounts.create(username, role=role, workspace_names=at, by=LOCAL)
        password = f"{PASSWORD} {secrets.token_hex(4)}"
        self.auth.sign_in.change_password_locally(username, current=made.password, new=password)
        self.passwords[username] = password
        return password

    def caller(self, username: str) -> Caller:
        """Sign in and return who that is to the services."""
        from app.auth import principals  # noqa: PLC0415

        welcome = self.auth.sign_in.sign_in(username, self.passwords[username], visit=VISIT, replaced=None)
        found = self.auth.sessions.find(welcome.session.session_id)
        assert found is not None
        return principals.person(found, request_id="req_test")

    def grant(self, by: Caller, principal_id: str = "worker-1", **fields: object) -> str:
        """Issue a credential and return its token; an operator's for everything unless `fields` say else."""
        body = {"principal_id": principal_id, "role": "evidence_collector", **fields}
        return self.auth.credentials.issue(by, GrantRequest.from_json(body)).token

    def resolve(self, token: str) -> Caller:
        return self.auth.principals.bearer(f"Bearer {token}", request_id="req_test")

    def workspace(self, name: str) -> int:
        return self.store.write(lambda connection: workspaces.ensure(connection, name))

    def workflow(self, workspace: str = "default") -> str:
        """Put a workflow's row there, as far as credentials look at it."""
        workflow_id = f"wf_{secrets.token_hex(16)}"
        workspace_pk = self.workspace(workspace)
        values = {
            "workflow_id": workflow_id, "workspace_pk": workspace_pk, "owner_pk": 1, "key_ix": secrets.token_bytes(32),
            "definition_ix": bytes(32), "enabled": False, "ever_enabled": False, "operation_count": 1,
            "done_prefix": 0, "revision": 1, "clock_high_water": self.clock.now_us(), "phase": "review",
            "created_at": self.clock.now_us(), "changed_at": self.clock.now_us(), "epoch": 1, "retained_bytes": 0,
            "reserved_bytes": 0, "sealed_head": b"-",
        }  # fmt: skip
        self.store.write(lambda connection: connection.execute(sa.insert(schema.workflows).values(values)).rowcount)
        return workflow_id

    def change(self, table: sa.Table, **values: object) -> None:
        """Change every row of a table, as a service elsewhere or an intruder would."""
        self.store.write(lambda connection: connection.execute(sa.update(table).values(values)).rowcount)

    def set_vault(self, **values: object) -> None:
        """Change the vault's row as its own services would: with its proof."""
        change_vault(self.store, self.vault, **values)

    def rows(self, table: sa.Table) -> list[sa.Row[tuple[object, ...]]]:
        """Return all rows in the order of their keys: PostgreSQL gives them in any order."""
        statement = sa.select(table).order_by(*table.primary_key.columns)
        return self.store.read(lambda connection: list(connection.execute(statement)))

    def actions(self) -> list[tuple[str, str]]:
        """Action and result of every audit entry, oldest first; the chain must hold."""
        report = self.store.read(self.audit.verify)
        assert report.fault is None
        return [(row.action, row.result) for row in self.rows(schema.audit)]


def install(
    store: Store, folder: Path, *, clock: FakeClock | None = None, url: str = "http://127.0.0.1:8768",
    settings: AuthSettings | None = None,
) -> Installation:  # fmt: skip
    """Make a vault on an empty, migrated store and wire the package to it."""
    clock = clock or FakeClock()
    vault = _open_vault(store, folder, now_us=clock.now_us())
    audit = AuditLog(vault)
    owners = Owners(store, vault)
    settings = settings or AuthSettings(hashing=CHEAP_HASHING)
    auth = services.build(store, owners, audit=audit, clock=clock, url=url, secret_keys=SECRET_KEYS, settings=settings)
    store.write(lambda connection: workspaces.ensure(connection, workspaces.DEFAULT))
    return Installation(store, vault, clock, auth, owners, audit)


def change_vault(store: Store, vault: Vault, **values: object) -> None:
    """Change the vault's row and prove it anew."""

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.update(schema.vault).values(**values, proof=None))
        recounting.prove_all(connection, vault)

    store.write(work)


def _open_vault(store: Store, folder: Path, *, now_us: int) -> Vault:
    provider = FileKeyProvider(folder / "vault.key")
    keyring = provider.create()
    new = create_vault(keyring)
    shred_list = ShredList.create(folder / "shred.list")
    vault = open_vault(
        keyring, canary=new.canary, wrapped_index_key=new.wrapped_index_key, shred_list=shred_list,
        recorded=shred_list.head,
    )  # fmt: skip
    values = {
        "id": 1, "format": 2, "epoch": 1, "capture_mode": "full", "state": "open", "key_id": new.key_id,
        "clock_high_water": now_us, "recovery_open": False, "shred_length": shred_list.head.length,
        "shred_head": shred_list.head.head, "sealed_canary": new.canary, "wrapped_index_key": new.wrapped_index_key,
    }  # fmt: skip
    store.write(lambda connection: connection.execute(sa.insert(schema.vault).values(values)).rowcount)
    store.write(lambda connection: recounting.prove_all(connection, vault))
    return vault


__all__ = [
    "PASSWORD", "SECOND_US", "SECRET_KEYS", "START_US", "VISIT", "CallerKind", "FakeClock", "Installation", "Role",
    "change_vault", "install",
]  # fmt: skip
