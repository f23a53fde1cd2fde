"""The product as it is shipped has no failpoints: nothing that anybody can set or put somewhere makes it die."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

from app.wiring import Overrides
from continuity.client import ContinuityClient
from continuity.store.store import Store
from tests.crash.stage import NAME, Stage, definition
from tests.servers import ROOT, environment

TEMPTATIONS = {
    "ATMEM_TEST": "1", "ATMEM_TEST_FAILPOINTS": "1", "ATMEM_FAILPOINTS": "begin.before_commit",
    "ATMEM_TEST_CLOCK": "1000000", "ATMEM_DEBUG": "1", "FLASK_DEBUG": "1", "FLASK_ENV": "development",
}  # fmt: skip


def test_the_released_server_dies_at_no_point_whatever_its_environment_says(forks, fresh_instance, tmp_path):
    armed, clock = fresh_instance.folder.with_name("armed"), tmp_path / "clock"
    log = (tmp_path / "log").open("w")
    variables = {**TEMPTATIONS, "ATMEM_ARMED": str(armed), "ATMEM_CLOCK": str(clock)}
    armed.write_text("begin.before_commit")
    clock.write_text("1000000")
    (fresh_instance.folder / "armed").write_text("begin.before_commit")
    (fresh_instance.folder / "armed").chmod(0o600)

    with subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--json"],
        cwd=ROOT, env=environment(fresh_instance.folder, variables), stdout=subprocess.PIPE, stderr=log, text=True,
    ) as process:  # fmt: skip
        try:
            printed = ""
            while not printed.endswith("}\n"):
                printed += process.stdout.readline()
            stage = Stage(forks, fresh_instance, clock)
            stage.url = json.loads(printed)["url"]
            stage.prepare()
            work = [definition("none")]
            with ContinuityClient(stage.url, stage.token) as client:
                workflow_id = client.create_workflow("work-1", work, activate=True)["workflow_id"]
                ids = {"run_id": "run-1", "attempt_id": "at-1"}
                assert client.begin(workflow_id, NAME, **ids)["action"] == "execute"
                again = client.begin(workflow_id, NAME, run_id="run-1", attempt_id="at-2")
            assert again["reason"] == "attempt_in_progress"
            assert process.poll() is None
        finally:
            process.kill()
    log.close()
    assert armed.exists()


def test_only_a_program_that_passes_overrides_gets_another_store_or_clock():
    assert Overrides() == Overrides(clock=None, make_store=Store)
    calls = {
        path.relative_to(ROOT).as_posix(): call
        for package in ("app", "continuity", "observations")
        for path in sorted((ROOT / package).rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if _makes_overrides(call)
    }
    # Empty ones, for whoever has passed none.
    assert sorted(calls) == ["app/wiring.py"]
    assert not any(call.args or call.keywords for call in calls.values())


def _makes_overrides(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name == "Overrides"
