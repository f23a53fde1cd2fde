"""`atmem vault`: the keys of the vault, and what is made of its content. On the host, beside a running server."""

from __future__ import annotations

import importlib
from typing import Final

import click

from app.cli.terminal import InstanceGroup

VERBS: Final[dict[str, tuple[str, str]]] = {
    "status": ("vault_keys", "Say where the keys come from, whether the vault is locked, and how far a rotation is."),
    "lock": ("vault_keys", "Lock the vault in every process."),
    "unlock": ("vault_keys", "Unlock it in every process."),
    "rotate": ("vault_keys", "Put a new master key in place of the one that there is."),
    "capture": ("vault_capture", "Show what is kept of what agents do, or change it."),
    "backup": ("vault_backup", "Write everything into one sealed file, or prove one."),
    "restore": ("vault_restore", "Put a backup in the place of the instance."),
    "close-recovery": ("vault_close_recovery", "Let work be created enabled again after a restore."),
    "accept-restore": ("vault_accept_restore", "Go on with an older database that was put back."),
    "check": ("vault_check", "Prove that every sealed row opens."),
}
"""Module in this package and one-line help of each verb. The module calls its command as the verb, or ``command``."""


class _Verbs(InstanceGroup):
    """Knows its verbs by name and help, and imports a verb's module only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*VERBS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"app.cli.{VERBS[cmd_name][0]}")
        found: click.Command | None = getattr(module, cmd_name.replace("-", "_"), None)
        return found if isinstance(found, click.Command) else module.command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, VERBS[name][1]) for name in self.list_commands(ctx) if name in VERBS]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=_Verbs)
def command() -> None:
    """Lock, unlock, rotate and check the vault."""
