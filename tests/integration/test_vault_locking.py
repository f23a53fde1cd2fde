"""Locking and unlocking an instance of several processes, for every source of the master key."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest
import sqlalchemy as sa

from app import handing, vaults
from app.auth.accounts import By
from app.config import load_settings
from app.vault_life import LOCAL
from continuity.errors import (
    ForbiddenError,
    IntegrityError,
    KeySourceError,
    MalformedError,
    SealedError,
    ThrottledError,
)
from continuity.services.callers import CallerKind, Role
from continuity.store import keyring, schema
from continuity.vault import FileKeyProvider
from tests.vaults import OTHER, PASSPHRASE, Place, made

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


def refuses(process):
    """Whether everything that needs the vault says that it is locked."""
    for use in (process.keys, lambda: process.create("more")):
        with pytest.raises(SealedError):
            use()
    return True


def test_the_flag_stops_every_process_from_the_next_transaction_on(file_place):
    one, two = file_place.server(), file_place.server()
    one, two = one[0], two[0]
    one.create("before")

    file_place.command().life.lock(LOCAL, PASSPHRASE)

    # Neither has looked yet: both still hold the keys, and neither uses them.
    assert not one.built.vault.is_locked
    assert not two.built.vault.is_locked
    assert refuses(one)
    assert refuses(two)


def test_processes_drop_the_keys_when_they_look_and_get_them_back_after_the_unlock(file_place):
    one, two = file_place.server()[0], file_place.server()[0]
    one.create("before")
    command = file_place.command()

    command.life.lock(LOCAL, PASSPHRASE)
    for process in (one, two):
        process.follow()
        assert process.built.vault.is_locked
        assert refuses(process)
    file_place.command().life.unlock(LOCAL, PASSPHRASE)
    for process in (one, two):
        process.follow()

    assert one.keys() == two.keys() == ["before"]
    two.create("after")
    assert one.keys() == ["after", "before"]
    assert one.actions() == [
        ("vault.format_raised", "cred:1", "done"), ("vault.lock", "cli", "done"), ("vault.unlock", "cli", "done"),
    ]  # fmt: skip


@pytest.mark.parametrize("place", SOURCES, indirect=True)
def test_no_file_of_a_locked_instance_holds_a_key_whatever_its_source(place):
    server = place.server()[0]
    spelled = place.key_bytes()
    if place.source == "file":
        assert any(key in content for key in spelled for content in place.files().values())

    place.command().life.lock(LOCAL, PASSPHRASE)
    server.follow()

    assert [name for name, content in place.files().items() if any(key in content for key in spelled)] == []
    assert not list(place.settings.instance.glob("handover-*.keys"))


@pytest.mark.parametrize("place", SOURCES, indirect=True)
def test_workers_get_the_keys_back_though_their_source_was_read_but_once(place):
    first, second = place.server(workers=2)
    first.create("before")
    place.command().life.lock(LOCAL, PASSPHRASE)
    for process in (first, second):
        process.follow()

    place.command(None).life.unlock(LOCAL, PASSPHRASE)
    for process in (first, second):
        process.follow()

    assert first.keys() == second.keys() == ["before"]


@pytest.mark.parametrize("place", SOURCES, indirect=True)
def test_a_worker_can_unlock_for_the_others(place):
    first, second = place.server(workers=2)
    first.life.lock(LOCAL, PASSPHRASE)
    second.follow()
    assert refuses(second)

    first.life.unlock(LOCAL, PASSPHRASE)
    second.follow()

    assert first.keys() == second.keys() == []


@pytest.mark.parametrize("place", SOURCES, indirect=True)
def test_a_server_that_starts_on_a_locked_vault_serves_and_is_unlocked_later(place):
    place.command().life.lock(LOCAL, PASSPHRASE)

    server = place.server()[0]

    assert refuses(server)
    assert server.life.status().state == "locked"
    place.command(None).life.unlock(LOCAL, PASSPHRASE)
    server.follow()
    assert server.keys() == []


@pytest.mark.parametrize("place", ["passphrase"], indirect=True)
def test_a_server_without_its_passphrase_begins_locked_though_the_vault_is_open(place):
    server = place.server(None)[0]

    assert refuses(server)
    status = server.life.status()
    assert (status.state, status.is_open_here, status.needs_passphrase_to_unlock) == ("open", False, True)
    place.command(None).life.unlock(LOCAL, PASSPHRASE)
    server.follow()
    assert server.keys() == []


@pytest.mark.parametrize("place", SOURCES, indirect=True)
def test_a_wrong_passphrase_opens_nothing_and_is_written_down(place):
    server = place.server()[0]
    place.command().life.lock(LOCAL, PASSPHRASE)
    before = place.files()
    command = place.command(None)

    with pytest.raises(ForbiddenError) as refused:
        command.life.unlock(LOCAL, OTHER)
    server.follow()

    assert refused.value.code == "wrong_passphrase"
    assert refuses(server)
    assert {n: c for n, c in place.files().items() if ".db" not in n} == {
        n: c for n, c in before.items() if ".db" not in n
    }
    assert command.actions()[-1] == ("vault.unlock", "cli", "wrong_passphrase")
    command.life.unlock(LOCAL, PASSPHRASE)


def test_guessing_is_throttled_and_the_right_passphrase_waits_as_well(place):
    place.command().life.lock(LOCAL, PASSPHRASE)
    command = place.command()
    for _ in range(5):
        with pytest.raises(ForbiddenError):
            command.life.unlock(LOCAL, OTHER)

    with pytest.raises(ThrottledError):
        command.life.unlock(LOCAL, PASSPHRASE)

    assert command.built.vault.is_locked


@pytest.mark.parametrize("passphrase", [None, "", "short", "a" * 40, "x" * 2_000, "with a \0 in it, long enough"])
def test_a_lock_under_what_is_no_passphrase_locks_nothing(place, passphrase):
    command = place.command()

    with pytest.raises(MalformedError):
        command.life.lock(LOCAL, passphrase)

    assert command.life.status().state == "open"
    assert not place.settings.locked_key_file.exists()
    assert command.keys() == []


@pytest.mark.parametrize(
    "caller",
    [
        replace(LOCAL, role=Role.OPERATOR), replace(LOCAL, role=Role.INVESTIGATOR), replace(LOCAL, role=None),
        replace(LOCAL, kind=CallerKind.OPERATOR),
    ],
)  # fmt: skip
def test_only_an_administrator_locks_unlocks_or_rotates(place, caller):
    command = place.command()

    for use in (command.life.lock, command.life.unlock, command.life.start_rotation):
        with pytest.raises(ForbiddenError):
            use(caller, PASSPHRASE)

    assert command.actions() == []


def test_locking_twice_and_unlocking_twice_is_once(place):
    command = place.command()
    command.life.lock(LOCAL, PASSPHRASE)
    place.command().life.lock(LOCAL, PASSPHRASE)
    unlocking = place.command()
    unlocking.life.unlock(LOCAL, PASSPHRASE)
    unlocking.life.unlock(LOCAL, None)

    assert [action for action, _, _ in unlocking.actions()] == ["vault.lock", "vault.unlock"]


def test_whoever_locks_a_locked_vault_is_told_that_another_passphrase_opens_it(place):
    place.command().life.lock(LOCAL, PASSPHRASE)
    late = place.command()

    with pytest.raises(ForbiddenError, match="under another passphrase") as refused:
        late.life.lock(LOCAL, OTHER)

    assert refused.value.code == "wrong_passphrase"
    assert late.actions()[-1] == ("vault.unlock", "cli", "wrong_passphrase")
    late.life.unlock(LOCAL, PASSPHRASE)


def test_a_locked_vault_is_no_place_to_guess_by_locking_it(place):
    place.command().life.lock(LOCAL, PASSPHRASE)
    command = place.command()
    for _ in range(5):
        with pytest.raises(ForbiddenError):
            command.life.lock(LOCAL, OTHER)

    with pytest.raises(ThrottledError):
        command.life.lock(LOCAL, PASSPHRASE)


def test_a_key_that_a_lock_takes_away_while_a_process_begins_is_no_missing_key(file_place, monkeypatch):
    locking = file_place.command()
    look, looks = vaults.vault_row, []

    def row(store):
        found = look(store)
        looks.append(found.state)
        if looks == ["open"]:
            locking.life.lock(LOCAL, PASSPHRASE)
        return found

    monkeypatch.setattr(vaults, "vault_row", row)

    assert file_place.command().built.vault.is_locked
    assert looks[:2] == ["open", "locked"]


@pytest.fixture
def hosts(tmp_path, postgresql_server):
    """Two hosts of one database, each with a folder of its own, and one shred list."""
    extra = {"ATMEM_DATABASE_URL": postgresql_server.url(postgresql_server.create())}
    with made(tmp_path / "instance", "file", extra=extra) as first:
        shutil.copytree(first.settings.instance, tmp_path / "other")
        (tmp_path / "other").chmod(0o700)
        shared = {"ATMEM_INSTANCE": str(tmp_path / "other"), "ATMEM_SHRED_LIST": str(first.settings.shred_list)}
        second = Place(load_settings({**extra, **shared}), "file")
        yield first, second
        second.close()


@pytest.mark.postgresql
def test_each_host_of_a_locked_vault_seals_the_keys_of_its_own_folder(hosts):
    first, second = hosts
    server = second.server()[0]
    first.command().life.lock(LOCAL, PASSPHRASE)
    server.follow()
    assert FileKeyProvider(second.settings.vault_key_file).load().key_ids == {1}

    second.command().life.lock(LOCAL, OTHER)

    assert not second.settings.vault_key_file.exists()
    assert refuses(server)


@pytest.mark.postgresql
def test_each_host_of_a_locked_vault_opens_the_keys_of_its_own_folder(hosts):
    first, second = hosts
    server = second.server()[0]
    server.create("before")
    first.command().life.lock(LOCAL, PASSPHRASE)
    second.command().life.lock(LOCAL, OTHER)
    server.follow()

    first.command().life.unlock(LOCAL, PASSPHRASE)
    server.follow()
    assert refuses(server)
    second.command().life.unlock(LOCAL, OTHER)
    server.follow()

    assert server.keys() == ["before"]
    assert not second.settings.locked_key_file.exists()


def test_a_flag_that_somebody_cleared_in_the_database_opens_nothing(place):
    server = place.server()[0]
    server.create("before")
    place.command().life.lock(LOCAL, PASSPHRASE)
    server.follow()
    server.built.store.write(lambda c: c.execute(sa.update(schema.vault).values(state="open")).rowcount)

    server.follow()

    assert refuses(server)


def test_a_flag_that_somebody_set_in_the_database_destroys_no_key(place):
    server = place.server()[0]
    place.command().life.lock(LOCAL, PASSPHRASE)
    sealed = place.settings.locked_key_file.read_bytes()
    place.command().life.unlock(LOCAL, PASSPHRASE)
    # An old sealed file lies there as well: what a killed unlock leaves.
    place.settings.locked_key_file.write_bytes(sealed)
    place.settings.locked_key_file.chmod(0o600)
    server.built.store.write(lambda c: c.execute(sa.update(schema.vault).values(state="locked")).rowcount)

    server.follow()

    assert server.built.vault.is_locked
    assert FileKeyProvider(place.settings.vault_key_file).load().key_ids == {1}


def test_a_lock_that_was_killed_behind_its_flag_is_finished_by_whoever_looks(place):
    server = place.server()[0]
    plain = place.settings.vault_key_file.read_bytes()
    place.command().life.lock(LOCAL, PASSPHRASE)
    place.settings.vault_key_file.write_bytes(plain)
    place.settings.vault_key_file.chmod(0o600)

    server.follow()

    assert not place.settings.vault_key_file.exists()
    place.command().life.unlock(LOCAL, PASSPHRASE)
    assert place.settings.vault_key_file.read_bytes() == plain


def test_a_lock_drops_the_keys_though_the_plain_file_cannot_be_removed(place):
    server = place.server()[0]
    in_the_way = place.settings.vault_key_file.with_name("vault.key.new")
    in_the_way.mkdir()

    with pytest.raises(KeySourceError):
        server.life.lock(LOCAL, PASSPHRASE)

    assert server.life.status().state == "locked"
    assert server.built.vault.is_locked
    in_the_way.rmdir()
    server.follow()
    assert not place.settings.vault_key_file.exists()
    place.command().life.unlock(LOCAL, PASSPHRASE)


def test_an_unlock_that_was_killed_behind_its_flag_is_finished_by_whoever_looks(place):
    place.command().life.lock(LOCAL, PASSPHRASE)
    sealed = place.settings.locked_key_file.read_bytes()
    place.command().life.unlock(LOCAL, PASSPHRASE)
    place.settings.locked_key_file.write_bytes(sealed)
    place.settings.locked_key_file.chmod(0o600)

    place.server()[0].follow()

    assert not place.settings.locked_key_file.exists()


def test_a_plain_file_is_kept_when_the_sealed_one_lacks_a_key_of_it(place):
    command = place.command()
    command.life.lock(LOCAL, PASSPHRASE)
    place.command().life.unlock(LOCAL, PASSPHRASE)
    rotating = place.command()
    rotating.life.start_rotation(LOCAL)
    rotating.life.run(lambda _progress: None)
    new = place.settings.vault_key_file.read_bytes()
    rotating.life.lock(LOCAL, PASSPHRASE)
    lacking = place.command().life._sources.locked_file.read()
    place.settings.locked_key_file.write_bytes(replace(lacking, keys={9: lacking.keys[2]}).content())
    place.settings.vault_key_file.write_bytes(new)
    place.settings.vault_key_file.chmod(0o600)

    place.server()[0].follow()

    assert place.settings.vault_key_file.read_bytes() == new


def test_the_key_of_another_vault_is_refused_and_everything_stays_locked(place, tmp_path):
    place.command().life.lock(LOCAL, PASSPHRASE)
    with made(tmp_path / "other", "file") as other:
        other.command().life.lock(LOCAL, PASSPHRASE)
        place.settings.locked_key_file.write_bytes(other.settings.locked_key_file.read_bytes())
        command = place.command()

        with pytest.raises(KeySourceError):
            command.life.unlock(LOCAL, PASSPHRASE)

    assert command.built.vault.is_locked
    assert command.life.status().state == "locked"
    assert not place.settings.vault_key_file.exists()


def test_a_row_that_was_changed_is_not_sealed_by_a_lock(place):
    command = place.command()
    command.built.store.write(lambda c: c.execute(sa.update(schema.vault).values(epoch=7)).rowcount)

    with pytest.raises(IntegrityError):
        command.life.lock(LOCAL, PASSPHRASE)

    assert place.settings.vault_key_file.exists()


def test_processes_write_down_what_they_hold(place):
    server = place.server()[0]
    server.life.follower._holder_id = "kh_1"
    server.follow()
    assert (server.life.status().holders, server.life.status().waiting) == (1, 0)

    place.command().life.lock(LOCAL, PASSPHRASE)
    server.follow()

    assert (server.life.status().holders, server.life.status().waiting) == (0, 1)
    assert [row.key_ids for row in server.rows(schema.key_holders)] == [""]
    server.life.follower.stop()
    assert server.rows(schema.key_holders) == []


def test_what_was_left_for_a_server_opens_in_no_other(place):
    ring = place.command().life.keyring()
    with handing.received(place.settings, "environment", ring) as first:
        content = next(place.settings.instance.glob("handover-*.keys")).read_bytes()
        assert first.load().key_ids == {1}
    with handing.received(place.settings, "environment", None) as second:
        with pytest.raises(SealedError):
            second.load()
        path = place.settings.instance / f"handover-{os.getpid()}.keys"
        path.write_bytes(content)
        path.chmod(0o600)

        with pytest.raises(KeySourceError, match="another server"):
            second.load()


def test_a_locked_vault_writes_the_audit_entry_without_its_detail(place):
    server = place.server()[0]
    server.create("before")
    details = [row.seq for row in server.rows(schema.audit) if row.sealed_detail is not None]
    place.command().life.lock(LOCAL, PASSPHRASE)

    # It still holds the keys; the flag alone must keep it from sealing.
    server.built.auth.accounts.create("ada", role=Role.OPERATOR, workspace_names=["default"], by=By("cli"))

    now = [row.seq for row in server.rows(schema.audit) if row.sealed_detail is not None]
    assert now == details
    assert server.rows(schema.audit)[-1].action == "user.create"


def test_the_vaults_row_is_read_without_a_key(place):
    place.command().life.lock(LOCAL, PASSPHRASE)
    row = place.command().built.store.autocommit(lambda c: c.execute(keyring.RING).one())

    assert (row.state, row.locked_by, row.locked_at > 0) == ("locked", "cli", True)
