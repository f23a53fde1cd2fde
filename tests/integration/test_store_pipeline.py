"""Statements of a unit on PostgreSQL share round trips, in their order, and fail as they would have alone."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from continuity.errors import UnavailableError
from continuity.store.compiled import Compiled
from continuity.store.pipeline import BEGIN, Pipeline, Statement
from continuity.store.schema import workspaces
from tests.integration.governed import govern

pytestmark = pytest.mark.postgresql

INSERT = Compiled(sa.insert(workspaces).values(name=sa.bindparam("name")))
NAMES = Compiled(sa.select(workspaces.c.name).order_by(workspaces.c.name))
ECHO = Statement(b"ECHO", b"SELECT $1::bigint, $2::varchar, $3::bytea, $4::boolean, $5::smallint")


@pytest.fixture
def exchanges(monkeypatch) -> list[int]:
    """How many statements went in each round trip."""
    counted: list[int] = []
    send = Pipeline._send

    def counting(self: Pipeline) -> None:
        counted.append(len(self._queue))
        send(self)

    monkeypatch.setattr(Pipeline, "_send", counting)
    return counted


def names(store) -> list[str]:
    return [row.name for row in store.read(lambda connection: NAMES.all(connection, {}))]


def test_what_is_only_sent_goes_with_commit(postgresql_store, exchanges):
    names(postgresql_store)
    exchanges.clear()

    def work(connection):
        NAMES.all(connection, {})
        INSERT.send(connection, {"name": "north"})
        INSERT.send(connection, {"name": "south"})

    postgresql_store.write(work)

    # BEGIN, the number and the SELECT; both INSERTs and COMMIT.
    assert exchanges == [3, 3]
    assert names(postgresql_store) == ["north", "south"]


def test_what_is_sent_is_seen_by_whatever_comes_behind_it(postgresql_store):
    def work(connection):
        INSERT.send(connection, {"name": "north"})
        first = [row.name for row in NAMES.all(connection, {})]
        INSERT.send(connection, {"name": "south"})
        return first, list(connection.execute(sa.select(workspaces.c.name).order_by(workspaces.c.name)).scalars())

    assert postgresql_store.write(work) == (["north"], ["north", "south"])
    assert names(postgresql_store) == ["north", "south"]


def test_what_was_sent_and_is_refused_comes_out_as_the_constraint_and_undoes_the_unit(postgresql_store):
    postgresql_store.write(lambda connection: INSERT.send(connection, {"name": "north"}))

    def work(connection):
        INSERT.send(connection, {"name": "south"})
        INSERT.send(connection, {"name": "north"})

    for _ in range(3):
        with pytest.raises(sa.exc.IntegrityError):
            postgresql_store.write(work)

    assert names(postgresql_store) == ["north"]


def test_a_transaction_whose_failure_was_swallowed_is_never_reported_as_committed(postgresql_store):
    def work(connection):
        INSERT.run(connection, {"name": "north"})
        with pytest.raises(sa.exc.IntegrityError):
            INSERT.run(connection, {"name": "north"})

    with pytest.raises(UnavailableError):
        postgresql_store.write(work)

    assert names(postgresql_store) == []


def test_a_unit_that_raises_sends_nothing_of_what_waits(postgresql_store, exchanges):
    def work(connection):
        INSERT.send(connection, {"name": "north"})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        postgresql_store.write(work)

    assert names(postgresql_store) == []


def test_statements_stay_prepared_over_units_reads_and_failures(postgresql_store):
    def prepared(connection) -> list[str]:
        return list(
            connection.execute(sa.text("SELECT statement FROM pg_prepared_statements WHERE NOT from_sql")).scalars()
        )

    names(postgresql_store)
    with pytest.raises(KeyboardInterrupt):
        postgresql_store.write(_interrupt)
    names(postgresql_store)

    assert sum("continuity_workspaces" in text for text in postgresql_store.read(prepared)) == 1


def _interrupt(connection) -> None:
    NAMES.all(connection, {})
    raise KeyboardInterrupt


def test_begin_and_outcome_take_three_round_trips_and_a_look_one(postgresql_store, tmp_path: Path, exchanges):
    governed = govern(postgresql_store, tmp_path, database_time=True)
    governed.finished()
    workflow_id = governed.create()["workflow_id"]
    exchanges.clear()

    granted = governed.begin(workflow_id)
    assert len(exchanges) == 3
    governed.report(workflow_id, granted)
    assert len(exchanges) == 6
    postgresql_store.autocommit(lambda connection: NAMES.all(connection, {}))
    assert exchanges[6:] == [1]


@pytest.fixture
def pipeline(postgresql_server):
    with psycopg.connect(postgresql_server.migrated(), autocommit=True) as driver:
        yield Pipeline(driver)


@pytest.mark.parametrize(
    "values",
    [(2**62, "né", b"\0\xff", True, -3), (-1, "", b"", False, 0), (None, None, None, None, None)],
)
def test_values_come_back_as_they_were(pipeline, values):
    for _ in range(2):
        pipeline.add(ECHO, values)
        assert pipeline.rows() == [list(values)]


def test_a_nul_in_a_text_is_refused_and_not_cut_off(pipeline):
    pipeline.add(ECHO, (1, "a\0b", b"", True, 1))

    with pytest.raises(psycopg.DataError):
        pipeline.rows()


@pytest.mark.parametrize("value", [1.5, object(), [1]])
def test_a_value_of_another_kind_is_refused_and_the_connection_not_used_again(pipeline, value):
    pipeline.add(ECHO, (value, "", b"", True, 1))

    with pytest.raises(TypeError):
        pipeline.rows()

    assert pipeline.is_lost


def test_a_column_of_another_type_is_refused(pipeline):
    pipeline.add(Statement(b"FLOAT", b"SELECT 1.5::float8"))

    with pytest.raises(TypeError):
        pipeline.rows()


def test_what_follows_a_failure_is_not_run_and_the_connection_goes_on(pipeline):
    pipeline.add(BEGIN)
    pipeline.add(Statement(b"WRONG", b"SELECT 1 / 0"))
    pipeline.add(Statement(b"MADE", b"CREATE TABLE made (a int)"))
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipeline.commit()
    pipeline.roll_back()

    pipeline.add(Statement(b"LOOK", b"SELECT to_regclass('made')::text"))
    assert pipeline.rows() == [[None]]
