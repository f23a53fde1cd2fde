"""`atmem vault` as an operator meets it, beside a real server with several processes."""

from __future__ import annotations

import base64
import http.client
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.cli import vault_keys
from continuity.client import ContinuityClient
from observations.events import FORMAT
from tests.cli.commands import PASSWORD, Terminal
from tests.observing import LEAST
from tests.patience import PATIENCE_S, wait_for
from tests.servers import RunningServer, initialised, start, stop

PASSPHRASE = "correct horse battery staple"
DEFINITION = [{"name": "publish", "tool": "t"}]


@dataclass
class Host:
    """A server of two processes on PostgreSQL, and a shell beside it."""

    server: RunningServer
    terminal: Terminal
    folder: Path
    connections: list[http.client.HTTPConnection] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "passphrase").write_text(f"{PASSPHRASE}\n")

    @property
    def passphrase(self) -> tuple[str, str]:
        return "--passphrase-file", str(self.folder / "passphrase")

    def vault(self, verb: str, *options: str) -> dict:
        done = self.terminal.here("vault", verb, *options, "--json", server=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def ready(self) -> set[int]:
        """What the processes answer to readiness, over connections enough to meet both."""
        return {self._get("/readyz") for _ in range(12)}

    def until_ready(self, wanted: int) -> float:
        """Wait until every process answers so; return how long it took."""
        began = time.monotonic()
        while self.ready() != {wanted}:
            assert time.monotonic() - began < PATIENCE_S, self.server.log.read_text()
            time.sleep(0.05)
        return time.monotonic() - began

    def until_known(self, holders: int) -> None:
        """Wait until so many processes have said that they hold the keys: one may begin long after the other."""
        wait_for(lambda: self.vault("status")["holders"] == holders, what=self.server.log.read_text())

    def _get(self, path: str) -> int:
        connection = http.client.HTTPConnection(*self.server.address, timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            reply.read()
            return reply.status
        finally:
            connection.close()


def served(folder, server, options=(), extra=None) -> Host:
    terminal = Terminal(server, folder, {"ATMEM_DATABASE_URL": extra["ATMEM_DATABASE_URL"], **kept(extra)})
    return Host(server, terminal, folder)


def kept(extra):
    """The variables for commands beside the server, which the commands of these tests take from here."""
    return {name: value for name, value in extra.items() if name.startswith("ATMEM_") and "DATABASE" not in name}


@pytest.fixture
def host(request, tmp_path, postgresql_server) -> Iterator[Host]:
    source, options = getattr(request, "param", "file"), ["--workers", "2"]
    extra = {"ATMEM_DATABASE_URL": postgresql_server.url(postgresql_server.create())}
    instance_extra = dict(extra)
    if source == "environment":
        extra |= {
            "ATMEM_VAULT_KEY": base64.b64encode(bytes(range(32))).decode(),
            "ATMEM_SHRED_LIST": str(tmp_path / "shred.list"),
        }
        instance_extra = extra
    tmp_path.chmod(0o700)
    instance = initialised(tmp_path / "instance", instance_extra)
    server = start(instance, *options, extra=extra)
    try:
        yield served(tmp_path, server, extra=extra)
    finally:
        stop(server)


@pytest.mark.postgresql
@pytest.mark.parametrize("host", ["file", "environment"], indirect=True)
def test_a_lock_beside_a_server_of_two_processes_reaches_both_and_so_does_the_unlock(host, monkeypatch):
    monkeypatch.setattr(vault_keys, "_SETTLE_S", PATIENCE_S)
    token = host.terminal.token("--principal", "op")
    observer = host.terminal.token("--principal", "watcher", "--observer", "--scope", "local")
    with ContinuityClient(host.server.url, token) as client:
        workflow_id = client.create_workflow("before", DEFINITION, activate=True)["workflow_id"]
    host.until_ready(200)
    host.until_known(2)

    told = host.vault("lock", *host.passphrase)
    status = api(host, token, f"/v1/continuity/{workflow_id}")
    dropped_s = host.until_ready(503)

    assert told == {"state": "locked", "servers_with_keys": 0, "servers_without_keys": 2}
    assert status == (423, "vault_locked")
    assert dropped_s < PATIENCE_S
    assert not (host.server.instance.folder / "vault.key").exists()
    # Signing in and the ingest of observations go on.
    signing_in = {"username": "administrator", "password": PASSWORD}
    assert posted(host, "/api/auth/login", signing_in) == 200
    event = {"format": FORMAT, **LEAST, "event_id": "ev_while_locked"}
    assert posted(host, "/v1/continuity/events", event, observer) == 200
    assert host.vault("unlock", *host.passphrase) == {
        "state": "open", "servers_with_keys": 2, "servers_without_keys": 0,
    }  # fmt: skip
    host.until_ready(200)
    with ContinuityClient(host.server.url, token) as client:
        assert client.get_workflow(workflow_id)["workflow_key"] == "before"


def posted(host, path, body, token=None) -> int:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    connection = http.client.HTTPConnection(*host.server.address, timeout=PATIENCE_S)
    try:
        connection.request("POST", path, json.dumps(body), headers)
        return connection.getresponse().status
    finally:
        connection.close()


def api(host, token, path) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*host.server.address, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        reply = connection.getresponse()
        body = json.loads(reply.read())
        return reply.status, body.get("error", {}).get("code", "")
    finally:
        connection.close()


@pytest.mark.postgresql
def test_a_worker_that_is_started_again_has_the_keys_and_one_of_a_locked_vault_has_none(host):
    import psutil  # noqa: PLC0415

    host.until_ready(200)
    for child in psutil.Process(host.server.process.pid).children():
        child.kill()
    host.until_ready(200)
    host.vault("lock", *host.passphrase)

    for child in psutil.Process(host.server.process.pid).children():
        child.kill()
    time.sleep(1.5)
    host.until_ready(503)

    host.vault("unlock", *host.passphrase)
    host.until_ready(200)


@pytest.mark.postgresql
def test_a_server_goes_on_working_while_its_key_is_rotated(host):
    token = host.terminal.token("--principal", "op")
    stopping, made, failed = threading.Event(), [], []

    def work() -> None:
        with ContinuityClient(host.server.url, token) as client:
            while not stopping.is_set():
                key = f"work-{len(made)}"
                try:
                    made.append(client.create_workflow(key, DEFINITION, activate=True)["workflow_id"])
                except Exception as error:  # noqa: BLE001 - whatever it is, it must not happen
                    failed.append(error)
                    return

    worker = threading.Thread(target=work)
    worker.start()
    try:
        while len(made) < 5:
            time.sleep(0.01)
        rotated = [host.vault("rotate") for _ in range(2)]
        before = len(made)
        while len(made) < before + 5 and not failed:
            time.sleep(0.01)
    finally:
        stopping.set()
        worker.join()

    assert failed == []
    assert [each["state"] for each in rotated] == ["done", "done"]
    checked = host.vault("check")
    assert checked["sound"] is True
    assert checked["data_keys"] >= len(made)
    with ContinuityClient(host.server.url, token) as client:
        assert all(client.get_workflow(workflow_id)["workflow_key"] for workflow_id in made)


def test_a_server_whose_keys_wait_for_a_passphrase_begins_locked_and_is_unlocked(tmp_path):
    environ = {"ATMEM_VAULT_KEY_SOURCE": "passphrase"}
    file = tmp_path / "passphrase"
    file.write_text(f"{PASSPHRASE}\n")
    instance = made_by_command(tmp_path / "instance", environ, file)
    server = start(instance, extra=environ)
    try:
        host = Host(server, Terminal(server, tmp_path, environ), tmp_path)
        assert host.ready() == {503}
        assert host.vault("status")["is_open_here"] is False
        host.vault("unlock", *host.passphrase)
        host.until_ready(200)
    finally:
        stop(server)
    again = start(instance, "--passphrase-file", str(file), extra=environ)
    try:
        Host(again, Terminal.__new__(Terminal), tmp_path).until_ready(200)
    finally:
        stop(again)


def made_by_command(folder, environ, passphrase):
    """`atmem init` with a passphrase, as a person runs it."""
    from click.testing import CliRunner  # noqa: PLC0415

    from app.cli import main  # noqa: PLC0415
    from tests.entry import OVERRIDES  # noqa: PLC0415
    from tests.servers import Instance  # noqa: PLC0415

    variables = {"ATMEM_INSTANCE": str(folder), **environ}
    arguments = ["init", "--json", "--passphrase-file", str(passphrase)]
    umask = os.umask(0o077)
    try:
        done = CliRunner(env=variables).invoke(main, arguments, obj=OVERRIDES)
    finally:
        os.umask(umask)
    assert done.exit_code == 0, done.output
    bootstrap = json.loads(done.stdout)["bootstrap"]
    return Instance(folder, bootstrap["username"], bootstrap["password"])
