"""What a monitoring system is told: counters and times of this process, and what the database says when it is asked.

Rules:

* Labels are words of the protocol and statuses. No id, name, address, actor or content is in them, so there are few
  series, and whoever may see numbers learns nothing else.
* Counting would stand in every request's way, in ten places of the library. So it is noted, and done by the scrape, and
  once a second by the housekeeping: nothing waits for it, and nothing is lost.
* What the database is asked for is asked by the scrape alone, at most every `KEPT_S` however often it is scraped, and
  in parts of an index that are short: what has ended is not counted.
* With several worker processes the numbers of all of them are added up, whichever answers. There each counts at once,
  as it does not hear of the scrape of another one.

Source: wire.md; docs/metrics.md lists every metric.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
    values,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from app.auth.schema import sessions
from continuity.decisions.phases import Phase
from continuity.errors import UnavailableError
from continuity.services.tally import Tally
from continuity.store.schema import vault, workflows, workspaces
from continuity.store.threads_schema import threads

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.clock import Clock
    from continuity.store.store import Store

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SHARED_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Where the library lets several processes add up."""
KEPT_S: Final = 10.0
SETTLE_S: Final = 1.0
"""How often what was noted is counted though nobody scrapes."""
_NOTED_MOST: Final = 10_000
"""Whoever notes this much counts all of it."""
# When each series began: a second series beside each, of no use to whoever has the first.
disable_created_metrics()
_COMMIT_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_REQUEST_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_UNIT_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64)
_OPEN: Final = tuple(phase.value for phase in Phase if phase not in {Phase.DONE, Phase.ENDED})
_THREADS: Final = ("running", "waiting", "needs_attention")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class _Notes:
    """What is to be counted. Safe to share between threads."""

    def __init__(self, *, counts_at_once: bool) -> None:
        self._counts_at_once = counts_at_once
        self._noted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._settling = threading.Lock()

    def add(self, count: Callable[..., object], *values: Any) -> None:
        """Let `count` be called with `values` soon."""
        if self._counts_at_once:
            count(*values)
            return
        self._noted.append((count, values))
        if len(self._noted) >= _NOTED_MOST:
            self.settle()

    def settle(self) -> None:
        """Count what was noted before."""
        with self._settling:
            for _ in range(len(self._noted)):
                count, values = self._noted.popleft()
                count(*values)


class Metrics:
    """Everything that this process counts. Safe to share between threads."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.registry = CollectorRegistry()
        make = {"namespace": "atmem", "registry": self.registry}
        self._requests = Counter("http_requests", "Requests answered.", ("method", "status"), **make)
        self._took = Histogram(
            "http_request_seconds", "Time from a request's head to its reply's head.", buckets=_REQUEST_BUCKETS, **make
        )
        self._decisions = Counter("decisions", "Begins answered, by action and reason.", ("action", "reason"), **make)
        self._outcomes = Counter("outcomes", "Outcomes answered, by status and reason.", ("status", "reason"), **make)
        self._waits = Histogram(
            "write_wait_seconds", "Time that a unit of writing waited for its turn.", buckets=_COMMIT_BUCKETS, **make
        )
        self._commits = Histogram(
            "commit_seconds", "Time of a commit, until it is on disk.", buckets=_COMMIT_BUCKETS, **make
        )
        self._units = Histogram("commit_units", "Units made durable by one commit.", buckets=_UNIT_BUCKETS, **make)
        self._events = Counter("observation_events", "Observation events, by result.", ("result",), **make)
        self._notes = _Notes(counts_at_once=_SHARED_FOLDER in os.environ)
        self.tally = Tally(
            lambda action, reason: self._notes.add(self._count, self._decisions, (action, reason)),
            lambda status, reason: self._notes.add(self._count, self._outcomes, (status, reason)),
        )

    def settle(self) -> None:
        """Count everything that has happened before; see `SETTLE_S`."""
        self._notes.settle()

    def waited(self, seconds: float) -> None:
        """Count how long a unit waited."""
        self._notes.add(self._waits.observe, seconds)

    def committed(self, seconds: float, units: int) -> None:
        """Count a commit."""
        self._notes.add(self._count_commit, seconds, units)

    def requested(self, method: str, status: int, took_us: int) -> None:
        """Count a request. A method that HTTP does not know is ``other``, since anybody can make one up."""
        self._notes.add(self._count_request, method, status, took_us)

    def observed(self, result: str) -> None:
        """Count an observation event: ``accepted, replayed`` or ``refused``."""
        self._notes.add(self._count, self._events, (result,))

    @staticmethod
    def _count(counter: Counter, labels: tuple[str, ...]) -> None:
        counter.labels(*labels).inc()

    def _count_commit(self, seconds: float, units: int) -> None:
        self._commits.observe(seconds)
        self._units.observe(units)

    def _count_request(self, method: str, status: int, took_us: int) -> None:
        self._count(self._requests, (method if method in _METHODS else "other", str(status)))
        self._took.observe(took_us / 1_000_000)


@contextmanager
def shared() -> Iterator[None]:
    """Let the processes that are forked inside add up what they count, each in files of its own in one folder.

    Whatever is counted by a `Metrics` that was made before is not in it.
    """
    before = values.ValueClass
    with tempfile.TemporaryDirectory(prefix="atmem-metrics-") as folder:
        os.environ[_SHARED_FOLDER] = folder
        values.ValueClass = values.get_value_class()
        try:
            yield
        finally:
            values.ValueClass = before
            del os.environ[_SHARED_FOLDER]


class Standing:
    """What the database says of the whole; the answer is kept for a while. Collected by the library."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Keep where to ask."""
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._read_us: int | None = None
        self._families: list[Metric] = []

    def collect(self) -> Iterator[Metric]:
        """Give the families, asked for anew when the last answer is old."""
        with self._lock:
            now_us = self._clock.monotonic_us()
            if self._read_us is None or now_us - self._read_us >= KEPT_S * 1_000_000:
                self._families = self._read()
                self._read_us = now_us
            yield from self._families

    def _read(self) -> list[Metric]:
        up = GaugeMetricFamily("atmem_database_up", "1 when the database answers.")
        try:
            found = self._store.read(_counted)
        except UnavailableError:
            up.add_metric((), 0)
            return [up]
        up.add_metric((), 1)
        locked = GaugeMetricFamily("atmem_vault_locked", "1 while the vault is locked.")
        locked.add_metric((), found["vault"].get("locked", 0))
        return [
            up,
            locked,
            _gauge("atmem_workflows", "Workflows that have not ended, by phase.", "phase", _OPEN, found["workflows"]),
            _gauge("atmem_threads", "Threads that are not idle, by state.", "state", _THREADS, found["threads"]),
            _gauge("atmem_sessions", "Sessions of people.", "kind", ("person",), found["sessions"]),
        ]


def _gauge(name: str, words: str, label: str, values: tuple[str, ...], counts: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=(label,))
    for value in values:
        family.add_metric((value,), counts.get(value, 0))
    return family


def _counted(connection: Connection) -> dict[str, dict[str, int]]:
    everywhere = sa.select(workspaces.c.workspace_pk)
    by_phase = (
        sa.select(workflows.c.phase, sa.func.count())
        .where(workflows.c.workspace_pk.in_(everywhere), workflows.c.phase.in_(_OPEN))
        .group_by(workflows.c.phase)
    )
    by_state = (
        sa.select(threads.c.state, sa.func.count())
        .where(threads.c.workspace_pk.in_(everywhere), threads.c.state.in_(_THREADS))
        .group_by(threads.c.state)
    )
    is_locked = connection.execute(sa.select(vault.c.state)).scalar_one_or_none() == "locked"
    return {
        "workflows": _by_name(connection, by_phase),
        "threads": _by_name(connection, by_state),
        "sessions": {"person": connection.execute(sa.select(sa.func.count()).select_from(sessions)).scalar_one()},
        "vault": {"locked": int(is_locked)},
    }


def _by_name(connection: Connection, statement: sa.Select[str, int]) -> dict[str, int]:
    return {str(name): int(count) for name, count in connection.execute(statement)}


class Page:
    """Everything as text, in Prometheus's own format."""

    def __init__(self, metrics: Metrics, standing: Standing) -> None:
        """Keep what to tell of."""
        self._metrics = metrics
        self._asked = CollectorRegistry()
        self._asked.register(standing)
        self._asked.register(_About())

    def text(self) -> bytes:
        """Return every metric; with several processes those of all of them added up."""
        self._metrics.settle()
        counted = self._metrics.registry
        if _SHARED_FOLDER in os.environ:
            counted = CollectorRegistry()
            multiprocess.MultiProcessCollector(counted)
        return generate_latest(counted) + generate_latest(self._asked)


class _About:
    """The version, and what the operating system says of this process where it says anything."""

    def __init__(self) -> None:
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        about = GaugeMetricFamily("atmem_info", "1, with the version that runs.", labels=("version",))
        about.add_metric((version("atmem-continuity"),), 1)
        yield about
        # One of several processes would be taken for all of them.
        if _SHARED_FOLDER not in os.environ:
            yield from self._process.collect()
