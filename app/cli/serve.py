"""`atmem serve`: the production server."""

from __future__ import annotations

import dataclasses
import os
import sys

import click

from app.cli.terminal import Command, json_option, print_json, settings
from app.config import DEFAULT_HOST, DEFAULT_PORT, DEFAULT_THREADS, LOOPBACK_HOSTS, Settings

_PORT_MAX = 65_535
_THREADS_MAX = 128
_WORKERS_MAX = 64


@click.command(cls=Command)
@click.option("--host", default=DEFAULT_HOST, show_default=True, help="Address to listen at.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, type=click.IntRange(0, _PORT_MAX), help="0: any free.")
@click.option(
    "--workers", default=1, show_default=True, type=click.IntRange(1, _WORKERS_MAX), help="Processes; PostgreSQL only."
)
@click.option(
    "--threads", default=DEFAULT_THREADS, show_default=True, type=click.IntRange(1, _THREADS_MAX), help="A process."
)
@json_option
@click.pass_context
def command(ctx: click.Context, *, host: str, port: int, workers: int, threads: int, as_json: bool) -> None:
    """Serve HTTP until SIGTERM or Ctrl-C, then finish within ten seconds what was begun."""
    from app import application, instance, logs, overview, serving, wiring

    _forbid_core_dumps()
    wanted = dataclasses.replace(settings(), host=host, port=port, workers=workers, threads=threads)
    _check_workers(wanted)
    overrides = ctx.find_object(wiring.Overrides) or wiring.Overrides()
    keys = wiring.key_provider(wanted)
    # Refuse now, in words, whatever would stop each of the workers later.
    wiring.build(wanted, keys=keys, overrides=overrides).close()
    try:
        listener = serving.listen(host, port)
    except OSError as error:
        raise click.ClickException(f"Cannot listen at {host} port {port}: {error.strerror}.") from None
    address = serving.address_of(listener)
    logs.configure()
    final = _with_address(wanted, host=host, address=address)
    run = serving.serve_forked if workers > 1 else serving.serve_here
    instance.leave_note(final, overview.SERVER_NOTE, {"url": final.url, "process": os.getpid()})
    try:
        run(
            lambda: application.served(final, keys=keys, overrides=overrides), listener, final,
            announce=lambda: _announce(address, as_json=as_json),
        )  # fmt: skip
    finally:
        instance.drop_note(final, overview.SERVER_NOTE)


def _forbid_core_dumps() -> None:
    """A crash must not leave the keys in a file."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


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
    name = address.rpartition(":")[0].removeprefix("http://")
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        name = LOOPBACK_HOSTS[0]
    url = f"http://{name}:{address.rpartition(':')[2]}"
    return dataclasses.replace(wanted, url=url, trusted_hosts=wanted.trusted_hosts | {name, host.lower()})


def _announce(address: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"url": address, "process": os.getpid()})
    else:
        click.echo(f"Serving at {address} (Ctrl-C stops).")
