"""Backups and restores on both databases: what is in them, what they do to what was there, what they refuse."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from app import backup_contents, backups, instance, migrating, replacing, restores, wiring
from app.auth.accounts import LOCAL as HOST
from app.backup_contents import BackupError
from app.config import InstanceError
from app.renewals import Who
from app.vault_life import LOCAL
from continuity.errors import (
    ConflictError,
    DecryptionError,
    ForbiddenError,
    MalformedError,
    NotFoundError,
    SealedError,
    SealedFileError,
    UnauthenticatedError,
)
from continuity.evidence import RecordEvidence
from continuity.services.callers import Role
from continuity.store import schema
from continuity.vault.passphrase import Cost
from continuity.vault.sealed_file import HEAD_BYTES, SealedWriter
from continuity.wire import ListRequest
from tests.entry import OVERRIDES
from tests.restoring import (
    COST,
    TEXT,
    Place,
    begin,
    confirm,
    create,
    every_row_opens,
    finished,
    operator,
    place,
    report,
    view,
)
from tests.second_factors import VISIT, App, person
from tests.servers import initialised

__all__ = ["place"]

CHEAP = Cost(memory_kib=8, time_cost=1, parallelism=1)
OLDER = "0014"
"""Has every column of now: this program can make a backup of it."""


def state_of(place: Place) -> dict[str, object]:
    """Everything that a refused restore must leave as it was."""
    names = ["vault.key", "secret.key", "shred.list"]
    files = {name: (place.folder / name).read_bytes() for name in names}
    with place.wired() as built:
        row = built.store.read(lambda c: c.execute(sa.select(schema.vault.c.epoch, schema.vault.c.proof)).one())
        head = built.store.read(built.audit.head)
    return {**files, "vault": tuple(row), "audit": head}


def test_the_story_of_a_restore(place):
    with place.wired() as built:
        done, open_, granted = finished(built, "done"), create(built, "open")["workflow_id"], create(built, "granted")
        lease = begin(built, granted["workflow_id"])
        built.auth.accounts.create("olga", role=Role.OPERATOR, workspace_names=["default"], by=HOST)
        epoch = built.recovery.status()
        assert not epoch.is_open
    backup = place.backup()
    with place.wired() as built:
        built.services.deletions.delete(operator(built), done)
        later = finished(built, "later")

    outcome = place.restore(backup)
    assert place.follow() is None

    with place.wired() as built:
        # What was deleted is gone, what came later was never there, what was open waits for a person.
        with pytest.raises(ConflictError, match="deleted") as caught:
            view(built, done)
        assert caught.value.code == "workflow_deleted"
        with pytest.raises(NotFoundError):
            view(built, later)
        for workflow_id in (open_, granted["workflow_id"]):
            reply = begin(built, workflow_id, "a9")
            assert (reply["action"], reply["reason"]) in {
                ("blocked", "restored_needs_decision"), ("blocked", "attempt_in_progress"),
            }  # fmt: skip
        # A lease of before is void; its receipt is kept as evidence.
        late = report(built, granted["workflow_id"], lease)
        assert not late["accepted"]
        # Nothing is created enabled until the window is closed.
        new = create(built, "new")
        assert not new["enabled"]
        status = built.recovery.status()
        assert status.is_open
        assert status.backup_us == outcome.head.made_us
        assert built.recovery.close(LOCAL)
        assert not built.recovery.close(LOCAL)
        assert create(built, "newer")["enabled"]
        # A person decides, and the work goes on.
        assert confirm(built, open_)["operations"][0]["status"] == "completed"
        assert built.store.read(built.audit.verify).fault is None
        actions = [row.action for row in built.store.read(lambda c: built.audit.newest(c, count=50))]
        assert {"vault.restored", "vault.backup", "vault.close_recovery", "workflow.deleted"} <= set(actions)
    accounts = {account.username: account for account in _accounts(place)}
    assert accounts["olga"].must_change_password
    assert outcome.renewed.people_waiting == 1
    assert outcome.renewed.username == "administrator"


def _accounts(place):
    with place.wired() as built:
        return built.auth.accounts.all()


def test_what_was_deleted_after_the_backup_stays_unreadable_before_it_is_deleted_again(place):
    with place.wired() as built:
        done = finished(built, "done")
    backup = place.backup()
    with place.wired() as built:
        built.services.deletions.delete(operator(built), done)

    place.restore(backup)

    with place.wired() as built:
        row = built.store.read(lambda c: c.execute(
            sa.select(schema.partitions).where(schema.partitions.c.partition_id == done)
        ).one())  # fmt: skip
        assert row.wrapped_key is not None
        with pytest.raises(DecryptionError):
            built.vault.open_partition(done, row.wrapped_key, key_id=row.key_id)
        # The start of a server deletes it again, before anything else of housekeeping.
        built.housekeeping.run_due()
        left = built.store.read(lambda c: c.execute(
            sa.select(schema.partitions.c.wrapped_key).where(schema.partitions.c.partition_id == done)
        ).scalar_one())  # fmt: skip
        assert left is None
        assert built.reapplying.run() == 0
        with pytest.raises(ConflictError):
            create(built, "done")


def test_a_deleted_run_of_evidence_stays_deleted(place):
    body = {
        "run_id": "run-1", "producer": "agent", "epoch": 1, "event_id": "e-1", "kind": "text",
        "content": "sentinel words", "time": 1.0,
    }  # fmt: skip
    with place.wired() as built:
        kept = built.services.evidence.record(operator(built), RecordEvidence.from_json(body))["evidence_id"]
    backup = place.backup()
    with place.wired() as built:
        built.services.evidence_deletions.delete(LOCAL, kept)

    place.restore(backup)
    assert place.follow() is None

    with place.wired() as built, pytest.raises(ConflictError) as caught:
        built.services.evidence.record(operator(built), RecordEvidence.from_json(body))
    assert caught.value.code == "evidence_deleted"


def test_a_backup_that_was_made_before_a_rotation_is_restored_after_it(place):
    with place.wired() as built:
        done = finished(built, "done")
    backup = place.backup()
    with place.wired() as built:
        before = built.vault.key_id
        built.vault_life.start_rotation(LOCAL)
        built.vault_life.run(lambda _progress: None)
    with place.wired() as built:
        assert built.vault.key_id != before
        view(built, done)

    place.restore(backup)
    assert place.follow() is None

    with place.wired() as built:
        assert view(built, done)["operations"][0]["status"] == "completed"
        assert built.vault.key_id == before


def test_a_backup_is_restored_on_an_empty_machine(place, tmp_path):
    with place.wired() as built:
        done = finished(built, "done")
        gone = finished(built, "gone")
        built.services.deletions.delete(operator(built), gone)
    backup = place.backup()
    elsewhere = Place(tmp_path / "other" / "instance", place.extra)

    outcome = elsewhere.restore(backup)

    assert outcome.deletions == "backup"
    assert elsewhere.follow() is None
    with elsewhere.wired() as built:
        assert view(built, done)["operations"][0]["status"] == "completed"
        with pytest.raises(ConflictError):
            view(built, gone)
    assert {path.stat().st_mode & 0o777 for path in elsewhere.folder.iterdir() if path.is_file()} == {0o600}


def test_a_backup_of_an_older_program_is_brought_up_to_this_one(place):
    with place.wired() as built:
        done = finished(built, "done")
        with built.store.engine.connect() as connection:
            config = migrating.configuration()
            config.attributes["connection"] = connection
            command.downgrade(config, OLDER)
            connection.commit()
        backup = place.folder.parent / "older.backup"
        backups.make(built, built.vault_life.keyring, backup, TEXT, cost=COST)

    assert place.restore(backup).head.revision == OLDER
    assert place.follow() is None

    with place.wired() as built:
        migrating.check(built.store.engine)
        assert migrating.differences(built.store.engine) == []
        assert view(built, done)["operations"][0]["status"] == "completed"
        assert every_row_opens(built) == 1


def test_a_backup_is_restored_twice_and_each_time_begins_an_epoch(place):
    with place.wired() as built:
        finished(built, "done")
    backup = place.backup()

    first = place.restore(backup)
    assert place.follow() is None
    second = place.restore(backup)
    assert place.follow() is None

    assert second.renewed.epoch == first.renewed.epoch + 1
    with place.wired() as built:
        assert every_row_opens(built) == 1


def test_whoever_restores_goes_on_with_his_password(place):
    with place.wired() as built:
        made = built.auth.accounts.reset_password("administrator", by=HOST)
        built.auth.sign_in.change_password_locally("administrator", current=made.password, new="bright otter sails")
    backup = place.backup()

    with pytest.raises(UnauthenticatedError):
        place.restore(backup, who=Who("administrator", "bright otter sailz"))
    with pytest.raises(NotFoundError):
        place.restore(backup, who=Who("nobody", "bright otter sails"))
    outcome = place.restore(backup, who=Who("administrator", "bright otter sails"))

    assert outcome.renewed.temporary is None
    with place.wired() as built:
        built.auth.sign_in.check_locally("administrator", "bright otter sails")


def test_a_password_of_before_signs_nobody_in(place):
    with place.wired() as built:
        made = built.auth.accounts.create("olga", role=Role.OPERATOR, workspace_names=["default"], by=HOST)
        built.auth.sign_in.change_password_locally("olga", current=made.password, new="bright otter sails")
    backup = place.backup()
    place.restore(backup)

    with place.wired() as built:
        with pytest.raises(UnauthenticatedError):
            built.auth.sign_in.check_locally("olga", "bright otter sails")
        again = built.auth.accounts.reset_password("olga", by=HOST)
        built.auth.sign_in.check_locally("olga", again.password)


def test_a_recovery_code_of_before_is_not_good_again_and_the_app_is(place):
    password = "bright otter sails"
    with place.wired() as built:
        made = built.auth.accounts.reset_password("administrator", by=HOST)
        built.auth.sign_in.change_password_locally("administrator", current=made.password, new=password)
        who = person(built.auth, "administrator", password)
        app = App(built.auth.second_factors.start(who, visit=VISIT).secret, built.clock)
        codes = built.auth.second_factors.confirm(who, app.code(), visit=VISIT).codes
    backup = place.backup()
    with place.wired() as built:
        person(built.auth, "administrator", password, code=codes[0])
    place.restore(backup, who=Who("administrator", password))

    with place.wired() as built:
        for code in codes[:2]:
            with pytest.raises(UnauthenticatedError):
                person(built.auth, "administrator", password, code=code)
        signed = person(built.auth, "administrator", password, code=app.code(steps=1))
        assert built.auth.second_factors.state(signed.user_pk).codes_left == 0


def test_only_an_administrator_closes_the_window(place):
    backup = place.backup()
    place.restore(backup)

    with place.wired() as built:
        for caller in (operator(built), replace(LOCAL, role=Role.OPERATOR)):
            with pytest.raises(ForbiddenError):
                built.recovery.close(caller)
        assert built.recovery.status().is_open


def test_a_backup_is_proved_without_restoring(place):
    with place.wired() as built:
        finished(built, "done")
    backup = place.backup()
    before = state_of(place)

    made = backups.check(backup, TEXT)

    assert made.head.workflows == 1
    assert state_of(place) == before


def test_a_backup_is_private_and_hides_what_is_in_it(place):
    with place.wired() as built:
        finished(built, "done")
        made = built.auth.accounts.create("sentinelolga", role=Role.OPERATOR, workspace_names=["default"], by=HOST)
    backup = place.backup()

    content = backup.read_bytes()
    assert backup.stat().st_mode & 0o777 == 0o600
    for secret in (b"sentinel", made.password.encode(), (place.folder / "vault.key").read_bytes()[20:40]):
        assert secret not in content
    assert not list(place.folder.glob("*copy*"))
    assert not list(backup.parent.glob("*.partial"))


def test_a_backup_is_said_in_the_audit_log_before_it_exists(place, monkeypatch):
    with place.wired() as built:
        target = place.folder.parent / "never.backup"

        def no_keys() -> object:
            raise KeyError

        with pytest.raises(KeyError):
            backups.make(built, no_keys, target, TEXT, cost=COST)
        newest = built.store.read(lambda c: built.audit.newest(c, count=1))[0]

    assert newest.action == "vault.backup"
    assert not target.exists()
    assert not list(target.parent.glob("never*"))


def test_nothing_is_written_over(place):
    target = place.folder.parent / "one.backup"
    target.write_bytes(b"mine")

    with pytest.raises(BackupError, match="there already"):
        place.backup()
    assert target.read_bytes() == b"mine"


def test_a_short_passphrase_is_refused(place):
    with pytest.raises(MalformedError):
        place.backup(text="too short")


def test_a_backup_is_one_state_while_four_threads_write(place):
    stop, made = threading.Event(), list[str]()
    with place.wired() as built:

        def work(number: int) -> None:
            count = 0
            while not stop.is_set() and count < 200:
                made.append(finished(built, f"key-{number}-{count}"))
                count += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        target = place.folder.parent / "busy.backup"
        while len(made) < 8:
            threading.Event().wait(0.01)
        backups.make(built, built.vault_life.keyring, target, TEXT, cost=COST)
        stop.set()
        for thread in threads:
            thread.join()

    place.restore(target)
    assert place.follow() is None

    with place.wired() as built:
        assert 8 <= every_row_opens(built) <= len(made)


BAD = {
    "foreign": (lambda _data: b"SQLite format 3\0" + bytes(4_000), "sealed_file_foreign"),
    "empty": (lambda _data: b"", "sealed_file_foreign"),
    "truncated": (lambda data: data[:-40], "sealed_file_truncated"),
    "halved": (lambda data: data[: len(data) // 2], "sealed_file_truncated"),
    "head flipped": (lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:], "sealed_file_damaged"),
    "body flipped": (
        lambda data: data[: HEAD_BYTES + 900] + bytes([data[HEAD_BYTES + 900] ^ 1]) + data[HEAD_BYTES + 901 :],
        "sealed_file_damaged",
    ),
    "longer": (lambda data: data + b"x", "sealed_file_damaged"),
}


@pytest.mark.parametrize("how", sorted(BAD))
def test_a_file_that_is_not_whole_replaces_nothing_and_says_why(place, how):
    change, code = BAD[how]
    source = place.backup()
    source.write_bytes(change(source.read_bytes()))
    before = state_of(place)

    for use in (place.restore, lambda path: backups.check(path, TEXT)):
        with pytest.raises(SealedFileError) as caught:
            use(source)
        assert caught.value.code == code
    assert state_of(place) == before
    assert not _leftovers(place)


def _leftovers(place):
    return [path.name for path in place.folder.iterdir() if "restoring" in path.name or path.name == replacing.JOURNAL]


def test_another_passphrase_replaces_nothing(place):
    source, before = place.backup(), state_of(place)

    with pytest.raises(SealedFileError) as caught:
        place.restore(source, "another passphrase")

    assert caught.value.code == "wrong_passphrase"
    assert state_of(place) == before


def test_a_sealed_file_that_is_no_backup_replaces_nothing(place):
    source, before = place.folder.parent / "export", state_of(place)
    with source.open("wb") as stream:
        writer = SealedWriter(stream, TEXT, purpose="evidence", cost=CHEAP)
        writer.write(b"{}")
        writer.finish()

    with pytest.raises(SealedFileError) as caught:
        place.restore(source)

    assert caught.value.code == "sealed_file_purpose"
    assert state_of(place) == before


def test_a_backup_of_another_instance_replaces_nothing_once_something_was_deleted_here(place, tmp_path):
    other = Place(tmp_path / "other" / "instance")
    (tmp_path / "other").mkdir()
    initialised(other.folder)
    source = other.backup()
    with place.wired() as built:
        built.services.deletions.delete(operator(built), finished(built, "gone"))
    before = state_of(place)

    with pytest.raises(BackupError, match=r"another instance|kind of database"):
        place.restore(source)

    assert state_of(place) == before
    assert not _leftovers(place)


def test_two_restores_at_once_are_one(place):
    source = place.backup()
    with replacing.alone(place.settings), pytest.raises(InstanceError, match="another restore"):
        place.restore(source)


def test_no_restore_under_a_running_server(place):
    source = place.backup()
    refusal = pytest.raises((InstanceError, BackupError), match=r"another server|stop servers")
    with place.wired(), instance.held(place.settings), refusal:
        place.restore(source)


def test_no_restore_under_a_command_that_works_on_the_database(place):
    source = place.backup()

    with place.wired() as built:
        create(built, "under-way")
        with pytest.raises(BackupError, match="has the database open"):
            place.restore(source)
        create(built, "goes-on")
    place.restore(source)


def test_a_backup_is_restored_over_a_locked_vault_and_over_a_damaged_database(place):
    with place.wired() as built:
        finished(built, "done")
    source = place.backup()
    with place.wired() as built:
        built.vault_life.lock(LOCAL, "another long passphrase")

    place.restore(source)
    assert place.follow() is None
    with place.wired() as built:
        assert every_row_opens(built) == 1
        built.vault_life.lock(LOCAL, "one more long passphrase")
        built.vault_life.unlock(LOCAL, "one more long passphrase")
        assert every_row_opens(built) == 1
    if not place.extra:
        database = place.folder / "continuity.db"
        database.write_bytes(b"damaged" * 10_000)
        place.restore(source)
        with place.wired() as built:
            assert every_row_opens(built) == 1


def test_two_backups_at_once_are_one(place):
    with place.wired() as built:
        descriptor = instance.claim(built.settings, "backup.lock")
        assert descriptor is not None
        with pytest.raises(BackupError, match="Another backup"):
            backups.make(built, built.vault_life.keyring, place.folder.parent / "two", TEXT, cost=COST)
        os.close(descriptor)


def test_a_locked_vault_is_not_backed_up(place):
    with place.wired() as built:
        built.vault_life.lock(LOCAL, "another long passphrase")

    with pytest.raises(SealedError):
        place.backup()


def test_a_newer_programs_backup_replaces_nothing(place, monkeypatch):
    monkeypatch.setattr(backup_contents, "FORMAT", 2)
    source = place.backup()
    monkeypatch.undo()

    with pytest.raises(BackupError, match="newer program"):
        place.restore(source)


def test_a_full_disk_leaves_nothing(place, monkeypatch):
    source, before = place.backup(), state_of(place)

    def full(_path: Path) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(restores, "_new", full)
    with pytest.raises(BackupError, match="No space left"):
        place.restore(source)
    monkeypatch.undo()

    assert state_of(place) == before
    assert not _leftovers(place)


def test_cursors_of_before_are_void(place):
    with place.wired() as built:
        for number in range(3):
            create(built, f"key-{number}")
        cursor = built.services.listing.page(operator(built), ListRequest(limit=1))["next_cursor"]
        assert cursor
    place.restore(place.backup())
    with place.wired() as built, pytest.raises(MalformedError):
        built.services.listing.page(operator(built), ListRequest(limit=1, cursor=cursor))


def test_the_keys_of_an_environment_variable_are_compared(place, monkeypatch):
    source = place.backup()
    settings = replace(place.settings, vault_key_variable="ATMEM_VAULT_KEY", vault_key_source="environment")
    monkeypatch.setenv("ATMEM_VAULT_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")

    with pytest.raises(BackupError, match="key source environment"):
        restores.restore(
            settings, source, TEXT, who=Who(), keys=wiring.key_provider(settings), now_us=1, auth=OVERRIDES.auth,
            cost=COST,
        )  # fmt: skip
