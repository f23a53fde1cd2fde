"""Threads in the life of the vault: checks, rotation, backup and restore, damage, lock (vault.md)."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from app import vault_checks
from app.vault_life import LOCAL
from continuity.decisions.threads import bounds, transcript
from continuity.errors import ConflictError, DecryptionError, NotFoundError, SealedError
from continuity.evidence import RecordEvidence
from continuity.store import schema
from continuity.store import threads_schema as tables
from continuity.thread_requests import ListThreads, Position
from tests import restoring
from tests.integration.conversing import CONTENT, Conversing, beside, converse, question, said
from tests.integration.tampering import past_triggers
from tests.restoring import place as instance
from tests.vaults import PASSPHRASE, made

__all__ = ["instance"]

BOTH = [pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.postgresql)]
EVENT = {
    "run_id": "run-1", "producer": "agent", "epoch": 1, "event_id": "e-1", "kind": "text", "content": "hello",
    "time": 1_750_000_000,
}  # fmt: skip


@pytest.fixture(params=BOTH)
def place(tmp_path, request, instance_template):
    extra = {}
    if request.param == "postgresql":
        server = request.getfixturevalue("postgresql_server")
        extra["ATMEM_DATABASE_URL"] = server.url(server.create())
    with made(tmp_path / "instance", "file", extra=extra, template=instance_template) as place:
        yield place


def quiet(_what, _count):
    pass


def checked(built):
    """Return what a check finds that contradicts itself, by the object."""
    _, found = vault_checks.check(built, quiet)
    return [(finding.object_id, finding.problem) for finding in found]


def problems(process):
    return checked(process.built)


def listed(at):
    return at.reading.page(at.person, ListThreads())["threads"]


def whole_life(at: Conversing):
    """Threads in every state, and all that a thread may hold."""
    names = {}
    names["idle"], held = at.running("first question")
    at.append(held, *said("first answer"), {"kind": "state_changed", "values": {"todos": [1]}})
    at.say(names["idle"], "be brief", how="steer")
    at.settle(held, {"answer": 1}, steers_read=2)
    names["waiting"], asked = at.running("may I")
    receipt = at.wait(asked, question(), question("t2"))
    at.reply(names["waiting"], receipt["waiting"][0]["waiting_id"], True)
    names["failed"], broken = at.running("break")
    at.fail(broken)
    names["claimed"], _ = at.running("slowly")
    names["queued"] = at.create()
    at.say(names["queued"], "later")
    return names


def recorded(process, *, run="run-1", count=3):
    for number in range(count):
        event = {**EVENT, "run_id": run, "event_id": f"{run}-{number}"}
        reply = process.built.services.evidence.record(
            restoring.operator(process.built), RecordEvidence.from_json(event)
        )
    return reply["evidence_id"]


# ---- check


def test_a_sound_vault_with_threads_and_evidence_has_no_findings(place):
    process = place.command()
    whole_life(beside(process.built))
    recorded(process)

    walked, found = vault_checks.check(process.built, quiet)

    assert (walked.unreadable, found) == (0, [])
    rows = {table.name: len(process.rows(table)) for table in (tables.journal, tables.messages, tables.waiting)}
    assert all(rows.values())
    assert walked.rows > sum(rows.values())


def pk_of(at, thread_id):
    return at.row(thread_id).thread_pk


def test_a_journal_that_was_edited_cut_or_put_together_is_named(place):
    process = place.command()
    at = beside(process.built)
    names = whole_life(at)
    journal, last = tables.journal.c, at.row(names["idle"]).last_seq
    others = at.row(names["waiting"]).thread_pk

    def work(connection):
        idle = journal.thread_pk == pk_of(at, names["idle"])
        connection.execute(sa.delete(tables.journal).where(idle, journal.seq == last))
        connection.execute(sa.update(tables.journal).where(journal.thread_pk == others, journal.seq == 2).values(at=5))

    past_triggers(process.built.store, work)
    found = problems(process)

    assert {object_id for object_id, _ in found} == {names["idle"], names["waiting"]}
    told = dict.fromkeys(names.values(), "")
    for object_id, problem in found:
        told[object_id] += problem
    assert "does not end where the head says" in told[names["idle"]]
    assert "does not follow from the one before" in told[names["waiting"]]


def test_what_a_snapshot_shows_and_the_journal_does_not_say_is_named(place):
    process = place.command()
    at = beside(process.built)
    thread_id, held = at.running("hello")
    at.append(held, {"kind": "message_started", "message_id": "m1"})
    older = at.home.rows(tables.messages)
    at.append(held, {"kind": "message_part", "message_id": "m1", "text": "text"})
    for row in older:
        at.damage(
            tables.messages, tables.messages.c.item_no == row.item_no, sealed_item=row.sealed_item,
            changed_seq=row.changed_seq,
        )  # fmt: skip

    assert (thread_id, "messages differ from what the journal says") in problems(process)
    assert {object_id for object_id, _ in problems(process)} == {thread_id}


def test_a_run_of_evidence_that_was_edited_or_cut_is_named(place):
    process = place.command()
    cut, edited, sound = (recorded(process, run=name) for name in ("cut", "edited", "sound"))
    records = schema.evidence.c
    pks = {row.evidence_id: row.run_pk for row in process.rows(schema.evidence_runs)}

    def work(connection):
        ids = sa.select(records.evidence_pk).where(records.run_pk == pks[cut], records.seq == 3).scalar_subquery()
        contents = schema.evidence_contents
        connection.execute(sa.delete(contents).where(contents.c.evidence_pk == ids))
        connection.execute(sa.delete(schema.evidence).where(records.run_pk == pks[cut], records.seq == 3))
        place = (records.run_pk == pks[edited], records.seq == 2)
        connection.execute(sa.update(schema.evidence).where(*place).values(received_at=5))

    past_triggers(process.built.store, work)
    found = problems(process)

    assert sound not in {object_id for object_id, _ in found}
    assert (cut, "record 3: the last records are missing") in found
    assert (edited, "record 2: the record does not follow the one before") in found


def test_content_of_evidence_put_back_from_another_record_is_named(place):
    process = place.command()
    evidence_id = recorded(process)
    contents = schema.evidence_contents
    first, second, *_ = sorted(process.rows(contents), key=lambda row: row.evidence_pk)
    past_triggers(process.built.store, lambda connection: connection.execute(
        sa.update(contents).where(contents.c.evidence_pk == second.evidence_pk).values(
            sealed_content=first.sealed_content
        )
    ))  # fmt: skip

    assert [object_id for object_id, _ in problems(process)] == [evidence_id]


# ---- rotation and lock


def test_a_rotation_takes_the_keys_of_threads_along(place):
    process = place.command()
    at = beside(process.built)
    names = whole_life(at)
    shown = {name: at.snapshot(thread_id) for name, thread_id in names.items()}

    process.life.start_rotation(LOCAL)
    done = process.life.run(lambda _progress: None)

    new = done.new_key_id
    kinds = {row.kind for row in process.rows(schema.partitions)}
    assert "thread" in kinds
    assert {row.key_id for row in process.rows(schema.partitions)} == {new}
    later = beside(place.command().built)
    for name, thread_id in names.items():
        assert {**later.snapshot(thread_id), "history_cursor": None} == {**shown[name], "history_cursor": None}
    assert later.claim().run["thread_id"] == names["queued"]
    assert problems(place.command()) == []


def test_a_lock_stops_threads_and_an_unlock_lets_them_go_on(place):
    process = place.command()
    at = beside(process.built)
    thread_id, held = at.running("hello")
    process.life.lock(LOCAL, PASSPHRASE)

    for call in (
        lambda: at.snapshot(thread_id), lambda: at.say(thread_id, how="follow_up"), at.create, at.claim,
        lambda: at.append(held, *said("x")), lambda: at.settle(held),
        lambda: at.reading.journal(at.person, thread_id, Position(1, 0)),
        lambda: at.reading.page(at.person, ListThreads()),
    ):  # fmt: skip
        with pytest.raises(SealedError):
            call()

    process.life.unlock(LOCAL, PASSPHRASE)
    at.append(held, *said("after"))
    at.settle(held)
    assert [message["content"] for message in at.snapshot(thread_id)["messages"]] == ["hello", "after"]


# ---- damage


def test_a_thread_that_does_not_open_hides_no_other(place):
    process = place.command()
    at = beside(process.built)
    names = whole_life(at)
    shown = at.snapshot(names["waiting"])
    damaged = names["idle"]
    at.damage(schema.partitions, schema.partitions.c.partition_id == damaged, wrapped_key=bytes(65))

    lines = {each["thread_id"]: each for each in listed(at)}

    assert set(lines) == set(names.values())
    assert [each for each, line in lines.items() if line.get("unreadable")] == [damaged]
    assert lines[damaged]["key_id"] == 1
    assert at.snapshot(names["waiting"])["messages"] == shown["messages"]
    with pytest.raises(DecryptionError):
        at.snapshot(damaged)
    assert at.claim().run["thread_id"] == names["queued"]
    # What a check tells of it is no content.
    assert {object_id for object_id, _ in problems(process)} == {damaged}


def test_a_long_thread_is_checked_with_what_a_snapshot_holds_of_it(place, monkeypatch):
    process = place.command()
    at = beside(process.built)
    thread_id, held = at.running()
    at.append(held, {"kind": "message_started", "message_id": "first"})
    for number in range(130):
        at.append(held, *said(f"m{number}"))
    sizes, advance = [], transcript.advance
    monkeypatch.setattr(
        transcript, "advance", lambda view, record: sizes.append(len(view["messages"])) or advance(view, record)
    )

    assert problems(process) == []
    assert max(sizes) <= 2 * bounds.SNAPSHOT_MESSAGES + 1

    newest = at.row(thread_id).item_count
    at.damage(tables.messages, tables.messages.c.item_no == newest, sealed_item=b"x" * 40)
    assert problems(process) != []


def test_a_queued_thread_that_does_not_open_keeps_no_other_waiting(place):
    at = beside(place.command().built)
    damaged = at.create()
    at.say(damaged, "first in the queue")
    at.damage(schema.partitions, schema.partitions.c.partition_id == damaged, wrapped_key=bytes(65))
    other = at.create()
    at.say(other, "second")

    assert at.claim().run["thread_id"] == other
    assert at.claim() is None


def broken_threads(at, count, bring):
    """Make threads that do not open any more, each brought to a state first."""
    ids = []
    for _ in range(count):
        thread_id = at.create()
        bring(thread_id)
        ids.append(thread_id)
    where = schema.partitions.c.partition_id.in_(ids)
    at.damage(schema.partitions, where, wrapped_key=bytes(65))


def test_many_queued_threads_that_do_not_open_keep_no_other_waiting(place, monkeypatch):
    monkeypatch.setattr("continuity.services.threads_claims.CANDIDATES", 2)
    monkeypatch.setattr("continuity.services.threads_claims.PAGES", 2)
    at = beside(place.command().built)
    # More than one transaction looks at.
    broken_threads(at, 9, at.say)
    other = at.create()
    at.say(other)

    assert at.claim().run["thread_id"] == other
    assert at.claim() is None


def test_many_claims_of_threads_that_do_not_open_keep_no_other_from_ending(store, tmp_path, monkeypatch):
    monkeypatch.setattr("continuity.services.threads_upkeep.BATCH", 2)
    monkeypatch.setattr("continuity.services.threads_upkeep.PAGES", 2)
    at = converse(store, tmp_path)

    def claimed(thread_id):
        at.say(thread_id)
        at.claim()

    broken_threads(at, 9, claimed)
    other, _ = at.running()
    at.clock.advance(61)

    # Each call goes on behind what the one before has looked at.
    assert [at.upkeep.expire_due() for _ in range(3)] == [0, 0, 1]
    assert at.row(other).state == "needs_attention"

    # And begins at the head again.
    later, _ = at.running()
    at.clock.advance(61)
    assert sum(at.upkeep.expire_due() for _ in range(3)) == 1
    assert at.row(later).state == "needs_attention"


def test_many_deletions_that_cannot_be_finished_keep_no_other_from_being_finished(store, tmp_path, monkeypatch):
    monkeypatch.setattr("continuity.services.unfinished.BATCH", 2)
    at = converse(store, tmp_path)

    def begun(thread_id):
        at.store.write(lambda connection: at.deletions._begin(connection, at.person, thread_id))

    broken_threads(at, 5, begun)
    other = at.create()
    at.clock.advance(1)
    begun(other)

    with pytest.raises(DecryptionError):
        at.deletions.finish_all()
    assert at.row(other).state == "deleted"


def test_an_agent_whose_declaration_does_not_open_hides_no_other(place):
    at = beside(place.command().built)
    at.declare("other")
    index = at.ledger.agent_ix("other")
    at.damage(tables.agents, tables.agents.c.agent_ix == index, sealed_agent=b"x" * 40)

    assert [agent["name"] for agent in at.reading.agents(at.person)] == ["helper"]
    assert at.snapshot(at.create())["thread"]["agent"] == "helper"


# ---- backup and restore


def test_the_story_of_a_restore_with_threads(instance):
    with instance.wired() as built:
        at = beside(built)
        gone, held = at.running("a word that is gone")
        at.append(held, *said("an answer that is gone"))
        at.settle(held)
        names = whole_life(at)
        position = Position.parse(at.snapshot(names["queued"])["checkpoint"])
        waiting = at.snapshot(names["waiting"])["waiting"]
    backup = instance.backup()
    with instance.wired() as built:
        at = beside(built)
        at.deletions.delete(at.person, gone)
        later = at.create("later")

    instance.restore(backup)

    with instance.wired() as built:
        # Its rows are back, and the list that no restore replaces says that nobody may read them.
        at = beside(built, declares=False)
        assert at.row(gone).state == "idle"
        with pytest.raises(ConflictError) as caught:
            at.snapshot(gone)
        assert caught.value.code == "thread_deleted"
        line = next(each for each in at.reading.page(at.person, ListThreads())["threads"] if each["thread_id"] == gone)
        assert line["unreadable"]
    assert instance.follow() is None

    with instance.wired() as built:
        at = beside(built, declares=False)
        row = at.row(gone)
        assert (row.state, row.sealed_head) == ("deleted", None)
        for table in CONTENT:
            assert row.thread_pk not in {each.thread_pk for each in at.home.rows(table)}
        assert not any(each["thread_id"] in {gone, later} for each in listed(at))
        # What was queued at the backup may have been done since: nothing of it starts by itself.
        assert at.claim() is None
        snapshot = at.snapshot(names["queued"])
        assert snapshot["thread"]["state"] == "needs_attention"
        assert (snapshot["runs"][-1]["state"], snapshot["runs"][-1]["reason"]) == ("interrupted", "restored")
        with pytest.raises(ConflictError) as caught:
            at.reading.journal(at.person, names["queued"], position)
        assert caught.value.code == "cursor_gap"
        # A person lets it go on, and answers what was open.
        at.control(names["queued"], "resume")
        assert at.claim().run["input"]["content"] == "later"
        assert [ask["state"] for ask in at.snapshot(names["waiting"])["waiting"]] == [ask["state"] for ask in waiting]
        assert checked(built) == []


# ---- evidence of threads


def test_evidence_under_the_id_of_a_thread_is_evidence_and_no_thread(place):
    """An agent may file what it records under the conversation; nothing of the thread is read or deleted by it."""
    process = place.command()
    at = beside(process.built)
    thread_id, held = at.running("hello")
    at.settle(held)
    services, operator = process.built.services, restoring.operator(process.built)
    with pytest.raises(NotFoundError):
        services.evidence_deletions.delete(LOCAL, thread_id)
    recorded(process, run=thread_id)

    shown = services.evidence_reading.run(operator, thread_id)

    assert (shown["run_id"], shown["records_total"]) == (thread_id, 3)
    assert services.evidence_deletions.delete(LOCAL, thread_id)["records"] == 3
    assert at.snapshot(thread_id)["messages"][0]["content"] == "hello"
    at.say(thread_id, "again")
