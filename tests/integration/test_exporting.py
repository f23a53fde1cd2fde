"""Exports: whole, sealed or in the clear, for whom, and what of a damaged one is told."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa

from continuity.errors import (
    ConflictError,
    ForbiddenError,
    MalformedError,
    NotFoundError,
    SealedFileError,
    UnavailableError,
)
from continuity.services import exporting
from continuity.store import schema
from tests.integration.recorded import PASSPHRASE, Recorded, recorded
from tests.patience import PATIENCE_S


@pytest.fixture
def at(store, tmp_path) -> Recorded:
    return recorded(store, tmp_path)


def lines_of(body: bytes) -> list[dict]:
    return [json.loads(line) for line in body.splitlines()]


def opened(body: bytes, passphrase: str = PASSPHRASE) -> bytes:
    return b"".join(exporting.opened_lines(io.BytesIO(body), passphrase))


def test_a_run_leaves_whole_and_comes_back(at):
    at.several(3)
    evidence_id = at.read()["evidence_id"]

    exported = at.exporting.encrypted(at.operator, "run-1", PASSPHRASE)

    assert exported.filename == f"{evidence_id}.atmem"
    assert b"common" not in exported.body
    body = opened(exported.body)
    head, *records, end = lines_of(body)
    assert (head["format"], head["kind"], head["run_id"]) == ("atmem-evidence-export-v1", "evidence", "run-1")
    assert [line["record"]["content"] for line in records] == [f"word{number} common" for number in range(3)]
    before = b"".join(line + b"\n" for line in body.splitlines()[:-1])
    assert end == {"end": 4, "sha256": hashlib.sha256(before).hexdigest()}


def test_a_workflow_leaves_with_its_history(at):
    workflow_id = at.at.finished("one")

    exported = at.exporting.plaintext(at.administrator, workflow_id)

    assert exported.filename == f"{workflow_id}.jsonl"
    head, line, end = lines_of(exported.body)
    assert (head["kind"], head["workflow_id"], end["end"]) == ("workflow", workflow_id, 2)
    assert line["workflow"]["operations"][0]["receipt"]["effect_id"] == "e-1"
    assert {entry["event"] for entry in line["workflow"]["history"]} >= {"created", "attempt_granted"}
    assert "ik_" not in exported.body.decode()
    assert "lease_hash" not in exported.body.decode()


def test_who_took_what_is_in_the_audit_log(at):
    at.several(1)
    evidence_id, workflow_id = at.read()["evidence_id"], at.at.finished("one")
    before = len(at.at.home.actions())
    at.exporting.encrypted(at.operator, "run-1", PASSPHRASE)
    at.exporting.plaintext(at.administrator, workflow_id)

    assert at.at.home.actions()[before:] == [("evidence.exported", "done"), ("evidence.exported_in_clear", "done")]
    rows = at.at.home.rows(schema.audit)[before:]
    assert [(row.actor, row.object_id) for row in rows] == [("cred:1", evidence_id), ("user:adm", workflow_id)]


def test_more_than_two_at_once_are_told_to_ask_again(at):
    at.several(1)
    exports, before = replace(at.exporting, wait_s=0.05), len(at.at.home.actions())
    begun, go_on = threading.Semaphore(0), threading.Event()

    def hold(_connection, _cursor, statement, *_):
        if "FROM continuity_evidence " in statement:
            begun.release()
            go_on.wait(PATIENCE_S)

    sa.event.listen(at.at.store.engine, "before_cursor_execute", hold)
    with ThreadPoolExecutor(2) as pool:
        under_way = [pool.submit(exports.encrypted, at.operator, "run-1", PASSPHRASE) for _ in range(2)]
        assert begun.acquire(timeout=PATIENCE_S)
        assert begun.acquire(timeout=PATIENCE_S)
        for export in (exports.encrypted, lambda who, run, _: exports.plaintext(who, run)):
            with pytest.raises(UnavailableError) as refused:
                export(at.administrator, "run-1", PASSPHRASE)
            assert refused.value.retry_after_s == 5
        go_on.set()
    assert {len(lines_of(opened(each.result().body))) for each in under_way} == {3}
    assert at.at.home.actions()[before:] == [("evidence.exported", "done")] * 2
    assert exports.plaintext(at.administrator, "run-1").body


def test_administrators_alone_take_plaintext(at):
    at.several(1)
    for caller in (at.operator, at.investigator, at.at.person):
        with pytest.raises(ForbiddenError):
            at.exporting.plaintext(caller, "run-1")


def test_nobody_takes_what_is_not_theirs_or_not_there(at):
    at.several(1)
    workflow_id, stranger = at.at.finished("one"), at.elsewhere()
    for run in ("run-1", at.read()["evidence_id"], workflow_id, "nowhere"):
        with pytest.raises(NotFoundError):
            at.exporting.encrypted(stranger, run, PASSPHRASE)
    at.deletions.delete(at.administrator, "run-1")
    at.at.deletions.delete(at.operator, workflow_id)
    for run, code in (("run-1", "evidence_deleted"), (workflow_id, "workflow_deleted")):
        with pytest.raises(ConflictError) as caught:
            at.exporting.plaintext(at.administrator, run)
        assert caught.value.code == code


def test_a_weak_passphrase_takes_nothing(at):
    at.several(1)
    before = at.at.home.actions()
    with pytest.raises(MalformedError):
        at.exporting.encrypted(at.operator, "run-1", "short")
    assert at.at.home.actions() == before


def test_one_damaged_record_does_not_keep_the_others(at):
    at.several(3)
    at.at.damage(schema.evidence, schema.evidence.c.seq == 2, sealed_record=b"damaged")

    _, *lines, _ = lines_of(at.exporting.plaintext(at.administrator, "run-1").body)

    records = [line["record"] for line in lines if "record" in line]
    assert [record.get("unreadable", False) for record in records] == [False, True, False]
    assert {line["fault"]["seq"] for line in lines if "fault" in line} >= {2}


def test_a_run_that_is_deleted_while_it_is_read_does_not_leave(at, monkeypatch):
    at.several(1)
    read = at.at.store.read

    def then_delete(work):
        found = read(work)
        monkeypatch.undo()
        at.deletions.delete(at.administrator, "run-1")
        return found

    monkeypatch.setattr(at.at.store, "read", then_delete)

    with pytest.raises(ConflictError, match="deleted"):
        at.exporting.plaintext(at.administrator, "run-1")
    assert "evidence.exported_in_clear" not in {action for action, _ in at.at.home.actions()}


def test_a_file_that_is_not_whole_or_not_ours_is_told(at):
    at.several(2)
    body = at.exporting.encrypted(at.operator, "run-1", PASSPHRASE).body
    for damaged, passphrase in (
        (body[:-1], PASSPHRASE), (body + b"x", PASSPHRASE), (body[:200] + b"x" + body[201:], PASSPHRASE),
        (body, PASSPHRASE + "x"), (b"", PASSPHRASE), (b"no file of ours" * 20, PASSPHRASE),
    ):  # fmt: skip
        with pytest.raises(SealedFileError):
            opened(damaged, passphrase)


def test_lines_that_were_cut_or_changed_are_told(at):
    at.several(2)
    whole = at.exporting.plaintext(at.administrator, "run-1").body
    lines = whole.splitlines(keepends=True)

    def checked(body: bytes) -> bytes:
        stream = io.BytesIO(body)
        return b"".join(exporting.checked_lines(lambda: stream.read(7)))

    assert checked(whole) == whole
    for broken in (
        b"", whole[:-1], b"".join(lines[:-1]), b"".join([*lines[:1], *lines[2:]]), whole.replace(b"word0", b"word9"),
        whole + b"\n", b"[]\n" + whole, b"{}\n",
    ):  # fmt: skip
        with pytest.raises(MalformedError):
            checked(broken)
