"""Commands as a person types them: processes of their own, or in this process where only the answer matters."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner, Result

from app.cli import main
from tests.entry import OVERRIDES
from tests.patience import PATIENCE_S
from tests.servers import ROOT, RunningServer, environment

PASSWORD = "bright otter sails north"


@dataclass
class Terminal:
    """A shell on the server's host, with the administrator's password already replaced."""

    server: RunningServer
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.password_file = self.folder / "password"
        self.password_file.write_text(f"{PASSWORD}\n")
        both = self.folder / "both"
        both.write_text(f"{self.server.instance.password}\n{PASSWORD}\n")
        done = self.here("users", "change-password", "administrator", "--password-file", str(both), server=False)
        assert done.exit_code == 0, done.output

    def atmem(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `atmem` as a process against the server."""
        return self._run("tests.entry", *arguments, "--url", self.server.url)

    def example(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``python -m continuity.example`` against the server."""
        return self._run("continuity.example", *arguments, "--url", self.server.url)

    def here(self, *arguments: str, server: bool = True, input: str | None = None) -> Result:  # noqa: A002
        """Run `atmem` in this process."""
        url = ("--url", self.server.url) if server else ()
        names = dict.fromkeys(("ATMEM_EVIDENCE_TOKEN", "ATMEM_URL", "ATMEM_DATABASE_URL"))
        variables = {**names, "ATMEM_INSTANCE": str(self.server.instance.folder), **self.variables}
        return CliRunner(env=variables).invoke(main, [*arguments, *url], obj=OVERRIDES, input=input)

    def json(self, *arguments: str) -> dict:
        """Run `atmem … --json` in this process and return what it prints; it must succeed."""
        done = self.here(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def token(self, *arguments: str) -> str:
        """Issue a credential as a person and return its secret."""
        done = self.here("continuity", "credential", *arguments, *self.as_person(), "--token-only")
        assert done.exit_code == 0, done.output
        return done.stdout.strip()

    def as_person(self) -> tuple[str, str]:
        return "--password-file", str(self.password_file)

    def _run(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", module, *arguments],
            cwd=ROOT, env=environment(self.server.instance.folder, self.variables), text=True, timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
