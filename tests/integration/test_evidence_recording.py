"""Recording evidence: what is kept in each mode, repeats, limits, races; a search finds it and a run shows it."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from functools import partial

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from continuity import limits
from continuity.errors import ConflictError, MalformedError, NotFoundError, SealedError
from continuity.evidence import RecordEvidence
from continuity.store import schema
from continuity.store.engine import make_engine
from continuity.store.store import Store
from tests.integration.recorded import EVENT, PASSPHRASE, Recorded, recorded
from tests.integration.test_services_creating import together


@pytest.fixture
def at(store, tmp_path) -> Recorded:
    return recorded(store, tmp_path)


def refused(action) -> str:
    with pytest.raises(ConflictError) as caught:
        action()
    return caught.value.code


def test_a_record_comes_back_as_it_was_sent(at):
    content = {"tool": "files", "arguments": {"text": "Ünïcode", "n": 1.5, "list": [True, None, {}]}}

    reply = at.record(kind="tool_call", content=content)

    assert (reply["accepted"], reply["replayed"], reply["seq"], reply["captured"]) == (True, False, 1, "full")
    shown = at.read()
    assert shown["is_whole"]
    assert shown["records_total"] == 1
    record = shown["records"][0]
    assert record["content"] == content
    assert (record["tool"], record["type"], record["kind"]) == ("files", "object", "tool_call")
    assert (record["producer"], record["epoch"], record["event_id"]) == ("agent", 1, "e-1")


def test_a_vault_of_evidence_alone_stays_in_its_first_format(at):
    at.record()

    assert at.at.home.rows(schema.vault)[0].format == 2
    at.at.create("one")
    assert at.at.home.rows(schema.vault)[0].format == 3
    at.record(event_id="e-2")
    assert len(at.read()["records"]) == 2


def test_a_text_is_measured_as_its_utf8(at):
    at.record(content="Grüße")

    record = at.read()["records"][0]
    assert (record["type"], record["bytes"]) == ("text", 7)
    assert record["sha256"] == hashlib.sha256("Grüße".encode()).hexdigest()


def test_an_exact_repeat_is_answered_as_the_first_time_and_changes_nothing(at):
    first = at.record()
    before = at.at.everything()

    again = at.record()

    assert again == {**first, "replayed": True}
    assert at.at.everything() == before


@pytest.mark.parametrize(
    "change",
    [{"content": "Hello, harbour"}, {"kind": "tool_call"}, {"run_id": "run-2"}, {"time": 1_750_000_001}],
    ids=lambda change: next(iter(change)),
)
def test_the_same_event_with_anything_else_is_refused(at, change):
    at.record()
    before = at.at.everything()

    assert refused(lambda: at.record(**change)) == "event_conflict"
    assert at.at.everything() == before


def test_a_repeat_is_known_by_producer_epoch_and_event(at):
    at.record()

    for over in ({"producer": "other"}, {"epoch": 2}, {"event_id": "e-2"}):
        assert not at.record(**over)["replayed"]
    assert [record["seq"] for record in at.read()["records"]] == [1, 2, 3, 4]


def test_workspaces_do_not_meet(at):
    stranger = at.elsewhere()
    own = at.record()
    other = at.record(by=stranger, content="Another harbour")

    assert not other["replayed"]
    assert own["evidence_id"] != other["evidence_id"]
    assert at.read(by=stranger)["records"][0]["content"] == "Another harbour"
    with pytest.raises(NotFoundError):
        at.read(own["evidence_id"], by=stranger)
    # Whoever sees both must say which.
    assert refused(at.read) == "request_conflict"
    assert at.read(own["evidence_id"])["records"][0]["content"] == "Hello harbour"


def test_metadata_keep_size_digest_and_type_and_no_word(at):
    at.capture.set_mode(at.administrator, "metadata")

    reply = at.record(kind="tool_call", content={"tool": "files", "text": "harbour"})

    assert reply["captured"] == "metadata"
    record = at.read()["records"][0]
    assert (record["type"], record["captured"]) == ("object", "metadata")
    assert record["bytes"] > 0
    assert "content" not in record
    assert "tool" not in record
    assert at.at.home.rows(schema.evidence_contents) == []
    assert at.found(search="harbour") == []
    assert at.found(kind="tool_call") == at.found(run="run-1") == at.found(producer="agent") == ["e-1"]
    assert at.record(kind="tool_call", content={"tool": "files", "text": "harbour"})["replayed"]


def test_with_capture_off_nothing_is_kept_and_it_is_said(at):
    first = at.record()
    at.capture.set_mode(at.administrator, "off")
    before = at.at.everything()

    assert refused(lambda: at.record(event_id="e-2")) == "capture_off"
    assert at.record() == {**first, "replayed": True}
    assert at.at.everything() == before


def test_a_locked_vault_records_nothing(at):
    at.record()
    evidence_id = at.read()["evidence_id"]
    calls = (
        at.record, at.read, at.page, at.listed_runs, lambda: at.reading.manifest(at.operator, evidence_id), at.retain,
        lambda: at.exporting.encrypted(at.operator, evidence_id, PASSPHRASE),
        lambda: at.exporting.plaintext(at.administrator, evidence_id),
        lambda: at.deletions.delete(at.administrator, evidence_id), lambda: at.capture.status(at.administrator),
        lambda: at.capture.set_mode(at.administrator, "off"), lambda: at.retain(kind="evidence"),
    )  # fmt: skip

    # The row says so, in this process too, which has the key still.
    at.at.damage(schema.vault, state="locked")
    for call in calls:
        with pytest.raises(SealedError):
            call()
    at.at.damage(schema.vault, state="open")
    at.at.home.vault.lock()
    for call in calls:
        with pytest.raises(SealedError):
            call()


def test_a_run_ends_at_its_limits(at, monkeypatch):
    monkeypatch.setattr(limits, "EVIDENCE_RECORDS", 2)
    at.several(2)

    assert refused(lambda: at.record(event_id="third")) == "evidence_limit_reached"
    monkeypatch.setattr(limits, "EVIDENCE_RECORDS", 10)
    monkeypatch.setattr(limits, "EVIDENCE_RUN_BYTES", 2_000)
    assert refused(lambda: at.record(event_id="large", content="x" * 2_000)) == "evidence_limit_reached"
    assert not at.record(event_id="other", run_id="run-2")["replayed"]


@pytest.mark.parametrize(
    "body",
    [
        {**EVENT, "more": 1}, {key: value for key, value in EVENT.items() if key != "time"}, {**EVENT, "content": None},
        {**EVENT, "epoch": -1}, {**EVENT, "epoch": True}, {**EVENT, "epoch": "1"}, {**EVENT, "time": -1},
        {**EVENT, "time": 1e300}, {**EVENT, "kind": "a b"}, {**EVENT, "producer": ""}, {**EVENT, "event_id": "x" * 129},
        {**EVENT, "run_id": "wf_" + "0" * 32}, {**EVENT, "run_id": "er_" + "0" * 32},
        {**EVENT, "content": "x" * (limits.EVIDENCE_BYTES - 1)},
    ],
)  # fmt: skip
def test_what_is_not_what_it_must_be_is_refused(body):
    with pytest.raises(MalformedError):
        RecordEvidence.from_json(body)


def test_first_records_of_one_run_at_once_make_one_run(at):
    answers = together(*[lambda number=number: at.record(event_id=f"e-{number}") for number in range(8)])

    assert {answer["evidence_id"] for answer in answers} == {answers[0]["evidence_id"]}
    assert sorted(answer["seq"] for answer in answers) == list(range(1, 9))
    assert at.read()["is_whole"]


def test_one_event_sent_by_many_at_once_is_one_record(at):
    answers = together(*[at.record] * 8)

    assert sorted(answer["replayed"] for answer in answers) == [False] + [True] * 7
    assert len(at.read()["records"]) == 1


@pytest.mark.postgresql
def test_a_repeat_that_comes_between_the_run_and_its_first_event_is_a_repeat(postgresql_store, tmp_path):
    at = recorded(postgresql_store, tmp_path)
    first = []

    def record_before(_connection, _cursor, statement, *_):
        if "event_ix =" in statement and not first:
            first.append(None)
            first.extend(together(at.record))

    sa.event.listen(postgresql_store.engine, "before_cursor_execute", record_before)

    late = at.record()

    assert first[1] == {**late, "replayed": False}
    assert late["replayed"]


@pytest.fixture(scope="module")
def fresh_installation(sqlite_template, tmp_path_factory):
    """A function that gives an installation of its own for each generated history."""

    @contextmanager
    def fresh():
        folder = tmp_path_factory.mktemp("repeats")
        engine = make_engine(sqlite_template.copy_to(folder / "atmem.db"), pool_size=2)
        store = Store(engine)
        try:
            yield recorded(store, folder)
        finally:
            store.close()
            engine.dispose()

    return fresh


EVENTS = st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from(["a", "b"]), st.integers(0, 2))


@settings(max_examples=40, deadline=None)
@given(sent=st.lists(EVENTS, max_size=12))
def test_whatever_is_repeated_every_event_is_kept_once_as_it_came_first(fresh_installation, sent):
    with fresh_installation() as at:
        first: dict[tuple[int, int], tuple[str, int]] = {}
        for event, epoch, run, content in sent:
            key, said = (event, epoch), (run, content)
            asked = {"event_id": f"e{event}", "epoch": epoch, "run_id": run, "content": f"c{content}"}
            if first.setdefault(key, said) == said:
                assert at.record(**asked)["accepted"]
            else:
                assert refused(partial(at.record, **asked)) == "event_conflict"

        kept = {
            (int(record["event_id"][1:]), record["epoch"]): (run, int(record["content"][1:]))
            for run in {run for run, _ in first.values()}
            for record in at.read(run)["records"]
        }
        assert kept == first


def test_nothing_of_a_record_is_readable_in_the_database(at):
    at.record(run_id="sentinelrun", producer="sentinelproducer", kind="sentinelkind", event_id="sentinelevent",
              content={"tool": "sentineltool", "text": "sentinelword"})  # fmt: skip

    stored = b""
    for rows in at.at.everything().values():
        for row in rows:
            stored += b"".join(value if isinstance(value, bytes) else str(value).encode() for value in row)
    assert b"sentinel" not in stored
