"""The composition root: the one place that makes engine, keys, clock and services and puts them together.

Order of a start: umask and instance folder, engine, revision of the tables, keys, vault, services. Whatever is
wrong stops it with one error that says what to do; nothing is half built, because nothing is global.

How an instance's database and vault are made and opened stands in `app.databases` and `app.vaults`.
"""

from __future__ import annotations

import hashlib
import hmac
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa

from app import audits, databases, instance, thread_services, vaults
from app.auth import services as auth_services
from app.auth.factor_seal import SecretKeys
from app.auth.principals import EnvironmentToken
from app.auth.settings import AuthSettings
from app.config import Settings
from app.databases import check_schema, open_engine, open_observations
from app.housekeeping import Housekeeping
from app.metrics import SETTLE_S, Metrics, Page, Standing
from app.room import require_for
from app.thread_services import ThreadServices
from app.vault_life import VaultLife
from app.vaults import key_provider
from continuity.errors import ContinuityError, SealedError
from continuity.services.attempts import Attempts
from continuity.services.audit import AuditLog
from continuity.services.auditing import Auditing
from continuity.services.capture import Capture
from continuity.services.clock import Clock
from continuity.services.clockwatch import ClockWatch
from continuity.services.controls import Controls
from continuity.services.deletion import Deletions
from continuity.services.evidence import Evidence
from continuity.services.evidence_deletion import EvidenceDeletions
from continuity.services.evidence_reading import EvidenceReading
from continuity.services.evidence_runs import EvidenceRuns
from continuity.services.evidence_search import EvidenceSearch
from continuity.services.exporting import Exporting
from continuity.services.ledger import Ledger
from continuity.services.listing import Listing
from continuity.services.opening import Opener
from continuity.services.owners import Owners
from continuity.services.reapplying import Reapplying
from continuity.services.restoring import Recovery
from continuity.services.retention import Retaining
from continuity.services.reviewing import Reviewing
from continuity.services.sweeping import Sweeper
from continuity.services.tally import Tally
from continuity.services.workflows import Workflows
from continuity.store import schema
from continuity.store.store import Store
from continuity.vault import KeyProvider, Vault
from continuity.vault.passphrase import Cost
from observations.cursors import Cursors
from observations.ingest import Ingest
from observations.queries import Queries

_TIDY_S: Final = 60.0
_MARK_S: Final = 1.0
"""How often the vault's clock mark follows the decisions."""
_SWEEP_S: Final = 5.0
"""How long a filter or a count may lag behind a lease that ran out."""


def _suspension_counting_ns() -> Callable[[], int]:
    """Choose a monotonic clock that goes on while the machine sleeps.

    Linux has it under a name of its own and macOS under CLOCK_MONOTONIC, where `time.monotonic` stands still;
    on Windows `time.monotonic` counts.
    """
    if sys.platform == "linux":
        return lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return time.monotonic_ns


class SystemClock:
    """Wall and monotonic time of this machine, in whole microseconds."""

    def __init__(self) -> None:
        self._monotonic_ns = _suspension_counting_ns()

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic_us(self) -> int:
        return self._monotonic_ns() // 1_000


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a test program may put in place of the product's own; no setting and no variable can.

    Given as ``obj`` to the command line's `main`, it reaches every command (tests/entry.py).
    """

    clock: Clock | None = None
    auth: AuthSettings = field(default_factory=AuthSettings)
    make_store: Callable[[sa.Engine], Store] = Store


def overridden(given: Overrides | None) -> Overrides:
    """Return what a program has passed; without one, what overrides nothing."""
    return given or Overrides()


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases of governed operations."""

    workflows: Workflows
    attempts: Attempts
    controls: Controls
    listing: Listing
    reviewing: Reviewing
    deletions: Deletions
    watch: ClockWatch
    capture: Capture
    evidence: Evidence
    evidence_reading: EvidenceReading
    evidence_search: EvidenceSearch
    evidence_deletions: EvidenceDeletions
    exporting: Exporting
    retaining: Retaining


@dataclass(frozen=True, slots=True)
class Observations:
    """AtFlows: on connections of its own, so that nothing here takes one from governed operations."""

    store: Store
    ingest: Ingest
    queries: Queries

    def close(self) -> None:
        """Give back every connection."""
        databases.close(self.store)


@dataclass(frozen=True, slots=True)
class Wiring:
    """Everything that serves requests."""

    settings: Settings
    clock: Clock
    store: Store
    vault: Vault
    audit: AuditLog
    audits: audits.Audits
    auth: auth_services.Auth
    services: Services
    threads: ThreadServices
    observations: Observations
    housekeeping: Housekeeping
    metrics: Metrics
    metrics_page: Page
    vault_life: VaultLife
    recovery: Recovery
    reapplying: Reapplying
    passphrase_cost: Cost
    secret_key: bytes = field(repr=False)

    def check_ready(self) -> None:
        """Prove that the database answers and that the vault's key is here.

        Raises:
            UnavailableError: The database does not answer.
            SealedError: The vault is locked.
        """
        self.store.autocommit(lambda connection: connection.execute(sa.select(schema.vault.c.id)).first())
        if self.vault.is_locked:
            raise SealedError("The vault is locked.")

    def close(self) -> None:
        """Stop the background threads, give back every connection, drop the keys."""
        self.housekeeping.stop()
        self.audits.checks.stop()
        self.observations.close()
        databases.close(self.store)
        self.vault.lock()


def build(
    settings: Settings, *, keys: KeyProvider | None = None, overrides: Overrides | None = None,
    is_rollback_accepted: bool = False,
) -> Wiring:  # fmt: skip
    """Put everything together for serving. Starts no thread; `Wiring.close` gives all of it back.

    Raises:
        SettingsError: The instance folder is missing or not private.
        UnavailableError: The database does not answer, or its tables are not those of this program.
        KeySourceError: The master key or the secret key cannot be had.
        IntegrityError: The shred list is not the one that the database knows.
        RolledBackError: The database is older than its anchor, and `is_rollback_accepted` was not said.
    """
    overrides = overridden(overrides)
    instance.guard(settings)
    if not is_rollback_accepted:
        instance.require_not_moved(settings)
    store = overrides.make_store(open_engine(settings))
    try:
        check_schema(store)
        keys = keys or key_provider(settings)
        vault = vaults.open_stored(store, settings, keys)
        made = _put_together(settings, store, vault=vault, keys=keys, overrides=overrides)
        if not is_rollback_accepted:
            made.audits.anchors.check()
        return made
    except BaseException:
        databases.close(store)
        raise


def _put_together(settings: Settings, store: Store, *, vault: Vault, keys: KeyProvider, overrides: Overrides) -> Wiring:
    clock = overrides.clock or SystemClock()
    audit = AuditLog(vault)
    owners = Owners(store, vault)
    secret_keys = SecretKeys(instance.read_secret_key(settings), instance.read_older_secret_keys(settings))
    auth = auth_services.build(
        store, owners, audit=audit, clock=clock, url=settings.url, secret_keys=secret_keys, settings=overrides.auth,
        of_environment=_tokens(settings),
    )  # fmt: skip
    watch = ClockWatch(clock)
    room = require_for(settings.database_url, settings.disk_floor_bytes)
    ledger = Ledger(vault, watch, history_bytes=settings.coordinator_history_bytes, require_room=room)
    cost = passphrase_cost(overrides)
    metrics = Metrics()
    store.watch(metrics)
    threads = thread_services.build(store, ledger, audit, threads=settings.threads)
    services = _services(
        store, ledger, audit=audit, auth=auth, watch=watch, cost=cost, tally=metrics.tally, threads=threads
    )
    life = VaultLife(settings, store, vault, audit, keys=keys, clock=clock, throttle=auth.throttle, cost=cost)
    reapplying = Reapplying(store, vault, _destroyers(services, threads), clock.now_us)
    return Wiring(
        settings=settings,
        clock=clock,
        store=store,
        vault=vault,
        audit=audit,
        audits=audits.build(
            settings,
            store,
            log=audit,
            now_us=clock.now_us,
            secret_keys=secret_keys.all,
            auditing=lambda: Auditing(store, audit, None if vault.is_locked else Opener(vault, watch), clock.now_us),
        ),
        auth=auth,
        services=services,
        threads=threads,
        observations=_observations(settings, clock, secret_keys=secret_keys, epoch=vaults.epoch(store)),
        housekeeping=_housekeeping(
            auth, services, threads, sweeper=Sweeper(store, ledger), life=life, reapplying=reapplying, metrics=metrics
        ),
        metrics=metrics,
        metrics_page=Page(metrics, Standing(store, clock)),
        vault_life=life,
        recovery=Recovery(store, vault, audit, clock.now_us),
        reapplying=reapplying,
        passphrase_cost=cost,
        secret_key=secret_keys.current,
    )


def passphrase_cost(overrides: Overrides) -> Cost:
    """Return what a guess at a passphrase costs: as much as one at a password."""
    hashing = overrides.auth.hashing
    return Cost(hashing.memory_kib, hashing.time_cost, hashing.parallelism)


def _tokens(settings: Settings) -> list[EnvironmentToken]:
    """Return the tokens that this installation takes from its environment."""
    tokens = []
    if settings.producer_token is not None:
        tokens.append(EnvironmentToken(settings.producer_token, settings.observation_scope))
    if settings.metrics_token is not None:
        tokens.append(EnvironmentToken(settings.metrics_token))
    return tokens


def _observations(settings: Settings, clock: Clock, *, secret_keys: SecretKeys, epoch: int) -> Observations:
    store = open_observations(settings)
    # Keys for this purpose and epoch alone, derived so that they need not be kept: a restore voids all cursors.
    purpose = b"cursors of observations, epoch %d" % epoch
    current, *older = (hmac.digest(key, purpose, hashlib.sha256) for key in secret_keys.all)
    cursors = Cursors(current, tuple(older))
    return Observations(store, Ingest(store, now_us=clock.now_us), Queries(store, cursors, clock.now_us))


def _services(
    store: Store, ledger: Ledger, *, audit: AuditLog, auth: auth_services.Auth, watch: ClockWatch, cost: Cost,
    tally: Tally, threads: ThreadServices,
) -> Services:  # fmt: skip
    attempts = Attempts(store, ledger, tally)
    deletions = Deletions(store, ledger, audit, auth.credentials.end_of_workflow)
    runs = EvidenceRuns(ledger)
    reading = EvidenceReading(store, ledger, runs, audit)
    evidence_deletions = EvidenceDeletions(store, ledger, runs, reading, audit)
    return Services(
        workflows=Workflows(store, ledger, attempts, audit),
        attempts=attempts,
        controls=Controls(store, ledger, audit),
        listing=Listing(store, ledger),
        reviewing=Reviewing(store, ledger, audit),
        deletions=deletions,
        watch=watch,
        capture=Capture(store, ledger, audit),
        evidence=Evidence(store, ledger, runs),
        evidence_reading=reading,
        evidence_search=EvidenceSearch(store, ledger, runs, reading),
        evidence_deletions=evidence_deletions,
        exporting=Exporting(store, ledger, runs, reading, cost),
        retaining=Retaining(store, ledger, runs, reading, deletions, evidence_deletions, threads.journals),
    )


def _destroyers(services: Services, threads: ThreadServices) -> dict[str, Callable[[str], object]]:
    """Say what destroys a partition that a restored database has brought back, by its kind."""
    return {
        "workflow": services.deletions.reapply,
        "evidence": services.evidence_deletions.reapply,
        "thread": threads.deletions.reapply,
    }


def _housekeeping(
    auth: auth_services.Auth, services: Services, threads: ThreadServices, *, sweeper: Sweeper, life: VaultLife,
    reapplying: Reapplying, metrics: Metrics,
) -> Housekeeping:  # fmt: skip
    """Say what a serving process does by itself. The thread is started by whoever serves."""
    raised_us = 0

    def raise_mark() -> None:
        nonlocal raised_us
        latest_us = services.watch.latest_us
        # Nothing was decided since the last time: no write.
        if latest_us > raised_us:
            sweeper.raise_mark(latest_us)
            raised_us = latest_us

    housekeeping = Housekeeping()
    housekeeping.add("clock_mark", raise_mark, interval_s=_MARK_S)
    housekeeping.add("metrics", metrics.settle, interval_s=SETTLE_S)
    housekeeping.add("phases", sweeper.sweep, interval_s=_SWEEP_S)
    housekeeping.add("claims", threads.upkeep.expire_due, interval_s=_MARK_S)
    housekeeping.add("thread_deletions", threads.deletions.finish_all, interval_s=_TIDY_S)
    # First: what a restore has brought back is not there for long.
    housekeeping.add("reapplied_deletions", reapplying.run, interval_s=_TIDY_S)
    housekeeping.add("deletions", services.deletions.finish_all, interval_s=_TIDY_S)
    housekeeping.add("evidence_deletions", services.evidence_deletions.finish_all, interval_s=_TIDY_S)
    housekeeping.add("auth", auth.tidy, interval_s=_TIDY_S)
    housekeeping.add("rotation", life.drive, interval_s=_MARK_S)
    return housekeeping


@contextmanager
def built(
    settings: Settings, *, keys: KeyProvider | None = None, overrides: Overrides | None = None
) -> Iterator[Wiring]:
    """Build for a command that runs and ends."""
    wiring = build(settings, keys=keys, overrides=overrides)
    try:
        yield wiring
    finally:
        wiring.close()


def follow_restore(settings: Settings, *, keys: KeyProvider, overrides: Overrides) -> str | None:
    """Do at once what the next start would do after a restore: delete again, keep the anchor.

    Returns:
        What was left to the next start, and why; None when nothing was.
    """
    if not settings.is_postgresql:
        # What was put back is what counts from now on, wherever it was moved before.
        instance.drop_note(settings, instance.MOVED)
    try:
        with built(settings, keys=keys, overrides=overrides) as wiring:
            wiring.reapplying.run()
            wiring.audits.anchors.keep()
    except ContinuityError as error:
        return error.message
    return None
