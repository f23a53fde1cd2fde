"""Reporting what was attempted and what it cost. Best effort, bounded, and without any authority.

Rules:

* An event takes at most `WAIT_S` of the caller's time. A sender that takes longer goes on by itself; the
  caller counts a failure, for nobody knows whether the event arrived.
* At most `WORKERS` senders a process, on daemon threads. When all are busy the event fails at once.
* An event is sent once. Nothing here is retried, queued or written down, and nothing that happens here
  changes what a governed operation may do.

Example::

    observer = AtFlowsObserver("http://127.0.0.1:8768", producer_token)
    client = ContinuityClient(url, worker_token, observer=observer)
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from continuity.errors import MalformedError, TransportError, TransportTimeoutError
from continuity.transport import Transport
from observations.events import CachedBasis, Event, EventName
from observations.failures import Failures

WAIT_S: Final = 2.0
WORKERS: Final = 8
_log: Final = logging.getLogger("observations")
_EVENTS_PATH: Final = "/v1/continuity/events"

_slots = threading.BoundedSemaphore(WORKERS)


def _free_slots() -> None:
    """Give a forked child its own slots: the threads that hold its parent's do not exist there."""
    global _slots  # noqa: PLW0603 - the bound is one a process, so it lives in the module
    _slots = threading.BoundedSemaphore(WORKERS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_slots)


class WorkersBusyError(TransportError):
    """All senders of this process are busy. The event was not sent."""

    code = "observation_workers_busy"


class Observer(Protocol):
    """Whatever takes events; `AtFlowsObserver` is the one that sends them."""

    def deliver(self, event: Event) -> None:
        """Take one event within `WAIT_S`, or raise what went wrong."""


class AtFlowsObserver:
    """Sends events to an AtFlows server, each within two seconds of its caller's time. Threads may share it."""

    def __init__(self, url: str, token: str, *, wait_s: float = WAIT_S) -> None:
        """Check address and token; nothing is sent yet.

        Args:
            url: Address of the AtFlows dashboard, as ``atmem status`` reports it.
            token: Producer token or observer credential. It can submit events and nothing else.
            wait_s: The longest that `deliver` keeps its caller, in seconds.

        Raises:
            MalformedError: The address or the token is not what it must be.
        """
        self._transport = Transport(url, token)
        self._wait_s = min(wait_s, WAIT_S)

    def __repr__(self) -> str:
        return f"AtFlowsObserver({self._transport.url!r})"

    def close(self) -> None:
        """Close the idle connections."""
        self._transport.close()

    def deliver(self, event: Event) -> None:
        """Send one event, once.

        Raises:
            WorkersBusyError: Not sent: every sender of the process is busy.
            TransportTimeoutError: Not answered in time. It may still arrive.
            ContinuityError: What the server refused it with, or the transport's failure.
        """
        slots = _slots
        if not slots.acquire(blocking=False):
            raise WorkersBusyError("Every sender of this process is busy.")
        sending = _Sending(self._transport, event, slots)
        try:
            threading.Thread(target=sending.run, name="atflows-sender", daemon=True).start()
        except RuntimeError:
            slots.release()
            raise WorkersBusyError("No thread can be started.") from None
        if not sending.done.wait(self._wait_s):
            raise TransportTimeoutError("The event was not answered in time; it may still arrive.")
        if sending.error is not None:
            raise sending.error


@dataclass(slots=True)
class _Sending:
    transport: Transport
    event: Event
    slots: threading.BoundedSemaphore
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def run(self) -> None:
        try:
            self.transport.call("POST", _EVENTS_PATH, self.event.to_json())
        except Exception as error:  # noqa: BLE001 - handed to the caller, who counts it
            self.error = error
        finally:
            self.slots.release()
            self.done.set()


class Reporting:
    """Hands events to an observer and counts what fails. One a client; without an observer it does nothing."""

    def __init__(self, observer: Observer | None) -> None:
        """Keep the observer, None for none."""
        self._observer = observer
        self._failures = Failures()

    @property
    def is_on(self) -> bool:
        """Whether there is an observer."""
        return self._observer is not None

    @property
    def error_count(self) -> int:
        """How many events failed, timeouts included."""
        return self._failures.count

    @property
    def errors(self) -> list[str]:
        """The type names of the first 100 failures, oldest first; a copy."""
        return self._failures.errors

    @property
    def codes(self) -> list[str]:
        """The codes of the same failures in the same order, the type name where one has none; a copy."""
        return self._failures.codes

    def send(self, make: Callable[[], Event]) -> bool:
        """Make an event and deliver it.

        Args:
            make: Called here, so that an event that breaks a rule counts as a failure like any other.

        Returns:
            True if the server took it; False without an observer and for every failure. Never raises an
            `Exception`.
        """
        if self._observer is None:
            return False
        try:
            event = make()
        except Exception as error:  # noqa: BLE001 - an observer must not be able to disturb the work
            self.count_own(error, error.message if isinstance(error, MalformedError) else type(error).__name__)
            return False
        try:
            self._observer.deliver(event)
        except Exception as error:  # noqa: BLE001 - an observer must not be able to disturb the work
            self.count(error)
            return False
        return True

    def count(self, error: Exception) -> None:
        """Count one failure."""
        self._failures.add(error)

    def count_own(self, error: Exception, reason: str) -> None:
        """Count an event that the caller's own values made impossible, and warn of each reason once.

        Args:
            error: What to count.
            reason: The words of a rule, which name the field and never its value: they are logged.
        """
        self.count(error)
        if self._failures.is_first(reason):
            _log.warning("An event was not reported: %s", reason)


class Watched:
    """What every client says of the events that it could not deliver: it reports through `Reporting`."""

    _reporting: Reporting

    @property
    def observation_error_count(self) -> int:
        """How many events were not delivered, those with unknown delivery included."""
        return self._reporting.error_count

    @property
    def observation_errors(self) -> list[str]:
        """The type names of the first 100 failures, oldest first."""
        return self._reporting.errors

    @property
    def observation_error_codes(self) -> list[str]:
        """The codes of the same failures, the type name where one has none."""
        return self._reporting.codes


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAttempt:
    """An attempt that events are about.

    Attributes:
        reporting: Where they go.
        workflow_id: Opaque id, as in `Event`; so are the next three.
        operation_id: See `workflow_id`.
        run_id: See `workflow_id`.
        attempt_id: See `workflow_id`.
        retry: See `Event.retry`; None when not known.
        recovery: See `Event.recovery`; None when not known.
    """

    reporting: Reporting
    workflow_id: str
    operation_id: str
    run_id: str
    attempt_id: str
    retry: bool | None = None
    recovery: bool | None = None

    def send(self, event: EventName, **optional: Any) -> bool:
        """Send one event about this attempt, stamped with the host's time; see `Reporting.send`."""
        return self.reporting.send(
            lambda: Event(
                event_id=f"ev_{uuid.uuid4().hex}", workflow_id=self.workflow_id, operation_id=self.operation_id,
                run_id=self.run_id, attempt_id=self.attempt_id, event=event, time=time.time(),
                retry=self.retry, recovery=self.recovery, **optional,
            )
        )  # fmt: skip


_active: ContextVar[ObservedAttempt | None] = ContextVar("atflows_active_attempt", default=None)


@contextmanager
def charging(attempt: ObservedAttempt) -> Iterator[None]:
    """Let `record_charge` inside the block report for `attempt`."""
    token = _active.set(attempt)
    try:
        yield
    finally:
        _active.reset(token)


def record_charge(
    *,
    charge_id: str,
    charge_source: str,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    cost_microusd: int | None = None,
    price_source: str | None = None,
    model: str | None = None,
    cached_input_tokens: int | None = None,
    cached_basis: str | None = None,
) -> bool:
    """Report what a provider charged, from inside a governed callback. Never raises an `Exception`.

    Args:
        charge_id: The provider's id of the response, 1 to 256 characters.
        charge_source: Your account at the provider, 1 to 128 characters.
        input_tokens: As the provider reports; None for not known, never a guessed 0.
        output_tokens: As `input_tokens`.
        cost_microusd: Millionths of a US dollar, if you know the price; then `price_source` too.
        price_source: Where the rate comes from, with its version.
        model: The model that answered.
        cached_input_tokens: As the provider reports.
        cached_basis: ``included`` in the input tokens or ``separate`` from them.

    Returns:
        True if the server took it. False outside a governed callback, without an observer, and when the
        values or the delivery fail; the failure is counted at the client.
    """
    attempt = _active.get()
    if attempt is None:
        return False
    try:
        basis = None if cached_basis is None else CachedBasis(cached_basis)
    except ValueError as error:
        attempt.reporting.count_own(error, "cached_basis must be included or separate.")
        return False
    return attempt.send(
        EventName.USAGE, charge_id=charge_id, charge_source=charge_source, input_tokens=input_tokens,
        output_tokens=output_tokens, cost_microusd=cost_microusd, price_source=price_source, model=model,
        cached_input_tokens=cached_input_tokens, cached_basis=basis,
    )  # fmt: skip


class ContinuityObserver(Watched):
    """Reports attempts that AtMem does not govern: calls whose repetition nobody decides about.

    Example::

        observer = ContinuityObserver(url, producer_token)
        with observer.attempt(workflow_id="nightly", operation_id="summary"):
            response = provider.create(…)
            record_charge(charge_id=response.id, charge_source="my-account")
    """

    def __init__(self, url: str, token: str, *, observer: Observer | None = None) -> None:
        """Take an address and a producer token, or an `observer` that takes the events instead."""
        self._reporting = Reporting(AtFlowsObserver(url, token) if observer is None else observer)

    @contextmanager
    def attempt(
        self,
        *,
        workflow_id: str,
        operation_id: str,
        run_id: str | None = None,
        attempt_id: str | None = None,
        retry: bool | None = None,
        recovery: bool | None = None,
    ) -> Iterator[None]:
        """Report an attempt around the block: ``execute``, then ``completed``, or ``unknown`` if it raises.

        Args:
            workflow_id: Your own id, 1 to 128 of ``A-Z a-z 0-9 _ -``; so are the others.
            operation_id: See `workflow_id`.
            run_id: A new one when left out.
            attempt_id: A new one when left out.
            retry: Whether the attempt repeats an earlier one.
            recovery: Whether it follows one whose outcome was open.
        """
        observed = ObservedAttempt(
            reporting=self._reporting,
            workflow_id=workflow_id,
            operation_id=operation_id,
            run_id=run_id or f"run_{uuid.uuid4().hex}",
            attempt_id=attempt_id or f"at_{uuid.uuid4().hex}",
            retry=retry,
            recovery=recovery,
        )
        observed.send(EventName.EXECUTE)
        try:
            with charging(observed):
                yield
        except BaseException:
            observed.send(EventName.UNKNOWN)
            raise
        observed.send(EventName.COMPLETED)
