"""Logs and housekeeping: what happens beside serving."""

from __future__ import annotations

import errno
import io
import json
import logging
import threading

import pytest

from app import logs
from app.housekeeping import Housekeeping
from tests.patience import PATIENCE_S
from tests.web.bare import BASE, SECRET, bare_app

TOKEN = "atm_o_" + "A" * 43 + "_000000"
FORGED = 'x\r\n{"level":"forged"}\x1b[2J\u202e\u2028'


@pytest.fixture
def log():
    """The log as it is written, one parsed line after another."""
    stream = io.StringIO()
    root, waitress_queue = logging.getLogger(), logging.getLogger("waitress.queue")
    before = root.handlers, root.level, logs.logger.level, waitress_queue.level
    logs.configure(stream)
    yield stream
    root.handlers, level, own_level, queue_level = before
    root.setLevel(level)
    logs.logger.setLevel(own_level)
    waitress_queue.setLevel(queue_level)
    logs.configure_access(None)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_request_is_one_line_without_query_or_headers(log):
    client = bare_app().test_client()

    reply = client.get(f"/v1/query?q={SECRET}", base_url=BASE, headers={"Cookie": SECRET, "Authorization": SECRET})

    (line,) = lines(log)
    assert line["event"] == "request"
    assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/query", 200)
    assert line["request_id"] == reply.headers["X-Request-Id"]
    assert SECRET not in log.getvalue()


def test_a_refused_request_is_logged_too(log):
    reply = bare_app().test_client().get("/page", headers={"Host": "evil.example"})

    assert [(line["status"], line["request_id"]) for line in lines(log)] == [(400, reply.headers["X-Request-Id"])]


def test_liveness_checks_do_not_fill_the_log(log):
    bare_app().test_client().get("/healthz", base_url=BASE)

    assert lines(log) == []


def test_a_defect_is_logged_with_its_place_and_without_its_words(log):
    reply = bare_app().test_client().get("/defect", base_url=BASE)

    failure = next(line for line in lines(log) if line["event"] == "failed")
    assert failure["request_id"] == reply.headers["X-Request-Id"]
    assert failure["exception"][0] == "builtins.ValueError"
    assert any("bare.py" in frame and frame.endswith(" defect") for frame in failure["exception"])
    assert SECRET not in log.getvalue()


def test_a_credential_in_an_address_is_masked(log):
    bare_app().test_client().get(f"/v1/{TOKEN}", base_url=BASE)

    assert "A" * 20 not in log.getvalue()
    assert lines(log)[0]["path"] == "/v1/atm_o_***"


def test_no_value_can_forge_a_line_or_speak_to_a_terminal(log):
    logs.event(logging.INFO, "sample", name=FORGED)
    logging.getLogger("waitress").warning("odd %s", FORGED)

    text = log.getvalue()
    assert len(lines(log)) == 2
    assert text.isascii()
    assert "\x1b" not in text
    assert lines(log)[0]["name"] == FORGED


class _FullDisk(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_on_a_full_disk_takes_no_reply_away(log):
    logs.configure_access(_FullDisk())

    assert bare_app().test_client().get("/v1/query", base_url=BASE).status_code == 200


def test_a_long_value_is_cut(log):
    logs.event(logging.INFO, "sample", name="x" * 10_000)

    assert len(lines(log)[0]["name"]) == logs.VALUE_CHARS + 1


def test_a_task_that_fails_is_logged_and_does_not_stop_the_others(log):
    done = threading.Event()
    housekeeping = Housekeeping()

    def fail() -> None:
        raise OSError(SECRET)

    housekeeping.add("bad", fail, interval_s=0.01)
    housekeeping.add("good", done.set, interval_s=0.01)
    housekeeping.start()
    assert done.wait(PATIENCE_S)
    done.clear()
    assert done.wait(PATIENCE_S)
    housekeeping.stop()

    assert lines(log)[0]["task"] == "bad"
    assert SECRET not in log.getvalue()


def test_tasks_run_at_their_own_intervals_and_at_once_at_first():
    runs = []
    housekeeping = Housekeeping()
    housekeeping.add("often", lambda: runs.append("often"), interval_s=0.0)
    housekeeping.add("seldom", lambda: runs.append("seldom"), interval_s=3_600.0)

    for _ in range(3):
        housekeeping.run_due()

    assert runs == ["often", "seldom", "often", "often"]


def test_stopping_waits_for_the_task_that_runs():
    started, finished = threading.Event(), threading.Event()
    housekeeping = Housekeeping()

    def slow() -> None:
        started.set()
        threading.Event().wait(0.2)
        finished.set()

    housekeeping.add("slow", slow, interval_s=60)
    housekeeping.start()
    assert started.wait(PATIENCE_S)
    housekeeping.stop()

    assert finished.is_set()


def test_housekeeping_that_was_never_started_stops():
    Housekeeping().stop()
