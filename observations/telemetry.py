"""Attempts and charges as OpenTelemetry spans, over OTLP: the attributes of GenAI, and no content.

Needs the extra ``otel``. A workflow is a trace, an attempt a span in it, a charge a span below its attempt. Ids are
made of the ids of what they stand for, so whatever is exported twice is the same span.

Example::

    live = OTLPObserver("http://127.0.0.1:4318/v1/traces", then=AtFlowsObserver(atflows_url, token))
    client = ContinuityClient(url, worker_token, observer=live)
    …
    live.close()

Rules:

* A span holds opaque ids, outcome and cause, a model, tokens and a reported cost, and nothing of a prompt or reply.
* Cached tokens keep their basis: ``gen_ai.usage.input_tokens`` includes them where the provider's number does.
* Live, a span takes none of its caller's time: it goes to a bounded queue, is dropped when that is full, and is sent
  by a thread of its own.
* What is in the queue when the program ends is sent then, for two seconds at most; every span that was not taken is
  an observation error.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError as error:
    raise ImportError("OpenTelemetry is not installed. In the checkout: python -m pip install '.[otel]'") from error

from continuity.addresses import checked_url
from continuity.errors import TransportError, TransportTimeoutError
from observations.costs import Attempt, Charge, Outcome, observe_attempt, observe_charge
from observations.events import Event, EventName
from observations.failures import Failures

BATCH: Final = 500
"""Most spans of one request."""
_TIMEOUT_S: Final = 10.0
_EXIT_S: Final = 2.0
"""The longest that the end of a program waits for spans to be taken."""
_EVERY_MS: Final = 250
"""Between looks at the queue: no thread can be woken by starting one when the program ends."""
_OPEN_MOST: Final = 10_000
"""Attempts that were seen to begin and not to end; the oldest is forgotten."""
_ENDS: Final = frozenset({EventName.COMPLETED, EventName.UNKNOWN, EventName.BLOCKED, EventName.ABANDONED})
_NS_A_US: Final = 1_000
_log: Final = logging.getLogger("observations")
_RESOURCE: Final = Resource({"service.name": "atmem-atflows"})


class Observer(Protocol):
    """Whatever takes events; see `observations.client`."""

    def deliver(self, event: Event) -> None:
        """Take one event, or raise what went wrong."""


def attempt_span(attempt_id: str, attempt: Attempt, *, scope: str) -> ReadableSpan:
    """Return an attempt as a span from the first to the last that was seen of it."""
    attributes = {
        **_ids(attempt, attempt_id, scope=scope),
        "gen_ai.operation.name": "execute_tool",
        "atmem.cause": attempt.cause.word,
        "atmem.outcome": attempt.outcome.word,
    }
    status = {Outcome.COMPLETED: StatusCode.OK, Outcome.BLOCKED: StatusCode.ERROR}
    return ReadableSpan(
        name="execute_tool",
        context=_context(attempt, ("attempt", attempt_id), scope=scope),
        resource=_RESOURCE,
        attributes=attributes,
        kind=SpanKind.INTERNAL,
        status=Status(status.get(attempt.outcome, StatusCode.UNSET)),
        start_time=attempt.first_us * _NS_A_US,
        end_time=attempt.last_us * _NS_A_US,
    )


def charge_span(names: tuple[str, str], charge: Charge, attempt: Attempt, *, scope: str) -> ReadableSpan:
    """Return a charge as a span without length at its earliest time.

    Args:
        names: Charge source and charge id.
        charge: What is known of it.
        attempt: The one that it belongs to.
        scope: Observation scope, ``""`` where it is not known.
    """
    found = {
        **_ids(attempt, charge.attempt_id, scope=scope),
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": names[1],
        "gen_ai.response.model": charge.model,
        "gen_ai.usage.input_tokens": charge.input_tokens,
        "gen_ai.usage.output_tokens": charge.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": charge.cached_input_tokens,
        "atmem.usage.cached_basis": charge.cached_basis,
        "atmem.charge.source": names[0],
        "atmem.cost.state": charge.state.value,
        "atmem.cost.microusd": charge.cost_microusd,
        "atmem.cost.price_source": charge.price_source,
    }
    at_ns = charge.first_us * _NS_A_US
    return ReadableSpan(
        name="chat" if charge.model is None else f"chat {charge.model}",
        context=_context(attempt, ("charge", *names), scope=scope),
        parent=_context(attempt, ("attempt", charge.attempt_id), scope=scope),
        resource=_RESOURCE,
        attributes={name: value for name, value in found.items() if value is not None},
        kind=SpanKind.CLIENT,
        start_time=at_ns,
        end_time=at_ns,
    )


def _ids(attempt: Attempt, attempt_id: str, *, scope: str) -> dict[str, str | int]:
    ids: dict[str, str | int] = {
        "atmem.workflow.id": attempt.workflow_id,
        "atmem.operation.id": attempt.operation_id,
        "atmem.run.id": attempt.run_id,
        "atmem.attempt.id": attempt_id,
    }
    return ids | ({"atmem.scope": scope} if scope else {})


def _context(attempt: Attempt, parts: tuple[str, ...], *, scope: str) -> SpanContext:
    trace_id = int.from_bytes(_digest("workflow", scope, attempt.workflow_id)[:16], "big") or 1
    span_id = int.from_bytes(_digest(scope, *parts)[:8], "big") or 1
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode()).digest()


class SpanSender:
    """Sends spans to one OTLP address and says whether they were taken."""

    def __init__(self, url: str, *, exporter: SpanExporter | None = None) -> None:
        """Check the address; nothing is sent yet.

        Args:
            url: Where traces go, ``https://host/v1/traces``; plain HTTP to a loopback address only.
            exporter: Takes the spans instead.

        Raises:
            MalformedError: The address is not what it must be.
        """
        self._exporter = exporter or OTLPSpanExporter(endpoint=checked_url(url), timeout=_TIMEOUT_S)

    def send(self, spans: Sequence[ReadableSpan]) -> None:
        """Send at most `BATCH` spans.

        Raises:
            TransportError: Nobody knows whether they were taken; they may be sent again.
        """
        if self._exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise TransportError("The OTLP address did not take the spans.")

    def close(self) -> None:
        """Give back its connections."""
        self._exporter.shutdown()


class _Counted(SpanExporter):
    """Hands spans to an exporter and keeps count of those that nothing is known of yet."""

    def __init__(self, exporter: SpanExporter, failures: Failures) -> None:
        self._exporter = exporter
        self._failures = failures
        self.forget()
        _counted.add(self)

    def forget(self) -> None:
        """Begin at nothing, as a forked child does: the spans of its parent are its parent's to send."""
        self._settled = threading.Condition()
        self._open = 0

    def expect(self) -> None:
        with self._settled:
            self._open += 1

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            lost = 0 if result is SpanExportResult.SUCCESS else len(spans)
            self._settle(len(spans), lost, TransportError("The OTLP address did not take the spans."))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def wait(self, timeout_s: float) -> bool:
        """Say whether everything was settled in time."""
        with self._settled:
            return self._settled.wait_for(lambda: not self._open, timeout_s)

    def give_up(self) -> int:
        """Count what is open as lost, and return how much that was."""
        with self._settled:
            lost = self._open
        self._settle(lost, lost, TransportTimeoutError("The spans were not taken in time."))
        return lost

    def _settle(self, spans: int, lost: int, error: TransportError) -> None:
        with self._settled:
            # What was given up may be taken after all; it is counted once.
            self._open = max(0, self._open - spans)
            self._settled.notify_all()
        for _ in range(lost):
            self._failures.add(error)


_counted: weakref.WeakSet[_Counted] = weakref.WeakSet()


def _forget_the_parent_s() -> None:
    for each in _counted:
        each.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parent_s)


class OTLPObserver:
    """An observer that exports live, and hands every event on to another one. Threads may share it.

    An attempt becomes a span when its outcome is seen, a charge when it is reported. `close` it; the end of a program
    that did not sends what is queued, for two seconds at most.
    """

    def __init__(self, url: str, *, then: Observer | None = None, exporter: SpanExporter | None = None) -> None:
        """Check the address and start the thread that sends; see `SpanSender` for the arguments.

        Raises:
            MalformedError: The address is not what it must be.
        """
        taking = exporter or OTLPSpanExporter(endpoint=checked_url(url), timeout=_TIMEOUT_S)
        self._failures = Failures()
        self._spans_out = _Counted(taking, self._failures)
        self._processor = BatchSpanProcessor(self._spans_out, schedule_delay_millis=_EVERY_MS)
        atexit.register(self._at_exit)
        self._then = then
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Attempt] = OrderedDict()

    @property
    def observation_error_count(self) -> int:
        """How many spans were not taken, as far as is known by now; failures of the other observer are not here."""
        return self._failures.count

    @property
    def observation_errors(self) -> list[str]:
        """The type names of the first 100 of those failures, oldest first."""
        return self._failures.errors

    def deliver(self, event: Event) -> None:
        """Put what the event completes into the queue, then hand the event on.

        Raises:
            ContinuityError: What the other observer raised.
        """
        for span in self._spans(event):
            self._spans_out.expect()
            self._processor.on_end(span)
        if self._then is not None:
            self._then.deliver(event)

    def close(self) -> None:
        """Send what is in the queue, within thirty seconds, and stop. What was not taken is counted by then."""
        atexit.unregister(self._at_exit)
        self._processor.shutdown()  # type: ignore[no-untyped-call]
        self._spans_out.give_up()

    def _at_exit(self) -> None:
        if not self._spans_out.wait(_EXIT_S):
            _log.warning("%d spans were not taken by the OTLP address before the end.", self._spans_out.give_up())

    def _spans(self, event: Event) -> list[ReadableSpan]:
        attempt = self._observe(event)
        spans = []
        if event.charge_source is not None and event.charge_id is not None:
            charge = observe_charge(None, event)
            if charge is not None:
                spans.append(charge_span((event.charge_source, event.charge_id), charge, attempt, scope=""))
        if event.event in _ENDS:
            spans.append(attempt_span(event.attempt_id, attempt, scope=""))
        return spans

    def _observe(self, event: Event) -> Attempt:
        with self._lock:
            attempt = observe_attempt(self._open.pop(event.attempt_id, None), event) or observe_attempt(None, event)
            assert attempt is not None  # noqa: S101 - only a known attempt can contradict
            if event.event not in _ENDS:
                self._open[event.attempt_id] = attempt
                if len(self._open) > _OPEN_MOST:
                    self._open.popitem(last=False)
        return attempt
