"""Instances of every key source, and several processes of one of them: each a wiring of its own in this process."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from app import commanding, handing, vaults, wiring
from app.config import Settings, load_settings
from app.vault_life import LOCAL, VaultLife
from continuity.errors import SealedError
from continuity.services.callers import Caller, CallerKind
from continuity.store import schema
from continuity.vault import EnvironmentKeyProvider, KeyProvider, cleartext
from continuity.wire import CreateWorkflow, ListRequest
from tests.entry import OVERRIDES
from tests.servers import Instance

PASSPHRASE = "correct horse battery staple"
OTHER = "another horse battery staple"
ONE, TWO = (base64.b64encode(bytes(range(start, start + 32))).decode() for start in (0, 32))
OPERATOR = Caller(
    kind=CallerKind.OPERATOR, actor="cred:1", request_id="req_1", workspaces=None, home_workspace=1, principal="op"
)


@dataclass
class Process:
    """One process: it follows when it is told to, and not by a thread."""

    built: wiring.Wiring

    @property
    def life(self) -> VaultLife:
        return self.built.vault_life

    def follow(self) -> None:
        self.life.follower.follow()

    def create(self, key: str) -> str:
        request = {"workflow_key": key, "operations": [{"name": "publish", "tool": "t"}], "activate": True}
        return str(self.built.services.workflows.create(OPERATOR, CreateWorkflow.from_json(request))["workflow_id"])

    def keys(self) -> list[str]:
        page = self.built.services.listing.page(OPERATOR, ListRequest())
        return sorted(each["workflow_key"] for each in page["workflows"])

    def rows(self, table: sa.Table) -> list[Any]:
        return list(self.built.store.read(lambda connection: connection.execute(sa.select(table)).all()))

    def actions(self) -> list[tuple[str, str, str]]:
        entries = sorted(self.rows(schema.audit), key=lambda row: row.seq)
        return [(row.action, row.actor, row.result) for row in entries if row.action.startswith("vault.")]


@dataclass
class Place:
    """An instance and its processes."""

    settings: Settings
    source: str
    variable: str = f"1:{ONE}"
    processes: list[Process] = field(default_factory=list)
    exits: list[Any] = field(default_factory=list)

    def keys(self, passphrase: str | None = None) -> KeyProvider:
        if self.source == "environment":
            return EnvironmentKeyProvider(environment={"ATMEM_VAULT_KEY": self.variable})
        return vaults.key_provider(self.settings, passphrase=passphrase)

    def command(self, passphrase: str | None = PASSPHRASE) -> Process:
        """A process that runs and ends."""
        made = Process(wiring.build(self.settings, keys=self.keys(passphrase), overrides=OVERRIDES))
        self.processes.append(made)
        return made

    def server(self, passphrase: str | None = PASSPHRASE, *, workers: int = 1) -> list[Process]:
        """Processes that serve, with the keys that `atmem serve` gives them."""
        held = vaults.serving_keys(self.settings, self.keys(passphrase))
        keys = held.__enter__()
        self.exits.append(held)
        made = [Process(wiring.build(self.settings, keys=keys, overrides=OVERRIDES)) for _ in range(workers)]
        self.processes += made
        return made

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.settings.instance.iterdir() if path.is_file()}

    def key_bytes(self) -> list[bytes]:
        """What the master keys of now look like, wherever they are written in the clear."""
        keys = cleartext.export(self.command().life.keyring()).values()
        return [spelled for key in keys for spelled in (key, base64.b64encode(key), key.hex().encode())]

    def close(self) -> None:
        for process in self.processes:
            process.built.close()
        for held in self.exits:
            with suppress(SealedError):
                held.__exit__(None, None, None)


@contextmanager
def made(
    folder: Path, source: str, *, extra: Mapping[str, str] | None = None, template: Instance | None = None
) -> Iterator[Place]:
    """Make an instance whose keys come from `source`; a copy of `template` where that is a file."""
    if template is not None and source == "file" and not extra:
        template.copy_to(folder)
    environ = {"ATMEM_INSTANCE": str(folder), "ATMEM_SHRED_LIST": str(folder / "shred.list"), **(extra or {})}
    environ |= {"environment": {"ATMEM_VAULT_KEY": ONE}, "passphrase": {"ATMEM_VAULT_KEY_SOURCE": "passphrase"}}.get(
        source, {}
    )
    place = Place(load_settings(environ), source)
    with wiring_of(place):
        yield place


@contextmanager
def wiring_of(place: Place) -> Iterator[None]:
    place.settings.instance.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not place.settings.secret_key_file.exists():
        _initialise(place)
    try:
        yield
    finally:
        place.close()
        assert not list(place.settings.instance.glob("handover-*")), handing.KINDS


def _initialise(place: Place) -> None:
    umask = os.umask(0o077)
    if place.source == "environment":
        os.environ["ATMEM_VAULT_KEY"] = place.variable
    try:
        commanding.initialise(place.settings, overrides=OVERRIDES, passphrase=PASSPHRASE)
    finally:
        os.umask(umask)


__all__ = ["LOCAL", "ONE", "OTHER", "PASSPHRASE", "TWO", "Place", "Process", "made"]
