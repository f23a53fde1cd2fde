"""The server is killed inside its own writes and syncs, by strace; what it had acknowledged is in the database."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from continuity.client import ContinuityClient
from continuity.errors import TransportError
from tests.crash.invariants import check_invariants
from tests.crash.stage import NAME, staged, until
from tests.patience import PATIENCE_S

WRITES, SYNCS = "pwrite64", "fsync,fdatasync"
POINTS = [*((WRITES, count) for count in range(1, 32, 2)), *((SYNCS, count) for count in (1, 2, 3, 4))]
WORKFLOWS = 4


@pytest.fixture(scope="module")
def stage(forks, instance_template, tmp_path_factory):
    """A server with one thread, whose writes can be counted."""
    folder = tmp_path_factory.mktemp("syscalls")
    with staged(
        forks, instance_template.copy_to(folder / "instance"), clock_file=folder / "clock", options=["--threads", "1"]
    ) as stage:
        yield stage


@contextmanager
def killed_at(process: int, call: str, count: int, folder: Path) -> Iterator[None]:
    """Let the `count`-th such call of a thread of `process` be its last."""
    said = folder / "strace"
    with said.open("w") as stream:
        tracer = subprocess.Popen(
            ["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={count}",
             "-p", str(process)],
            stderr=stream,
        )  # fmt: skip
    try:
        until(lambda: "attached" in said.read_text(), said.read_text)
        yield
        # It ends with the process; asked to end while that dies, it would wait for ever.
        assert tracer.wait(timeout=PATIENCE_S) == 0
    finally:
        tracer.kill()
        tracer.wait(timeout=PATIENCE_S)


def work(client, workflow_id, acks):
    """Begin and report one operation on `workflow_id`, keeping every answer; return whether there was one to each."""
    try:
        _work(client, workflow_id, acks)
    except TransportError:
        return False
    return True


def _work(client, workflow_id, acks):
    ids = {"run_id": f"run_{uuid.uuid4().hex}", "attempt_id": f"at_{uuid.uuid4().hex}"}
    reply = client.begin(workflow_id, NAME, **ids)
    acks.append({"call": "begin", "sent": ids, "reply": reply})
    receipt = {
        "outcome": "confirmed_succeeded", "operation_id": reply["operation_id"], "effect_id": "effect-of-this",
        "result": secrets.token_hex(200),
    }  # fmt: skip
    sent = {**ids, "lease_token": reply["lease_token"], "receipt": receipt}
    answer = client.send_outcome(workflow_id, NAME, **sent)
    acks.append({"call": "outcome", "sent": sent, "reply": answer})


@pytest.mark.skipif(sys.platform != "linux", reason="strace is a program of Linux")
@pytest.mark.parametrize(("call", "count"), POINTS)
def test_a_server_killed_inside_a_write_has_everything_that_it_acknowledged(stage, tmp_path, call, count):
    assert shutil.which("strace"), "these tests need strace (make tools)"
    workflows = [stage.case("none", tmp_path).workflow_id for _ in range(WORKFLOWS)]
    acks = {workflow_id: [] for workflow_id in workflows}

    with killed_at(stage.process, call, count, tmp_path), ContinuityClient(stage.url, stage.token) as client:
        is_killed = not all(work(client, workflow_id, acks[workflow_id]) for workflow_id in workflows)
    assert is_killed
    assert stage.forks.wait(stage.process) == -9
    assert stage.problems() == []
    stage.start()

    for workflow_id in workflows:
        view = stage.operator.get_workflow(workflow_id)
        check_invariants([], view, acks[workflow_id], is_honest=False)
