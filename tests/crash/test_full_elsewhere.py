"""A full disk that is not the database's: log, publications, an exported head, what a person looks at (F05, G08)."""

from __future__ import annotations

import json
import resource
import uuid
from contextlib import contextmanager

import pytest

from continuity.client import ContinuityClient, RecoveryBlocked, Tool
from continuity.errors import UnavailableError
from continuity.publications import make_output, publish_operation
from continuity.tools import DirectoryPublisher
from tests.crash.disks import LimitedDisk, disk
from tests.crash.stage import NAME, Stage
from tests.crash.test_disk import atmem, staged_on


def lines_of(log):
    """Return what the log holds, and how many of its lines cannot be read."""
    found, broken = [], 0
    for line in log.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            broken += 1
    return found, broken


def test_work_goes_on_while_the_log_has_no_room_and_the_log_says_afterwards_how_much_it_lost(
    forks, instance_template, tmp_path
):
    with disk(tmp_path / "disk") as place:
        stage = Stage(forks, instance_template.copy_to(tmp_path / "instance"), tmp_path / "clock")
        stage.log = place.folder / "server.log"
        stage.clock_file.write_text("0")
        stage.start()
        try:
            stage.prepare()
            place.fill(stage.process)
            for _ in range(40):
                workflow_id = stage.case("none", tmp_path).workflow_id
                ids = {"run_id": f"r{uuid.uuid4().hex}", "attempt_id": f"a{uuid.uuid4().hex}"}
                grant = stage.operator.begin(workflow_id, NAME, **ids)
                receipt = {"outcome": "confirmed_succeeded", "operation_id": grant["operation_id"], "effect_id": "e",
                           "result": None}  # fmt: skip
                sent = {**ids, "lease_token": grant["lease_token"], "receipt": receipt}
                assert stage.operator.send_outcome(workflow_id, NAME, **sent)["accepted"] is True
            place.empty(stage.process)
            stage.operator.get_workflow(workflow_id)
            stage.operator.get_workflow(workflow_id)
            found, broken = lines_of(stage.log)
        finally:
            stage.stop()
        stage.log = tmp_path / "elsewhere.log"
        assert stage.problems() == []

    assert [line["lost"] for line in found if line["event"] == "log_lost"] == [pytest.approx(120, abs=40)]
    assert found[-1]["status"] == 200
    # The line that the disk had room for a piece of.
    assert broken <= 1


def test_a_publication_without_room_leaves_no_name_and_is_made_once_there_is_some(sqlite_stage, tmp_path):
    document = tmp_path / "page.txt"
    document.write_bytes(b"x" * 100_000)
    with disk(tmp_path / "disk") as place:
        operation = publish_operation(str(document), str(place.folder / "published"))
        make_output(operation)
        work = sqlite_stage.operator.create_workflow(f"publish-{uuid.uuid4().hex}", [operation], activate=True)
        publisher = DirectoryPublisher(place.folder / "published")
        tools = {operation["tool"]: Tool(execute=publisher.execute, query=publisher.query)}

        with ContinuityClient(sqlite_stage.url, sqlite_stage.token) as client:
            if isinstance(place, LimitedDisk):
                with no_file_may_grow(), pytest.raises(RecoveryBlocked):
                    client.run_operation(work["workflow_id"], operation["name"], tools)
            else:
                place.fill(0, but_bytes=20_000)
                with pytest.raises(RecoveryBlocked):
                    client.run_operation(work["workflow_id"], operation["name"], tools)
                place.empty(0)
            named = [path.name for path in (place.folder / "published").iterdir() if not path.name.startswith(".")]
            seen = sqlite_stage.operator.get_workflow(work["workflow_id"])["operations"][0]
            result = client.run_operation(work["workflow_id"], operation["name"], tools)

        assert named == []
        assert seen["attempts"][0]["outcome"] == "not_dispatched"
        assert seen["status"] == "pending"
        assert result["bytes"] == 100_000
        assert (place.folder / "published" / result["name"]).stat().st_size == 100_000


@contextmanager
def no_file_may_grow():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_where_a_look_cannot_be_recorded_nothing_is_shown(forks, instance_template, tmp_path):
    with disk(tmp_path / "disk") as place, staged_on(place, forks, instance_template, tmp_path) as stage:
        workflow_id = stage.case("none", tmp_path).workflow_id
        with stage.person() as person:
            shown = person.call("GET", f"/v1/continuity/{workflow_id}")
            place.fill(stage.process)
            with pytest.raises(UnavailableError) as refused:
                person.call("GET", f"/v1/continuity/{workflow_id}")
            # Not everybody's look is recorded: a credential reads on.
            by_credential = stage.operator.get_workflow(workflow_id)["workflow_id"]
            place.empty(stage.process)
            again = person.call("GET", f"/v1/continuity/{workflow_id}")

    assert shown["operations"][0]["arguments"] == again["operations"][0]["arguments"] == {"document": "a page"}
    assert "a page" not in str(refused.value)
    assert by_credential == workflow_id


def test_a_head_that_does_not_fit_leaves_no_file(instance_template, tmp_path):
    instance = instance_template.copy_to(tmp_path / "instance")
    with disk(tmp_path / "disk") as place:
        place.fill(0)
        output = place.folder / "checkpoint"
        status, said = atmem(
            instance.folder, "audit", "checkpoint", "--output", str(output), limit_bytes=place.file_limit(0)
        )
        is_left = output.exists()
        place.empty(0)
        again, _ = atmem(instance.folder, "audit", "checkpoint", "--output", str(output))

    assert (status, said.startswith("Error: "), is_left) == (1, True, False)
    assert again == 0
