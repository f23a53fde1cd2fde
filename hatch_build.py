"""Build hook: copy the front-end files out of the build requirements into the tree, hash by hash.

Runs for editable installs, wheels, source distributions and wheels made from those, so that each of
them carries the files. The table of files stands in `app/vendored.py`, which the application reads too.
"""

from __future__ import annotations

import runpy
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FrontEndFiles(BuildHookInterface):
    """Puts every file of `app.vendored.VENDORED` in place before anything is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  the interface's arguments
        """Copy what is missing, then refuse to build with a file that differs."""
        table = runpy.run_path(str(Path(self.root, "app", "vendored.py")))
        folder: Path = table["FOLDER"]
        folder.mkdir(parents=True, exist_ok=True)
        for file in table["VENDORED"]:
            if not file.is_intact_in(folder):
                source = Path(str(distribution(file.distribution).locate_file(file.source)))
                (folder / file.name).write_bytes(source.read_bytes())
        table["check_vendored"](folder)
