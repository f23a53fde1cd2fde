"""`atmem serve` as an operator meets it: a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from app import instance
from app.cli import main
from tests.patience import PATIENCE_S, wait_for
from tests.servers import ROOT, RunningServer, environment, initialised, start, stop


def get(server: RunningServer, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*server.address, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def test_a_started_server_is_alive_and_ready(shared_server):
    assert get(shared_server, "/healthz") == (200, b'{"status":"ok"}')
    assert get(shared_server, "/readyz") == (200, b'{"status":"ready"}')


def test_everything_a_running_server_writes_is_private(running_server):
    get(running_server, "/readyz")

    folder = running_server.instance.folder
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert {f"server-{running_server.process.pid}.json", "server.lock"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_killed_server_starts_again_without_help(fresh_instance):
    first = start(fresh_instance)
    get(first, "/readyz")
    stop(first)

    second = start(fresh_instance)

    assert get(second, "/readyz")[0] == 200
    stop(second)


@pytest.mark.parametrize(
    ("note", "folder_mode", "mode"),
    [
        ('{"url": "https://elsewhere.example"}', 0o700, 0o600), ('{"url": "http://127.0.0.1:1/x"}', 0o700, 0o600),
        ('{"url": "http://127.0.0.1:9123"}', 0o755, 0o600), ('{"url": "http://127.0.0.1:9123"}', 0o700, 0o644),
        ("[]", 0o700, 0o600), ("no json", 0o700, 0o600),
    ],
)  # fmt: skip
def test_an_address_that_others_could_have_written_or_that_leads_elsewhere_gets_no_credential(
    tmp_path, note, folder_mode, mode
):
    (tmp_path / "address.json").write_text(note)
    (tmp_path / "address.json").chmod(mode)
    tmp_path.chmod(folder_mode)

    assert instance.served_at(tmp_path) is None


def test_commands_find_a_server_while_it_runs_and_send_nothing_to_its_port_once_it_has_ended(fresh_instance):
    server = start(fresh_instance)
    assert instance.served_at(fresh_instance.folder) == server.url

    server.process.terminate()
    assert server.process.wait(timeout=PATIENCE_S) == 0

    assert instance.served_at(fresh_instance.folder) is None
    stop(server)


def test_a_server_that_ends_leaves_the_address_of_another_one(fresh_instance):
    server = start(fresh_instance)
    (fresh_instance.folder / "address.json").write_text('{"url": "http://127.0.0.1:9123", "process": 1}')

    server.process.terminate()
    assert server.process.wait(timeout=PATIENCE_S) == 0

    assert instance.served_at(fresh_instance.folder) == "http://127.0.0.1:9123"
    stop(server)


@pytest.mark.parametrize(("host", "warnings"), [("0.0.0.0", 1), ("127.0.0.1", 0)])
def test_plain_http_for_other_hosts_is_warned_of(fresh_instance, host, warnings):
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--host", host, "--json"], cwd=ROOT, text=True,
        env=environment(fresh_instance.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline()
    process.terminate()
    _, said = process.communicate(timeout=PATIENCE_S)

    assert said.count("plain HTTP") == warnings


def test_ctrl_c_stops_the_server_as_sigterm_does(running_server):
    running_server.process.send_signal(signal.SIGINT)

    assert running_server.process.wait(timeout=PATIENCE_S) == 0
    assert list(running_server.instance.folder.glob("server-*.json")) == []


def test_a_port_that_is_taken_is_one_clear_line(fresh_instance):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = subprocess.run(
            [sys.executable, "-m", "tests.entry", "serve", "--port", port], cwd=ROOT,
            env=environment(fresh_instance.folder), capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert result.returncode == 1
    assert result.stderr.startswith(f"Error: Cannot listen at 127.0.0.1 port {port}: ")
    assert result.stderr.count("\n") == 1
    assert result.stderr.count(port) == 1
    assert "--port" in result.stderr


def test_a_second_server_on_one_sqlite_instance_is_refused(running_server):
    second = serve_once(running_server.instance.folder)

    assert second.returncode == 1
    assert "another server has" in second.stderr
    assert second.stderr.count("\n") == 1
    assert get(running_server, "/readyz")[0] == 200
    assert running_server.terminate() == 0
    again = start(running_server.instance)
    stop(again)


def test_a_lock_that_is_a_link_is_not_followed(fresh_instance, tmp_path):
    (fresh_instance.folder / "server.lock").symlink_to(tmp_path / "elsewhere")

    refused = serve_once(fresh_instance.folder)

    assert refused.returncode == 1
    assert "server.lock" in refused.stderr
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.postgresql
def test_status_finds_the_server_that_is_left_of_two_on_one_postgresql(postgresql_server, tmp_path):
    extra = {"ATMEM_DATABASE_URL": postgresql_server.url(postgresql_server.create())}
    instance = initialised(tmp_path / "instance", extra)
    first, second = start(instance, extra=extra), start(instance, extra=extra)
    try:
        assert second.terminate() == 0
        shown = subprocess.run(
            [sys.executable, "-m", "tests.entry", "status", "--json"], cwd=ROOT,
            env=environment(instance.folder, extra), capture_output=True, text=True, check=True,
        )  # fmt: skip
    finally:
        stop(first)
        stop(second)

    assert (json.loads(shown.stdout)["url"], json.loads(shown.stdout)["is_running"]) == (first.url, True)


def test_a_server_that_is_stopped_says_so(fresh_instance):
    with subprocess.Popen(
        [sys.executable, "-m", "tests.entry", "serve", "--port", "0"], cwd=ROOT, text=True,
        env=environment(fresh_instance.folder), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout.readline().startswith("Serving at http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()

    assert (process.returncode, rest) == (0, "Stopped.\n")


def serve_once(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.entry", "serve", "--port", "0"], cwd=ROOT, env=environment(folder),
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [["--port", "70000"], ["--threads", "0"], ["--workers", "2"], ["--nonsense"], ["--host", ""], ["--host", "\udcff"]],
)
def test_wrong_usage_exits_with_status_2(fresh_instance, monkeypatch, options):
    monkeypatch.setenv("ATMEM_INSTANCE", str(fresh_instance.folder))

    assert CliRunner().invoke(main, ["serve", *options]).exit_code == 2


def test_secrets_are_not_in_the_environment_of_a_running_server(fresh_instance, tmp_path):
    key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    extra = {"ATMEM_VAULT_KEY": key, "ATMEM_SHRED_LIST": str(tmp_path / "shred.list")}
    instance = initialised(tmp_path / "keyed", extra)
    server = start(instance, extra=extra)
    try:
        assert get(server, "/readyz")[0] == 200
        assert key.encode() not in Path(f"/proc/{server.process.pid}/environ").read_bytes()
        assert key not in server.log.read_text()
    finally:
        stop(server)


def test_a_crash_of_the_server_leaves_no_memory_on_disk(shared_server):
    limits = Path(f"/proc/{shared_server.process.pid}/limits").read_text()

    (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    assert line.split()[4:6] == ["0", "0"]


@pytest.mark.postgresql
def test_several_workers_share_one_port_and_one_that_dies_is_replaced(postgresql_server, tmp_path):
    extra = {"ATMEM_DATABASE_URL": postgresql_server.url(postgresql_server.create())}
    instance = initialised(tmp_path / "instance", extra)
    server = start(instance, "--workers", "3", "--threads", "2", extra=extra)
    try:
        assert get(server, "/readyz")[0] == 200
        first = wait_for(lambda: (found := children(server.process.pid)) and len(found) == 3 and found)
        os.kill(first[0], signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while (now := children(server.process.pid)) == first or len(now) != 3:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        statuses = Counter(get(server, "/readyz")[0] for _ in range(30))

        assert statuses == {200: 30}
        assert server.terminate() == 0
        assert children(server.process.pid) == []
    finally:
        stop(server)


@pytest.mark.postgresql
def test_workers_whose_parent_is_killed_do_not_stay(postgresql_server, tmp_path):
    extra = {"ATMEM_DATABASE_URL": postgresql_server.url(postgresql_server.create())}
    server = start(initialised(tmp_path / "instance", extra), "--workers", "2", extra=extra)
    get(server, "/readyz")
    workers = wait_for(lambda: (found := children(server.process.pid)) and len(found) == 2 and found)
    stop(server)

    deadline = time.monotonic() + PATIENCE_S
    while any(is_alive(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(workers) == 2


def children(process_id: int) -> list[int]:
    """Process ids of the children, lowest first."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process_id)], capture_output=True, text=True, check=False
    )
    return sorted(int(line) for line in listed.stdout.split())


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_that_has_ended_says_no_more_that_it_holds_keys(running_server):
    folder = running_server.instance.folder
    status = [sys.executable, "-m", "tests.entry", "vault", "status", "--json"]

    def holders():
        done = subprocess.run(status, cwd=ROOT, env=environment(folder), capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["holders"]

    deadline = time.monotonic() + PATIENCE_S
    while not holders() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert holders() == 1

    assert running_server.terminate() == 0

    assert holders() == 0


@pytest.mark.postgresql
def test_workers_add_up_what_each_of_them_has_counted(postgresql_server, tmp_path):
    token = "a-metrics-token-for-tests-0123456789"
    database = {"ATMEM_DATABASE_URL": postgresql_server.url(postgresql_server.create())}
    extra = {**database, "ATMEM_METRICS_TOKEN": token}
    server = start(initialised(tmp_path / "instance", extra), "--workers", "3", "--threads", "2", extra=extra)
    try:
        # The start itself asks until one answers.
        before = _answered(server, token)
        assert {get(server, "/healthz")[0] for _ in range(60)} == {200}
        told = [_answered(server, token) for _ in range(6)]

        assert told == [before + 61 + n for n in range(6)]
    finally:
        stop(server)


def _answered(server: RunningServer, token: str) -> float:
    """Return how many requests were answered well, as one of the workers tells it."""
    connection = http.client.HTTPConnection(*server.address, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    name = 'atmem_http_requests_total{method="GET",status="200"}'
    return next((float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)), 0.0)
