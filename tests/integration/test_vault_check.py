"""`atmem vault check`: every sealed value is opened once, and whatever does not open is named."""

from __future__ import annotations

import json
import os

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from app import vault_checks
from app.cli import main
from app.vault_life import LOCAL
from continuity.errors import SealedError
from continuity.services import sealed_walk
from continuity.services.sealed_rows import SEALED
from continuity.services.sealed_walk import SealedWalk
from continuity.store import schema
from continuity.vault import ShredHead
from tests.entry import OVERRIDES
from tests.vaults import PASSPHRASE, made

BOTH = [pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.postgresql)]


@pytest.fixture(params=BOTH)
def place(tmp_path, request, instance_template):
    extra = {}
    if request.param == "postgresql":
        server = request.getfixturevalue("postgresql_server")
        extra["ATMEM_DATABASE_URL"] = server.url(server.create())
    with made(tmp_path / "instance", "file", extra=extra, template=instance_template) as place:
        yield place


@pytest.fixture
def sqlite_place(tmp_path, instance_template):
    with made(tmp_path / "instance", "file", template=instance_template) as place:
        yield place


def test_every_sealed_column_of_every_table_is_on_the_list():
    known = {(each.table.name, each.column.name) for each in SEALED}
    tables = schema.metadata.sorted_tables
    found = {(t.name, c.name) for t in tables for c in t.columns if c.name.startswith("sealed_")}

    assert known == found - {("continuity_vault", "sealed_canary")}
    assert len(SEALED) == len(known)


def walked(process, *, batch=2):
    return SealedWalk(process.built.store, process.built.vault, batch=batch).walk()


def damage(process, table, column, where, value):
    process.built.store.write(lambda c: c.execute(sa.update(table).where(where).values({column: value})).rowcount)


def test_a_sound_vault_is_walked_whole_in_small_steps(place):
    process = place.command()
    for number in range(5):
        process.create(f"work-{number}")

    found = walked(process)

    expected = sum(
        len(process.built.store.read(lambda c, each=each: c.execute(
            sa.select(each.column).where(each.column.is_not(None))
        ).all()))
        for each in SEALED
    )  # fmt: skip
    assert (found.unreadable, found.findings) == (0, [])
    assert found.data_keys == len(process.rows(schema.partitions))
    assert found.rows == expected >= 5 * 4


@pytest.mark.parametrize("table", ["workflows", "operations", "definitions", "events"])
def test_one_value_that_does_not_open_is_named_and_nothing_else(place, table):
    process = place.command()
    ids = [process.create(f"work-{number}") for number in range(3)]
    columns = {
        "workflows": schema.workflows.c.sealed_head, "operations": schema.operations.c.sealed_state,
        "definitions": schema.definitions.c.sealed_definition, "events": schema.events.c.sealed_event,
    }  # fmt: skip
    column = columns[table]
    pk = next(row.workflow_pk for row in process.rows(schema.workflows) if row.workflow_id == ids[1])
    damage(process, column.table, column.name, column.table.c.workflow_pk == pk, bytes(60))

    found = walked(process)

    assert [(each.partition_id, each.key_id, each.where) for each in found.findings] == [
        (ids[1], 1, f"continuity_{table}.{column.name}")
    ]
    assert found.unreadable == 1


def test_a_data_key_that_does_not_open_is_told_once_with_its_master_key(place):
    process = place.command()
    ids = [process.create(f"work-{number}") for number in range(3)]
    damage(process, schema.partitions, "wrapped_key", schema.partitions.c.partition_id == ids[0], bytes(65))
    damage(process, schema.partitions, "key_id", schema.partitions.c.partition_id == ids[2], 9)

    found = walked(process)

    assert {(each.partition_id, each.key_id, each.where) for each in found.findings} == {
        (ids[0], 1, "data key"), (ids[2], 9, "data key"),
    }  # fmt: skip
    assert len(found.findings) == 2
    # Head, state, definition and event of each are counted.
    assert found.unreadable == 2 + 2 * 4


def test_a_data_key_that_is_gone_is_told_by_its_rows(place):
    process = place.command()
    workflow_id = process.create("work")
    gone = schema.partitions.c.partition_id == workflow_id
    process.built.store.write(lambda c: c.execute(sa.delete(schema.partitions).where(gone)).rowcount)

    found = walked(process)

    assert {each.key_id for each in found.findings} == {None}
    assert {each.partition_id for each in found.findings} == {workflow_id}


def test_what_is_on_the_shred_list_must_not_open_and_is_no_finding(place):
    process = place.command()
    workflow_id = process.create("going")
    row = process.rows(schema.vault)[0]
    process.built.vault.shred(workflow_id, recorded=ShredHead(row.shred_length, row.shred_head))

    assert walked(process).findings == []


def test_who_reads_more_than_a_thousand_has_stopped_reading(sqlite_place, monkeypatch):
    monkeypatch.setattr(sealed_walk, "FINDINGS_AT_MOST", 2)
    process = sqlite_place.command()
    ids = [process.create(f"work-{number}") for number in range(4)]
    damage(process, schema.partitions, "wrapped_key", schema.partitions.c.partition_id.in_(ids), bytes(65))

    found = walked(process)

    assert (len(found.findings), found.unreadable) == (2, 4 + 4 * 4)


def test_a_locked_vault_is_not_walked(sqlite_place):
    process = sqlite_place.command()
    sqlite_place.command().life.lock(LOCAL, PASSPHRASE)

    # It still holds the keys; the flag counts.
    for use in (lambda: walked(process), lambda: vault_checks.check(sqlite_place.command().built, print)):
        with pytest.raises(SealedError):
            use()


class TestCommand:
    @staticmethod
    def run(place, *options):
        umask = os.umask(0o077)
        try:
            return CliRunner(env={"ATMEM_INSTANCE": str(place.settings.instance)}).invoke(
                main, ["vault", "check", *options], obj=OVERRIDES
            )
        finally:
            os.umask(umask)

    def test_a_sound_vault_ends_with_0(self, sqlite_place):
        sqlite_place.command().create("work")

        done = self.run(sqlite_place, "--json")

        assert done.exit_code == 0
        found = json.loads(done.stdout)
        assert (found["sound"], found["unreadable"], found["contradictions"]) == (True, 0, [])
        assert "All of them open" in self.run(sqlite_place).stdout

    def test_what_does_not_open_is_named_and_ends_with_1(self, sqlite_place):
        process = sqlite_place.command()
        workflow_id = process.create("work")
        damage(process, schema.partitions, "wrapped_key", schema.partitions.c.partition_id == workflow_id, bytes(65))

        as_json, for_people = self.run(sqlite_place, "--json"), self.run(sqlite_place)

        assert (as_json.exit_code, for_people.exit_code) == (1, 1)
        assert json.loads(as_json.stdout)["findings"] == [
            {"partition_id": workflow_id, "key_id": 1, "where": "data key"}
        ]
        assert f"Unreadable: {workflow_id} (master key 1), data key" in for_people.stderr

    def test_a_contradiction_beside_content_that_opens_is_named_too(self, sqlite_place):
        process = sqlite_place.command()
        workflow_id = process.create("work")
        damage(process, schema.workflows, "revision", schema.workflows.c.workflow_id == workflow_id, 7)

        done = self.run(sqlite_place, "--json")

        assert done.exit_code == 1
        assert [each["object_id"] for each in json.loads(done.stdout)["contradictions"]] == [workflow_id]
