"""What is read of the audit log, and that no change of it or of a history stays hidden from who kept a checkpoint."""

from __future__ import annotations

import hashlib
import io
import json
import tracemalloc
from dataclasses import replace

import pytest
import sqlalchemy as sa

from continuity.errors import IntegrityError, MalformedError
from continuity.services import audit as audit_module
from continuity.services import chains
from continuity.services.audit import AuditEntry, AuditFault, AuditLog
from continuity.services.auditing import Auditing
from continuity.services.opening import Opener
from continuity.store import schema
from tests.integration.governed import TWO, Governed, govern
from tests.integration.tampering import blob, past_triggers, tamper

AUDIT = schema.audit
PLAIN = AuditEntry(action="workflow.pause", actor="user:u_1", object_id="wf_1", result="done", request_id="req_1")


@pytest.fixture
def at(store, tmp_path) -> Governed:
    return govern(store, tmp_path)


@pytest.fixture
def auditing(at) -> Auditing:
    return Auditing(at.store, at.home.audit, Opener(at.home.vault, at.watch), at.clock.now_us)


@pytest.fixture
def closed(at) -> Auditing:
    """The same where the vault does not open."""
    return Auditing(at.store, AuditLog(None), None, at.clock.now_us)


def append(at: Governed, *, times: int = 1, **members) -> None:
    entry = replace(PLAIN, **members)

    def work(connection: sa.Connection) -> None:
        for _ in range(times):
            at.home.audit.append(connection, entry, now_us=at.clock.now_us())

    at.store.write(work)


def kept(auditing: Auditing) -> io.BytesIO:
    return io.BytesIO(b"".join(auditing.checkpoint()))


def resealed(lines: list[bytes]) -> bytes:
    """Give changed lines of a checkpoint an end that fits them."""
    end = {"workflows": len(lines) - 2, "sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest()}
    return b"".join(lines[:-1]) + json.dumps(end).encode()


def found(auditing: Auditing, against: io.BytesIO | None = None) -> list[tuple[str, str | None, int]]:
    return [(each.kind, each.workflow_id, each.seq) for each in auditing.verify(against=against).findings]


def filled(at: Governed) -> list[str]:
    """Make a log of several entries and three histories of several events."""
    ids = [at.finished(), at.create(operations=TWO)["workflow_id"], at.finished()]
    append(at, times=3)
    return ids


def rewritten(at: Governed, *, changed: int, **values) -> None:
    """Change an entry and compute the chain anew behind it, the head included: what a database's owner can do."""
    previous, statements = bytes(32), []
    rows = [dict(row._mapping) for row in at.home.rows(AUDIT)]
    for row in rows:
        if row["seq"] == changed:
            row.update(values)
            statements += [f"UPDATE continuity_audit SET {name} = '{value}' WHERE seq = {changed}"
                           for name, value in values.items()]  # fmt: skip
        previous = audit_module._hash(row, previous)
        statements.append(f"UPDATE continuity_audit SET hash = {blob(at.store, previous)} WHERE seq = {row['seq']}")
    tamper(at.store, *statements, f"UPDATE continuity_audit_head SET hash = {blob(at.store, previous)}")


def cut_to(at: Governed, seq: int) -> None:
    """Remove the last entries and set the head to fit."""
    last = next(row.hash for row in at.home.rows(AUDIT) if row.seq == seq)
    tamper(
        at.store,
        f"DELETE FROM continuity_audit WHERE seq > {seq}",
        f"UPDATE continuity_audit_head SET seq = {seq}, hash = {blob(at.store, last)}",
    )


def everything(at: Governed, *tables: sa.Table) -> dict[sa.Table, list[dict]]:
    return {table: [dict(row._mapping) for row in at.home.rows(table)] for table in tables}


def put_back(at: Governed, before: dict[sa.Table, list[dict]]) -> None:
    """Put an older state of some tables back."""

    def work(connection: sa.Connection) -> None:
        for table, rows in before.items():
            connection.execute(sa.delete(table))
            if rows:
                connection.execute(sa.insert(table), rows)

    past_triggers(at.store, work)


class TestVerifying:
    def test_what_was_never_touched_is_sound_with_and_without_a_key(self, at, auditing, closed):
        ids = filled(at)

        verdict, blind = auditing.verify(), closed.verify()

        assert verdict.findings == blind.findings == []
        assert verdict.entries == len(at.home.rows(AUDIT)) > 3
        assert verdict.workflows == blind.workflows == len(ids)
        assert (verdict.has_heads, blind.has_heads) == (True, False)
        assert (verdict.compared, verdict.kept) == (None, None)

    def test_a_vault_without_anything_is_sound(self, auditing):
        assert found(auditing) == []
        assert found(auditing, kept(auditing)) == []

    @pytest.mark.parametrize(
        ("statements", "kind", "seq"),
        [
            (["UPDATE continuity_audit SET actor = 'user:u_2' WHERE seq = 2"], "changed", 2),
            (["DELETE FROM continuity_audit WHERE seq = 2"], "missing", 2),
            (
                [
                    "UPDATE continuity_audit SET seq = 9 WHERE seq = 1",
                    "UPDATE continuity_audit SET seq = 1 WHERE seq = 2",
                    "UPDATE continuity_audit SET seq = 2 WHERE seq = 9",
                ],
                "changed",
                1,
            ),
            (
                [
                    "UPDATE continuity_audit SET seq = 4 WHERE seq = 3",
                    (
                        "INSERT INTO continuity_audit (seq, at, action, actor, result, hash)"
                        " SELECT 3, at, action, actor, result, hash FROM continuity_audit WHERE seq = 2"
                    ),
                ],
                "changed",
                3,
            ),
            (["DELETE FROM continuity_audit WHERE seq = 3"], "truncated", 3),
            (["UPDATE continuity_audit_head SET hash = (SELECT hash FROM continuity_audit WHERE seq = 1)"], "head", 3),
        ],
        ids=["edited", "removed", "swapped", "inserted", "cut", "head"],
    )
    def test_a_change_of_the_log_is_one_finding_that_names_the_entry(self, at, auditing, closed, statements, kind, seq):
        append(at, times=3)
        tamper(at.store, *statements)

        [finding] = closed.verify().findings
        assert (finding.kind, finding.workflow_id, finding.seq) == (kind, None, seq)
        assert str(finding).startswith(f"Audit entry {seq}: the ")
        assert found(auditing) == [(kind, None, seq)]

    @pytest.mark.parametrize("change", ["hash = 'x'", "seq = 'x'"])
    def test_a_head_of_another_type_is_found(self, sqlite_store, tmp_path, change):
        at = govern(sqlite_store, tmp_path)
        append(at, times=3)
        tamper(at.store, f"UPDATE continuity_audit_head SET {change}")

        assert found(Auditing(at.store, AuditLog(None), None, at.clock.now_us)) == [("surplus", None, 1)]

    @pytest.mark.parametrize("change", ["at = 1.5", "at = 'x'", "hash = 'x'", "sealed_detail = 'x'", "actor = X'ff'"])
    def test_a_value_of_another_type_is_found_and_shown(self, sqlite_store, tmp_path, change):
        at = govern(sqlite_store, tmp_path)
        append(at, times=3)
        tamper(at.store, f"UPDATE continuity_audit SET {change} WHERE seq = 2")
        auditing = Auditing(at.store, at.home.audit, Opener(at.home.vault, at.watch), at.clock.now_us)

        assert found(auditing) == [("changed", None, 2)]
        assert [entry.seq for entry in auditing.entries(actor="cli", count=3)] == [3, 2, 1]

    @pytest.mark.parametrize("column", ["action", "actor", "object_id", "result", "request_id", "at", "hash"])
    def test_text_that_is_none_is_found_and_shown(self, sqlite_store, tmp_path, column):
        at = govern(sqlite_store, tmp_path)
        append(at, times=3)
        tamper(at.store, f"UPDATE continuity_audit SET {column} = CAST(X'61ff62' AS TEXT) WHERE seq = 2")
        auditing = Auditing(at.store, at.home.audit, Opener(at.home.vault, at.watch), at.clock.now_us)

        assert found(auditing) == [("changed", None, 2)]
        page = auditing.entries(actor="cli", count=3)
        assert [entry.seq for entry in page] == [3, 2, 1]
        assert json.dumps([repr(entry.entry) for entry in page]).encode("utf-8")

    @pytest.mark.parametrize(
        ("table", "column", "kind"),
        [
            ("continuity_events", "kind", "changed"),
            ("continuity_events", "hash", "changed"),
            ("continuity_workflows", "workflow_id", "changed"),
            ("continuity_operations", "status", None),
            ("continuity_vault", "capture_mode", None),
            ("continuity_audit_head", "hash", "surplus"),
        ],
    )
    def test_text_that_is_none_is_a_finding_wherever_it_stands(self, sqlite_store, tmp_path, table, column, kind):
        at = govern(sqlite_store, tmp_path)
        workflow_id = at.finished()
        append(at, times=2)
        past_triggers(at.store, lambda connection: [
            connection.exec_driver_sql("PRAGMA ignore_check_constraints=ON"),
            connection.exec_driver_sql(f"UPDATE {table} SET {column} = CAST(X'61ff62' AS TEXT)"),
        ])  # fmt: skip
        auditing = Auditing(at.store, at.home.audit, Opener(at.home.vault, at.watch), at.clock.now_us)

        kinds = [each.kind for each in auditing.verify().findings]

        assert kinds == ([] if kind is None else [kind])
        assert [str(each) for each in auditing.verify().findings if "\udcff" in str(each)] == []
        is_of_workflow = table != "continuity_audit_head"
        problems = at.checker.check()
        assert bool(problems) is is_of_workflow
        if table == "continuity_vault":
            assert {each.object_id for each in problems} >= {workflow_id}

    @pytest.mark.parametrize("column", ["events.hash", "workflows.workflow_id"])
    def test_no_checkpoint_is_made_of_an_end_that_is_no_text(self, sqlite_store, tmp_path, column):
        at = govern(sqlite_store, tmp_path)
        at.finished()
        table, _, name = column.partition(".")
        tamper(at.store, f"UPDATE continuity_{table} SET {name} = CAST(X'61ff62' AS TEXT)")

        with pytest.raises(IntegrityError, match="true end"):
            list(Auditing(at.store, AuditLog(None), None, at.clock.now_us).checkpoint())

    @pytest.mark.parametrize(
        ("statement", "kind", "seq"),
        [
            ("UPDATE continuity_events SET kind = 'x' WHERE seq = 2", "changed", 2),
            ("UPDATE continuity_events SET at = at + 1 WHERE seq = 2", "changed", 2),
            ("DELETE FROM continuity_events WHERE seq = 2", "missing", 2),
            ("DELETE FROM continuity_events WHERE seq = 1", "missing", 1),
            ("DELETE FROM continuity_events", "missing", 1),
            ("UPDATE continuity_events SET seq = seq + 7 WHERE seq = 3", "missing", 3),
        ],
    )
    def test_a_change_of_a_history_is_found_without_a_key(self, at, closed, statement, kind, seq):
        workflow_id = at.finished()
        tamper(at.store, statement)

        [finding] = closed.verify().findings
        assert (finding.kind, finding.workflow_id, finding.seq) == (kind, workflow_id, seq)
        assert str(finding).startswith(f"{workflow_id}, event {seq}: ")

    def test_a_shortened_history_contradicts_the_sealed_head(self, at, auditing, closed):
        workflow_id = at.finished()
        tamper(at.store, "DELETE FROM continuity_events WHERE seq = 3")

        assert found(auditing) == [("truncated", workflow_id, 3)]
        # Without the key nobody knows how long it was: what a checkpoint is for.
        assert found(closed) == []

    def test_a_lengthened_history_contradicts_the_sealed_head(self, at, auditing):
        workflow_id = at.finished()
        last = at.home.rows(schema.events)[-1]
        linked = chains.link(
            workflow_id, seq=4, kind="x", at_us=last.at, sealed_event=last.sealed_event, previous=last.hash
        )
        tamper(
            at.store,
            "INSERT INTO continuity_events (workflow_pk, seq, kind, at, hash, sealed_event)"
            f" SELECT workflow_pk, 4, 'x', at, {blob(at.store, linked)}, sealed_event"
            " FROM continuity_events WHERE seq = 3",
        )

        assert found(auditing) == [("surplus", workflow_id, 4)]

    def test_a_last_event_written_anew_contradicts_the_sealed_head(self, at, auditing):
        workflow_id = at.finished()
        before, last = at.home.rows(schema.events)[-2:]
        linked = chains.link(
            workflow_id, seq=3, kind="x", at_us=last.at, sealed_event=last.sealed_event, previous=before.hash
        )
        tamper(at.store, f"UPDATE continuity_events SET kind = 'x', hash = {blob(at.store, linked)} WHERE seq = 3")

        assert found(auditing) == [("head", workflow_id, 3)]

    def test_what_is_wrong_with_one_history_hides_no_other(self, at, auditing):
        ids = filled(at)
        tamper(at.store, "DELETE FROM continuity_events WHERE seq = 1")
        append(at)
        tamper(at.store, "UPDATE continuity_audit SET result = 'x' WHERE seq = 1")

        assert found(auditing) == [("changed", None, 1), *(("missing", workflow_id, 1) for workflow_id in ids)]

    def test_an_older_workflow_put_back_after_its_deletion_is_found(self, at, auditing):
        workflow_id = at.finished()
        before = everything(at, schema.workflows, schema.partitions, schema.events)
        at.deletions.delete(at.operator, workflow_id)
        put_back(at, before)

        assert [each for each in found(auditing) if each[1] == workflow_id] == [("put_back", workflow_id, 1)]

    def test_a_deleted_workflow_is_no_finding(self, at, auditing):
        ids = filled(at)
        at.deletions.delete(at.operator, ids[0])

        assert found(auditing) == []
        assert auditing.verify().workflows == 2


class TestCheckpoints:
    def test_work_that_goes_on_contradicts_no_checkpoint(self, at, auditing, closed):
        ids = filled(at)
        checkpoint = kept(auditing)
        at.begin(ids[1])
        at.finished()
        append(at, times=2)
        at.deletions.delete(at.operator, ids[0])

        assert found(auditing, checkpoint) == found(closed, checkpoint) == []
        assert auditing.verify(against=checkpoint).compared == 3

    def test_a_checkpoint_is_lines_that_say_what_it_is_and_where_it_ends(self, at, auditing):
        ids = filled(at)

        first, *heads, last = [json.loads(line) for line in kept(auditing).getvalue().splitlines()]

        rows = at.home.rows(AUDIT)
        assert first["format"] == "atmem-audit-checkpoint-1"
        assert first["audit"] == {"seq": rows[-1].seq, "hash": rows[-1].hash.hex(), "first": rows[0].hash.hex()}
        assert [(head["workflow_id"], head["seq"]) for head in heads] == list(zip(ids, (3, 1, 3), strict=True))
        assert last["workflows"] == 3

    def test_entries_cut_off_with_the_head_are_found_by_the_checkpoint_alone(self, at, auditing, closed):
        append(at, times=5)
        checkpoint = kept(auditing)
        cut_to(at, 3)

        assert found(auditing) == []
        [finding] = closed.verify(against=checkpoint).findings
        assert (finding.kind, finding.seq) == ("newer", 5)
        assert "which ends with entry 3" in str(finding)

    def test_entries_cut_off_and_grown_again_are_found_by_the_checkpoint_alone(self, at, auditing):
        append(at, times=5)
        checkpoint = kept(auditing)
        cut_to(at, 3)
        append(at, times=4, actor="user:u_2")

        assert found(auditing) == []
        assert found(auditing, checkpoint) == [("checkpoint", None, 5)]

    def test_a_chain_computed_anew_behind_an_edit_is_found_by_the_checkpoint_alone(self, at, auditing):
        append(at, times=5)
        checkpoint = kept(auditing)
        rewritten(at, changed=2, actor="user:u_2")

        assert found(auditing) == []
        assert found(auditing, checkpoint) == [("checkpoint", None, 5)]

    def test_a_chain_computed_anew_from_its_first_entry_reads_as_another_log(self, at, auditing):
        append(at, times=2)
        checkpoint = kept(auditing)
        rewritten(at, changed=1, actor="user:u_2")

        assert found(auditing, checkpoint) == [("other_log", None, 1)]

    def test_an_edit_behind_the_checkpoint_is_nothing_that_it_can_know(self, at, auditing):
        append(at, times=2)
        checkpoint = kept(auditing)
        append(at, times=3)
        rewritten(at, changed=4, actor="user:u_2")

        assert found(auditing, checkpoint) == []

    def test_a_database_rolled_back_to_before_the_checkpoint_is_found(self, at, auditing, closed):
        ids = filled(at)
        before = everything(at, *schema.metadata.sorted_tables)
        at.report(ids[1], at.begin(ids[1]))
        new = at.finished()
        append(at)
        checkpoint = kept(auditing)
        put_back(at, before)

        assert found(auditing) == []
        wrong = found(auditing, checkpoint)
        assert wrong == [
            ("newer", None, json.loads(checkpoint.getvalue().splitlines()[0])["audit"]["seq"]),
            ("checkpoint", ids[1], 3), ("checkpoint", new, 3),
        ]  # fmt: skip
        assert found(closed, checkpoint) == wrong

    def test_a_shortened_history_is_found_without_a_key(self, at, closed):
        workflow_id = at.finished()
        checkpoint = kept(closed)
        tamper(at.store, "DELETE FROM continuity_events WHERE seq = 3")

        [finding] = closed.verify(against=checkpoint).findings
        assert (finding.kind, finding.workflow_id, finding.seq) == ("checkpoint", workflow_id, 3)

    def test_a_history_written_anew_is_found_without_a_key(self, at, closed):
        workflow_id = at.create()["workflow_id"]
        checkpoint = kept(closed)
        [first] = at.home.rows(schema.events)
        linked = chains.link(
            workflow_id, seq=1, kind="x", at_us=first.at, sealed_event=first.sealed_event, previous=bytes(32)
        )
        tamper(at.store, f"UPDATE continuity_events SET kind = 'x', hash = {blob(at.store, linked)}")

        assert found(closed) == []
        assert found(closed, checkpoint) == [("checkpoint", workflow_id, 1)]

    def test_a_workflow_that_vanished_without_a_deletion_is_found(self, at, auditing):
        ids = filled(at)
        checkpoint = kept(auditing)
        pk = at.row(ids[0]).workflow_pk
        tamper(
            at.store,
            *(f"DELETE FROM continuity_{table} WHERE workflow_pk = {pk}" for table in ("workflows", "events")),
        )

        assert found(auditing) == []
        assert found(auditing, checkpoint) == [("checkpoint", ids[0], 3)]

    def test_a_deletion_that_only_the_log_tells_of_is_found_where_the_vault_opens(self, at, auditing):
        ids = filled(at)
        checkpoint = kept(auditing)
        pk = at.row(ids[0]).workflow_pk
        tamper(
            at.store,
            *(f"DELETE FROM continuity_{table} WHERE workflow_pk = {pk}" for table in ("workflows", "events")),
        )
        append(at, action="workflow.deleted", object_id=ids[0])

        assert found(auditing, checkpoint) == [("checkpoint", ids[0], 3)]

    def test_an_earlier_deletion_explains_no_later_loss(self, at, auditing, closed):
        ids = filled(at)
        append(at, action="workflow.deleted", object_id=ids[0])
        checkpoint = kept(auditing)
        pk = at.row(ids[0]).workflow_pk
        tamper(at.store, f"DELETE FROM continuity_events WHERE workflow_pk = {pk}")

        wrong = [("missing", ids[0], 1), ("checkpoint", ids[0], 3)]
        assert found(auditing, checkpoint) == found(closed, checkpoint) == wrong

    def test_a_checkpoint_of_another_vault_says_so_and_nothing_else(self, at, auditing):
        filled(at)
        lines = kept(auditing).getvalue().splitlines(keepends=True)
        lines[0] = lines[0].replace(at.home.rows(AUDIT)[0].hash.hex().encode(), b"ab" * 32)
        foreign = io.BytesIO(resealed(lines))

        assert found(auditing, foreign) == [("other_log", None, 1)]
        assert auditing.verify(against=foreign).compared == 0

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            (b"", "is no checkpoint"),
            (b"\x00" * 10_000, "is no checkpoint"),
            (b"[1]\n", "is no checkpoint"),
            (b'{"format":"atmem-audit-checkpoint-1"}\n', "is no checkpoint"),
            (b'{"format":"atmem-audit-checkpoint-2","x":1}\n', "does not read"),
            (b'{"workflows":0,"sha256":""}\n', "is no checkpoint"),
        ],
    )
    def test_a_file_that_is_no_checkpoint_is_refused(self, auditing, body, said):
        with pytest.raises(MalformedError, match=said):
            auditing.verify(against=io.BytesIO(body))

    @pytest.mark.parametrize(
        "broken",
        [
            lambda lines: lines[:-1],
            lambda lines: [*lines[:1], *lines[2:]],
            lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
            lambda lines: [*lines, lines[1]],
            lambda lines: [lines[0], lines[1].replace(b'"hash":"', b'"hash":"00'), *lines[2:]],
            lambda lines: [*lines[:2], lines[2][:40]],
            lambda lines: [lines[0].replace(b'"seq":', b'"seq":1'), *lines[1:]],
        ],
        ids=["cut", "a line less", "swapped", "a line more", "a longer hash", "half a line", "another sequence"],
    )
    def test_a_checkpoint_that_is_not_as_it_was_written_is_refused(self, at, auditing, broken):
        filled(at)
        lines = kept(auditing).getvalue().splitlines(keepends=True)

        with pytest.raises(MalformedError, match=r"not as it was written|not whole"):
            auditing.verify(against=io.BytesIO(b"".join(broken(lines))))

    def test_line_breaks_of_another_system_do_not_matter(self, at, auditing):
        filled(at)

        assert found(auditing, io.BytesIO(kept(auditing).getvalue().replace(b"\n", b"\r\n"))) == []

    def test_a_log_without_its_true_end_gets_no_checkpoint(self, at, auditing):
        append(at, times=3)
        tamper(at.store, "DELETE FROM continuity_audit WHERE seq = 3")

        with pytest.raises(IntegrityError, match="atmem audit verify"):
            next(auditing.checkpoint())


class TestReading:
    def test_entries_come_newest_first_by_pages(self, at, auditing):
        append(at, times=5)

        pages = [auditing.entries(actor="cli", count=2, before=before) for before in (None, 4, 2)]

        assert [[entry.seq for entry in page] for page in pages] == [[5, 4], [3, 2], [1]]
        assert pages[0][0].entry == PLAIN
        assert pages[0][0].at_us == at.clock.now_us()

    def test_details_are_opened_after_the_log_says_who_reads_them(self, at, auditing):
        append(at, detail={"why": "x"})
        append(at)

        page = auditing.entries(actor="cli", count=2)

        assert [(each.detail_state, each.entry.detail) for each in page] == [("none", None), ("open", {"why": "x"})]
        last = at.home.rows(AUDIT)[-1]
        assert (last.action, last.actor, last.object_id) == ("audit.viewed", "cli", "1-2")
        assert found(auditing) == []

    def test_a_page_without_details_writes_nothing(self, at, auditing):
        append(at, times=2)

        auditing.entries(actor="cli", count=2)

        assert len(at.home.rows(AUDIT)) == 2

    def test_a_closed_vault_shows_what_is_clear_and_writes_nothing(self, at, closed):
        append(at, detail={"why": "x"})

        [entry] = closed.entries(actor="cli", count=1)

        assert (entry.entry, entry.detail_state) == (PLAIN, "sealed")
        assert len(at.home.rows(AUDIT)) == 1

    def test_a_look_that_cannot_be_written_opens_nothing(self, at, auditing):
        append(at, detail={"why": "x"})
        tamper(at.store, "DELETE FROM continuity_audit_head")

        [entry] = auditing.entries(actor="cli", count=1)

        assert (entry.entry.action, entry.entry.detail, entry.detail_state) == ("workflow.pause", None, "sealed")

    def test_one_unreadable_detail_hides_no_other_entry(self, at, auditing):
        append(at, times=3, detail={"why": "x"})
        tamper(at.store, f"UPDATE continuity_audit SET sealed_detail = {blob(at.store, bytes(80))} WHERE seq = 2")

        page = auditing.entries(actor="cli", count=3)

        assert [each.detail_state for each in page] == ["open", "unreadable", "open"]


def test_ten_thousand_entries_take_no_more_memory_than_two_thousand(at, closed):
    closed.verify()
    peaks, told = [], []
    for more in (2_000, 8_000):
        append(at, times=more)
        tracemalloc.start()
        verdict = closed.verify(lambda what, count: told.append((what, count)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert (verdict.entries, verdict.findings) == (10_000, [])
    assert told[-10:] == [("entries", count) for count in range(1_000, 11_000, 1_000)]
    assert peaks[1] < 1.5 * peaks[0]


def test_a_walk_in_steps_lets_others_write_and_finds_the_same(at, auditing):
    filled(at)
    append(at, times=2_500)
    steps, verdict = 0, None
    for step in auditing.steps():
        steps += 1
        append(at)
        verdict = step.verdict
    assert (steps > 3, verdict.findings) == (True, [])

    tamper(at.store, "UPDATE continuity_audit SET actor = 'user:u_2' WHERE seq = 2100")
    told = [(each.what, each.count) for each in auditing.steps()]
    assert found(auditing) == [("changed", None, 2_100)]
    assert told[:2] == [("entries", 1_000), ("entries", 2_000)]


@pytest.mark.parametrize("length", [3, 1_000, 1_001, 1_400])
def test_the_last_entries_are_looked_at_without_the_rest(at, closed, length):
    append(at, times=length)
    end = closed.store.read(closed.log.verify_end)
    assert (end.entries, end.fault) == (min(length, 1_000), None)

    tamper(at.store, f"UPDATE continuity_audit SET actor = 'user:u_2' WHERE seq = {length - 1}")
    assert closed.store.read(closed.log.verify_end).fault == AuditFault("changed", length - 1)


def test_the_last_entries_cut_off_are_found_by_the_short_look(at, closed):
    append(at, times=1_200)
    tamper(at.store, "DELETE FROM continuity_audit WHERE seq > 1100")

    assert closed.store.read(closed.log.verify_end).fault == AuditFault("truncated", 1_101)


def test_findings_end_somewhere(at, closed):
    filled(at)
    tamper(at.store, "DELETE FROM continuity_events WHERE seq = 1")

    assert len(closed.verify().findings) == 3
    assert len(closed.verify(most=2).findings) == 2
