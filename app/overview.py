"""Where an instance stands, read from the instance itself: it needs no server and no sign-in."""

from __future__ import annotations

import http.client
import os
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from app import audits, commanding, databases, instance, vaults, wiring
from app.config import DEFAULT_HOST, DEFAULT_PORT, Settings
from continuity import limits
from continuity.decisions.phases import Phase
from continuity.decisions.threads.states import ThreadState
from continuity.errors import ContinuityError, KeySourceError, RolledBackError, UnavailableError, VaultError
from continuity.store import evidence, listing, threads
from continuity.store.engine import describe
from continuity.vault import KeyProvider

SERVER_NOTE: Final = "server"
"""How the name of a serving process's note begins; the process follows: ``url``, ``process``."""
CLOCK_NOTE: Final = "clock"
"""Note of a forward step of the clock that a serving process saw: ``stepped_us``."""
_STATES: Final = tuple(state.value for state in ThreadState if state is not ThreadState.IDLE)
_PROBE_S: Final = 2.0
_NOTES_MOST: Final = 8
DEFAULT_URL: Final = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class Overview:
    """What `atmem status` shows. `problems` is empty when nothing is wrong; times in microseconds.

    `threads` counts those of all workspaces that are not idle, by state.
    `audit` is what the last finished verification of the log found, None before the first.
    """

    url: str
    is_running: bool
    instance: str
    database: dict[str, str]
    vault: dict[str, Any]
    needs_a_person: dict[str, int]
    workflows: dict[str, int]
    threads: dict[str, int]
    clock_stepped_us: int | None
    audit: dict[str, Any] | None
    problems: list[str]


def look(settings: Settings, *, keys: KeyProvider | None = None) -> Overview:
    """Look at an instance.

    Raises:
        SettingsError: The instance folder is missing or not private.
        UnavailableError: The database does not answer, or has other tables.
    """
    instance.guard(settings)
    with databases.opened(settings) as store:
        databases.check_schema(store)
        row = vaults.vault_row(store)
        if row is None:
            raise UnavailableError("The instance has no vault yet. Run `atmem init`.")
        phases = [phase.value for phase in Phase]
        counts = dict(store.read(lambda connection: listing.count_by_phase(connection, None, phases)))
        conversations = store.read(
            lambda connection: threads.counts(
                connection, _STATES, evidence.workspace_pks(connection), most=limits.EXACT_COUNT_MAX + 1
            )
        )
        facts = describe(store.engine)
    provider = keys or vaults.key_provider(settings)
    fault = _fault(settings, provider)
    url, is_running = _server(settings)
    standing = audits.standing(settings)
    stepped_us = instance.read_note(settings, CLOCK_NOTE).get("stepped_us")
    return Overview(
        url=url,
        is_running=is_running,
        instance=str(settings.instance),
        database={name: str(value) for name, value in asdict(facts).items()},
        vault=_vault(row, provider, fault),
        needs_a_person={phase.value: counts[phase.value] for phase in (Phase.REVIEW, Phase.DECISION)},
        workflows=counts,
        threads=conversations,
        clock_stepped_us=stepped_us if isinstance(stepped_us, int) else None,
        audit=None if standing is None else asdict(standing),
        problems=[*([] if fault is None else [_told(settings, fault)]), *_of_log(standing)],
    )


def _of_log(standing: audits.Standing | None) -> list[str]:
    """Say that the log is not whole; what a server has found is told until a later verification finds nothing."""
    if standing is None or not standing.faults:
        return []
    return [f"The audit log is not whole. {standing.first} Run atmem audit verify, or look at Settings, Audit."]


def _vault(row: Any, provider: KeyProvider, fault: ContinuityError | None) -> dict[str, Any]:
    return {
        "format": row.format,
        "capture_mode": row.capture_mode,
        "locked": row.state == "locked",
        "state": row.state,
        "key_source": provider.kind,
        "key_id": row.key_id,
        "recovery_open": bool(row.recovery_open),
        "restored_us": row.restored_at,
        "restored_from_us": row.restored_from,
        "opens": not isinstance(fault, VaultError) or isinstance(fault, RolledBackError),
    }


def _fault(settings: Settings, provider: KeyProvider) -> ContinuityError | None:
    """Try what a start would try, and return what is wrong instead of stopping at it."""
    try:
        commanding.check_whole(settings)
        with wiring.built(settings, keys=provider):
            return None
    except ContinuityError as error:
        return error


def _told(settings: Settings, fault: ContinuityError) -> str:
    if isinstance(fault, KeySourceError):
        return instance.of_key(settings, fault, environ=os.environ)
    return fault.message


def _server(settings: Settings) -> tuple[str, bool]:
    """Return the address of a server of this instance that answers, else the one that it would have."""
    urls = [str(note["url"]) for note in instance.notes(settings, SERVER_NOTE) if "url" in note][:_NOTES_MOST]
    if settings.url != DEFAULT_URL:
        # Somebody has said where it is to be reached; what answers at the default address may be another instance's.
        urls.append(settings.url)
    for url in urls:
        if answers(url):
            return url, True
    return settings.url, False


def answers(url: str) -> bool:
    """Say whether a server is alive at an address."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=_PROBE_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == _OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
