"""A server that sleeps, loses the file of its key, is stopped twice, or talks to odd clients (F15, F21, F26, F28)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from app import wiring
from app.cli import main
from app.config import load_settings
from continuity.errors import ConflictError, KeySourceError, UnavailableError
from continuity.transport import Transport
from tests.crash.stage import NAME, Stage, until
from tests.crash.test_disk import atmem
from tests.entry import OVERRIDES
from tests.patience import PATIENCE_S
from tests.servers import ROOT, environment

IDS = {"run_id": "run-1", "attempt_id": "at-1"}


@pytest.fixture
def stage(sqlite_stage):
    return sqlite_stage


def success(grant):
    return {"outcome": "confirmed_succeeded", "operation_id": grant["operation_id"], "effect_id": "e-1", "result": None}


# --- A pause of the server (F15)


def test_a_server_that_slept_prolongs_no_lease_and_decides_by_the_time_at_which_it_woke(stage, tmp_path):
    case = stage.case("query", tmp_path)
    grant = stage.operator.begin(case.workflow_id, NAME, **IDS)
    body = {"name": NAME, **IDS, "lease_token": grant["lease_token"]}
    told = []

    def renew():
        with Transport(stage.url, stage.token, reply_timeout_s=PATIENCE_S) as transport:
            try:
                told.append(transport.call("POST", f"/v1/continuity/{case.workflow_id}/renew", body))
            except ConflictError as error:
                told.append(error.code)

    os.kill(stage.process, signal.SIGSTOP)
    try:
        # Sent while the lease was alive, and read after it.
        asking = threading.Thread(target=renew)
        asking.start()
        time.sleep(0.3)
        stage.advance(200)
    finally:
        os.kill(stage.process, signal.SIGCONT)
    asking.join()
    second = stage.operator.begin(case.workflow_id, NAME, run_id="run-2", attempt_id="at-2")
    late = stage.operator.send_outcome(case.workflow_id, NAME, **IDS, lease_token=grant["lease_token"],
                                       receipt=success(grant))  # fmt: skip

    assert told == ["lease_expired"]
    assert second["action"] == "query"
    assert (late["accepted"], late["reason"]) == (False, "stale_lease")
    case.check(is_honest=False)


# --- The key's file (F21)


@pytest.fixture
def own(forks, instance_template, tmp_path):
    """A server whose files a test may take away."""
    stage = Stage(forks, instance_template.copy_to(tmp_path / "instance"), tmp_path / "clock")
    stage.clock_file.write_text("0")
    stage.start()
    stage.prepare()
    yield stage
    stage.stop()


def other_key(path):
    content = path.read_text().split()
    path.write_text(" ".join([*content[:-1], "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="]) + "\n")


KEY_FAULTS = {
    "removed": lambda path: path.unlink(),
    "replaced by another": other_key,
    "emptied": lambda path: path.write_bytes(b""),
    "open to others": lambda path: path.chmod(0o644),
    "a folder now": lambda path: (path.unlink(), path.mkdir()),
}


def test_a_running_server_goes_on_with_the_key_that_it_has_and_no_start_makes_another(own, tmp_path):
    key_file = own.instance.folder / "vault.key"
    good = key_file.read_bytes()
    case = own.case("none", tmp_path)
    grant = own.operator.begin(case.workflow_id, NAME, **IDS)
    key_file.unlink()
    reply = own.operator.send_outcome(case.workflow_id, NAME, **IDS, lease_token=grant["lease_token"],
                                      receipt=success(grant))  # fmt: skip
    key_file.write_bytes(good)
    own.stop()

    settings = load_settings({"ATMEM_INSTANCE": str(own.instance.folder)})
    for what, spoil in KEY_FAULTS.items():
        spoil(key_file)
        with pytest.raises(KeySourceError, match="vault"):
            wiring.build(settings, overrides=OVERRIDES)
        made = CliRunner(env={"ATMEM_INSTANCE": str(own.instance.folder)}).invoke(main, ["init"], obj=OVERRIDES)
        assert made.exit_code == 1, (what, made.stderr)
        assert "vault" in made.stderr
        if what == "removed":
            status, said = atmem(own.instance.folder, "serve", "--port", "0")
            assert (status, "Restore it from its backup" in said) == (1, True)
            assert not key_file.exists()
        if key_file.is_dir():
            key_file.rmdir()
        key_file.unlink(missing_ok=True)
        key_file.touch(mode=0o600)
        key_file.write_bytes(good)
    own.start()

    assert reply["accepted"] is True
    assert own.operator.get_workflow(case.workflow_id)["operations"][0]["status"] == "completed"


def test_without_its_list_of_what_was_destroyed_nothing_is_decided_and_nothing_lost(own, tmp_path):
    case = own.case("none", tmp_path)
    grant = own.operator.begin(case.workflow_id, NAME, **IDS)
    shred_list = own.instance.folder / "shred.list"
    away = shred_list.rename(tmp_path / "away")

    with pytest.raises(KeySourceError):
        own.operator.begin(case.workflow_id, NAME, run_id="run-2", attempt_id="at-2")
    with pytest.raises((KeySourceError, UnavailableError)):
        own.operator.send_outcome(case.workflow_id, NAME, **IDS, lease_token=grant["lease_token"],
                                  receipt=success(grant))  # fmt: skip
    assert not shred_list.exists()
    away.rename(shred_list)
    reply = own.operator.send_outcome(case.workflow_id, NAME, **IDS, lease_token=grant["lease_token"],
                                      receipt=success(grant))  # fmt: skip

    assert (reply["accepted"], "replayed" in reply) == (True, False)


# --- What stops it (F26)


def test_a_server_that_is_told_to_stop_twice_finishes_what_was_begun_and_ends_in_time(own, tmp_path):
    case = own.case("none", tmp_path)
    parts = urlsplit(own.url)
    body = json.dumps({"name": NAME, **IDS}).encode()
    head = (
        f"POST /v1/continuity/{case.workflow_id}/begin HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Authorization: Bearer {own.token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with closing(socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)) as connection:
        connection.sendall(head.encode() + body[:10])
        time.sleep(0.2)
        started = time.monotonic()
        os.kill(own.process, signal.SIGINT)
        time.sleep(0.1)
        os.kill(own.process, signal.SIGINT)
        os.kill(own.process, signal.SIGTERM)
        # It may have ended before it has heard of the request at all.
        reply = b""
        with suppress(ConnectionError):
            connection.sendall(body[10:])
            reply = connection.recv(65_536)
    status = own.forks.wait(own.process)
    took_s = time.monotonic() - started
    own.start()

    assert (status, took_s < PATIENCE_S) == (0, True)
    assert own.problems() == []
    attempts = own.operator.get_workflow(case.workflow_id)["operations"][0]["attempts"]
    # Whether the request was still taken or not: what was answered is what is recorded.
    assert len(attempts) == int(b'"action":"execute"' in reply)


@pytest.mark.parametrize("after_s", [0.15, 0.5, 0.9])
def test_a_command_that_ctrl_c_ends_twice_leaves_nothing_half_written(tmp_path, after_s):
    folder = tmp_path / "instance"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.entry", "init"], cwd=ROOT, env=environment(folder), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        time.sleep(after_s)
        for _ in range(2):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
    status, said = atmem(folder, "init")
    assert status == 0, said
    status, said = atmem(folder, "db", "check")
    assert (status, said) == (0, "The database is sound.\n")


# --- Odd clients (F28)


def raw(stage, *requests: bytes) -> bytes:
    """Send bytes on one connection and return all that comes back."""
    parts = urlsplit(stage.url)
    with closing(socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)) as connection:
        for each in requests:
            connection.sendall(each)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
    return received


def begin_of(stage, case, *, version="1.1", more=""):
    parts = urlsplit(stage.url)
    body = json.dumps({"name": NAME, **IDS})
    return (
        f"POST /v1/continuity/{case.workflow_id}/begin HTTP/{version}\r\nHost: {parts.netloc}\r\n"
        f"Authorization: Bearer {stage.token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"{more}\r\n{body}"
    ).encode()


def actions(reply: bytes) -> list[bytes]:
    return re.findall(rb'"(?:action|reason)":"(\w+)"', reply)


def test_the_same_begin_twice_on_one_connection_is_granted_once(stage, tmp_path):
    case = stage.case("none", tmp_path)

    reply = raw(stage, begin_of(stage, case) + begin_of(stage, case, more="Connection: close\r\n"))

    assert actions(reply) == [b"execute", b"authorized_attempt", b"blocked", b"attempt_already_issued"]
    assert len(case.operation["attempts"]) == 1


def test_a_begin_in_http_1_0_is_answered_once_and_closed(stage, tmp_path):
    case = stage.case("none", tmp_path)

    reply = raw(stage, begin_of(stage, case, version="1.0"))

    assert reply.startswith(b"HTTP/1.0 200")
    assert actions(reply) == [b"execute", b"authorized_attempt"]


def test_a_client_that_goes_before_its_reply_leaves_one_recorded_grant(stage, tmp_path):
    case = stage.case("none", tmp_path)
    parts = urlsplit(stage.url)
    for _ in range(3):
        with closing(socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)) as connection:
            connection.sendall(begin_of(stage, case))
    until(lambda: len(case.operation["attempts"]) == 1)

    reply = raw(stage, begin_of(stage, case, more="Connection: close\r\n"))

    assert actions(reply) == [b"blocked", b"attempt_already_issued"]
    assert len(case.operation["attempts"]) == 1
    case.check(is_honest=False)
