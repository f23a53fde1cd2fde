"""A new master key while everybody goes on: nothing is lost, and nothing comes under the old key any more."""

from __future__ import annotations

import os
import threading

import pytest
import sqlalchemy as sa

from app import instance
from app.vault_life import LOCAL
from continuity.errors import ForbiddenError, IntegrityError, KeySourceError, MalformedError, SealedError
from continuity.services.partitions import make_partition
from continuity.services.rotation import Rotation
from continuity.store import keyring, schema
from continuity.vault import FileKeyProvider, SealedKeyFile
from continuity.wire import ListRequest
from tests.patience import PATIENCE_S
from tests.vaults import ONE, OPERATOR, OTHER, PASSPHRASE, TWO, made

SOURCES = ("file", "environment", "passphrase")
BOTH = [pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.postgresql)]


@pytest.fixture
def place(tmp_path, request, instance_template):
    with made(tmp_path / "instance", getattr(request, "param", "file"), template=instance_template) as place:
        yield place


@pytest.fixture(params=BOTH)
def file_place(tmp_path, request, instance_template):
    """A file as source, on each database."""
    extra = {}
    if request.param == "postgresql":
        server = request.getfixturevalue("postgresql_server")
        extra["ATMEM_DATABASE_URL"] = server.url(server.create())
    with made(tmp_path / "instance", "file", extra=extra, template=instance_template) as place:
        yield place


def rotated(process, passphrase=None):
    process.life.start_rotation(LOCAL, passphrase)
    return process.life.run(lambda _progress: None)


def stepping(process, *, batch=2):
    """The rotation of a process, to be driven step by step."""
    life = process.life
    return Rotation(
        process.built.store, process.built.vault, process.built.audit, life._sources, process.built.clock.now_us,
        batch=batch,
    )  # fmt: skip


def key_ids(process):
    return {row.key_id for row in process.rows(schema.partitions) if row.wrapped_key is not None}


def index_of(process):
    return process.built.vault.index("purpose", "value")


def test_everything_is_under_the_new_key_and_readable_and_found_as_before(file_place):
    server = file_place.server()[0]
    for number in range(5):
        server.create(f"work-{number}")
    before = index_of(server)

    progress = rotated(file_place.command())
    server.follow()

    assert (progress.state, progress.old_key_id, progress.new_key_id) == ("done", 1, 2)
    assert progress.done == progress.total == len(server.rows(schema.partitions))
    assert key_ids(server) == {2}
    assert FileKeyProvider(file_place.settings.vault_key_file).load().key_ids == {2}
    assert server.keys() == file_place.command().keys() == [f"work-{number}" for number in range(5)]
    assert index_of(server) == before == index_of(file_place.command())
    assert server.create("work-3") == server.create("work-3")
    assert server.actions()[-2:] == [("vault.rotation_started", "cli", "done"), ("vault.rotated", "system", "done")]
    # The audit log is whole, and its details from before open.
    audit = server.built.audit
    detailed = next(row.seq for row in server.rows(schema.audit) if row.sealed_detail is not None)
    assert server.built.store.read(audit.verify).fault is None
    assert server.built.store.read(lambda connection: audit.detail(connection, detailed)) == {"role": "administrator"}


@pytest.mark.parametrize("place", SOURCES, indirect=True)
def test_each_source_rotates_in_its_way_while_its_workers_go_on(place):
    if place.source == "environment":
        place.variable = f"1:{ONE},2:{TWO}"
    first, second = place.server(workers=2)
    first.create("before")

    progress = rotated(place.command(), PASSPHRASE)
    first.follow()
    second.create("after")

    assert (progress.state, progress.new_key_id) == ("done", 2)
    assert key_ids(first) == {2}
    assert first.keys() == second.keys() == ["after", "before"]
    place.command().life.lock(LOCAL, PASSPHRASE)
    place.command(None).life.unlock(LOCAL, PASSPHRASE)
    for process in (first, second):
        process.follow()
        assert process.keys() == ["after", "before"]


@pytest.mark.parametrize("place", ["environment"], indirect=True)
def test_a_variable_without_a_second_key_is_told_what_to_hold(place):
    with pytest.raises(KeySourceError, match=r"1:<old>,2:<new>"):
        place.command().life.start_rotation(LOCAL)

    assert place.command().life.rotation() is None


@pytest.mark.parametrize("place", ["environment"], indirect=True)
def test_a_server_that_lacks_the_second_key_is_waited_for_by_name(place):
    server = place.server()[0]
    server.life.follower._holder_id = "kh_old"
    server.follow()
    place.variable = f"1:{ONE},2:{TWO}"
    command = place.command()
    # On another host: what this command leaves does not reach it.
    (place.settings.instance / f"handover-{os.getpid()}.json").unlink()
    command.life.start_rotation(LOCAL)
    rotation = stepping(command)

    for _ in range(3):
        progress = rotation.step()

    assert progress.state == "announced"
    assert command.life.waited_for(progress) == ["kh_old"]
    assert key_ids(command) <= {1}
    server.life.follower.stop()
    server.life.follower._store.write(lambda c: keyring.drop_holder(c, "kh_old"))
    assert rotation.step().state == "running"


@pytest.mark.parametrize("place", ["passphrase"], indirect=True)
def test_a_rotation_under_a_passphrase_asks_for_it_and_proves_it(place):
    place.command().create("before")
    for wrong, error in ((None, MalformedError), (OTHER, ForbiddenError)):
        with pytest.raises(error):
            place.command().life.start_rotation(LOCAL, wrong)
    assert place.command().life.rotation() is None

    rotated(place.command(), PASSPHRASE)

    sealed = SealedKeyFile(place.settings.vault_key_file).read()
    assert sealed.key_ids == (2,)
    assert place.command().keys() == ["before"]


@pytest.mark.parametrize("place", ["passphrase"], indirect=True)
def test_a_worker_goes_on_with_a_rotation_that_a_person_has_begun(place):
    server = place.server()[0]
    server.create("before")
    server.life.start_rotation(LOCAL, PASSPHRASE)

    for _ in range(20):
        server.life.drive()

    assert server.life.rotation().state == "done"
    assert place.command().keys() == ["before"]


def test_a_process_that_has_not_looked_since_writes_under_the_new_key(file_place):
    server = file_place.server()[0]
    server.create("before")
    command = file_place.command()
    command.life.start_rotation(LOCAL)
    rotation = stepping(command)
    while rotation.step().state != "running":
        pass

    assert server.built.vault.key_ids == {1}
    workflow_id = server.create("meanwhile")

    found = {row.partition_id: row.key_id for row in server.rows(schema.partitions)}
    assert found[workflow_id] == 2
    assert server.keys() == ["before", "meanwhile"]
    command.life.run(lambda _progress: None)
    assert key_ids(server) == {2}
    assert server.keys() == file_place.command().keys() == ["before", "meanwhile"]


@pytest.mark.postgresql
def test_an_old_key_writer_that_began_before_the_switch_is_waited_for_and_rewrapped(tmp_path, postgresql_server):
    extra = {"ATMEM_DATABASE_URL": postgresql_server.url(postgresql_server.create())}
    with made(tmp_path / "instance", "file", extra=extra) as place:
        server, command = place.server()[0], place.command()
        command.life.start_rotation(LOCAL)
        rotation = stepping(command)
        held, may_end = threading.Event(), threading.Event()

        def work(connection):
            _, wrapped = make_partition(connection, server.built.vault, "wf_slow")
            held.set()
            assert may_end.wait(PATIENCE_S)
            connection.execute(sa.insert(schema.partitions).values(
                partition_id="wf_slow", kind="workflow", key_id=wrapped.key_id, wrapped_key=wrapped.wrapped
            ))  # fmt: skip

        writer = threading.Thread(target=lambda: server.built.store.write(work))
        writer.start()
        assert held.wait(PATIENCE_S)
        switcher = threading.Thread(target=rotation.step)
        switcher.start()
        switcher.join(0.5)
        waits = switcher.is_alive() and command.life.rotation().state == "announced"
        may_end.set()
        writer.join()
        switcher.join()
        progress = command.life.run(lambda _progress: None)

        assert waits
        assert progress.state == "done"
        assert key_ids(command) == {2}
        row = next(row for row in command.rows(schema.partitions) if row.partition_id == "wf_slow")
        assert command.built.vault.open_partition("wf_slow", row.wrapped_key, key_id=2)


def hurt(process, workflow_id, **values):
    process.built.store.write(lambda c: c.execute(
        sa.update(schema.partitions).where(schema.partitions.c.partition_id == workflow_id).values(**values)
    ).rowcount)  # fmt: skip


def test_a_data_key_that_does_not_open_stands_in_nobodys_way_and_keeps_its_master_key(file_place):
    server = file_place.server()[0]
    ids = [server.create(f"work-{number}") for number in range(5)]
    hurt(server, ids[1], wrapped_key=bytes(65))
    hurt(server, ids[3], key_id=9)

    progress = rotated(file_place.command())

    assert (progress.state, progress.unreadable) == ("held", 2)
    assert progress.done == progress.total - 2
    assert sorted(file_place.command().life.unreadable()) == sorted([(ids[1], 1), (ids[3], 9)])
    # Number 1 is named by a row, so it stays.
    assert FileKeyProvider(file_place.settings.vault_key_file).load().key_ids == {1, 2}
    server.follow()
    page = [(each["workflow_key"], each.get("key_id")) for each in listed(server)]
    assert page == [("work-4", None), ("", 9), ("work-2", None), ("", 1), ("work-0", None)]


def listed(process):
    return process.built.services.listing.page(OPERATOR, ListRequest())["workflows"]


def test_the_next_rotation_is_not_kept_by_what_did_not_open_in_the_last(place):
    command = place.command()
    ids = [command.create(f"work-{number}") for number in range(2)]
    good = next(row for row in command.rows(schema.partitions) if row.partition_id == ids[0])
    hurt(command, ids[0], wrapped_key=bytes(65))
    rotated(command)

    # Somebody brought it back from a backup.
    hurt(command, ids[0], wrapped_key=good.wrapped_key, key_id=1)
    progress = rotated(place.command())

    assert (progress.state, progress.new_key_id) == ("done", 3)
    assert FileKeyProvider(place.settings.vault_key_file).load().key_ids == {3}
    assert place.command().keys() == ["work-0", "work-1"]


def test_a_rotation_that_is_under_way_is_gone_on_with_and_not_begun_twice(place):
    command = place.command()
    command.create("before")
    first = command.life.start_rotation(LOCAL)

    second = place.command().life.start_rotation(LOCAL)

    assert (second.rotation_pk, second.new_key_id) == (first.rotation_pk, 2)
    assert [action for action, _, _ in command.actions()].count("vault.rotation_started") == 1


def test_of_two_that_drive_at_once_one_batch_counts(place):
    server, command = place.server()[0], place.command()
    for number in range(6):
        server.create(f"work-{number}")
    command.life.start_rotation(LOCAL)
    one, two = stepping(command), stepping(server)
    while one.step().state != "running":
        pass
    stale = two.progress()

    one.step()
    two._rewrap(stale)

    assert one.progress().done == 2
    assert rotated(command).state == "done"


def test_housekeeping_leaves_a_rotation_to_whoever_drives_it_and_takes_over_when_that_one_is_gone(place):
    server, command = place.server()[0], place.command()
    server.create("before")
    command.life.start_rotation(LOCAL)
    server.life.drive()
    assert server.life.rotation().state == "announced"

    server.built.store.write(lambda c: c.execute(sa.update(schema.rotations).values(driven_at=0)).rowcount)
    for _ in range(10):
        server.life.drive()

    assert server.life.rotation().state == "done"


def test_a_lock_stops_a_rotation_and_the_unlock_lets_it_go_on(place):
    command = place.command()
    for number in range(5):
        command.create(f"work-{number}")
    command.life.start_rotation(LOCAL)
    rotation = stepping(command)
    while rotation.step().done < 2:
        pass

    place.command().life.lock(LOCAL, PASSPHRASE)

    with pytest.raises(SealedError):
        rotation.step()
    assert SealedKeyFile(place.settings.locked_key_file).read().key_ids == (1, 2)
    unlocking = place.command()
    unlocking.life.unlock(LOCAL, PASSPHRASE)
    assert unlocking.life.run(lambda _progress: None).state == "done"
    assert place.command().keys() == [f"work-{number}" for number in range(5)]
    assert FileKeyProvider(place.settings.vault_key_file).load().key_ids == {2}


def test_a_locked_vault_begins_no_rotation(place):
    place.command().life.lock(LOCAL, PASSPHRASE)

    with pytest.raises((SealedError, KeySourceError)):
        place.command().life.start_rotation(LOCAL)

    assert place.command().life.rotation() is None


def test_a_row_that_was_changed_begins_no_rotation(place):
    command = place.command()
    command.built.store.write(lambda c: c.execute(sa.update(schema.vault).values(epoch=7)).rowcount)

    with pytest.raises(IntegrityError):
        command.life.start_rotation(LOCAL)

    assert FileKeyProvider(place.settings.vault_key_file).load().key_ids == {1}


def test_the_new_key_is_durable_before_anything_is_wrapped_under_it(place):
    command = place.command()
    command.create("before")
    found = []

    def look(connection, cursor, statement, *_):
        if "UPDATE continuity_partitions" in statement or "sealed_canary=" in statement:
            found.append(FileKeyProvider(place.settings.vault_key_file).load().key_ids)

    sa.event.listen(command.built.store.engine, "before_cursor_execute", look)

    rotated(command)

    assert len(found) >= 2
    assert all(2 in ids for ids in found)


def test_what_is_being_deleted_is_rewrapped_and_stays_deleted(place):
    command = place.command()
    workflow_id = command.create("going")
    recorded = command.built.vault.shred_list.head
    command.built.vault.shred(workflow_id, recorded=recorded)

    assert rotated(command).state == "done"

    assert command.built.vault.has_shredded(workflow_id)


def test_the_lock_file_of_the_keys_keeps_two_from_changing_them_at_once(place):
    command, done = place.command(), threading.Event()
    with instance.keys_held(place.settings):
        thread = threading.Thread(target=lambda: (command.life._sources.add(2), done.set()))
        thread.start()
        waited = not done.wait(0.3)
    thread.join()

    assert waited
    assert FileKeyProvider(place.settings.vault_key_file).load().key_ids == {1, 2}
