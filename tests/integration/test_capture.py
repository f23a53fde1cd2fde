"""The capture mode: who changes it, what keeps it full, and that nothing slips through between look and change."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from continuity.errors import CaptureInUseError, ConflictError, ForbiddenError, IntegrityError, MalformedError
from continuity.services import capture
from continuity.store import capture as statements
from continuity.store import schema
from tests.integration.recorded import Recorded, recorded
from tests.integration.test_services_creating import together
from tests.patience import PATIENCE_S


@pytest.fixture
def at(store, tmp_path) -> Recorded:
    return recorded(store, tmp_path)


def mode(at: Recorded) -> str:
    return at.at.home.rows(schema.vault)[0].capture_mode


def in_the_way(at: Recorded) -> list[tuple[str, str]]:
    with pytest.raises(CaptureInUseError) as caught:
        at.capture.set_mode(at.administrator, "metadata")
    blocking = caught.value.blocking
    assert caught.value.code == "capture_in_use"
    assert blocking["workflows"][0]["workflow_id"] in caught.value.message
    assert at.capture.status(at.administrator)["blocking"] == blocking
    assert mode(at) == "full"
    return [(each["workflow_id"], each["because"]) for each in blocking["workflows"]]


def test_the_mode_is_changed_and_said(at):
    for wanted in ("metadata", "off", "full"):
        assert at.capture.set_mode(at.administrator, wanted)["capture_mode"] == wanted == mode(at)
    at.capture.set_mode(at.administrator, "full")

    assert at.at.home.actions() == [("vault.capture_changed", "done")] * 3
    # The proof of the row follows: decisions go on reading it.
    assert at.at.create("one")["workflow_id"]


def test_administrators_alone_change_it(at):
    for caller in (at.operator, at.investigator, at.at.person):
        for call in (lambda caller=caller: at.capture.status(caller),
                     lambda caller=caller: at.capture.set_mode(caller, "off")):  # fmt: skip
            with pytest.raises(ForbiddenError):
                call()
    with pytest.raises(MalformedError):
        at.capture.set_mode(at.administrator, "everything")
    assert mode(at) == "full"


def test_enabled_unfinished_and_uncertain_work_keeps_it_full(at):
    at.at.finished("done")
    at.at.create("never-enabled", activate=False)
    stopped = at.at.create("stopped")["workflow_id"]
    at.at.abandon(stopped)
    waiting = at.at.create("paused")["workflow_id"]
    at.at.configure(waiting, enabled=False)
    assert at.capture.status(at.administrator)["blocking"]["count"] == 0

    ready = at.at.create("ready")["workflow_id"]
    begun = at.at.create("begun")["workflow_id"]
    granted = at.at.begin(begun)
    assert in_the_way(at) == [(ready, "enabled"), (begun, "enabled")]

    at.at.configure(ready, enabled=False)
    at.at.configure(begun, enabled=False)
    assert in_the_way(at) == [(begun, "uncertain")]
    at.at.report(begun, granted, "unknown")
    at.at.clock.advance(200)
    at.at.sweeper.sweep()
    assert in_the_way(at) == [(begun, "uncertain")]
    at.at.confirm(begun, happened=True)
    assert at.capture.set_mode(at.administrator, "metadata")["capture_mode"] == "metadata"


def test_without_full_capture_no_work_is_created_enabled_or_begun(at):
    waiting = at.at.create("waiting")["workflow_id"]
    at.at.configure(waiting, enabled=False)
    at.capture.set_mode(at.administrator, "metadata")

    for call in (lambda: at.at.create("more"), lambda: at.at.configure(waiting, enabled=True)):
        with pytest.raises(ConflictError) as caught:
            call()
        assert caught.value.code == "capture_not_full"
    assert at.at.begin(waiting)["reason"] == "workflow_disabled_or_capture_unavailable"
    at.capture.set_mode(at.administrator, "full")
    at.at.configure(waiting, enabled=True)
    assert at.at.begin(waiting)["action"] == "execute"


def test_the_list_is_bounded_and_the_count_is_not_exact_for_ever(at, monkeypatch):
    monkeypatch.setattr(capture, "LISTED_AT_MOST", 2)
    ids = [at.at.create(f"w{number}")["workflow_id"] for number in range(4)]

    assert [workflow_id for workflow_id, _ in in_the_way(at)] == ids[:2]
    status = at.capture.status(at.administrator)["blocking"]
    assert (status["count"], status["is_more"]) == (4, False)
    monkeypatch.setattr(capture.limits, "EXACT_COUNT_MAX", 3)
    status = at.capture.status(at.administrator)["blocking"]
    assert (status["count"], status["is_more"]) == (3, True)


def test_a_changed_row_of_the_vault_changes_no_mode(at):
    at.at.damage(schema.vault, capture_mode="metadata")

    with pytest.raises(IntegrityError):
        at.capture.set_mode(at.administrator, "full")


@pytest.mark.parametrize("turn", range(6))
def test_work_created_while_the_mode_changes_is_in_the_way_or_refused(at, turn):
    answers = together(
        lambda: at.capture.set_mode(at.administrator, "metadata"),
        *[lambda number=number: at.at.create(f"w{turn}-{number}") for number in range(4)],
    )

    changed = [answer for answer in answers if isinstance(answer, dict) and "capture_mode" in answer]
    created = [answer for answer in answers if isinstance(answer, dict) and "workflow_id" in answer]
    codes = {answer.code for answer in answers if isinstance(answer, Exception)}
    assert codes <= {"capture_in_use", "capture_not_full"}
    # Never both: work that is enabled, and a mode that does not keep what it does.
    assert not (changed and created)
    assert (mode(at) == "metadata") == bool(changed)


def test_a_creation_that_has_looked_holds_the_mode_until_it_has_committed(at, monkeypatch):
    """The order that a lock on another row would let through: look, look, change, create."""
    # The first workflow raises the format of the vault, which locks its row by itself.
    at.at.finished("before")
    has_looked, go_on = threading.Event(), threading.Event()
    make = type(at.at.workflows)._insert

    def slowly(*arguments, **named):
        has_looked.set()
        # On SQLite the change waits for its turn; on PostgreSQL for the row.
        go_on.wait(0.4)
        return make(*arguments, **named)

    monkeypatch.setattr(type(at.at.workflows), "_insert", slowly)
    answers: list[object] = []

    def change() -> None:
        has_looked.wait(PATIENCE_S)
        try:
            answers.append(at.capture.set_mode(at.administrator, "off"))
        except CaptureInUseError as error:
            answers.append(error)
        go_on.set()

    thread = threading.Thread(target=change)
    thread.start()
    at.at.create("first")
    thread.join()

    assert isinstance(answers[0], CaptureInUseError)
    assert mode(at) == "full"


def test_the_look_goes_along_an_index_and_passes_no_finished_work(sqlite_store, tmp_path):
    at = recorded(sqlite_store, tmp_path)
    for number in range(3):
        at.at.finished(f"done-{number}")
    seen: list[str] = []
    engine = at.at.store.engine

    def note(_connection, _cursor, statement, parameters, *_rest) -> None:
        if "continuity_operations" in statement:
            seen.append((statement, parameters))

    sa.event.listen(engine, "before_cursor_execute", note)
    at.at.store.read(lambda connection: statements.in_the_way(connection, count=10))
    sa.event.remove(engine, "before_cursor_execute", note)

    statement, parameters = seen[0]
    plan = at.at.store.read(
        lambda connection: connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    )
    steps = [row[-1] for row in plan]
    assert not any(step.startswith("SCAN continuity_") for step in steps), steps
    assert sum("ix_continuity_workflows_phase_workflow_pk (phase=?)" in step for step in steps) == 5
