"""`atmem vault status`, `lock`, `unlock`, `rotate`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from app.cli import vault_passphrases as passphrases
from app.cli.passphrases import passphrase_option
from app.cli.terminal import InstanceCommand, json_option, print_facts, print_json, settings

if TYPE_CHECKING:
    from app.vault_life import RotationProgress, VaultLife, VaultStatus

_SETTLE_S: Final = 4.0
"""Every serving process has dropped or fetched its keys within two seconds, if it is alive."""
_LOOK_S: Final = 0.2
_SECOND_US: Final = 1_000_000
_WIDTH: Final = 30


@contextmanager
def _life(ctx: click.Context, passphrase: str | None = None) -> Iterator[VaultLife]:
    from app import wiring

    wanted = settings()
    keys = wiring.key_provider(wanted, passphrase=passphrase)
    with wiring.built(wanted, keys=keys, overrides=ctx.find_object(wiring.Overrides)) as built:
        yield built.vault_life


def _needs_passphrase() -> bool:
    """Say whether the keys' source is a passphrase, which must be asked for before anything is opened."""
    return settings().vault_key_source == "passphrase"


@click.command(cls=InstanceCommand)
@json_option
@click.pass_context
def status(ctx: click.Context, *, as_json: bool) -> None:
    """Say where the keys come from, whether the vault is locked, and how far a rotation is."""
    with _life(ctx) as life:
        found, unreadable = life.status(), _unreadable(life)
    if as_json:
        print_json(_status_json(found, unreadable))
        return
    print_facts(_facts(found))
    for partition, key_id in unreadable:
        click.echo(f"Unreadable: the data key of {partition} does not open under master key {key_id}.", err=True)


def _unreadable(life: VaultLife) -> list[tuple[str, int]]:
    """Name what a rotation left behind; while one is running it has not reached the rest."""
    progress = life.rotation()
    return life.unreadable() if progress is not None and progress.is_finished else []


def _facts(found: VaultStatus) -> dict[str, object]:
    since = "" if found.locked_at_us is None else f" since {_time(found.locked_at_us)} by {found.locked_by}"
    facts: dict[str, object] = {
        "State": f"{found.state}{since}",
        "Key": f"number {found.key_id} from {found.key_source}",
        "Format": f"{found.format}, capture {found.capture_mode}",
        "Servers": f"{found.holders} with the keys, {found.waiting} without",
    }
    if found.rotation is not None:
        facts["Rotation"] = _told(found.rotation)
    return facts


def _status_json(found: VaultStatus, unreadable: list[tuple[str, int]]) -> dict[str, Any]:
    rotation = None if found.rotation is None else _rotation_json(found.rotation)
    named = [{"partition_id": partition, "key_id": key_id} for partition, key_id in unreadable]
    return {**asdict(found), "rotation": rotation, "unreadable": named}


def _rotation_json(progress: RotationProgress) -> dict[str, Any]:
    hidden = {"cursor", "rotation_pk"}
    return {name: value for name, value in asdict(progress).items() if name not in hidden}


def _told(progress: RotationProgress) -> str:
    keys = f"from key {progress.old_key_id} to key {progress.new_key_id}"
    if progress.state == "done":
        return f"{keys}: done {_time(progress.finished_at_us)}"
    if progress.state == "held":
        return f"{keys}: done, and {progress.unreadable} data keys do not open: their master keys are kept"
    return (
        f"{keys}: {progress.state}, {progress.done:,} of {progress.total:,} data keys, {progress.unreadable} unreadable"
    )


def _time(at_us: int | None) -> str:
    return "" if at_us is None else f"{datetime.fromtimestamp(at_us // _SECOND_US, UTC):%Y-%m-%d %H:%M:%S} UTC"


@click.command(cls=InstanceCommand)
@passphrase_option
@json_option
@click.pass_context
def lock(ctx: click.Context, *, passphrase_file: Any, as_json: bool) -> None:
    """Lock the vault in every process: decisions stop at once, the keys leave memory within two seconds.

    A key file is replaced by one sealed under a passphrase that you give now; without it nothing can be read again.
    """
    from app.vault_life import LOCAL

    given = passphrases.known(passphrase_file, "The vault's passphrase") if _needs_passphrase() else None
    with _life(ctx, given) as life:
        found = life.status()
        wanted = None
        is_over = found.state == "locked" and life.is_sealed_here
        if found.needs_passphrase_to_lock and (passphrase_file is not None or not is_over):
            # Of a vault that is locked, whoever gives one learns whether it is the one that opens it.
            wanted = passphrases.new(passphrase_file, "Passphrase that will open the vault again")
        life.lock(LOCAL, wanted)
        now = _settled(life, lambda status: status.holders == 0)
    _tell(now, "locked", as_json=as_json)


@click.command(cls=InstanceCommand)
@passphrase_option
@json_option
@click.pass_context
def unlock(ctx: click.Context, *, passphrase_file: Any, as_json: bool) -> None:
    """Unlock the vault in every process; running servers go on within two seconds."""
    from app.vault_life import LOCAL

    with _life(ctx) as life:
        found = life.status()
        given = None
        if found.needs_passphrase_to_unlock and not (found.state == "open" and found.is_open_here):
            given = passphrases.known(passphrase_file, "The vault's passphrase")
        life.unlock(LOCAL, given)
        now = _settled(life, lambda status: status.waiting == 0)
    _tell(now, "open", as_json=as_json)


def _settled(life: VaultLife, is_settled: Any) -> VaultStatus:
    """Wait until every server has followed, or long enough."""
    until = time.monotonic() + _SETTLE_S
    while not is_settled(found := life.status()) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    return found


def _tell(found: VaultStatus, word: str, *, as_json: bool) -> None:
    late = found.holders if word == "locked" else found.waiting
    if as_json:
        print_json({"state": found.state, "servers_with_keys": found.holders, "servers_without_keys": found.waiting})
        return
    click.echo(f"The vault is {word}.")
    if late:
        what = "still report that they hold its keys" if word == "locked" else "have not fetched its keys yet"
        click.echo(f"{late} server processes {what}; one that was killed is forgotten after a minute.", err=True)


@click.command(cls=InstanceCommand)
@passphrase_option
@json_option
@click.pass_context
def rotate(ctx: click.Context, *, passphrase_file: Any, as_json: bool) -> None:
    """Put a new master key in place of the one that there is. Servers go on working; killed, run it again.

    Exit status 1 when data keys do not open: they are named, and the master keys that they need are kept.
    """
    from app.vault_life import LOCAL

    given = passphrases.known(passphrase_file, "The vault's passphrase") if _needs_passphrase() else None
    with _life(ctx, given) as life:
        life.start_rotation(LOCAL, given)
        with _bar(life, is_quiet=as_json) as tell:
            progress = life.run(tell)
        unreadable = _unreadable(life)
    if progress is None:
        raise click.ClickException("The rotation that was begun is not there.")
    if as_json:
        named = [{"partition_id": partition, "key_id": key_id} for partition, key_id in unreadable]
        print_json({**_rotation_json(progress), "unreadable_partitions": named})
    else:
        click.echo(f"Rotated {_told(progress)}.")
    if progress.state == "held":
        for partition, key_id in [] if as_json else unreadable:
            click.echo(f"Unreadable: the data key of {partition} does not open under master key {key_id}.", err=True)
        raise click.exceptions.Exit(1)


@contextmanager
def _bar(life: VaultLife, *, is_quiet: bool) -> Iterator[Any]:
    """Show how far it is, on one line."""
    shown = ""

    def tell(progress: RotationProgress) -> None:
        nonlocal shown
        line = _line(life, progress)
        if line != shown and not is_quiet:
            click.echo(f"\r{line.ljust(len(shown))}", nl=False, err=True)
            shown = line

    try:
        yield tell
    finally:
        if shown:
            click.echo(err=True)


def _line(life: VaultLife, progress: RotationProgress) -> str:
    waited = life.waited_for(progress) if progress.state == "announced" else []
    if waited:
        return f"waiting for {len(waited)} server processes to fetch key {progress.new_key_id}"
    part = 1.0 if not progress.total else min(1.0, (progress.done + progress.unreadable) / progress.total)
    bar = "#" * round(part * _WIDTH)
    return f"[{bar.ljust(_WIDTH)}] {progress.done:,} of {progress.total:,} data keys"
