"""Where an instance stands, read from the instance itself: it needs no server and no sign-in."""

from __future__ import annotations

import http.client
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from app import instance, wiring
from app.config import Settings
from continuity.decisions.phases import Phase
from continuity.errors import ContinuityError, UnavailableError
from continuity.store import listing
from continuity.store.engine import describe
from continuity.vault import KeyProvider

SERVER_NOTE: Final = "server"
"""Note of the serving process: ``url``, ``process``, ``started_us``."""
CLOCK_NOTE: Final = "clock"
"""Note of a forward step of the clock that a serving process saw: ``stepped_us``."""
_PROBE_S: Final = 2.0
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class Overview:
    """What `atmem status` shows. `problems` is empty when nothing is wrong; times in microseconds."""

    url: str
    is_running: bool
    instance: str
    database: dict[str, str]
    vault: dict[str, Any]
    needs_a_person: dict[str, int]
    workflows: dict[str, int]
    clock_stepped_us: int | None
    problems: list[str]


def look(settings: Settings, *, keys: KeyProvider | None = None) -> Overview:
    """Look at an instance.

    Raises:
        SettingsError: The instance folder is missing or not private.
        UnavailableError: The database does not answer, or has other tables.
    """
    instance.guard(settings)
    store = wiring.open_store(settings)
    try:
        wiring.check_schema(store)
        row = wiring.vault_row(store)
        if row is None:
            raise UnavailableError("The instance has no vault yet. Run `atmem init`.")
        counts = store.read(
            lambda connection: {phase.value: listing.count_by_phase(connection, None, phase.value) for phase in Phase}
        )
        facts = describe(store.engine)
    finally:
        store.engine.dispose()
    provider = keys or wiring.key_provider(settings)
    url = str(instance.read_note(settings, SERVER_NOTE).get("url") or settings.url)
    stepped_us = instance.read_note(settings, CLOCK_NOTE).get("stepped_us")
    return Overview(
        url=url,
        is_running=_answers(url),
        instance=str(settings.instance),
        database={name: str(value) for name, value in asdict(facts).items()},
        vault={
            "format": row.format,
            "capture_mode": row.capture_mode,
            "locked": row.state == "locked",
            "state": row.state,
            "key_source": provider.kind,
            "key_id": row.key_id,
            "recovery_open": bool(row.recovery_open),
        },
        needs_a_person={phase.value: counts[phase.value] for phase in (Phase.REVIEW, Phase.DECISION)},
        workflows=counts,
        clock_stepped_us=stepped_us if isinstance(stepped_us, int) else None,
        problems=_problems(settings, provider),
    )


def _problems(settings: Settings, provider: KeyProvider) -> list[str]:
    """Try what a start would try, and say what is wrong instead of stopping at it."""
    try:
        with wiring.built(settings, keys=provider):
            return []
    except ContinuityError as error:
        return [error.message]


def _answers(url: str) -> bool:
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
