"""Attempts and charges as OpenTelemetry spans, over OTLP: the attributes of GenAI, and no content.

Needs the extra ``otel``. A workflow is a trace, an attempt a span in it, a charge a span below its attempt. Ids are
made of the ids of what they stand for, so whatever is exported twice is the same span.

Example::

    live = OTLPObserver("http://127.0.0.1:4318/v1/traces", then=AtFlowsObserver(atflows_url, token))
    client = ContinuityClient(url, worker_token, observer=live)

Rules:

* A span holds opaque ids, outcome and cause, a model, tokens and a reported cost, and nothing of a prompt or reply.
* Cached tokens keep their basis: ``gen_ai.usage.input_tokens`` includes them where the provider's number does.
* Live, a span takes none of its caller's time: it goes to a bounded queue, is dropped when that is full, and is sent
  by a thread of its own.
"""

from __future__ import annotations

import hashlib
import threading
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
from continuity.errors import TransportError
from observations.costs import Attempt, Charge, Outcome, observe_attempt, observe_charge
from observations.events import Event, EventName

BATCH: Final = 500
"""Most spans of one request."""
_TIMEOUT_S: Final = 10.0
_OPEN_MOST: Final = 10_000
"""Attempts that were seen to begin and not to end; the oldest is forgotten."""
_ENDS: Final = frozenset({EventName.COMPLETED, EventName.UNKNOWN, EventName.BLOCKED, EventName.ABANDONED})
_NS_A_US: Final = 1_000
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


class OTLPObserver:
    """An observer that exports live, and hands every event on to another one. Threads may share it.

    An attempt becomes a span when its outcome is seen, a charge when it is reported.
    """

    def __init__(self, url: str, *, then: Observer | None = None, exporter: SpanExporter | None = None) -> None:
        """Check the address and start the thread that sends; see `SpanSender` for the arguments.

        Raises:
            MalformedError: The address is not what it must be.
        """
        taking = exporter or OTLPSpanExporter(endpoint=checked_url(url), timeout=_TIMEOUT_S)
        self._processor = BatchSpanProcessor(taking)
        self._then = then
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Attempt] = OrderedDict()

    def deliver(self, event: Event) -> None:
        """Put what the event completes into the queue, then hand the event on.

        Raises:
            ContinuityError: What the other observer raised.
        """
        for span in self._spans(event):
            self._processor.on_end(span)
        if self._then is not None:
            self._then.deliver(event)

    def close(self) -> None:
        """Send what is in the queue, within ten seconds, and stop."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]

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
