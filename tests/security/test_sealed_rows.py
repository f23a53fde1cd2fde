"""Whatever is done to a sealed column, nothing of it is told, and no decision follows from it (V03, V04)."""

from __future__ import annotations

import itertools

import pytest
import sqlalchemy as sa

from continuity.errors import ConflictError, DecryptionError, IntegrityError, VaultError
from continuity.store import schema
from tests.integration.governed import govern

CHECKED = ("continuity_workflows", "continuity_operations", "continuity_definitions", "continuity_receipts",
           "continuity_events", "continuity_partitions")  # fmt: skip
SENTINEL = "S3NT1NEL-of-the-argument"
WORK = ({"name": "publish", "tool": "files", "arguments": {"text": SENTINEL}},)


def sealed_columns():
    for table in schema.metadata.sorted_tables:
        for column in table.columns:
            if column.name.startswith("sealed_") or column.name == "wrapped_key":
                yield table, column


COLUMNS = [(table, column) for table, column in sealed_columns() if table.name in CHECKED]


@pytest.fixture
def at(sqlite_store, tmp_path):
    return govern(sqlite_store, tmp_path)


def uses(at, workflow_id, granted):
    """Everything that opens a workflow; each may refuse and none may tell."""
    return {
        "view": lambda: at.view(workflow_id),
        "begin": lambda: at.begin(workflow_id, "a9"),
        "report": lambda: at.report(workflow_id, granted),
        "abandon": lambda: at.abandon(workflow_id),
        "list": at.page,
    }


def refused(call):
    """Return the words of a refusal, None when there is none; anything else than a refusal of the product fails."""
    try:
        call()
    except DecryptionError as error:
        return error.message
    except (VaultError, ConflictError) as error:
        return type(error).__name__
    return None


def spoiled(value):
    """Return what may stand in the place of a sealed value."""
    for at in (0, 4, 5, 16, 17, len(value) // 2, len(value) - 1):
        yield value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
    for length in (1, 5, 17, 32, 33, len(value) - 1):
        yield value[:length]
    yield from (b"", value + b"\0", b"\0" + value, b'{"plain": true}', "text", 7, 1.5, None)


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=lambda each: each.name)
def test_whatever_stands_in_a_sealed_column_nothing_is_told_and_nothing_decided(at, table, column):
    workflow_id = at.create(operations=WORK)["workflow_id"]
    granted = at.begin(workflow_id)
    if table.name == "continuity_receipts":
        at.report(workflow_id, granted)
    mine = table.c.partition_id == workflow_id if table.name == "continuity_partitions" else sa.true()
    good = at.store.read(lambda c: c.execute(sa.select(column).where(mine)).scalars().first())
    if good is None:
        # Of a workflow that is no tombstone.
        assert column.name == "sealed_tombstone"
        return
    told = set()
    for wrong in spoiled(good):
        if not put(at, table, column, mine, wrong):
            continue
        before = at.everything()
        found = {use: refused(call) for use, call in uses(at, workflow_id, granted).items()}
        told |= {each for each in found.values() if each is not None}
        if table.name in {"continuity_workflows", "continuity_operations", "continuity_partitions"}:
            assert None not in (found["begin"], found["view"], found["report"], found["abandon"]), wrong
            assert at.everything() == before, wrong
        assert put(at, table, column, mine, good)
    assert "A sealed value could not be opened." in told
    assert told <= {"A sealed value could not be opened.", "IntegrityError", "ConflictError"}


def put(at, table, column, mine, value):
    """Write a value of any type, as SQLite lets anybody do; False where a constraint refuses it."""
    first = at.store.read(lambda c: c.execute(sa.select(*table.primary_key.columns).where(mine)).first())
    where = " AND ".join(f'"{key.name}" = ?' for key in table.primary_key.columns)
    statement = f'UPDATE "{table.name}" SET "{column.name}" = ? WHERE {where}'
    try:
        at.store.write(lambda c: c.exec_driver_sql(statement, (value, *first)).rowcount)
    except sa.exc.IntegrityError:
        return False
    return True


def test_no_sealed_value_opens_in_another_row_column_or_workflow(at):
    """Every pair of places that hold something, swapped in the database."""
    ids = [at.create(operations=WORK)["workflow_id"] for _ in range(2)]
    for workflow_id in ids:
        at.report(workflow_id, at.begin(workflow_id), note=SENTINEL)
    places = [
        (table, column, row)
        for table, column in COLUMNS
        for row in at.store.read(lambda c, t=table: c.execute(sa.select(*t.primary_key.columns)).all())
    ]
    values = {
        place: at.store.read(lambda c, p=place: c.execute(sa.select(p[1]).where(*keys(p))).scalar()) for place in places
    }
    filled = [place for place in places if values[place] is not None]
    pairs = [pair for number, pair in enumerate(itertools.combinations(filled, 2)) if number % 3 == 0]
    assert len(pairs) > 20
    for one, two in pairs:
        written = [write(at, one, values[two]), write(at, two, values[one])]
        for workflow_id in ids:
            shown = refused_view(at, workflow_id)
            if shown is not None:
                assert shown["operations"][0]["arguments"] == {"text": SENTINEL}
                assert shown["operations"][0]["receipt"]["note"] == SENTINEL
        assert all(written)
        assert [refused_view(at, workflow_id) for workflow_id in ids].count(None) >= 1, (one, two)
        write(at, one, values[one])
        write(at, two, values[two])
    assert all(refused_view(at, workflow_id) is not None for workflow_id in ids)


def keys(place):
    table, _, row = place
    return [column == value for column, value in zip(table.primary_key.columns, row, strict=True)]


def write(at, place, value):
    return at.damage(place[0], *keys(place), **{place[1].name: value}) == 1


def refused_view(at, workflow_id):
    try:
        return at.view(workflow_id)
    except (DecryptionError, IntegrityError):
        return None


def test_an_older_row_of_the_same_state_put_back_is_found(at):
    """Status and number of attempts are what they were: only the event that changed the row last differs (V05)."""
    operations = schema.operations
    workflow_id = at.create()["workflow_id"]
    granted = at.begin(workflow_id)
    old = at.home.rows(operations)[0]._mapping
    at.report(workflow_id, granted, "unknown")
    names = ("status", "attempt_count", "lease_until", "change_seq", "sealed_state")
    at.damage(operations, **{name: old[name] for name in names})

    before = at.everything()
    with pytest.raises(IntegrityError):
        at.begin(workflow_id, "a2")
    with pytest.raises(IntegrityError):
        at.report(workflow_id, granted)
    assert at.everything() == before
