"""Fifty threads in four processes ask the same at the same instant; one of them gets it."""

from __future__ import annotations

import json
import secrets
import uuid
from collections import Counter

import pytest

from tests.crash.stage import NAME, PASSWORD, definition, until

PROCESSES, THREADS = 4, 13
IN_PROGRESS = ("blocked", "attempt_in_progress")


def raced(stage, folder, requests, *, processes=PROCESSES, **how):
    """Send all of `requests` at once, spread over so many processes; return the answers in their order."""
    meeting = folder / f"meeting-{secrets.token_hex(4)}"
    meeting.mkdir()
    started = []
    for number in range(processes):
        report = meeting / f"report-{number}"
        process = stage.forks.start(
            "race", log=report.with_suffix(".log"), requests=requests[number::processes], meeting=str(meeting),
            report=str(report), **(how or {"url": stage.url, "token": stage.token}),
        )  # fmt: skip
        started.append((process, report))
    until(lambda: all((meeting / str(process)).exists() for process, _ in started))
    (meeting / "go").touch()
    answers = [None] * len(requests)
    for number, (process, report) in enumerate(started):
        assert stage.forks.wait(process) == 0, report.with_suffix(".log").read_text()
        answers[number::processes] = json.loads(report.read_text())
    return answers


def asking(case, call, bodies):
    """Return the requests that send `bodies` to one path of the case's workflow."""
    return [{"path": f"/v1/continuity/{case.workflow_id}/{call}", "body": body} for body in bodies]


def codes(answers):
    return Counter(answer.get("code") for answer in answers)


def ids():
    return {"name": NAME, "run_id": f"run_{uuid.uuid4().hex}", "attempt_id": f"at_{uuid.uuid4().hex}"}


def begin_bodies():
    return [ids() for _ in range(PROCESSES * THREADS)]


def check_begins(answers, bodies, case):
    """One grant, the others told that an attempt is under way, and the record says the same."""
    assert codes(answers) == {None: len(bodies)}
    replies = [answer["reply"] for answer in answers]
    granted = [number for number, reply in enumerate(replies) if reply["action"] == "execute"]
    assert len(granted) == 1
    others = {(reply["action"], reply["reason"]) for number, reply in enumerate(replies) if number not in granted}
    assert others == {IN_PROGRESS}
    (attempt,) = case.operation["attempts"]
    assert attempt["attempt_id"] == bodies[granted[0]]["attempt_id"]
    return replies[granted[0]], bodies[granted[0]]


@pytest.mark.parametrize("capability", ["none", "both"])
def test_one_of_fifty_begins_is_granted(stage, tmp_path, capability):
    case = stage.case(capability, tmp_path)
    bodies = begin_bodies()

    answers = raced(stage, tmp_path, asking(case, "begin", bodies))

    check_begins(answers, bodies, case)
    assert stage.server_errors() == []
    case.check()


def test_one_of_fifty_begins_is_granted_to_four_processes_that_write_to_one_file(sqlite_stage, tmp_path):
    sqlite_stage.advance(10)
    case = sqlite_stage.case("none", tmp_path)
    bodies = begin_bodies()

    answers = raced(
        sqlite_stage, tmp_path, asking(case, "begin", bodies), instance=str(sqlite_stage.instance.folder),
        clock=str(sqlite_stage.clock_file),
    )  # fmt: skip

    check_begins(answers, bodies, case)


def test_one_attempt_id_is_granted_once_however_often_it_is_sent(stage, tmp_path):
    case = stage.case("both", tmp_path)
    bodies = [ids()] * (PROCESSES * THREADS)

    answers = raced(stage, tmp_path, asking(case, "begin", bodies))

    assert codes(answers) == {None: len(bodies)}
    reasons = Counter(answer["reply"]["reason"] for answer in answers)
    assert reasons == {"authorized_attempt": 1, "attempt_already_issued": len(bodies) - 1}
    case.check()


def receipt_of(grant):
    return {
        "outcome": "confirmed_succeeded", "operation_id": grant["operation_id"], "effect_id": "effect-1",
        "result": "there",
    }  # fmt: skip


def begun(case):
    """Begin by hand; return the body of its outcome."""
    body = ids()
    operator = case.stage.operator
    grant = operator.begin(case.workflow_id, NAME, run_id=body["run_id"], attempt_id=body["attempt_id"])
    return {**body, "lease_token": grant["lease_token"], "receipt": receipt_of(grant)}


def test_one_receipt_from_fifty_threads_is_accepted_once_and_replayed_to_the_others(stage, tmp_path):
    case = stage.case("none", tmp_path)
    body = begun(case)

    answers = raced(stage, tmp_path, asking(case, "outcome", [body] * (PROCESSES * THREADS)))

    assert codes(answers) == {None: len(answers)}
    replies = [answer["reply"] for answer in answers]
    assert Counter(reply.pop("replayed", False) for reply in replies) == {True: len(replies) - 1, False: 1}
    assert all(reply == replies[0] for reply in replies)
    assert replies[0]["accepted"] is True
    view = case.check(is_honest=False)
    assert [event["event"] for event in view["history"]] == ["created", "attempt_granted", "outcome_recorded"]


def test_of_many_different_receipts_of_one_attempt_one_is_accepted_and_the_others_are_evidence(stage, tmp_path):
    case = stage.case("none", tmp_path)
    body = begun(case)
    bodies = [{**body, "receipt": {**body["receipt"], "result": number}} for number in range(PROCESSES * THREADS)]

    answers = raced(stage, tmp_path, asking(case, "outcome", bodies))

    # One, then the attempt's own late receipt and ten more; whatever comes after those is refused in words.
    assert codes(answers) == {None: 12, "late_receipt_limit_reached": len(bodies) - 12}
    accepted = [number for number, answer in enumerate(answers) if answer.get("reply", {}).get("accepted")]
    assert len(accepted) == 1
    operation = case.operation
    assert operation["receipt"] == bodies[accepted[0]]["receipt"]
    assert operation["late_receipts"] == 11
    case.check(is_honest=False)


def test_one_key_that_fifty_threads_create_is_one_workflow(stage, tmp_path):
    body = {"workflow_key": f"work-{secrets.token_hex(8)}", "operations": [definition("query")], "activate": True}

    answers = raced(stage, tmp_path, [{"path": "/v1/continuity", "body": body}] * (PROCESSES * THREADS))

    assert codes(answers) == {None: len(answers)}
    assert len({answer["reply"]["workflow_id"] for answer in answers}) == 1
    assert {answer["reply"]["revision"] for answer in answers} == {1}
    assert len(stage.operator.list_workflows(key=body["workflow_key"])["workflows"]) == 1
    assert stage.server_errors() == []


def test_one_key_with_two_definitions_is_one_workflow_and_a_conflict_for_the_others(stage, tmp_path):
    key = f"work-{secrets.token_hex(8)}"
    bodies = [
        {"workflow_key": key, "operations": [definition(capability)]}
        for capability in ["none", "query"] * (PROCESSES * THREADS // 2)
    ]

    answers = raced(stage, tmp_path, [{"path": "/v1/continuity", "body": body} for body in bodies])

    assert codes(answers) == {None: len(bodies) // 2, "definition_conflict": len(bodies) // 2}
    assert len({answer["reply"]["workflow_id"] for answer in answers if "reply" in answer}) == 1


def test_of_stopping_and_beginning_at_once_one_wins_and_the_losers_are_told(stage, tmp_path):
    case = stage.case("none", tmp_path)
    stop = {"name": NAME, "reason": "Not wanted."}
    requests = [
        request
        for _ in range(10)
        for request in asking(case, "begin", [ids()]) + asking(case, "abandon", [stop])
    ]  # fmt: skip

    answers = raced(stage, tmp_path, requests)

    begins, stops = answers[::2], answers[1::2]
    if case.operation["status"] == "abandoned":
        assert codes(stops) == {None: 1, "operation_final": 9}
        assert {answer["reply"]["reason"] for answer in begins} == {"abandoned"}
    else:
        assert codes(stops) == {"lease_live": 10}
        assert Counter(answer["reply"]["action"] for answer in begins) == {"execute": 1, "blocked": 9}
    case.check()


def test_of_many_decisions_at_once_one_is_heard_and_the_others_are_told(stage, tmp_path):
    case = stage.case("none", tmp_path)
    begun(case)
    stage.advance()
    seen = {"name": NAME, "revision": case.view()["revision"], "reason": "Looked."}
    happened = {**seen, "late_receipts": 0, "happened": True, "receipt": {"effect_id": "effect-1", "result": None}}
    bodies = [happened, {**seen, "late_receipts": 0, "happened": False}]
    requests = (asking(case, "confirm", bodies) + asking(case, "abandon", [seen])) * 8

    answers = raced(
        stage, tmp_path, requests, url=stage.url, username=stage.instance.username, password=PASSWORD
    )  # fmt: skip

    told = codes(answers)
    assert told.pop(None) == 1
    # Whoever comes later has seen an older revision, whatever the winner has decided.
    assert told == {"stale_revision": len(requests) - 1}
    (winner,) = [number for number, answer in enumerate(answers) if "reply" in answer]
    assert case.operation["status"] == ("completed", "pending", "abandoned")[winner % 3]
    case.check(is_honest=False)


def reading(path):
    return {"method": "GET", "path": path}


def test_whoever_meets_a_deletion_is_told_that_it_is_deleted_and_never_that_it_is_damaged(stage, tmp_path):
    case = stage.case("none", tmp_path)
    body = begun(case)
    (done,) = raced(stage, tmp_path, asking(case, "outcome", [body]), processes=1)
    assert done["reply"]["accepted"] is True
    view = f"/v1/continuity/{case.workflow_id}"
    each = [
        {"path": "/v1/evidence/delete", "body": {"run_id": case.workflow_id, "confirmation": case.workflow_id}},
        *asking(case, "begin", [ids()]), reading(view), *asking(case, "outcome", [body]),
        reading("/v1/continuity?limit=50"), reading(view),
    ]  # fmt: skip

    answers = raced(stage, tmp_path, each * 9)

    by_kind = [codes(answers[number :: len(each)]) for number in range(len(each))]
    listed = by_kind.pop(4)
    assert listed == {None: 9}
    assert all(set(found) <= {None, "workflow_deleted"} for found in by_kind), by_kind
    assert by_kind[0][None] >= 1
    assert stage.server_errors() == []
    (after,) = raced(stage, tmp_path, [reading(view)], processes=1)
    assert after == {"code": "workflow_deleted"}
