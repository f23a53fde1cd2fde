"""`atmem observations` and observers' credentials, as typed on the server's host."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from continuity.transport import Transport
from tests.cli.commands import Terminal
from tests.observing import charge, event, priced


@pytest.fixture
def terminal(running_server, tmp_path):
    return Terminal(running_server, tmp_path)


@pytest.fixture(scope="module")
def idle(shared_server, tmp_path_factory):
    """A terminal for what is refused before anything changes."""
    return Terminal(shared_server, tmp_path_factory.mktemp("idle"))


def file_of(folder, *events):
    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(each.to_json()) + "\n" for each in events))
    return str(path)


def here(terminal, *arguments, **options):
    return terminal.here("observations", *arguments, server=False, **options)


def test_events_are_imported_exported_and_counted_again(terminal, tmp_path):
    told = [event(event_id="e1"), priced(7, event_id="e2"), event(event_id="e3", event="completed")]
    path = file_of(tmp_path, *told)

    first = here(terminal, "import", path)
    again = here(terminal, "import", path, "--json")
    exported = here(terminal, "export")
    checked = here(terminal, "rebuild", "--check", "--json")

    assert (first.exit_code, first.stdout) == (0, "Done: 3 new, 0 known, 0 refused as contradicting, 0 malformed.\n")
    assert json.loads(again.stdout)["replayed"] == 3
    assert [json.loads(line) for line in exported.stdout.splitlines()] == [each.to_json() for each in told]
    assert json.loads(checked.stdout) == {"events": 3, "sound": True, "problems": [], "rebuilt": False}
    assert here(terminal, "rebuild").exit_code == 0


def test_a_file_with_a_wrong_line_says_which_and_fails(terminal, tmp_path):
    path = file_of(tmp_path, event())
    with Path(path).open("a") as stream:
        stream.write("nonsense\n")

    done = here(terminal, "import", path)

    assert done.exit_code == 1
    assert "Line 2" in done.stderr
    assert "1 new" in done.stdout


def test_lines_that_contradict_are_named_and_fail(terminal, tmp_path):
    told = [priced(7, event_id="e1"), event(event_id="e2"), *(priced(8, event_id=f"no{n}") for n in range(30))]

    done = here(terminal, "import", file_of(tmp_path, *told))

    assert done.exit_code == 1
    assert "Line 3: Event no0 contradicts what is known. Refused; what came first stands." in done.stderr
    assert done.stderr.count("contradicts") == 20
    assert done.stdout == "Done: 2 new, 0 known, 30 refused as contradicting, 0 malformed.\n"


def test_only_an_import_that_is_not_whole_says_where_to_go_on(terminal, tmp_path, monkeypatch):
    from continuity.errors import UnavailableError  # noqa: PLC0415
    from observations.ingest import Ingest  # noqa: PLC0415

    path = file_of(tmp_path, *(event(event_id=f"e{n}", attempt_id=f"at_{n}") for n in range(30)))
    whole = here(terminal, "import", path)
    accept_all = Ingest.accept_all

    def failing(self, scope, events):
        if len(events) < 25:
            raise UnavailableError("Storage cannot answer.")
        return accept_all(self, scope, events)

    monkeypatch.setattr(Ingest, "accept_all", failing)
    broken = here(terminal, "import", path)

    assert (whole.exit_code, broken.exit_code) == (0, 1)
    assert "start-line" not in whole.stderr
    assert "Up to line 25 everything is kept; go on with --start-line 26." in broken.stderr


def test_a_line_without_end_is_one_wrong_line_and_not_read_whole(terminal, tmp_path):
    path = file_of(tmp_path, event(), event(attempt_id="at_2"))
    first, last = Path(path).read_bytes().splitlines(keepends=True)
    Path(path).write_bytes(first + b"x" * 3_000_000 + b"\n" + last)

    done = here(terminal, "import", path)

    assert "2 new" in done.stdout
    assert "1 malformed" in done.stdout
    assert "Line 2: An event must be at most 8192 bytes." in done.stderr


def test_what_is_old_is_pruned_when_it_is_meant_and_its_totals_stay(terminal, tmp_path):
    here(
        terminal,
        "import",
        file_of(tmp_path, priced(7, time=1_000_000), event(attempt_id="at_2", run_id="run_2", time=4e9)),
    )
    arguments = ("prune", "--before", "2020-01-01")

    asked = here(terminal, *arguments)
    gone = here(terminal, *arguments, "--yes", "--json")
    again = here(terminal, *arguments, "--json")

    assert asked.stdout == (
        "1 runs with 1 attempts, 1 events, 1 charges and 0 refused events from before 2020-01-01T00:00:00Z would go.\n"
        "Nothing was changed. Run it again with --yes.\n"
    )
    assert json.loads(gone.stdout) == {
        "before": "2020-01-01T00:00:00Z", "pruned": True,
        "runs": 1, "attempts": 1, "charges": 1, "events": 1, "refusals": 0,
    }  # fmt: skip
    assert (json.loads(again.stdout)["events"], json.loads(again.stdout)["pruned"]) == (0, False)
    assert here(terminal, "rebuild", "--check").exit_code == 0
    late = here(terminal, "import", file_of(tmp_path, priced(7, time=1_000_000)))
    assert "0 new, 0 known, 0 refused as contradicting, 1 of a time that was pruned" in late.stdout


@pytest.mark.parametrize(
    "before", ["", "yesterday", "2026-13-01", "2026-02-30", "0d", "99999999d", "9999-01-01", "-1d", "1.5d"]
)
def test_a_time_that_is_none_or_too_young_prunes_nothing(idle, before):
    done = here(idle, "prune", f"--before={before}", "--yes")

    assert done.exit_code == 2
    assert "--before" in done.stderr


@pytest.mark.parametrize("more", [(), ("--otlp", "http://127.0.0.1:9/v1/traces")])
def test_exporting_a_scope_that_nobody_knows_says_so_and_touches_no_file(terminal, tmp_path, more):
    here(terminal, "import", file_of(tmp_path, event()))
    kept = tmp_path / "kept.jsonl"
    kept.write_text("mine")

    done = here(terminal, "export", "--scope", "lokal", "--output", str(kept), *more)

    assert done.exit_code == 1
    assert "no event was ever accepted for the scope lokal" in done.stderr
    assert kept.read_text() == "mine"


def test_importing_from_a_line_behind_the_last_says_so(terminal, tmp_path):
    path = file_of(tmp_path, event(), event(attempt_id="at_2"))

    behind = here(terminal, "import", path, "--start-line", "3")
    last = here(terminal, "import", path, "--start-line", "2")

    assert behind.exit_code == 1
    assert "has 2 lines, and so none to take in from --start-line 3. Nothing was taken in." in behind.stderr
    assert "Up to line" not in behind.stderr
    assert (last.exit_code, last.stdout[:12]) == (0, "Done: 1 new,")


def test_a_scope_is_checked(idle, tmp_path):
    done = here(idle, "import", file_of(tmp_path, event()), "--scope", "a b")

    assert done.exit_code == 2
    assert "--scope" in done.stderr


def test_attempts_and_charges_are_sent_as_spans(terminal, tmp_path):
    here(terminal, "import", file_of(tmp_path, event(), charge(), event(attempt_id="at_2")))
    seen = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    done = here(terminal, "export", "--otlp", f"http://127.0.0.1:{server.server_address[1]}/v1/traces")
    server.shutdown()
    server.server_close()
    thread.join()

    assert (done.exit_code, done.stderr) == (0, "3 spans sent.\n")
    assert len(seen) == 1


def test_spans_that_nobody_takes_are_told_with_the_address_and_the_next_step(terminal, tmp_path, caplog):
    here(terminal, "import", file_of(tmp_path, event()))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1/traces"

    done = here(terminal, "export", "--otlp", url)

    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: --otlp: {url} did not take the spans; 0 were sent before. Look whether")
    assert done.stderr.count("\n") == 1
    assert "opentelemetry" not in {record.name.partition(".")[0] for record in caplog.records}


def test_an_observer_s_credential_submits_events_and_nothing_else(terminal):
    token = terminal.token("--principal", "producer", "--observer", "--scope", "mine")

    with Transport(terminal.server.url, token) as transport:
        told = transport.call("POST", "/v1/continuity/events", event(event_id="e1").to_json())
    exported = here(terminal, "export", "--scope", "mine")

    assert told == {"accepted": True, "replayed": False}
    assert json.loads(exported.stdout)["event_id"] == "e1"


@pytest.mark.parametrize(
    "wrong",
    [
        ["--observer"], ["--scope", "s"], ["--observer", "--scope", "s", "--coordinator"],
        ["wf_" + "0" * 32, "--observer", "--scope", "s"],
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_wrong_usage(idle, wrong):
    done = idle.here("continuity", "credential", "--principal", "p", *wrong, *idle.as_person())

    assert done.exit_code == 2
