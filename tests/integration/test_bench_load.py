"""The load lab measures what it says, counts what goes wrong, and ends with a status that says so."""

from __future__ import annotations

import collections
import json
import os
import shutil
import socketserver
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from tests.bench import plots, soak
from tests.bench.bench import main, parser_of_options, report
from tests.bench.goals import Measured, goals_of
from tests.bench.load import Generators, Job, Sample, percentile
from tests.bench.results import Key, Record
from tests.bench.slow_disk import NoSlowDiskError, SlowDisk
from tests.bench.stands import Place
from tests.patience import PATIENCE_S

TINY = [
    "--work", "operation", "begin", "reuse", "ingest", "page", "--clients", "2", "--retained", "3",
    "--seconds", "0.1", "--rounds", "1", "--one-client-rounds", "0",
]  # fmt: skip
HEADERS = "Authorization: Bearer none\r\n"
REFUSE_EVERY = 5
LONGER_AND_LONGER_S = (0.5, 5, 50)


class Answering(BaseHTTPRequestHandler):
    """Answers an empty request; every fifth POST is refused, with another id each time."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, b"ok")

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.posts += 1
            is_refused = self.server.posts % REFUSE_EVERY == 0
        if is_refused:
            self.answer(503, b'{"request_id":"req_%012x"}' % self.server.posts)
        elif self.server.is_busy and self.server.posts % 2:
            self.answer(429, b"{}")
        else:
            self.answer(200, b'{"accepted": true, "replayed": false}')

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    lock = threading.Lock()
    posts = 0
    is_busy = False


@pytest.fixture
def address():
    with Server(("127.0.0.1", 0), Answering) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        yield server
        server.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def generators():
    made = Generators(2, {}, os.environ)
    yield made
    made.close()


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory):
    """Make the instance of these tests once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_CACHE", str(tmp_path_factory.mktemp("kept")))
        yield


def test_the_lab_runs_from_end_to_end_and_writes_what_it_measured(tmp_path, capsys, filled_once):
    file = tmp_path / "bench.json"

    assert main([*TINY, "--json", str(file)]) == 0

    told = json.loads(file.read_text())
    rows = {(row["subject"], row["work"]): row for row in told["rows"]}
    own = "sqlite/1 proc/3"
    for work in ("operation", "begin", "reuse", "ingest", "page", "empty"):
        row = rows[own, work]
        assert row["count"] > 0
        assert row["errors"] == 0
        assert row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
    assert set(rows[own, "operation"]["parts_p50_ms"]) == {"create", "begin", "outcome"}
    assert rows["raw sqlite", "commit"]["count"] > 0
    assert set(rows[own, "begin"]["ratios"]) == {"empty route", "raw commit", "without leader commit"}
    assert rows[own, "page"]["memory_mib"] > 1
    assert told["errors"] == {}
    assert told["credential"].startswith("operator (evidence_collector)")
    printed = capsys.readouterr().out
    assert "errors: none" in printed
    assert "answers a second from the empty route" in printed


def test_each_answer_is_counted_once_and_errors_of_one_kind_are_one_line(address, generators):
    # However slow the machine is, for so long that there are answers of every kind.
    for seconds in LONGER_AND_LONGER_S:
        address.posts = 0
        [done, asked] = generators.run(
            Job("ingest", 3, seconds, address.server_address, HEADERS),
            Job("empty", 2, seconds / 2, address.server_address, HEADERS),
        )
        if address.posts >= 2 * REFUSE_EVERY and asked.count:
            break

    assert done.count + sum(done.errors.values()) == address.posts
    assert sum(done.errors.values()) == address.posts // REFUSE_EVERY > 0
    assert len(done.errors) == 1, done.errors
    assert "503" in next(iter(done.errors))
    assert done.rate == pytest.approx(done.count / done.elapsed_s)
    assert asked.errors == {}
    assert asked.count == len(asked.spans["empty"]) > 0


def test_who_is_told_to_come_again_does_and_that_is_no_error(address, generators):
    address.is_busy = True

    for seconds in LONGER_AND_LONGER_S:
        address.posts = 0
        [sample] = generators.run(Job("ingest", 2, seconds, address.server_address, HEADERS))
        if address.posts >= 2 * REFUSE_EVERY:
            break

    assert sample.throttled > 0
    assert sample.count > 0
    assert sample.count + sample.throttled + sum(sample.errors.values()) == address.posts
    assert all("503" in text for text in sample.errors)


def test_what_is_to_be_begun_is_begun_once_by_one_of_all_clients(address, generators):
    given = {"ready": [f"wf_{number}" for number in range(11)]}

    [sample] = generators.run(Job("begin", 3, PATIENCE_S, address.server_address, HEADERS, given))

    # The answers are not those of a grant, so that each is an error that names no more than its kind.
    assert address.posts == 11
    assert sum(sample.errors.values()) == 11
    assert sample.elapsed_s < PATIENCE_S


def test_a_server_that_is_not_there_is_an_error_and_ends_before_its_time(generators):
    [sample] = generators.run(Job("empty", 1, PATIENCE_S, ("127.0.0.1", 1), HEADERS))

    assert sample.count == 0
    assert sample.busy < 0.5
    assert sum(sample.errors.values()) > 1
    assert sample.elapsed_s < PATIENCE_S


def test_one_error_makes_the_status_1_and_is_printed(capsys):
    record, options = Record(), parser_of_options().parse_args([])
    record.note_load()
    sample = Sample("reuse", {"reuse": [1.0] * 9}, {}, 1.0, 0.1)
    record.add(Key("sqlite/1 proc/3", "reuse", 1), sample)
    assert report(Measured(record, {}, [], 0), options, slow_by="none") == 0
    sample.errors["reuse: it went wrong"] = 2

    assert report(Measured(record, {}, [], 0), options, slow_by="none") == 1

    printed = capsys.readouterr().out
    assert "ERROR 2 × reuse: it went wrong" in printed
    assert "NO  errors ≤ 0: 2" in printed


def test_an_error_of_what_is_not_measured_counts_as_well():
    record = Record()

    record.prepare(Sample("create", {}, {"create: it went wrong": 1}, 1.0, 0.1))

    assert record.errors == {"create: it went wrong": 1}


def test_rates_are_medians_of_rounds_and_ratios_are_of_the_same_round():
    record, own, other = Record(), Key("sqlite/1 proc/3", "empty", 1), Key("raw sqlite", "commit", 1)
    for count, beside in ((10, 5), (40, 10), (90, 90)):
        record.add(own, Sample("empty", {"empty": [1.0] * count}, {}, 2.0, 0.1))
        record.add(other, Sample("commit", {"commit": [1.0] * beside}, {}, 2.0, 0.1))

    assert record.rate(own) == 20
    assert record.ratio(own, other) == 2
    assert record.ratio(own, Key("nobody", "empty", 1)) is None


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.95, 95), (0.99, 99), (1, 100)])
def test_a_percentile_is_the_value_that_so_many_do_not_pass(share, value):
    assert percentile(range(100, 0, -1), share) == value


def test_a_goal_that_was_not_measured_is_neither_met_nor_missed():
    record = Record()
    place = Place("sqlite", 1, 100)
    record.add(Key(str(place), "begin", 16), Sample("begin", {"begin": [1.0] * 100}, {}, 1.0, 0.1))
    record.add(Key(str(place), "empty", 16), Sample("empty", {"empty": [1.0] * 200}, {}, 1.0, 0.1))
    goals = {goal.text: goal for goal in goals_of(Measured(record, {"commit": 5.0}, [place], 0))}

    assert goals["16 clients, begin / empty route's rate"].is_met is True
    assert goals["begin, one client, SQLite / raw commit"].is_met is False
    assert goals["16 clients, operation / DBOS on SQLite"].is_met is None
    assert "not measured" in str(goals["16 clients, operation / DBOS on SQLite"])


def test_a_delay_is_in_every_sync_of_the_process_and_in_no_other():
    slow = SlowDisk(30)
    try:
        script = "import os,sys,tempfile,time; f=tempfile.TemporaryFile(); t=time.monotonic(); os.fsync(f.fileno());"
        script += "os.fdatasync(f.fileno()); print(time.monotonic()-t)"
        took = float(subprocess.check_output([sys.executable, "-c", script], env={**os.environ, **slow.environment}))
        assert took >= 0.06
        assert "LD_PRELOAD" not in os.environ
        with pytest.raises(NoSlowDiskError, match="has not loaded"):
            slow.hold(os.getpid())
    finally:
        slow.close()


def test_without_compiler_and_strace_a_slow_disk_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda _: None)

    with pytest.raises(SystemExit):
        main([*TINY, "--fsync-delay-ms", "4"])

    assert "needs a C compiler (cc) or strace" in capsys.readouterr().err


def test_a_plot_without_its_library_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(plots, "find_spec", lambda _: None)

    with pytest.raises(SystemExit):
        main([*TINY, "--plot", "x.png"])

    assert "pip install matplotlib" in capsys.readouterr().err


class TestVerdict:
    @pytest.mark.parametrize(
        ("held", "errors", "status"),
        [
            pytest.param([90, 120, 121, 120, 122, 121], {}, 0, id="flat"),
            pytest.param([90, 100, 110, 120, 130, 140], {}, 1, id="growing"),
            pytest.param([201, 120, 120, 120, 120, 120], {}, 1, id="too much once"),
            pytest.param([120] * 6, {"page: it went wrong": 1}, 1, id="an error"),
            pytest.param([120], {}, 0, id="one minute"),
        ],
    )
    def test_a_soak_fails_for_growth_for_too_much_and_for_any_error(self, held, errors, status):
        assert soak.verdict(held, collections.Counter(errors)) == status

    def test_all_kinds_of_work_share_the_clients(self):
        assert soak.shares(64) == {"operation": 16, "reuse": 16, "ingest": 16, "page": 16}
        assert soak.shares(2) == dict.fromkeys(soak.KINDS, 1)


@pytest.mark.soak
def test_half_an_hour_of_sixty_four_clients_leaves_memory_flat_and_nobody_without_an_answer():
    assert main(["--soak", "30", "--clients", "64", "--retained", "10000"]) == 0


@pytest.mark.soak
def test_a_million_workflows_are_asked_for_without_an_error(filled_once):
    sizes = ["--retained", "1000", "1000000", "--clients", "1", "16", "--rounds", "3"]

    assert main(["--work", "operation", "begin", "reuse", "page", *sizes]) == 0


def test_a_soak_of_seconds_tells_the_memory(capsys, filled_once):
    assert main(["--soak", "0.01", "--clients", "4", "--retained", "3"]) == 0

    printed = capsys.readouterr().out
    assert "minute    1:" in printed
    assert "MiB" in printed
