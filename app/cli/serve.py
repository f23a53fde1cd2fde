"""`atmem serve`: the production server."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from app.cli import vault_passphrases as passphrases
from app.cli.terminal import InstanceCommand, json_option, print_json, settings
from app.config import DEFAULT_HOST, DEFAULT_PORT, DEFAULT_THREADS, LOOPBACK_HOSTS, Settings

if TYPE_CHECKING:
    from app.wiring import KeyProvider, Overrides

_EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound
_HERE = frozenset({"localhost", "::1", *LOOPBACK_HOSTS})
_PORT_MAX = 65_535
_THREADS_MAX = 128
_WORKERS_MAX = 64


@click.command(cls=InstanceCommand)
@click.option("--host", default=DEFAULT_HOST, show_default=True, help="Address to listen at.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, type=click.IntRange(0, _PORT_MAX), help="0: any free.")
@click.option(
    "--workers", default=1, show_default=True, type=click.IntRange(1, _WORKERS_MAX), help="Processes; PostgreSQL only."
)
@click.option(
    "--threads", default=DEFAULT_THREADS, show_default=True, type=click.IntRange(1, _THREADS_MAX), help="A process."
)
@click.option(
    "--passphrase-file", type=click.File("rb"),
    help="File whose first line is the passphrase; - for standard input. Else the server begins locked.",
)  # fmt: skip
@click.option("--ask-passphrase", is_flag=True, help="Ask for the passphrase of a vault whose key source it is.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, *, host: str, port: int, workers: int, threads: int, passphrase_file: Any,
    ask_passphrase: bool, as_json: bool,
) -> None:  # fmt: skip
    """Serve HTTP until SIGTERM or Ctrl-C, then finish within ten seconds what was begun.

    Where the key source is a passphrase and none is given, it begins locked: `atmem vault unlock` opens it.
    """
    from app import instance, vaults, wiring

    _check_host(host)
    wanted = dataclasses.replace(settings(), host=host, port=port, workers=workers, threads=threads)
    _check_workers(wanted)
    overrides = wiring.overridden(ctx.find_object(wiring.Overrides))
    passphrase = passphrases.known(passphrase_file) if passphrase_file is not None or ask_passphrase else None
    keys = wiring.key_provider(wanted, passphrase=passphrase)
    instance.guard(wanted)
    with instance.held(wanted), vaults.serving_keys(wanted, keys) as keys:
        _serve(wanted, keys, overrides=overrides, as_json=as_json)


def _serve(wanted: Settings, keys: KeyProvider, *, overrides: Overrides, as_json: bool) -> None:
    from app import application, commanding, instance, logs, metrics, overview, serving, wiring

    # Refuse now, in words, whatever would stop each of the workers later, and a ledger that is damaged.
    commanding.check_whole(wanted)
    wiring.build(wanted, keys=keys, overrides=overrides).close()
    try:
        listener = serving.listen(wanted.host, wanted.port)
    except OSError as error:
        # What the library adds in brackets repeats the address.
        why = (error.strerror or type(error).__name__).partition(" (")[0]
        hint = " Choose another one with --port." if error.errno in {errno.EADDRINUSE, errno.EACCES} else ""
        raise click.ClickException(f"Cannot listen at {wanted.host} port {wanted.port}: {why}.{hint}") from None
    address = serving.address_of(listener)
    logs.configure()
    _warn_of_plain_http(wanted.host, wanted.url)
    final = _with_address(wanted, host=wanted.host, address=address)
    run = serving.serve_forked if wanted.workers > 1 else serving.serve_here
    if not wanted.is_postgresql:
        # The instance is ours alone: whoever left one here was killed.
        instance.drop_notes(final, overview.SERVER_NOTE)
    counting = metrics.shared() if wanted.workers > 1 else nullcontext()
    with closing(listener), _noted(final, address), counting:
        run(
            lambda: application.served(final, keys=keys, overrides=overrides), listener, final,
            announce=lambda: _announce(address, as_json=as_json),
        )  # fmt: skip
    if not as_json:
        click.echo("Stopped.")


@contextmanager
def _noted(final: Settings, address: str) -> Iterator[None]:
    """Say in the instance's folder, for the commands of this host, where this server is."""
    from app import instance, overview

    note, here = f"{overview.SERVER_NOTE}-{os.getpid()}", _local(final.host, address)
    try:
        instance.leave_note(final, note, {"url": final.url, "process": os.getpid()})
        instance.note_address(final, here)
    except OSError as error:
        instance.drop_notes(final, note)
        raise click.ClickException(f"{final.instance} cannot be written: {error.strerror}.") from None
    try:
        yield
    finally:
        instance.drop_note(final, note)
        instance.forget_address(final, here)


def _check_host(host: str) -> None:
    # An empty one, of a variable that is not set, would listen at every address of the machine.
    if not (host.isascii() and host.isprintable() and host.strip()):
        raise click.UsageError("--host must be an address or a host name.")


def _check_workers(wanted: Settings) -> None:
    if wanted.workers == 1:
        return
    if not wanted.is_postgresql:
        raise click.UsageError("--workers needs PostgreSQL (ATMEM_DATABASE_URL): SQLite has one writing process.")
    if not hasattr(os, "fork"):
        raise click.UsageError("--workers is not available on this system.")


def _with_address(wanted: Settings, *, host: str, address: str) -> Settings:
    """Without ATMEM_URL links name the address listened at, and the host that was asked for is one of ours."""
    if os.environ.get("ATMEM_URL"):
        return wanted
    url = _local(host, address)
    name = url.removeprefix("http://").rpartition(":")[0]
    return dataclasses.replace(wanted, url=url, trusted_hosts=wanted.trusted_hosts | {name, host.lower()})


def _local(host: str, address: str) -> str:
    """Return the address listened at as this host reaches it: one that stands for all addresses is none."""
    name, _, port = address.rpartition(":")
    return f"http://{LOOPBACK_HOSTS[0]}:{port}" if host in _EVERYWHERE else f"{name}:{port}"


def _warn_of_plain_http(host: str, url: str) -> None:
    """Say that what travels in clear text can be read, wherever it leaves this host without a proxy's TLS."""
    if host in _HERE or host.startswith("127.") or url.startswith("https://"):
        return
    click.echo(
        f"Warning: {host} is reachable from other hosts, and this is plain HTTP: passwords and credentials can be read "
        "on the way. Put a proxy with TLS in front, and set ATMEM_URL to its https:// address.", err=True,
    )  # fmt: skip


def _announce(address: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"url": address, "process": os.getpid()})
    else:
        click.echo(f"Serving at {address} (Ctrl-C stops; what was begun may finish within ten seconds).")
