"""Files of an instance: who may read them, and what is never followed or written over (P01, P02, P06)."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

import pytest
from click.testing import CliRunner

from app import instance
from app.cli import main
from app.config import InstanceError, load_settings
from continuity.errors import ContinuityError
from continuity.tools import publish_operation
from continuity.wire import CreateWorkflow
from tests.entry import OVERRIDES
from tests.servers import start, stop


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
