"""Settings of the server and of the command line, read once from the environment and the instance folder.

Rules:

* Every setting is a field of `Settings`, documented there with its unit and the variable that sets it.
* A wrong value stops the start with one line that names the variable and says what it must be. The line
  never repeats the value: it may be a secret.
* Keys are not here. `vault_key_variable` and `vault_key_file` say where they are; app/vaults.py reads them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from continuity import limits

VAULT_KEY_VARIABLE: Final = "ATMEM_VAULT_KEY"
KEY_SOURCES: Final = ("file", "environment", "passphrase", "transit")
_KEY_FILES: Final = {
    "file": "vault.key", "environment": "vault.key", "passphrase": "vault.sealed", "transit": "vault.transit",
}  # fmt: skip
_TRANSIT_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,63}){0,3}")
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8768
DEFAULT_THREADS: Final = 16
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")
_SQLITE: Final = "sqlite:///"
_DATABASE_SCHEMES: Final = (_SQLITE, "postgresql://", "postgresql+psycopg://")
_HOST_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")
_DISK_FLOOR_DEFAULT: Final = 64 * 1024 * 1024
_RATE_DEFAULT: Final = 2_000
_EVENT_RATE_DEFAULT: Final = 500
_SCOPE_DEFAULT: Final = "local"
_SCOPE: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ENVIRONMENT_TOKEN: Final = re.compile(r"[\x21-\x7e]{32,4096}")
_HISTORY_BYTES_MAX: Final = 2**40
_KEYS: Final = re.compile(r"(?:(?:[0-9]+:)?[A-Za-z0-9+/]{43}=(?:,|\Z))+")
"""The form of a master key in a variable; what it holds is read by the vault alone."""

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SettingsError(Exception):
    """A setting that cannot be used. The message is one line, names it and says what it must be."""


class InstanceError(SettingsError):
    """The setting can be what it is, but what lies there is missing, not private, or in use."""


@dataclass(frozen=True, slots=True)
class TransitPlace:
    """Where HashiCorp Vault's Transit engine is, for the key source ``transit``.

    Attributes:
        url: Address of Vault. ``ATMEM_TRANSIT_URL``; plain HTTP to this host alone.
        mount: Where the engine is mounted. ``ATMEM_TRANSIT_MOUNT``, default ``transit``.
        key: Name of its key. ``ATMEM_TRANSIT_KEY``, default ``atmem``.
        token_file: Private file with the token, read for each use. ``ATMEM_TRANSIT_TOKEN_FILE``.
        ca_file: Certificates to trust instead of the system's. ``ATMEM_TRANSIT_CA_FILE``, default None.
        namespace: Namespace of Vault Enterprise. ``ATMEM_TRANSIT_NAMESPACE``, default None.
    """

    url: str
    mount: str
    key: str
    token_file: Path
    ca_file: Path | None
    namespace: str | None


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set.

    Attributes:
        instance: Folder of database, key and lists, absolute. ``ATMEM_INSTANCE``, default ``./instance``.
        database_url: SQLAlchemy URL, ``sqlite:///…`` or ``postgresql://…``. ``ATMEM_DATABASE_URL``, default
            the file ``continuity.db`` in the instance folder. May hold a password: never shown.
        url: Address at which people and workers reach the server, without a path; links are built from it.
            ``ATMEM_URL``, default ``http://127.0.0.1:8768``.
        vault_key_variable: Name of the variable that holds the master key (base64 of 32 bytes), or None for a
            key file. ``ATMEM_VAULT_KEY``; needs ``ATMEM_SHRED_LIST``, since nothing lies beside such a key.
        vault_key_file: Private file of the master keys, mode 0600. ``ATMEM_VAULT_KEY_FILE``, default in the instance
            folder: ``vault.key``; ``vault.sealed`` or ``vault.transit`` for those two sources.
        vault_key_source: ``file``, ``environment``, ``passphrase`` or ``transit`` (docs/keys.md).
            ``ATMEM_VAULT_KEY_SOURCE``, default ``environment`` if ``ATMEM_VAULT_KEY`` is set, else ``file``.
        transit: Where Transit is, for that source alone.
        secret_key_file: Key that signs form tokens, mode 0600; always ``secret.key`` in the instance folder.
        shred_list: List of what was deleted, kept with the key and not with the database.
            ``ATMEM_SHRED_LIST``, default ``shred.list`` beside the key file.
        trusted_hosts: Names by which the server may be addressed, lower case, without port: loopback names,
            the host of `url` and those of ``ATMEM_TRUSTED_HOSTS`` (comma separated).
        trusted_proxies: Networks of the proxies whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are
            believed. ``ATMEM_TRUSTED_PROXIES`` (comma separated addresses or networks), default none.
        coordinator_history_bytes: Retained history a coordinator may have, in bytes.
            ``ATMEM_COORDINATOR_HISTORY_BYTES``, default 64 MiB.
        disk_floor_bytes: Free space on the disk of an SQLite database below which nothing new is begun, created or
            recorded as evidence; receipts are still taken. ``ATMEM_DISK_FLOOR_BYTES``, default 64 MiB, 0 for none.
        requests_per_second: Requests a second that one credential (or one address without credential) may
            make; twice as many at once. Outcomes are never counted. ``ATMEM_REQUESTS_PER_SECOND``, default
            2,000: far above one host's work, far below what starves the others.
        producer_token: Token with which any producer may submit observation events, 32 or more printable ASCII
            characters without spaces. ``ATFLOWS_CONTINUITY_TOKEN``, default none. A secret: never shown.
        metrics_token: Token with which a monitoring system may read ``/metrics``, of the same form.
            ``ATMEM_METRICS_TOKEN``, default none: then administrators alone may. A secret: never shown.
        observation_scope: Scope into which that token's events go, 1 to 128 of ``A-Z a-z 0-9 _ -``.
            ``ATFLOWS_CONTINUITY_SCOPE``, default ``local``.
        events_per_second: Observation events a second that one credential may submit; twice as many at once.
            Counted apart from `requests_per_second`. ``ATMEM_EVENTS_PER_SECOND``, default 500.
        host: Address to listen at; option ``--host`` of `atmem serve`.
        port: TCP port to listen at, 0 for any free one; option ``--port``.
        threads: Threads that serve requests, a worker process; option ``--threads``.
        workers: Worker processes on one socket, more than one with PostgreSQL only; option ``--workers``.
    """

    instance: Path
    database_url: str = field(repr=False)
    url: str
    vault_key_variable: str | None
    vault_key_file: Path
    secret_key_file: Path
    shred_list: Path
    trusted_hosts: frozenset[str]
    trusted_proxies: tuple[_Network, ...] = ()
    coordinator_history_bytes: int = limits.COORDINATOR_HISTORY_BYTES
    disk_floor_bytes: int = _DISK_FLOOR_DEFAULT
    requests_per_second: int = _RATE_DEFAULT
    producer_token: str | None = field(default=None, repr=False)
    metrics_token: str | None = field(default=None, repr=False)
    observation_scope: str = _SCOPE_DEFAULT
    events_per_second: int = _EVENT_RATE_DEFAULT
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    threads: int = DEFAULT_THREADS
    workers: int = 1
    vault_key_source: str = "file"
    transit: TransitPlace | None = None

    @property
    def locked_key_file(self) -> Path:
        """Where a locked vault's keys lie, sealed under a passphrase: beside the key file, or in the instance."""
        if self.vault_key_source == "environment":
            return self.instance / "vault.locked"
        return self.vault_key_file.with_name(f"{self.vault_key_file.name}.locked")

    @property
    def anchor_file(self) -> Path:
        """Where it is kept how far the database went: beside the shred list, mode 0600."""
        return self.shred_list.with_name(f"{self.shred_list.name}.anchor")

    @property
    def is_postgresql(self) -> bool:
        return self.database_url.startswith("postgresql")

    @property
    def is_https(self) -> bool:
        return self.url.startswith("https://")


def load_settings(environ: Mapping[str, str], *, instance: Path | None = None) -> Settings:
    """Read all settings from `environ`; `instance` wins over ``ATMEM_INSTANCE``. Opens no file.

    Raises:
        SettingsError: A value cannot be used; the message names its variable.
    """
    folder = (instance or Path(_text(environ, "ATMEM_INSTANCE") or "instance")).absolute()
    url = _url(environ)
    key_file = _path(environ, "ATMEM_VAULT_KEY_FILE")
    has_key_variable = bool(environ.get(VAULT_KEY_VARIABLE))
    shred_list = _path(environ, "ATMEM_SHRED_LIST")
    if has_key_variable and key_file is not None:
        raise SettingsError(f"ATMEM_VAULT_KEY_FILE: set this or {VAULT_KEY_VARIABLE}, not both.")
    if has_key_variable and not _KEYS.fullmatch(environ[VAULT_KEY_VARIABLE].strip()):
        raise SettingsError(f"{VAULT_KEY_VARIABLE}: must hold 32 bytes as base64 (44 characters), or id:base64,….")
    source = _key_source(environ, has_key_variable=has_key_variable)
    if source in {"environment", "transit"} and shred_list is None:
        raise SettingsError(f"ATMEM_SHRED_LIST: must name a file when the master key comes from {source}.")
    key_file = key_file or folder / _KEY_FILES[source]
    return Settings(
        instance=folder,
        database_url=_database_url(environ, folder),
        url=url,
        vault_key_variable=VAULT_KEY_VARIABLE if has_key_variable else None,
        vault_key_file=key_file,
        vault_key_source=source,
        transit=_transit(environ) if source == "transit" else None,
        secret_key_file=folder / "secret.key",
        shred_list=shred_list or key_file.with_name("shred.list"),
        trusted_hosts=_trusted_hosts(environ, url),
        trusted_proxies=_trusted_proxies(environ),
        coordinator_history_bytes=_integer(
            environ,
            "ATMEM_COORDINATOR_HISTORY_BYTES",
            default=limits.COORDINATOR_HISTORY_BYTES,
            minimum=limits.ATTEMPT_RESERVATION_BYTES,
            maximum=_HISTORY_BYTES_MAX,
        ),
        disk_floor_bytes=_integer(
            environ, "ATMEM_DISK_FLOOR_BYTES", default=_DISK_FLOOR_DEFAULT, minimum=0, maximum=limits.INTEGER_MAX
        ),
        requests_per_second=_integer(
            environ, "ATMEM_REQUESTS_PER_SECOND", default=_RATE_DEFAULT, minimum=1, maximum=1_000_000
        ),
        producer_token=_token(environ, "ATFLOWS_CONTINUITY_TOKEN"),
        metrics_token=_token(environ, "ATMEM_METRICS_TOKEN"),
        observation_scope=_observation_scope(environ),
        events_per_second=_integer(
            environ, "ATMEM_EVENTS_PER_SECOND", default=_EVENT_RATE_DEFAULT, minimum=1, maximum=1_000_000
        ),
    )


def _text(environ: Mapping[str, str], name: str) -> str | None:
    value = environ.get(name)
    if not value:
        return None
    if "\0" in value or "\n" in value or value != value.strip():
        raise SettingsError(f"{name}: must be one line without spaces at its ends.")
    return value


def _key_source(environ: Mapping[str, str], *, has_key_variable: bool) -> str:
    source = _text(environ, "ATMEM_VAULT_KEY_SOURCE") or ("environment" if has_key_variable else "file")
    if source not in KEY_SOURCES:
        raise SettingsError(f"ATMEM_VAULT_KEY_SOURCE: must be one of {', '.join(KEY_SOURCES)}.")
    if (source == "environment") != has_key_variable:
        raise SettingsError(
            f"ATMEM_VAULT_KEY_SOURCE: is environment where {VAULT_KEY_VARIABLE} is set, and only there."
        )
    return source


def _transit(environ: Mapping[str, str]) -> TransitPlace:
    url, token_file = _text(environ, "ATMEM_TRANSIT_URL"), _path(environ, "ATMEM_TRANSIT_TOKEN_FILE")
    if url is None or not _is_address(url):
        raise SettingsError("ATMEM_TRANSIT_URL: must be https:// and a host (http:// for this host alone).")
    if urlsplit(url).scheme == "http" and urlsplit(url).hostname not in {"127.0.0.1", "localhost", "::1"}:
        raise SettingsError("ATMEM_TRANSIT_URL: must be https:// unless Vault is on this host: keys go over it.")
    if token_file is None:
        raise SettingsError("ATMEM_TRANSIT_TOKEN_FILE: must name the file that holds the token.")
    words = {"ATMEM_TRANSIT_MOUNT": "transit", "ATMEM_TRANSIT_KEY": "atmem", "ATMEM_TRANSIT_NAMESPACE": ""}
    found = {name: _text(environ, name) or default for name, default in words.items()}
    for name, value in found.items():
        if value and not _TRANSIT_WORD.fullmatch(value):
            raise SettingsError(f"{name}: must be letters, digits, dots, dashes and slashes.")
    return TransitPlace(
        url=url,
        mount=found["ATMEM_TRANSIT_MOUNT"],
        key=found["ATMEM_TRANSIT_KEY"],
        token_file=token_file,
        ca_file=_path(environ, "ATMEM_TRANSIT_CA_FILE"),
        namespace=found["ATMEM_TRANSIT_NAMESPACE"] or None,
    )


def _token(environ: Mapping[str, str], name: str) -> str | None:
    value = _text(environ, name)
    if value is not None and not _ENVIRONMENT_TOKEN.fullmatch(value):
        raise SettingsError(f"{name}: must be 32 or more printable ASCII characters without spaces.")
    return value


def is_scope(text: str) -> bool:
    """Say whether `text` can be the name of an observation scope."""
    return bool(_SCOPE.fullmatch(text))


def _observation_scope(environ: Mapping[str, str]) -> str:
    value = _text(environ, "ATFLOWS_CONTINUITY_SCOPE") or _SCOPE_DEFAULT
    if not is_scope(value):
        raise SettingsError("ATFLOWS_CONTINUITY_SCOPE: must be 1 to 128 of A-Z a-z 0-9 _ -.")
    return value


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    value = _text(environ, name)
    if value is None:
        return None
    path = Path(value)
    if not path.is_absolute():
        raise SettingsError(f"{name}: must be an absolute path.")
    return path


def _integer(environ: Mapping[str, str], name: str, *, default: int, minimum: int, maximum: int) -> int:
    value = _text(environ, name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 16) or not minimum <= int(value) <= maximum:  # noqa: PLR2004
        raise SettingsError(f"{name}: must be a whole number from {minimum} to {maximum}.")
    return int(value)


def _is_address(value: str) -> bool:
    """Say whether `value` is http:// or https://, a host and perhaps a port, and nothing more."""
    try:
        parts = urlsplit(value)
        port_is_sound = parts.port is None or parts.port > 0
    except ValueError:
        return False
    # What a browser and an Origin header could never say.
    is_plain = value.isascii() and value.isprintable() and " " not in value
    is_bare = parts.username is None and parts.path in {"", "/"} and not parts.query and not parts.fragment
    return bool(port_is_sound and is_plain and is_bare and parts.scheme in {"http", "https"} and parts.hostname)


def _url(environ: Mapping[str, str]) -> str:
    value = _text(environ, "ATMEM_URL")
    if value is None:
        return f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"
    if not _is_address(value):
        raise SettingsError("ATMEM_URL: must be http:// or https://, a host and perhaps a port, and nothing more.")
    parts = urlsplit(value)
    # Written as browsers write it: `is_https` and the check of the Origin compare text.
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _database_url(environ: Mapping[str, str], folder: Path) -> str:
    value = _text(environ, "ATMEM_DATABASE_URL")
    if value is None:
        return f"sqlite:///{folder / 'continuity.db'}"
    if not value.startswith(_DATABASE_SCHEMES):
        raise SettingsError("ATMEM_DATABASE_URL: must begin with sqlite:/// or postgresql://.")
    if value.startswith(_SQLITE) and not Path(value.removeprefix(_SQLITE)).is_absolute():
        raise SettingsError("ATMEM_DATABASE_URL: the file of sqlite:/// must be an absolute path.")
    # Not above: the command line reads this module, and starts without a server's packages.
    from sqlalchemy import make_url  # noqa: PLC0415
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    try:
        make_url(value)
    except (ArgumentError, ValueError):
        # Its own message repeats what follows a colon: a part of a password that was not encoded.
        raise SettingsError(
            "ATMEM_DATABASE_URL: must be an address like postgresql://user:password@host:port/database, with :, /, @ "
            "and # of a password written as %3A, %2F, %40 and %23."
        ) from None
    return value


def _trusted_hosts(environ: Mapping[str, str], url: str) -> frozenset[str]:
    hosts = {*LOOPBACK_HOSTS, _without_port(urlsplit(url).netloc.lower())}
    for item in (_text(environ, "ATMEM_TRUSTED_HOSTS") or "").split(","):
        host = item.strip().lower()
        if host and not _HOST_NAME.fullmatch(host):
            raise SettingsError("ATMEM_TRUSTED_HOSTS: must be host names without port, separated by commas.")
        hosts.add(host)
    return frozenset(hosts - {""})


def _without_port(netloc: str) -> str:
    return re.sub(r":\d*\Z", "", netloc)


def _trusted_proxies(environ: Mapping[str, str]) -> tuple[_Network, ...]:
    value = _text(environ, "ATMEM_TRUSTED_PROXIES")
    if value is None:
        return ()
    try:
        return tuple(ipaddress.ip_network(item.strip()) for item in value.split(","))
    except ValueError:
        raise SettingsError("ATMEM_TRUSTED_PROXIES: must be IP addresses or networks, separated by commas.") from None
