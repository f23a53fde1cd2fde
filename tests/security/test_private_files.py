"""Files of an instance: who may read them, and what is never followed or written over (P01, P02, P06)."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from app import instance
from app.cli import main
from app.config import InstanceError, load_settings
from continuity.errors import ContinuityError
from continuity.tools import publish_operation
from continuity.transport import Transport
from continuity.wire import CreateWorkflow
from tests.cli.commands import Terminal
from tests.entry import OVERRIDES
from tests.servers import start, stop
from tests.web.matrix import EVIDENCE

LONG = "a long passphrase of tests"


def run(folder, *arguments):
    return CliRunner(env={"ATMEM_INSTANCE": str(folder), "ATMEM_URL": None}).invoke(main, arguments, obj=OVERRIDES)


@pytest.fixture
def loose_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_whatever_is_run_on_an_instance_leaves_private_files_alone(tmp_path, loose_umask):
    folder = tmp_path / "instance"
    assert run(folder, "init").exit_code == 0
    server_made = start(instance_of(folder))
    stop(server_made)
    for command in (
        ["status"],
        ["users", "create", "ada", "--role", "operator"],
        ["audit", "verify"],
        ["db", "check"],
        ["db", "upgrade"],
        ["users", "list"],
        ["audit", "checkpoint", "--output", str(folder / "head")],
    ):
        assert run(folder, *command).exit_code == 0, command

    modes = {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}
    assert {"continuity.db", "vault.key", "secret.key", "shred.list", "server.lock"} <= modes.keys()
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(sys.platform != "linux", reason="/proc shows what a program has open.")
def test_a_reply_that_nobody_takes_waits_in_memory_and_in_no_file(fresh_instance, tmp_path):
    (tmp_path / "spilled").mkdir()
    server = start(fresh_instance, extra={"TMPDIR": str(tmp_path / "spilled")})
    try:
        token = Terminal(server, tmp_path).token("--principal", "evidence-operator")
        with Transport(server.url, token) as connection:
            for number in range(20):
                record = {**EVIDENCE, "event_id": f"e-{number}", "content": "x" * 250_000}
                connection.call("POST", "/v1/evidence", record)
        with unread_reply(server.url, token, "/v1/evidence/export/encrypted", {"run_id": "run-1", "passphrase": LONG}):
            held = open_files(server.process.pid)
    finally:
        stop(server)

    assert [name for name in held if name.startswith(str(tmp_path / "spilled"))] == []


def open_files(process):
    held = []
    for each in Path(f"/proc/{process}/fd").iterdir():
        # One that was closed since it was listed holds nothing.
        with suppress(FileNotFoundError):
            held.append(str(each.readlink()))
    return held


@contextmanager
def unread_reply(url, token, path, body):
    """Ask for something long, and take one byte of it."""
    place, content = urlsplit(url), json.dumps(body).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect((place.hostname, place.port))
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        client.sendall(head.encode() + content)
        assert client.recv(12) == b"HTTP/1.1 200"
        yield


def instance_of(folder):
    from tests.servers import Instance  # noqa: PLC0415

    return Instance(folder, "administrator", "-")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="Only root can give a file to somebody else.")
@pytest.mark.parametrize("name", ["", "continuity.db", "vault.key", "secret.key", "shred.list"])
def test_what_belongs_to_somebody_else_is_not_used(fresh_instance, name):
    os.chown(fresh_instance.folder / name, 12_345, -1)

    for command in (["status"], ["init"], ["users", "list"]):
        result = run(fresh_instance.folder, *command)
        assert result.exit_code == 1, command
        assert (
            result.stderr.startswith(("Error: ", "Problem: ")) or "belongs" in result.stderr or "owned" in result.stderr
        )


PLANTED = ["server.lock", "address.json", "continuity.db", "vault.key", "secret.key", "shred.list"]


@pytest.mark.parametrize("name", PLANTED)
def test_a_link_that_was_planted_in_the_folder_is_neither_followed_nor_written_through(fresh_instance, tmp_path, name):
    target = tmp_path / "of somebody"
    content = (fresh_instance.folder / name).read_bytes() if (fresh_instance.folder / name).exists() else b"precious"
    target.write_bytes(content)
    target.chmod(0o600)
    (fresh_instance.folder / name).unlink(missing_ok=True)
    (fresh_instance.folder / name).symlink_to(target)
    settings = load_settings({"ATMEM_INSTANCE": str(fresh_instance.folder)})

    with suppress(InstanceError, ContinuityError):
        instance.guard(settings)
        with instance.held(settings):
            instance.note_address(settings, "http://127.0.0.1:9")
    result = run(fresh_instance.folder, "status")

    assert target.read_bytes() == content
    if name in {"continuity.db", "vault.key", "secret.key", "shred.list"}:
        assert result.exit_code == 1
        assert "link" in result.stderr


def test_names_that_a_file_system_may_take_for_one_are_no_two_names(tmp_path):
    """Names of published files are made of ids in lower case; a key that differs in its case alone is another key."""
    document = tmp_path / "Page.TXT"
    document.write_text("x")

    operation = publish_operation(str(document), str(tmp_path / "out"))
    for key in ("KEY", "ke\u0301y", "kéy", "K\u212ay", "a/b", "..", "CON", "a.", "a "):
        body = {"workflow_key": key, "operations": [operation]}
        with suppress(ContinuityError):
            made = CreateWorkflow.from_json(body)
            assert made.workflow_key in {"KEY", "CON"}
