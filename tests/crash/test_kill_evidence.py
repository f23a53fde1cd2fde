"""Deleting evidence, killed at every step; and what no file of the database holds afterwards (V18, V22, F23)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa

from app import wiring
from app.config import load_settings
from continuity.errors import ConflictError, DecryptionError
from continuity.evidence import RecordEvidence, SearchEvidence
from continuity.services.callers import CallerKind, Role
from continuity.store import schema
from tests.crash.forks import Forks
from tests.crash.test_kill_commands import points
from tests.entry import OVERRIDES
from tests.servers import environment
from tests.web.matrix import EVIDENCE
from tests.web.scenes import Stage
from tests.web.site import site_on

SENTINEL = "sentinelwordofevidence"


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    forks = Forks("tests.crash.making")
    yield forks
    forks.close()


def record(services, host, run, count):
    """Record some events of a run; return its evidence_id."""
    for number in range(count):
        body = {**EVIDENCE, "run_id": run, "event_id": f"{run}-{number}", "content": f"{SENTINEL} {run} {number}"}
        reply = services.evidence.record(host, RecordEvidence.from_json(body))
    return reply["evidence_id"]


@pytest.fixture(scope="module")
def whole(instance_template, tmp_path_factory):
    """An instance with two runs of evidence."""
    instance = instance_template.copy_to(tmp_path_factory.mktemp("evidence") / "instance")
    with site_on(instance.folder) as site:
        host = Stage(site).host
        return (
            instance, host, record(site.wiring.services, host, "gone", 5),
            record(site.wiring.services, host, "stays", 2),
        )  # fmt: skip


def killed(forks, folder, evidence_id, *, last):
    report = folder.with_name(f"{folder.name}.report")
    process = forks.start(
        "evidence_deletion", log=report.with_suffix(".log"), evidence_id=evidence_id, environment=environment(folder),
        report=str(report), last=last,
    )  # fmt: skip
    return forks.wait(process), report


@pytest.mark.parametrize("most", [pytest.param(16, id="some"), pytest.param(10_000, id="all", marks=pytest.mark.soak)])
def test_a_deletion_that_was_killed_at_any_step_is_finished_by_the_next_start(forks, whole, tmp_path, most):
    instance, host, gone, stays = whole
    status, report = killed(forks, instance.copy_to(tmp_path / "counted").folder, gone, last=0)
    assert status == 0
    begun = 0

    for at in points(int(report.read_text()), most=most):
        folder = instance.copy_to(tmp_path / f"killed-{at}").folder
        assert killed(forks, folder, gone, last=at)[0] == -9, at
        with wiring.built(load_settings({"ATMEM_INSTANCE": str(folder)}), overrides=OVERRIDES) as built:
            deletions = built.services.evidence_deletions
            finished = deletions.finish_all()
            assert deletions.finish_all() == 0
            begun += finished
            if is_there(built, gone):
                # Nothing had been begun: a second try does it.
                assert deletions.delete(administrator(host), gone)["records"] == 5
            check_gone(built, host, gone, at)
            assert built.services.evidence_reading.run(host, stays)["is_whole"], at

    # Some of the steps lie after the first transaction and before the last one.
    assert begun >= 3


def administrator(host):
    return replace(host, kind=CallerKind.PERSON, role=Role.ADMINISTRATOR, actor="user:1")


def is_there(built, evidence_id):
    runs = schema.evidence_runs
    wanted = sa.select(runs.c.deleted_at).where(runs.c.evidence_id == evidence_id)
    return built.store.read(lambda connection: connection.execute(wanted).scalar_one()) is None


def check_gone(built, host, evidence_id, at):
    partitions = schema.partitions
    wanted = sa.select(partitions.c.wrapped_key).where(partitions.c.partition_id == evidence_id)
    assert built.store.read(lambda connection: connection.execute(wanted).scalar_one()) is None, at
    assert built.vault.has_shredded(evidence_id), at
    with pytest.raises(ConflictError, match="deleted"):
        built.services.evidence_reading.run(host, evidence_id)
    with pytest.raises(ConflictError, match="deleted"):
        record(built.services, host, "gone", 1)
    with pytest.raises(DecryptionError):
        built.vault.open_partition(evidence_id, b"\x01" * 65, key_id=1)
    listed = built.services.evidence_search.page(host, SearchEvidence(search=SENTINEL))["records"]
    assert {each["run_id"] for each in listed} == {"stays"}, at
    counts = [sa.select(sa.func.count()).select_from(table) for table in (schema.evidence, schema.evidence_contents)]
    assert [built.store.read(lambda connection, count=count: connection.execute(count).scalar_one())
            for count in counts] == [2, 2], at  # fmt: skip


def files_of(folder):
    """Return every file of the instance: database, -wal, temporary files, keys, notes."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_nothing_that_was_deleted_is_in_any_file(whole, tmp_path):
    instance, host, gone, _ = whole
    folder = instance.copy_to(tmp_path / "instance").folder
    with wiring.built(load_settings({"ATMEM_INSTANCE": str(folder)}), overrides=OVERRIDES) as built:
        runs, records, contents = schema.evidence_runs, schema.evidence, schema.evidence_contents
        of_it = sa.select(runs.c.run_pk).where(runs.c.evidence_id == gone).scalar_subquery()
        inside = sa.select(records.c.evidence_pk).where(records.c.run_pk == of_it)
        queries = [
            sa.select(runs.c.sealed_head).where(runs.c.evidence_id == gone),
            sa.select(schema.partitions.c.wrapped_key).where(schema.partitions.c.partition_id == gone),
            sa.select(records.c.sealed_record).where(records.c.run_pk == of_it),
            sa.select(records.c.event_ix).where(records.c.run_pk == of_it),
            sa.select(contents.c.sealed_content).where(contents.c.evidence_pk.in_(inside)),
        ]
        sealed = built.store.read(
            lambda connection: [bytes(value) for query in queries for value in connection.execute(query).scalars()]
        )
        assert len(sealed) == 17
        before = files_of(folder)
        assert all(value in before for value in sealed)
        assert SENTINEL.encode() not in before

        built.services.evidence_deletions.delete(administrator(host), gone)

        left = files_of(folder)
        assert [len(value) for value in sealed if value in left] == []
        assert SENTINEL.encode() not in left
