"""Statements on the driver's own cursor behave as SQLAlchemy's: values, errors, listeners, both databases."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from continuity.store.compiled import Compiled
from continuity.store.schema import owners, receipts

RECEIPT = {
    "workflow_pk": 1, "ordinal": 2, "seq": -3, "attempt_no": 4, "received_at": 2**50, "sealed_receipt": b"\x00\xff",
}  # fmt: skip
INSERT = Compiled(sa.insert(receipts))
SELECT = Compiled(sa.select(receipts).where(receipts.c.workflow_pk == sa.bindparam("workflow_pk")))


def insert(store) -> int:
    return store.write(lambda connection: INSERT.run(connection, RECEIPT))


def found(store) -> list:
    return store.autocommit(lambda connection: SELECT.all(connection, {"workflow_pk": 1}))


def test_what_was_written_is_read_by_name(store):
    assert insert(store) == 1

    (row,) = found(store)

    assert row._asdict() == RECEIPT
    assert store.read(lambda connection: SELECT.one_or_none(connection, {"workflow_pk": 9})) is None


def test_a_statement_without_parameters_is_run(store):
    insert(store)
    count = Compiled(sa.select(sa.func.count().label("n")).select_from(receipts))

    assert [row.n for row in store.autocommit(lambda connection: count.all(connection, {}))] == [1]


def test_a_constraint_is_the_same_error_and_undoes_the_unit(store):
    insert(store)

    def twice(connection):
        INSERT.run(connection, {**RECEIPT, "seq": 5})
        INSERT.run(connection, RECEIPT)

    with pytest.raises(sa.exc.IntegrityError) as caught:
        store.write(twice)
    assert "sealed" not in str(caught.value.params)
    assert len(found(store)) == 1


def test_whoever_listens_hears_them(store):
    heard = []
    sa.event.listen(store.engine, "before_cursor_execute", lambda *told: heard.append(told[2]))

    insert(store)

    assert [text.split()[0] for text in heard if "PRAGMA" not in text] == ["INSERT"]
    assert found(store)[0]._asdict() == RECEIPT


def test_an_update_says_how_many_rows_it_met(store):
    update = Compiled(sa.update(owners).where(owners.c.owner_pk == sa.bindparam("pk")).values(unfinished=1))
    store.write(lambda connection: connection.execute(
        sa.insert(owners).values(owner_pk=7, kind="operators", principal_ix=bytes(32))
    ).rowcount)  # fmt: skip

    assert store.write(lambda connection: update.run(connection, {"pk": 7})) == 1
    assert store.write(lambda connection: update.run(connection, {"pk": 8})) == 0


def test_it_is_one_unit_with_what_goes_through_sqlalchemy(store):
    def both(connection):
        INSERT.run(connection, RECEIPT)
        connection.execute(sa.insert(receipts), {**RECEIPT, "seq": 5})
        INSERT.run(connection, {**RECEIPT, "seq": 6})

    def both_and_fail(connection):
        INSERT.run(connection, {**RECEIPT, "seq": 7})
        connection.execute(sa.insert(receipts), {**RECEIPT, "seq": 8})
        raise KeyboardInterrupt

    store.write(both)
    with pytest.raises(KeyboardInterrupt):
        store.write(both_and_fail)

    assert sorted(row.seq for row in found(store)) == [-3, 5, 6]


def test_what_it_wrote_alone_is_undone_by_a_failure(store):
    def fail(connection):
        INSERT.run(connection, RECEIPT)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write(fail)

    assert found(store) == []
    assert insert(store) == 1
