"""A disk that is full or may only be read: told in words, nothing lost and nothing granted twice, and it goes on."""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing, contextmanager

import pytest

from app.cli.remote import PersonConnection
from continuity.errors import ContinuityError
from continuity.transport import Transport
from tests.crash.disks import Disk, LimitedDisk, disk
from tests.crash.stage import NAME, PASSWORD, Stage, definition
from tests.patience import PATIENCE_S
from tests.servers import ROOT, environment


def ids():
    return {"name": NAME, "run_id": f"run_{uuid.uuid4().hex}", "attempt_id": f"at_{uuid.uuid4().hex}"}


def told(call):
    """Return the reply, or the code of the refusal."""
    try:
        return call()
    except ContinuityError as error:
        return error.code


@contextmanager
def staged_on(place: Disk, forks, instance_template, tmp_path):
    stage = Stage(forks, instance_template.copy_to(place.folder / "instance"), tmp_path / "clock")
    stage.extra = {"ATMEM_DISK_FLOOR_BYTES": "0"}
    # What the server logs must not need the disk that is full.
    stage.log, stage.armed = tmp_path / "server.log", tmp_path / "armed"
    stage.clock_file.write_text("0")
    stage.start()
    try:
        stage.prepare()
        yield stage
    finally:
        stage.stop()
    assert stage.problems() == []


class Asking:
    """Everything that writes, each on work of its own; asked while the disk is full, and again after."""

    def __init__(self, stage: Stage, tmp_path) -> None:
        self.stage, self.transport = stage, Transport(stage.url, stage.token)
        self.key = f"work-{uuid.uuid4().hex}"
        self.new, self.begun, self.done, self.paused = (stage.case("none", tmp_path).workflow_id for _ in range(4))
        self.begin_body, self.receipt = ids(), self._begin(self.begun)
        self._call(self.done, "outcome", self._begin(self.done))

    def _begin(self, workflow_id):
        body = ids()
        grant = self._call(workflow_id, "begin", body)
        receipt = {
            "outcome": "confirmed_succeeded", "operation_id": grant["operation_id"], "effect_id": "e-1", "result": 1,
        }  # fmt: skip
        return {**body, "lease_token": grant["lease_token"], "receipt": receipt}

    def _call(self, workflow_id, what, body):
        return self.transport.call("POST", f"/v1/continuity/{workflow_id}/{what}", body)

    def _sign_in(self):
        with PersonConnection(self.stage.url) as person:
            person.sign_in(self.stage.instance.username, PASSWORD)
        return {"signed_in": True}

    def all(self):
        create = {"workflow_key": self.key, "operations": [definition("none")], "activate": True}
        delete = {"run_id": self.done, "confirmation": self.done}
        calls = {
            "begin": lambda: self._call(self.new, "begin", self.begin_body),
            "outcome": lambda: self._call(self.begun, "outcome", self.receipt),
            "create": lambda: self.transport.call("POST", "/v1/continuity", create),
            "delete": lambda: self.transport.call("POST", "/v1/evidence/delete", delete),
            "pause": lambda: self._call(self.paused, "configure", {"enabled": False}),
            "sign in": self._sign_in,
        }
        return {name: told(call) for name, call in calls.items()}

    def view(self, workflow_id):
        return self.transport.call("GET", f"/v1/continuity/{workflow_id}")


@pytest.mark.parametrize("kind", ["disk", "limit"])
def test_on_a_full_disk_everything_is_refused_in_words_and_goes_on_with_the_space(
    forks, instance_template, tmp_path, kind
):
    make = disk if kind == "disk" else limited
    with make(tmp_path / "disk") as place, staged_on(place, forks, instance_template, tmp_path) as stage:
        asking = Asking(stage, tmp_path)
        place.fill(stage.process)
        full, again = asking.all(), asking.all()
        seen = [asking.view(each)["operations"][0]["status"] for each in (asking.new, asking.begun, asking.done)]
        place.empty(stage.process)
        after = asking.all()

        assert full == again == dict.fromkeys(full, "storage_unavailable")
        assert seen == ["pending", "uncertain", "completed"]
        assert after["begin"]["action"] == "execute"
        assert after["outcome"]["accepted"] is True
        assert "replayed" not in after["outcome"]
        assert after["create"]["workflow_key"] == asking.key
        assert after["delete"]["deleted"]["workflows"] == 1
        assert after["pause"]["enabled"] is False
        assert after["sign in"] == {"signed_in": True}
        assert [len(asking.view(each)["operations"][0]["attempts"]) for each in (asking.new, asking.begun)] == [1, 1]
        failures = [json.loads(line) for line in stage.log.read_text().splitlines() if '"status":500' in line]
        assert failures == []
        assert "Traceback" not in stage.log.read_text()


def test_before_the_disk_is_full_nothing_new_is_begun_and_what_is_out_still_ends(forks, instance_template, tmp_path):
    place = LimitedDisk(tmp_path / "disk", 0)
    with staged_on(place, forks, instance_template, tmp_path) as stage:
        asking = Asking(stage, tmp_path)
        # Above what any disk of this machine has left, which is as good as a disk that has been filled.
        low, seen = started_again(stage, asking, floor_bytes=shutil.disk_usage(place.folder).free + (1 << 34))
        after, _ = started_again(stage, asking, floor_bytes=0)

    assert (low["begin"], low["create"]) == ("storage_low", "storage_low")
    assert low["outcome"]["accepted"] is True
    assert (low["pause"]["enabled"], low["sign in"]) == (False, {"signed_in": True})
    assert low["delete"]["deleted"]["workflows"] == 1
    assert seen["operations"][0]["attempts"] == []
    assert after["begin"]["action"] == "execute"
    assert after["create"]["workflow_key"] == asking.key


def started_again(stage, asking, *, floor_bytes):
    """Start the server with another floor; return what everything is answered with, and what nobody has begun."""
    stage.stop()
    stage.extra = {"ATMEM_DISK_FLOOR_BYTES": str(floor_bytes)}
    stage.start()
    asking.transport = Transport(stage.url, stage.token)
    return asking.all(), asking.view(asking.new)


@contextmanager
def limited(folder):
    yield LimitedDisk(folder, 0)


def atmem(folder, *arguments, limit_bytes=resource.RLIM_INFINITY):
    """Run one command, whose files may grow so far; return its status and what it said."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.entry", *arguments], cwd=ROOT, env=environment(folder),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes)),
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("size_kib", [8, 16, 64, 300, 560])
def test_an_instance_that_does_not_fit_is_made_when_it_does(tmp_path, size_kib):
    with disk(tmp_path / "disk") as place:
        folder = place.folder / "instance"
        place.fill(0, but_bytes=size_kib * 1024)
        status, said = atmem(folder, "init", limit_bytes=place.file_limit(size_kib * 512))
        place.empty(0)
        again, password = atmem(folder, "init")

    assert status == 1
    assert said.startswith("Error: ")
    assert again == 0
    assert "Password" in password


def test_what_starts_on_a_full_disk_says_so(instance_template, tmp_path):
    with disk(tmp_path / "disk") as place:
        instance = instance_template.copy_to(place.folder / "instance")
        place.fill(0)
        commands = (["serve", "--port", "0"], ["init"], ["status"], ["users", "list"], ["db", "upgrade"])
        said = [atmem(instance.folder, *command, limit_bytes=place.file_limit(0)) for command in commands]
        place.empty(0)
        assert atmem(instance.folder, "db", "check")[0] == 0

    assert all(status == 1 and words.startswith("Error: ") for status, words in said), said


def test_a_server_that_cannot_say_where_it_is_does_not_start(instance_template, tmp_path):
    instance = instance_template.copy_to(tmp_path / "instance")
    # Somebody else has the database open, so that nothing need be written to read it.
    with closing(sqlite3.connect(instance.folder / "continuity.db")) as other:
        other.execute("SELECT count(*) FROM continuity_vault").fetchone()
        status, said = atmem(instance.folder, "serve", "--port", "0", limit_bytes=0)

    assert (status, said.startswith("Error: ")) == (1, True)
    assert "cannot be written: File too large" in said
    assert list(instance.folder.glob("server*.json")) == []


def test_what_starts_on_a_disk_that_may_only_be_read_says_so(instance_template, tmp_path):
    with disk(tmp_path / "disk") as place:
        instance = instance_template.copy_to(place.folder / "instance")
        place.make_read_only()
        serving = atmem(instance.folder, "serve", "--port", "0")
        adding = atmem(instance.folder, "users", "create", "ada", "--role", "operator")
        making = atmem(place.folder / "another", "init")
        checking = atmem(instance.folder, "db", "check")
        place.make_writable()
        status, _ = atmem(instance.folder, "users", "create", "ada", "--role", "operator")

    # Without the files beside it that readers share, a database that is closed cannot even be read.
    said = (serving, adding, making, checking)
    assert [status for status, _ in said] == [1, 1, 1, 1]
    assert all(words.startswith("Error: ") for _, words in said)
    assert "Read-only file system" in serving[1] or "Permission denied" in serving[1]
    assert status == 0
