"""From SQLite to PostgreSQL: everything is there and goes on, whatever happened on the way, and the source stays."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from app import databases, instance, moving, renewals, wiring
from app.backup_contents import tables
from app.cli import main
from app.renewals import Who
from app.vault_life import LOCAL
from continuity.errors import ConflictError, RolledBackError, UnavailableError
from continuity.store import schema, sqlite
from tests.entry import OVERRIDES
from tests.restoring import Place, begin, create, every_row_opens, finished, operator, report, view
from tests.servers import ROOT, environment, initialised

pytestmark = pytest.mark.postgresql


@pytest.fixture
def place(fresh_instance):
    return Place(fresh_instance.folder)


@pytest.fixture
def target(postgresql_server):
    name = postgresql_server.create()
    yield postgresql_server.url(name)
    postgresql_server.drop(name)


def moved_to(place, target):
    return Place(place.folder, {"ATMEM_DATABASE_URL": target})


def move(place, target):
    return moving.move(place.settings, target, tell=lambda *_step: None)


def mover(place, target, step):
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.crash.mover", target, str(step)], cwd=ROOT,
        env=environment(place.folder), text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip


def steps(place, postgresql_server):
    """Return how many commits a whole move of the instance takes."""
    other = postgresql_server.create()
    count = int(mover(place, postgresql_server.url(other), -1).stdout.split()[0])
    postgresql_server.drop(other)
    instance.drop_note(place.settings, instance.MOVED)
    return count


def everything(place):
    """Return all rows of all tables, sorted by what they hold."""
    with databases.opened(place.settings) as store:
        return {
            table.name: sorted(store.read(lambda at, table=table: at.execute(sa.select(table)).all()), key=repr)
            for table in tables()
        }


def accept(place):
    keys = wiring.key_provider(place.settings)
    now_us = wiring.SystemClock().now_us()
    renewals.accept(place.settings, who=Who(), keys=keys, now_us=now_us, auth=OVERRIDES.auth)
    assert wiring.follow_restore(place.settings, keys=keys, overrides=OVERRIDES) is None


def work(place):
    with place.wired() as built:
        done, gone = finished(built, "done"), finished(built, "gone")
        lost = create(built, "lost")["workflow_id"]
        granted = begin(built, lost)
        built.services.deletions.delete(operator(built), gone)
    return done, gone, lost, granted


def test_everything_is_there_and_work_goes_on_where_it_was(place, target):
    done, gone, lost, granted = work(place)
    before = everything(place)

    moved = move(place, target)

    there = moved_to(place, target)
    assert everything(there) == before
    assert moved.rows == moved.written == sum(len(rows) for rows in before.values())
    with there.wired() as built:
        assert view(built, done)["operations"][0]["status"] == "completed"
        assert begin(built, done)["action"] == "completed"
        with pytest.raises(ConflictError):
            view(built, gone)
        # What was granted on SQLite is reported on PostgreSQL, and is not granted again.
        assert begin(built, lost, "again")["action"] != "execute"
        report(built, lost, granted)
        assert view(built, lost)["operations"][0]["status"] == "completed"
        assert create(built, "done")["workflow_id"] == done
        assert finished(built, "new") not in {done, gone, lost}
        every_row_opens(built)


def test_nothing_is_served_from_the_old_database_until_somebody_says_that_it_is_meant(place, target):
    work(place)
    move(place, target)

    with pytest.raises(instance.InstanceError, match="this vault was moved to postgresql://"), place.wired():
        pass
    with moved_to(place, target).wired() as built:
        built.services.deletions.delete(operator(built), finished(built, "new"))
        built.audits.anchors.keep()

    accept(place)
    with place.wired() as built:
        every_row_opens(built)


def test_the_anchor_refuses_the_old_database_as_well(place, target):
    work(place)
    move(place, target)
    with moved_to(place, target).wired() as built:
        built.services.deletions.delete(operator(built), finished(built, "new"))
        built.audits.anchors.keep()
    instance.drop_note(place.settings, instance.MOVED)

    with pytest.raises(RolledBackError), place.wired():
        pass


def test_a_move_that_is_killed_at_any_step_is_in_use_by_nobody_and_goes_on(place, target):
    work(place)
    before = everything(place)
    there = moved_to(place, target)

    # Each goes on where the last one was killed, so that few steps are left in the end.
    for step in (0, 1, 4, 9, 2, 6):
        killed = mover(place, target, step)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        with pytest.raises(UnavailableError, match=r"migrate-to again|is empty"), there.wired():
            pass
        upgraded = CliRunner(env={"ATMEM_INSTANCE": str(place.folder), "ATMEM_DATABASE_URL": target}).invoke(
            main, ["db", "upgrade"], obj=OVERRIDES
        )
        assert upgraded.exit_code == 1, upgraded.output

    assert (last := mover(place, target, -1)).returncode == 0, last.stderr
    assert everything(there) == before


def test_killed_before_the_commit_that_ends_it_a_move_leaves_neither_database_in_use_and_can_be_ended(
    place, target, postgresql_server
):
    work(place)
    count = steps(place, postgresql_server)

    assert mover(place, target, count - 1).returncode == -signal.SIGKILL

    there = moved_to(place, target)
    with pytest.raises(UnavailableError, match="migrate-to again"), there.wired():
        pass
    with pytest.raises(instance.InstanceError, match="migrate-to again"), place.wired():
        pass
    assert move(place, target).written == 0
    with there.wired() as built:
        every_row_opens(built)


def test_rows_that_changed_since_a_killed_move_are_put_right(place, target):
    work(place)
    killed = mover(place, target, 12)
    assert killed.returncode == -signal.SIGKILL
    with place.wired() as built:
        built.services.deletions.delete(operator(built), finished(built, "more"))
        finished(built, "and-more")

    move(place, target)

    assert everything(moved_to(place, target)) == everything(place)


def test_numbers_of_rows_go_on_behind_those_that_were_ever_given(place, target):
    with place.wired() as built:
        workflow = finished(built, "gone")
        number = built.store.read(
            lambda at: at.execute(sa.select(sa.func.max(schema.workflows.c.workflow_pk))).scalar()
        )
        built.services.deletions.delete(operator(built), workflow)
        built.store.write(lambda at: at.execute(sa.delete(schema.workflows)).rowcount)

    move(place, target)

    with moved_to(place, target).wired() as built:
        finished(built, "new")
        after = built.store.read(lambda at: at.execute(sa.select(sa.func.max(schema.workflows.c.workflow_pk))).scalar())
        assert after > number


def test_a_database_that_holds_something_is_left_alone(place, target, tmp_path):
    other = Place(
        initialised(tmp_path / "other", {"ATMEM_DATABASE_URL": target}).folder, {"ATMEM_DATABASE_URL": target}
    )
    before = everything(other)

    with pytest.raises(moving.MovingError, match="holds an instance of this product"):
        move(place, target)

    assert everything(other) == before


def test_another_vaults_unfinished_move_is_not_mixed_with_this_one(place, target, tmp_path):
    other = Place(initialised(tmp_path / "other").folder)
    mover(other, target, 3)

    with pytest.raises(moving.MovingError, match="another vault's unfinished move"):
        move(place, target)


def test_whoever_comes_second_into_one_empty_database_is_told(place, target, tmp_path, monkeypatch):
    other = Place(initialised(tmp_path / "other").folder)
    look = moving.revisions.revision_of

    def looked(connection):
        found = look(connection)
        monkeypatch.undo()
        mover(other, target, 3)
        return found

    monkeypatch.setattr(moving.revisions, "revision_of", looked)

    with pytest.raises(moving.MovingError, match="Nothing was changed"):
        move(place, target)


def test_an_instance_folder_that_takes_no_note_leaves_the_new_database_unused(place, target, monkeypatch):
    work(place)

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(moving.instance, "leave_note", full)
        with pytest.raises(moving.MovingError, match="No space left on device"):
            move(place, target)

    with pytest.raises(UnavailableError, match="migrate-to again"), moved_to(place, target).wired():
        pass
    assert move(place, target).written == 0


def test_a_running_server_keeps_its_instance(place, target):
    with instance.held(place.settings), pytest.raises(instance.InstanceError, match="another server"):
        move(place, target)


def test_nobody_else_writes_meanwhile(place, target):
    work(place)
    refused = []

    def tell(step, _done, _whole):
        if not refused:
            with place.wired() as built:
                try:
                    built.recovery.close(LOCAL)
                    finished(built, "meanwhile")
                except UnavailableError as error:
                    refused.append(f"{step}: {error.message}")

    moving.move(place.settings, target, tell=tell)

    assert len(refused) == 1
    assert everything(moved_to(place, target)) == everything(place)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:////tmp/x.db", "must begin with postgresql://"),
        ("postgresql://host", "must be like postgresql://user@host:port/database"),
        ("postgresql://user:secret-word@host/db", "must not hold the password"),
    ],
)
def test_an_address_that_cannot_be_is_refused_without_repeating_it(place, url, said):
    result = CliRunner(env={"ATMEM_INSTANCE": str(place.folder)}).invoke(main, ["db", "migrate-to", url], obj=OVERRIDES)

    assert result.exit_code == 2
    assert said in result.output
    assert "secret-word" not in result.output


def test_a_target_that_does_not_answer_is_told_in_one_line(place):
    result = CliRunner(env={"ATMEM_INSTANCE": str(place.folder)}).invoke(
        main, ["db", "migrate-to", "postgresql://nobody@127.0.0.1:1/none"], obj=OVERRIDES
    )

    assert result.exit_code == 1
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("Error: The target: ")
    assert "The source is as it was" in line


def test_the_command_says_what_it_has_moved_and_what_to_do_now(place, target):
    work(place)
    runner = CliRunner(env={"ATMEM_INSTANCE": str(place.folder)})

    first = runner.invoke(main, ["db", "migrate-to", target, "--json"], obj=OVERRIDES)

    assert first.exit_code == 0, first.output
    printed = json.loads(first.stdout)
    assert printed["moved"] is True
    assert printed["rows"] == printed["written"] > 20
    # Whoever does not know whether it ended, since the connection was cut just then, runs it again.
    again = runner.invoke(main, ["db", "migrate-to", target], obj=OVERRIDES)
    assert again.exit_code == 0
    assert again.stdout == "The vault is there already: the move has ended before.\n"
    accept(place)
    other = runner.invoke(main, ["db", "migrate-to", target], obj=OVERRIDES)
    assert other.exit_code == 1
    assert "holds an instance of this product" in other.stderr


def test_who_moves_a_copy_of_the_instance_writes_nothing_once_the_other_has_ended(place, target, tmp_path):
    work(place)
    copied = Place(shutil.copytree(place.folder, tmp_path / "copied"))
    copied.folder.chmod(0o700)
    there = moved_to(place, target)
    ended = []

    def tell(step, done, _whole):
        if step == "copying" and done and not ended:
            ended.append(move(place, target))
            with there.wired() as built:
                ended.append(finished(built, "since"))
            ended.append(everything(there))

    with pytest.raises(moving.MovingError, match="the target is in use"):
        moving.move(copied.settings, target, tell=tell)

    assert everything(there) == ended[2]
    with copied.wired() as built:
        every_row_opens(built)


def test_a_row_that_has_what_was_unique_of_another_at_the_killed_move_is_moved(place, target, postgresql_server):
    named = sa.insert(schema.workspaces)
    with databases.opened(place.settings) as store:
        store.write(lambda at: at.execute(named.values(workspace_pk=70, name="reused")).rowcount)
    count = steps(place, postgresql_server)
    assert mover(place, target, count - 2).returncode == -signal.SIGKILL
    with databases.opened(place.settings) as store:
        store.write(lambda at: at.execute(sa.delete(schema.workspaces).where(schema.workspaces.c.workspace_pk == 70)))
        store.write(lambda at: at.execute(named.values(workspace_pk=7, name="reused")).rowcount)

    move(place, target)

    assert everything(moved_to(place, target)) == everything(place)


DAMAGE = {
    "no UTF-8": "CAST(x'61ff' AS TEXT)",
    "a NUL": "'a' || char(0)",
    "too long": f"'{'x' * 129}'",
    "bytes for text": "x'61'",
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_value_that_postgresql_would_refuse_or_change_is_named_as_damage(place, target, case):
    with databases.opened(place.settings) as store:
        store.write(lambda at: at.exec_driver_sql(f"INSERT INTO continuity_workspaces (name) VALUES ({DAMAGE[case]})"))

    with pytest.raises(moving.MovingError, match="source is damaged: a row of continuity_workspaces holds in name"):
        move(place, target)


def test_what_the_driver_would_put_for_damaged_text_is_moved_where_somebody_wrote_it(place, target):
    with databases.opened(place.settings) as store:
        store.write(lambda at: at.execute(sa.insert(schema.workspaces).values(name="\ufffd")).rowcount)

    move(place, target)

    assert everything(moved_to(place, target)) == everything(place)


def test_long_rows_are_moved_few_at_a_time(place, target, monkeypatch):
    monkeypatch.setattr(moving.moving, "PAGE_BYTES", 5_000)
    kind = schema.OWNER_KINDS[0]
    with databases.opened(place.settings) as store:
        rows = [{"owner_pk": 100 + i, "kind": kind, "principal_ix": bytes([i]) * 32, "sealed_principal": b"x" * 2_000}
                for i in range(9)]  # fmt: skip
        rows[4]["sealed_principal"] = b"x" * 20_000
        store.write(lambda at: at.execute(sa.insert(schema.owners), rows).rowcount)
        sizes = store.read(lambda at: [len(page) for page in moving.moving.pages(at, schema.owners)])

    assert max(sizes) <= 3
    move(place, target)
    assert everything(moved_to(place, target)) == everything(place)


def test_trouble_with_the_source_is_not_told_of_the_target(place, target, monkeypatch):
    def fail(_connection, _table):
        raise sa.exc.OperationalError("SELECT", {}, sqlite.choose_driver()[0].OperationalError("disk I/O error"))

    monkeypatch.setattr(moving.moving, "pages", fail)

    with pytest.raises(UnavailableError, match="The SQLite database: disk I/O error"):
        move(place, target)
