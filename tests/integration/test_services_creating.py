"""Creating workflows: known, changed and deleted keys, coordinators' rules and limits, races of first creations."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from app.replies import json_bytes
from continuity import limits
from continuity.errors import ConflictError, MalformedError
from continuity.services.drafts import new_operation
from continuity.store import schema
from continuity.wire import OperationDefinition
from tests.integration.governed import ONE, TWO, Governed, govern, process_of

BEGIN = {"name": "publish", "run_id": "r1", "attempt_id": "a1"}


@pytest.fixture
def at(store, tmp_path) -> Governed:
    return govern(store, tmp_path)


def refused(action) -> str:
    with pytest.raises(ConflictError) as caught:
        action()
    return caught.value.code


def together(*actions) -> list:
    barrier, answers = threading.Barrier(len(actions)), []

    def run(action):
        barrier.wait()
        try:
            answers.append(action())
        except Exception as error:  # noqa: BLE001 - whatever it is, the test says
            answers.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_the_same_key_and_definition_is_the_same_workflow(at):
    first = at.create("one", activate=False)
    before = at.everything()

    again = at.create("one", activate=True)

    assert again == first
    assert (again["enabled"], again["phase"], again["revision"]) == (False, "review", 1)
    assert at.everything() == before


def test_another_definition_of_a_known_key_is_refused(at):
    at.create("one")
    before = at.everything()

    assert refused(lambda: at.create("one", TWO)) == "definition_conflict"
    assert at.everything() == before


def test_numbers_are_compared_by_value(at):
    first = at.create("one", [{**ONE[0], "timeout_seconds": 30.0, "arguments": {"n": 1.0}}])

    assert (
        at.create("one", [{**ONE[0], "timeout_seconds": 30, "arguments": {"n": 1}}])["workflow_id"]
        == first["workflow_id"]
    )
    assert refused(lambda: at.create("one", [{**ONE[0], "arguments": {"n": True}}])) == "definition_conflict"


def test_namespaces_do_not_meet(at):
    ids = {at.create("one", by=who)["workflow_id"] for who in (None, at.coordinator("x"), at.coordinator("y"))}

    assert len(ids) == 3


def test_creation_and_first_begin_are_one(at):
    made = at.create("one", begin=BEGIN)

    assert (made["begin"]["action"], made["begin"]["revision"], made["revision"]) == ("execute", 2, 2)
    assert (made["phase"], made["operations"][0]["status"]) == ("running", "uncertain")
    assert at.create("one", begin=BEGIN)["begin"]["reason"] == "attempt_already_issued"
    assert (
        at.create("two", activate=False, begin=BEGIN)["begin"]["reason"] == "workflow_disabled_or_capture_unavailable"
    )


KINDS = {
    "one that waits for review": {"activate": False},
    "one that may run": {},
    "several operations": {"operations": TWO},
    "a query that may find nothing": {"operations": [{**ONE[0], "capability": "query",
                                                      "absence_final_after_seconds": 0.1234567}]},
    "a key that is honoured": {"operations": [{**ONE[0], "capability": ["idempotent", "query"],
                                               "retention_seconds": 86_400.0, "timeout_seconds": 2.5}]},
    "numbers and words": {"operations": [{**ONE[0], "arguments": {"z": 1.0, "a": [1e300, -0.0, None, True, "ä\u2028"],
                                                                  "\U0001f600": {}}}]},
    "begun": {"begin": BEGIN},
    "begun, of several operations": {"operations": TWO, "begin": BEGIN},
    "begun too early": {"operations": TWO, "begin": {**BEGIN, "name": "announce"}},
    "begun though it waits for review": {"activate": False, "begin": BEGIN},
}  # fmt: skip


OF_ONE = [name for name, asked in KINDS.items() if len(asked.get("operations", ONE)) == 1]


@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize(
    ("who", "kind"), [("operator", kind) for kind in KINDS] + [("coordinator", kind) for kind in OF_ONE]
)
def test_what_a_creation_answers_is_what_is_read_back(at, who, kind, is_restored):
    asked, by = KINDS[kind], at.coordinator() if who == "coordinator" else at.operator
    if is_restored:
        at.home.set_vault(epoch=2, restored_at=at.clock.now_us(), recovery_open=True)

    made = at.create("one", by=by, **asked)

    begun = made.pop("begin", None)
    read = at.view(made["workflow_id"], by=by)
    read.pop("history")
    assert json_bytes(made) == json_bytes(read)
    assert (begun is not None) == ("begin" in asked)
    # And what a repeat is told, which is read from the database.
    assert json_bytes(at.create("one", by=by, **{**asked, "begin": None})) == json_bytes(read)


def test_a_new_workflow_is_answered_without_reading_it_back(at):
    at.create("one")
    statements = []
    sa.event.listen(at.store.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))

    at.create("two", begin=BEGIN)

    assert not [text for text in statements[statements.index(last_insert(statements)) :] if text.startswith("SELECT")]


def last_insert(statements: list[str]) -> str:
    return [text for text in statements if text.startswith(("INSERT", "UPDATE"))][-1]


def test_without_full_capture_nothing_is_created(at):
    at.create("one")
    at.home.set_vault(capture_mode="metadata")
    before = at.everything()

    assert refused(lambda: at.create("two")) == "capture_not_full"
    assert at.create("one", begin=BEGIN)["begin"]["reason"] == "workflow_disabled_or_capture_unavailable"
    assert at.everything() == before


def test_a_clock_set_back_creates_nothing(at):
    at.create("one")
    before = at.everything()
    at.clock.set_back(3)

    assert refused(lambda: at.create("two")) == "clock_moved_backwards"
    assert at.everything() == before


def test_a_coordinator_creates_one_operation_at_a_time(at):
    with pytest.raises(MalformedError):
        at.create("one", TWO, by=at.coordinator())


def test_a_coordinator_holds_so_many_unfinished_workflows(at, monkeypatch):
    monkeypatch.setattr(limits, "COORDINATOR_UNFINISHED", 2)
    agent = at.coordinator()
    first = at.create("one", by=agent)["workflow_id"]
    at.create("two", by=agent)
    before = at.everything()

    assert refused(lambda: at.create("three", by=agent, begin=BEGIN)) == "coordinator_open_limit"
    assert at.everything() == before
    assert at.create("one", by=agent)["workflow_id"] == first
    assert at.create("other", by=at.coordinator("other"))

    at.report(first, at.begin(first, by=agent), by=agent)
    assert at.create("three", by=agent)
    assert at.checker.check() == []


def test_a_coordinators_history_has_an_end_and_receipts_go_on(store, tmp_path):
    at = govern(store, tmp_path, history_bytes=limits.ATTEMPT_RESERVATION_BYTES + 8_000)
    agent = at.coordinator()
    first = at.create("one", by=agent, begin=BEGIN)
    second = at.create("two", by=agent)["workflow_id"]
    before = at.everything()

    assert refused(lambda: at.begin(second, by=agent)) == "coordinator_history_limit"
    assert refused(lambda: at.create("three", by=agent, begin=BEGIN)) == "coordinator_history_limit"
    assert at.everything() == before

    reply = at.report(first["workflow_id"], first["begin"], by=agent, result={"big": "x" * 60_000})
    assert (reply["accepted"], reply["status"]) == (True, "completed")
    assert refused(lambda: at.create("three", by=agent, begin=BEGIN)) == "coordinator_history_limit"
    at.deletions.delete(at.operator, first["workflow_id"])
    assert at.begin(second, by=agent)["action"] == "execute"
    assert at.checker.check() == []


def test_the_first_workflow_raises_the_format_and_says_so_once(at):
    assert at.home.rows(schema.vault)[0].format == 2

    at.create("one")
    at.create("two")

    assert at.home.rows(schema.vault)[0].format == 3
    assert [action for action, _ in at.home.actions()].count("vault.format_raised") == 1


def test_first_creations_that_meet_raise_the_format_once(postgresql_store, tmp_path):
    at = govern(postgresql_store, tmp_path)
    processes = [process_of(at.home) for _ in range(4)]
    agents = [at.coordinator(f"agent-{number}") for number in range(4)]
    answers = []
    with postgresql_store.engine.connect() as locking:
        locking.begin()
        locking.execute(sa.text("SELECT 1 FROM continuity_vault FOR UPDATE"))
        makers = [
            lambda p=p, by=by: p.create("one", by=by, begin=BEGIN) for p, by in zip(processes, agents, strict=True)
        ]
        thread = threading.Thread(target=lambda: answers.extend(together(*makers)))
        thread.start()
        thread.join(0.7)
        locking.rollback()
    thread.join()

    assert [answer["begin"]["action"] for answer in answers] == ["execute"] * 4
    assert [action for action, _ in at.home.actions()].count("vault.format_raised") == 1


def test_first_creations_of_one_key_make_one_workflow(at):
    processes = [process_of(at.home) for _ in range(6)]
    answers = together(*[lambda p=p, n=n: p.create(f"key-{n % 2}") for n, p in enumerate(processes)])

    assert len({answer["workflow_id"] for answer in answers}) == 2
    assert len(at.home.rows(schema.workflows)) == 2


def test_the_vaults_row_is_locked_before_the_workflows(postgresql_store, tmp_path):
    at = govern(postgresql_store, tmp_path)
    workflow_id = at.create("one")["workflow_id"]
    engine, answers = postgresql_store.engine, []
    with engine.connect() as locking:
        locking.begin()
        locking.execute(sa.text("SELECT 1 FROM continuity_vault FOR UPDATE"))
        thread = threading.Thread(target=lambda: answers.append(at.begin(workflow_id)))
        thread.start()
        thread.join(0.7)
        locking.execute(sa.text("SELECT 1 FROM continuity_workflows FOR UPDATE NOWAIT"))
        locking.rollback()
    thread.join()
    assert answers[0]["action"] == "execute"


def test_parts_of_a_microsecond_make_waits_longer_and_windows_shorter():
    definition = OperationDefinition.from_json({
        "name": "pay", "tool": "pay", "capability": ["idempotent", "query"], "timeout_seconds": 1e-7,
        "retention_seconds": 100.0000019, "absence_final_after_seconds": 1.0000011,
    })  # fmt: skip

    operation = new_operation(definition, ordinal=0, epoch=1)

    assert (operation.timeout_us, operation.retention_us, operation.absence_us) == (1, 100_000_001, 1_000_002)
