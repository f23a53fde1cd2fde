"""Migrations go up, down and up, one transaction a step, whatever interrupts them and whoever else runs them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from app import migrating, revisions
from app.auth.schema import metadata as auth_metadata
from continuity.store import sqlite
from continuity.store.engine import make_engine
from continuity.store.schema import NAMING
from continuity.store.schema import metadata as continuity_metadata
from observations.schema import metadata as observations_metadata
from tests.patience import PATIENCE_S

ROOT = revisions.MIGRATIONS.parent
METADATA = [continuity_metadata, auth_metadata, observations_metadata]

REVISION = '''"""A step of the tests."""
import os, pathlib, time
import sqlalchemy as sa
from alembic import op

revision = {revision!r}
down_revision = {down_revision!r}


def meet(folder):
    pathlib.Path(folder, "inside").touch()
    while not pathlib.Path(folder, "leave").exists():
        time.sleep(0.01)


def upgrade():
    op.create_table("continuity_step_{revision}", sa.Column("id", sa.Integer, primary_key=True))
    {then}


def downgrade():
    op.drop_table("continuity_step_{revision}")
'''


@pytest.fixture
def engine(empty_database: str):
    engine = make_engine(empty_database, pool_size=2)
    yield engine
    engine.dispose()


@pytest.fixture
def steps(tmp_path: Path):
    """A folder of migrations that grows with the test: `steps(revision, then)` adds one revision."""
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    shutil.copy(revisions.MIGRATIONS / "env.py", folder)
    last: list[str | None] = [None]

    def add(revision: str, then: str = "pass"):
        text = REVISION.format(revision=revision, down_revision=last[-1], then=then)
        (folder / "versions" / f"{revision}.py").write_text(text)
        last.append(revision)
        return migrating.configuration(folder)

    return add


def tables(engine: sa.Engine) -> set[str]:
    with engine.connect() as connection:
        return set(sa.inspect(connection).get_table_names())


def wait_for(path: Path) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < give_up, path
        time.sleep(0.01)


def downgrade(engine: sa.Engine) -> None:
    config = migrating.configuration()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")


def run_upgrade(url: str, folder: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    program = (
        "import sys, pathlib; from app import migrating; from continuity.store.engine import make_engine;"
        "config = migrating.configuration(pathlib.Path(sys.argv[2])); print('started', flush=True);"
        "print(','.join(migrating.upgrade(make_engine(sys.argv[1], pool_size=1), config)))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, url, str(folder or revisions.MIGRATIONS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


class TestRevisions:
    def test_up_down_and_up_again(self, engine: sa.Engine):
        first = migrating.upgrade(engine)
        made = tables(engine)
        downgrade(engine)
        left = tables(engine)
        again = migrating.upgrade(engine)

        assert first == again
        assert first[-1] == migrating.head() == migrating.current(engine)
        assert left == {"alembic_version"}
        assert tables(engine) == made

    def test_they_make_the_tables_that_the_program_describes(self, engine: sa.Engine):
        migrating.upgrade(engine)

        assert migrating.differences(engine) == []

    def test_a_table_that_was_changed_by_hand_is_found(self, engine: sa.Engine):
        migrating.upgrade(engine)
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP INDEX ix_continuity_workflows_phase_workflow_pk")
            connection.exec_driver_sql("ALTER TABLE continuity_vault ADD COLUMN extra INTEGER")

        assert {difference[0] for difference in migrating.differences(engine)} == {"add_index", "remove_column"}

    def test_constraints_and_their_names_are_those_that_the_program_describes(self, engine: sa.Engine):
        migrating.upgrade(engine)
        migrated = constraints(engine)
        downgrade(engine)
        with engine.begin() as connection:
            for metadata in METADATA:
                metadata.create_all(connection)

        assert migrated == constraints(engine)

    def test_every_package_names_constraints_alike_and_marks_its_tables(self):
        assert [dict(metadata.naming_convention) for metadata in METADATA] == [NAMING] * len(METADATA)
        prefixes = [{name.partition("_")[0] for name in metadata.tables} for metadata in METADATA]
        assert prefixes == [{"continuity"}, {"auth"}, {"observations"}]

    def test_no_table_is_left_out_of_the_description(self, engine: sa.Engine):
        migrating.upgrade(engine)

        described = {name for metadata in METADATA for name in metadata.tables}
        assert tables(engine) == described | {"alembic_version"}

    def test_the_head_file_names_the_newest_revision(self):
        newest = (revisions.MIGRATIONS / ".current-alembic-head").read_text().strip()

        assert newest.partition("_")[0] == migrating.head()
        assert max((revisions.MIGRATIONS / "versions").glob("*.py")).stem == newest

    def test_revisions_are_free_of_our_own_modules(self):
        for path in (revisions.MIGRATIONS / "versions").glob("*.py"):
            imports = [line for line in path.read_text().splitlines() if line.startswith(("import ", "from "))]
            assert imports == ["import sqlalchemy as sa", "from alembic import op"], path.name


def constraints(engine: sa.Engine) -> dict[str, object]:
    with engine.connect() as connection:
        inspector = sa.inspect(connection)
        return {
            table: (
                sorted((check["name"], check["sqltext"]) for check in inspector.get_check_constraints(table)),
                sorted((unique["name"], unique["column_names"]) for unique in inspector.get_unique_constraints(table)),
                sorted((index["name"], index["column_names"]) for index in inspector.get_indexes(table)),
                inspector.get_pk_constraint(table),
                [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in inspector.get_columns(table)],
                inspector.get_table_options(table),
            )
            for table in inspector.get_table_names()
            if table != "alembic_version"
        }


class TestStart:
    def test_an_empty_database_is_refused_with_the_command_that_helps(self, engine: sa.Engine):
        if engine.dialect.name == "sqlite":
            sqlite.create_file(Path(engine.url.database))

        with pytest.raises(revisions.SchemaTooOldError, match="atmem init"):
            migrating.check(engine)

        assert tables(engine) == set()

    def test_a_migrated_database_is_accepted(self, engine: sa.Engine):
        migrating.upgrade(engine)

        migrating.check(engine)
        assert migrating.upgrade(engine) == []

    def test_a_database_of_a_newer_program_is_neither_used_nor_changed(self, engine: sa.Engine):
        migrating.upgrade(engine)
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        before = tables(engine)

        for refuse in (migrating.check, migrating.upgrade):
            with pytest.raises(revisions.SchemaTooNewError, match="newer program"):
                refuse(engine)

        assert (tables(engine), migrating.current(engine)) == (before, "9999")


class TestSteps:
    def test_a_step_that_fails_leaves_the_database_at_the_step_before(self, engine: sa.Engine, steps):
        steps("0001")
        config = steps("0002", then="raise RuntimeError('disk')")

        with pytest.raises(RuntimeError, match="disk"):
            migrating.upgrade(engine, config)

        assert migrating.current(engine) == "0001"
        assert tables(engine) == {"alembic_version", "continuity_step_0001"}

    def test_a_process_that_dies_in_a_step_leaves_nothing_of_it_and_the_next_finishes(
        self, engine: sa.Engine, empty_database: str, steps, tmp_path: Path
    ):
        steps("0001")
        config = steps("0002", then="os.environ.get('DIE') and os.kill(os.getpid(), 9)")

        process = run_upgrade(empty_database, tmp_path / "migrations", DIE="1")
        process.communicate(timeout=PATIENCE_S)

        assert process.returncode == -9
        assert tables(engine) == {"alembic_version", "continuity_step_0001"}
        assert migrating.upgrade(engine, config) == ["0002"]
        assert tables(engine) == {"alembic_version", "continuity_step_0001", "continuity_step_0002"}

    def test_a_process_waits_for_the_step_of_another_and_does_not_repeat_it(
        self, engine: sa.Engine, empty_database: str, steps, tmp_path: Path
    ):
        inside, leave = tmp_path / "inside", tmp_path / "leave"
        steps("0001", then=f"meet({str(tmp_path)!r})")
        steps("0002")
        first = run_upgrade(empty_database, tmp_path / "migrations")
        wait_for(inside)

        second = run_upgrade(empty_database, tmp_path / "migrations")
        assert second.stdout.readline() == "started\n"
        time.sleep(0.5)
        assert second.poll() is None
        leave.touch()
        outputs = [process.communicate(timeout=PATIENCE_S) for process in (first, second)]

        assert [first.returncode, second.returncode] == [0, 0], outputs
        done = [step for output, _ in outputs for step in output.splitlines()[-1].split(",")]
        assert sorted(step for step in done if step.isdigit()) == ["0001", "0002"]
        assert migrating.current(engine) == "0002"


class TestCopyBeforeTheFirstStep:
    @pytest.fixture
    def engine(self, tmp_path: Path):
        engine = make_engine(f"sqlite:///{tmp_path / 'atmem.db'}", pool_size=2)
        yield engine
        engine.dispose()

    def test_a_new_database_is_not_copied(self, engine: sa.Engine, steps, tmp_path: Path):
        steps("0001")
        migrating.upgrade(engine, steps("0002"))

        assert list(tmp_path.glob("atmem.db.before-*")) == []

    def test_one_that_holds_something_is(self, engine: sa.Engine, steps, tmp_path: Path):
        migrating.upgrade(engine, steps("0001"))
        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO continuity_step_0001 VALUES (7)")

        migrating.upgrade(engine, steps("0002"))

        [copy] = tmp_path.glob("atmem.db.before-*")
        assert copy.name == "atmem.db.before-0002"
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        kept = make_engine(f"sqlite:///{copy}", pool_size=1)
        with kept.connect() as connection:
            assert connection.exec_driver_sql("SELECT id FROM continuity_step_0001").scalar_one() == 7
        assert migrating.current(kept) == "0001"
        kept.dispose()

    def test_a_copy_is_not_replaced_by_a_later_try(self, engine: sa.Engine, steps, tmp_path: Path):
        migrating.upgrade(engine, steps("0001"))
        (tmp_path / "atmem.db.before-0002").write_bytes(b"the first try's")

        migrating.upgrade(engine, steps("0002"))

        assert (tmp_path / "atmem.db.before-0002").read_bytes() == b"the first try's"

    def test_what_a_killed_try_has_left_of_its_copy_is_removed(self, engine: sa.Engine, steps, tmp_path: Path):
        migrating.upgrade(engine, steps("0001"))
        (tmp_path / "atmem.db.before-0002.4711").write_bytes(b"half")

        migrating.upgrade(engine, steps("0002"))

        assert [path.name for path in tmp_path.glob("atmem.db.before-*")] == ["atmem.db.before-0002"]

    def test_nothing_is_copied_when_there_is_nothing_to_do(self, engine: sa.Engine, steps, tmp_path: Path):
        config = steps("0001")
        migrating.upgrade(engine, config)

        migrating.upgrade(engine, config)

        assert list(tmp_path.glob("atmem.db.before-*")) == []
