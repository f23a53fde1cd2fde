"""After a deletion the sealed bytes and the key that opens them are in no file of the database."""

from __future__ import annotations

import sqlalchemy as sa

from continuity.store import schema
from continuity.store.engine import make_engine


def database_files(stage):
    folder = stage.instance.folder
    return b"".join(path.read_bytes() for path in sorted(folder.glob("continuity.db*")) if path.suffix != ".db-shm")


def sealed_bytes(stage, workflow_id):
    """Return what only this workflow has: its wrapped key and its sealed columns."""
    engine = make_engine(f"sqlite:///{stage.instance.folder / 'continuity.db'}", pool_size=1)
    of_it = schema.workflows.c.workflow_id == workflow_id
    inside = sa.select(schema.workflows.c.workflow_pk).where(of_it).scalar_subquery()
    queries = [
        sa.select(schema.partitions.c.wrapped_key).where(schema.partitions.c.partition_id == workflow_id),
        sa.select(schema.workflows.c.sealed_head).where(of_it),
        *(
            sa.select(column).where(column.table.c.workflow_pk == inside)
            for column in (
                schema.operations.c.sealed_state, schema.definitions.c.sealed_definition,
                schema.receipts.c.sealed_receipt, schema.events.c.sealed_event,
            )
        ),
    ]  # fmt: skip
    with engine.connect() as connection:
        found = [bytes(row[0]) for query in queries for row in connection.execute(query)]
    engine.dispose()
    assert len(found) >= len(queries)
    return found


def test_the_key_and_the_sealed_bytes_of_deleted_work_are_gone_from_every_file(sqlite_stage, tmp_path):
    case = sqlite_stage.case("none", tmp_path)
    assert case.run()["end"] == "result"
    sealed = sealed_bytes(sqlite_stage, case.workflow_id)
    assert all(value in database_files(sqlite_stage) for value in sealed)

    with sqlite_stage.person() as person:
        body = {"run_id": case.workflow_id, "confirmation": case.workflow_id}
        person.call("POST", "/v1/evidence/delete", body)

    left = database_files(sqlite_stage)
    assert [len(value) for value in sealed if value in left] == []
