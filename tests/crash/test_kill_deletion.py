"""A deletion, killed wherever it is: the next start finishes it, and what it destroyed is not readable (V18, F23)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from app import wiring
from app.config import load_settings
from continuity.errors import ConflictError, DecryptionError, NotFoundError
from continuity.services.checking import Checker
from continuity.store import schema
from continuity.wire import CreateWorkflow
from tests.crash.forks import Forks
from tests.crash.test_kill_commands import points
from tests.entry import OVERRIDES
from tests.servers import environment
from tests.web.scenes import MAIL, QUERY, Stage
from tests.web.site import site_on

POINTS = 16


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    forks = Forks("tests.crash.making")
    yield forks
    forks.close()


@pytest.fixture(scope="module")
def whole(instance_template, tmp_path_factory):
    """An instance with finished work in it, and some that goes on."""
    instance = instance_template.copy_to(tmp_path_factory.mktemp("deletion") / "instance")
    with site_on(instance.folder) as site:
        stage = Stage(site)
        done = stage.mail("done", **QUERY)
        done.begin().report("confirmed_succeeded", effect_id="e-1", result=None)
        open_one = stage.mail("open")
        open_one.begin()
        return instance, stage.host, done.workflow_id, open_one.workflow_id


def killed(forks, folder, workflow_id, *, last):
    report = folder.with_name(f"{folder.name}.report")
    process = forks.start(
        "deletion", log=report.with_suffix(".log"), workflow_id=workflow_id, environment=environment(folder),
        report=str(report), last=last,
    )  # fmt: skip
    return forks.wait(process), report


def test_a_deletion_that_was_killed_anywhere_is_finished_by_the_next_start(forks, whole, tmp_path):
    instance, host, done, open_one = whole
    status, report = killed(forks, instance.copy_to(tmp_path / "counted").folder, done, last=0)
    assert status == 0
    begun = 0

    for at in points(int(report.read_text()), most=POINTS):
        folder = instance.copy_to(tmp_path / f"killed-{at}").folder
        assert killed(forks, folder, done, last=at)[0] == -9, at
        with wiring.built(load_settings({"ATMEM_INSTANCE": str(folder)}), overrides=OVERRIDES) as built:
            finished = built.services.deletions.finish_all()
            assert built.services.deletions.finish_all() == 0
            begun += finished
            if is_whole(built, done):
                # Nothing had been begun: a second try does it.
                assert built.services.deletions.delete(host, done)["workflows"] == 1
            check_deleted(built, host, done, at)
            assert built.services.workflows.view(host, open_one)["operations"][0]["status"] == "uncertain"

    # Some of the points lie after the first transaction and before the last one.
    assert begun >= POINTS // 4


def is_whole(built, workflow_id):
    row = sa.select(schema.workflows.c.deleted_at).where(schema.workflows.c.workflow_id == workflow_id)
    return built.store.read(lambda connection: connection.execute(row).scalar_one()) is None


def check_deleted(built, host, workflow_id, at):
    partitions = schema.partitions
    wanted = sa.select(partitions).where(partitions.c.partition_id == workflow_id)
    partition = built.store.read(lambda connection: connection.execute(wanted).one_or_none())
    assert partition is None or partition.wrapped_key is None, at
    assert built.vault.has_shredded(workflow_id), at
    with pytest.raises((ConflictError, NotFoundError)):
        built.services.workflows.view(host, workflow_id)
    with pytest.raises(ConflictError, match="deleted"):
        built.services.workflows.create(host, CreateWorkflow.from_json({"workflow_key": "done", "operations": [MAIL]}))
    with pytest.raises(DecryptionError):
        built.vault.open_partition(workflow_id, b"\x01" * 65, key_id=1)
    assert Checker(built.store, built.services.attempts.ledger).check() == [], at
