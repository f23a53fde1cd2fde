"""The kernel refuses a sync or every write of a running server: nothing is acknowledged that is not there."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from continuity.errors import UnavailableError
from continuity.transport import Transport
from tests.crash.invariants import check_invariants
from tests.crash.stage import NAME, staged, until
from tests.crash.test_disk import Asking
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is a program of Linux")


@pytest.fixture(scope="module")
def stage(forks, instance_template, tmp_path_factory):
    """A server with one thread, whose calls can be counted; its refusals are what these tests want."""
    folder = tmp_path_factory.mktemp("failing")
    instance = instance_template.copy_to(folder / "instance")
    with staged(forks, instance, clock_file=folder / "clock", options=["--threads", "1"], refuses=True) as stage:
        yield stage


@contextmanager
def refused_by_the_kernel(process: int, calls: str, how: str, folder: Path) -> Iterator[None]:
    """Let such calls of `process` fail inside the block."""
    assert shutil.which("strace"), "these tests need strace (make tools)"
    said = folder / "strace"
    with said.open("w") as stream:
        tracer = subprocess.Popen(
            ["strace", "-f", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:{how}",
             "-p", str(process)],
            stderr=stream,
        )  # fmt: skip
    try:
        until(lambda: "attached" in said.read_text(), said.read_text)
        yield
    finally:
        tracer.send_signal(signal.SIGTERM)
        tracer.wait(timeout=PATIENCE_S)


class Asked:
    """Requests of one host, with what was acknowledged; those that were refused are sent again later."""

    def __init__(self, stage) -> None:
        self.transport = Transport(stage.url, stage.token)
        self.acks: dict[str, list[dict]] = {}
        self.refused: list[tuple[str, str, dict]] = []

    def call(self, workflow_id: str, what: str, body: dict) -> dict | None:
        try:
            reply = self.transport.call("POST", f"/v1/continuity/{workflow_id}/{what}", body)
        except UnavailableError:
            self.refused.append((workflow_id, what, body))
            return None
        self.acks.setdefault(workflow_id, []).append({"call": what, "sent": body, "reply": reply})
        return reply

    def work(self, workflow_id: str) -> None:
        body = {"name": NAME, "run_id": f"run_{uuid.uuid4().hex}", "attempt_id": f"at_{uuid.uuid4().hex}"}
        granted = self.call(workflow_id, "begin", body)
        if granted is None:
            return
        receipt = {
            "outcome": "confirmed_succeeded", "operation_id": granted["operation_id"], "effect_id": "e-1", "result": 1,
        }  # fmt: skip
        self.call(workflow_id, "outcome", {**body, "lease_token": granted["lease_token"], "receipt": receipt})

    def again(self) -> list[dict]:
        refused, self.refused = self.refused, []
        return [self.call(*each) for each in refused]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_commit_whose_sync_failed_is_not_acknowledged_though_the_next_sync_succeeds(stage, tmp_path, count):
    workflows = [stage.case("none", tmp_path).workflow_id for _ in range(3)]
    asked = Asked(stage)

    with refused_by_the_kernel(stage.process, "fsync,fdatasync", f"error=EIO:when={count}", tmp_path):
        for workflow_id in workflows:
            asked.work(workflow_id)
    assert len(asked.refused) == 1
    (again,) = asked.again()
    stage.stop()
    assert stage.problems() == []
    stage.start()

    # Unknown to the one who asked: it was done or it was not, and asking again said which.
    assert again.get("action") in {"execute", None}
    assert again.get("accepted") in {True, None}
    for workflow_id in workflows:
        view = stage.operator.get_workflow(workflow_id)
        check_invariants([], view, asked.acks.get(workflow_id, []), is_honest=False)


def test_a_server_that_may_write_no_longer_says_so_serves_who_reads_and_goes_on_when_it_may(stage, tmp_path):
    asking = Asking(stage, tmp_path)

    with refused_by_the_kernel(stage.process, "pwrite64,ftruncate,fallocate", "error=EROFS", tmp_path):
        refused, again = asking.all(), asking.all()
        seen = [asking.view(each)["operations"][0]["status"] for each in (asking.new, asking.begun, asking.done)]
    after = asking.all()

    assert refused == again == dict.fromkeys(refused, "storage_unavailable")
    assert seen == ["pending", "uncertain", "completed"]
    assert after["begin"]["action"] == "execute"
    assert after["outcome"]["accepted"] is True
    assert after["delete"]["deleted"]["workflows"] == 1
    assert "Traceback" not in stage.log.read_text()
    assert [line for line in stage.server_errors() if '"status":500' in line] == []
