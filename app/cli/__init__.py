"""The command line: `atmem <noun> <verb>`, and the same commands as ``flask --app app <noun> <verb>``.

Rules:

* Result on standard output, talk on standard error; ``--json`` wherever a script may read it.
* Exit status 0: done. 1: refused or failed, with one clear line. 2: stopped safely, or wrong usage.
* One module a noun, imported only when its command is used; heavy imports stand inside the commands.
* A password, passphrase or token is never an argument: it is prompted for or read from a file.
* An error with ``--json`` is a JSON object on standard error; wrong usage stays text, for whoever writes the script.
"""

from __future__ import annotations

import atexit
import gc
import importlib
from typing import Final

try:
    import click
except ModuleNotFoundError:
    # The SDK alone brings the console script along, and not what it needs.
    raise SystemExit(
        "Error: the commands need the server. In the checkout: python -m pip install '.[server]'"
    ) from None

from app.cli.terminal import Polite, version

# What is left when a command has ended goes with its process: looking through all of it once more took the interpreter
# a third of a short command's time.
atexit.register(gc.freeze)

NOUNS: Final[dict[str, str]] = {
    "init": "Make an instance: folder, keys, database, first administrator.",
    "serve": "Serve HTTP.",
    "status": "Show where the instance stands and what needs a person.",
    "continuity": "Credentials, and the work that they are for.",
    "threads": "Conversations with agents: see them, run the agents.",
    "users": "Make and change accounts, on the host.",
    "vault": "Lock, unlock, rotate and check the vault.",
    "observations": "What was attempted and what it cost: import, export, recount.",
    "evidence": "What agents recorded of themselves: find, read, export, delete.",
    "retention": "Let go of what is old and over.",
    "audit": "Read the audit log, prove that it is whole, keep its head elsewhere.",
    "db": "Bring the database to this version's form, or check it.",
    "openapi": "Print the HTTP contract.",
    "demo": "Publish a document, lose the worker, resume: one publication.",
}
"""Module in this package and its one-line help; the module calls its command ``command``."""


class LazyGroup(Polite, click.Group):
    """Knows its commands by name and help, and imports a noun's module only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*NOUNS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NOUNS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = importlib.import_module(f"app.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, NOUNS[name]) for name in self.list_commands(ctx) if name in NOUNS]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def check_command() -> None:
    """Refuse Flask's own server: its debugger runs what it is sent, and it has none of the rules of `app.serving`."""
    context = click.get_current_context(silent=True)
    if context is not None and context.info_name == "run":
        raise click.ClickException("Flask's development server is not for this product. Run: atmem serve")


main = LazyGroup(
    name="atmem",
    help="Governed operations for agents: what may have happened is never silently done twice.",
    epilog="ATMEM_INSTANCE names the folder of the instance (./instance without it), ATMEM_URL the server that "
    "commands call, ATMEM_EVIDENCE_TOKEN holds the credential that they use. README.md lists all variables.",
)
main.params.append(
    click.Option(
        ["--version"], is_flag=True, expose_value=False, is_eager=True, help="Show the version and exit.",
        callback=lambda ctx, _option, value: (click.echo(version()), ctx.exit()) if value else None,
    )
)  # fmt: skip
