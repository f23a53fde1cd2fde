"""Attempts and charges as OpenTelemetry spans: what they hold, and that a collector cannot hold up anybody."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from continuity.errors import MalformedError, TransportError
from observations.client import ContinuityObserver, record_charge
from observations.telemetry import OTLPObserver, SpanSender, attempt_span, charge_span
from tests.observing import event, priced
from tests.patience import PATIENCE_S

URL = "http://127.0.0.1:9/v1/traces"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


def observed(exporter, then=None):
    """Report one attempt with a charge to an observer that exports live; return the spans by name."""
    live = OTLPObserver(URL, exporter=exporter, then=then)
    watch = ContinuityObserver("", "", observer=live)
    with watch.attempt(workflow_id="w", operation_id="o", run_id="r", attempt_id="a", recovery=True):
        record_charge(
            charge_id="c", charge_source="account", input_tokens=100, cost_microusd=7, price_source="list-1", model="m",
            cached_input_tokens=64, cached_basis="included",
        )  # fmt: skip
    live.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_an_attempt_and_its_charge_are_two_spans_of_one_trace(exporter):
    spans = observed(exporter)

    attempt, charge = spans["execute_tool"], spans["chat m"]
    assert charge.parent.span_id == attempt.context.span_id
    assert charge.context.trace_id == attempt.context.trace_id
    assert (attempt.status.status_code, charge.kind) == (StatusCode.OK, SpanKind.CLIENT)
    assert attempt.end_time >= attempt.start_time > 1_700_000_000 * 10**9
    assert attempt.attributes == {
        "atmem.workflow.id": "w", "atmem.operation.id": "o", "atmem.run.id": "r", "atmem.attempt.id": "a",
        "gen_ai.operation.name": "execute_tool", "atmem.cause": "recovery", "atmem.outcome": "completed",
    }  # fmt: skip
    assert charge.attributes.items() >= {
        "gen_ai.operation.name": "chat", "gen_ai.response.id": "c", "gen_ai.response.model": "m",
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.cache_read.input_tokens": 64,
        "atmem.usage.cached_basis": "included", "atmem.cost.microusd": 7, "atmem.cost.price_source": "list-1",
        "atmem.cost.state": "reported",
    }.items()  # fmt: skip


def test_what_is_not_known_is_not_an_attribute(exporter):
    live = OTLPObserver(URL, exporter=exporter)
    live.deliver(event(event="usage", charge_id="c", charge_source="s"))
    live.close()

    (charge,) = exporter.get_finished_spans()
    assert not [name for name in charge.attributes if "tokens" in name or name == "atmem.cost.microusd"]
    assert charge.attributes["atmem.cost.state"] == "unknown"


def test_events_go_on_to_the_other_observer(exporter):
    class Other:
        seen: list[str] = []  # noqa: RUF012 - one test's

        def deliver(self, each):
            self.seen.append(each.event.value)

    observed(exporter, then=Other())

    assert Other.seen == ["execute", "usage", "completed"]


def test_a_collector_that_hangs_takes_nothing_of_the_caller_s_time():
    leave, hangs, has_left = threading.Event(), threading.Event(), threading.Event()

    class Hanging(SpanExporter):
        def export(self, spans):
            hangs.set()
            leave.wait(PATIENCE_S)
            has_left.set()
            return SpanExportResult.SUCCESS

        def shutdown(self):
            """Nothing to close."""

    live = OTLPObserver(URL, exporter=Hanging())
    for n in range(3_000):
        live.deliver(priced(1, f"c{n}"))
    assert hangs.wait(PATIENCE_S)
    # Whoever had waited for the collector would have come back behind it.
    assert not has_left.is_set()
    leave.set()
    live.close()


SCRIPT = """
import sys
from observations import telemetry
from observations.client import ContinuityObserver
import atexit
# Whoever waited for what is under way would wait for longer than the test.
telemetry._TIMEOUT_S = 600.0
waits_s = []
wait = telemetry._Counted.wait
telemetry._Counted.wait = lambda self, timeout_s: (waits_s.append(timeout_s), wait(self, timeout_s))[1]
atexit.register(lambda: print(live.observation_error_count, live.observation_errors, sum(waits_s)))
live = telemetry.OTLPObserver(sys.argv[1])
with ContinuityObserver("", "", observer=live).attempt(workflow_id="w", operation_id="o"):
    pass
"""


def run_script(url):
    command = [sys.executable, "-c", SCRIPT, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=True)


def test_a_script_that_closes_nothing_sends_its_spans_at_its_end():
    collector = Collector()
    with serving_raw(collector) as url:
        done = run_script(url)

    assert b"execute_tool" in collector.bodies[0]
    assert done.stdout == "0 [] 2.0\n"


def test_the_end_of_a_script_waits_two_seconds_for_a_collector_and_counts_what_it_did_not_take():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = run_script(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces")

    assert done.stdout == "1 ['TransportTimeoutError'] 2.0\n"
    assert "1 spans were not taken by the OTLP address before the end." in done.stderr


def test_spans_that_a_collector_refuses_are_observation_errors():
    class Refusing(InMemorySpanExporter):
        def export(self, spans):
            return SpanExportResult.FAILURE

    live = OTLPObserver(URL, exporter=Refusing())
    live.deliver(priced(1))
    live.close()

    assert (live.observation_error_count, live.observation_errors) == (1, ["TransportError"])


def test_the_same_attempt_is_the_same_span_wherever_it_is_exported():
    from observations.costs import observe_attempt, observe_charge  # noqa: PLC0415

    told = priced(1)
    attempt, charge = observe_attempt(None, told), observe_charge(None, told)
    twice = [
        (attempt_span("a", attempt, scope="s").context, charge_span(("x", "c"), charge, attempt, scope="s").context)
        for _ in range(2)
    ]

    assert twice[0] == twice[1]
    assert attempt_span("a", attempt, scope="other").context != twice[0][0]


def test_spans_travel_to_a_collector_and_its_refusal_is_told():
    from observations.costs import observe_attempt  # noqa: PLC0415

    span = attempt_span("a", observe_attempt(None, event()), scope="s")
    collector = Collector()
    with serving_raw(collector) as url:
        SpanSender(url).send([span])
        collector.status = 400
        with pytest.raises(TransportError):
            SpanSender(url).send([span])

    assert b"execute_tool" in collector.bodies[0]
    assert collector.paths == ["/v1/traces"] * 2


class Collector:
    def __init__(self):
        self.status, self.bodies, self.paths = 200, [], []


def serving_raw(collector):
    """A collector for protobuf, which the stub of JSON cannot read."""
    from contextlib import contextmanager  # noqa: PLC0415
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # noqa: PLC0415

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            import gzip  # noqa: PLC0415

            raw = self.rfile.read(int(self.headers["Content-Length"]))
            collector.bodies.append(gzip.decompress(raw) if self.headers.get("Content-Encoding") == "gzip" else raw)
            collector.paths.append(self.path)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            """Say nothing."""

    @contextmanager
    def run():
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    return run()


@pytest.mark.parametrize("url", ["http://collector.example/v1/traces", "nowhere", "https://u:p@host"])
def test_spans_go_to_no_address_over_plain_http(url):
    with pytest.raises(MalformedError):
        OTLPObserver(url)
    with pytest.raises(MalformedError):
        SpanSender(url)
