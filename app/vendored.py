"""The front-end files that the build copies in, and the check that they are there.

They are other projects' files, so they are not in version control: `hatch_build.py` copies each out of
a build requirement into `app/static/vendor/` and refuses one with another SHA-256. The same table
is checked when the application starts. Only the standard library may be imported here, since the
build hook runs this file by its path, before anything is installed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "static" / "vendor"


class VendoredFile(NamedTuple):
    """Where a front-end file comes from and what it must contain."""

    distribution: str
    source: str
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file in `FOLDER`."""
        return self.source.rsplit("/", maxsplit=1)[-1]

    def is_intact_in(self, folder: Path) -> bool:
        """Whether `folder` holds this file, byte for byte."""
        path = folder / self.name
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256


VENDORED: Final = (
    VendoredFile(
        "django-htmx",
        "django_htmx/static/django_htmx/htmx-2.min.js",
        "71ea67185bfa8c98c39d31717c6fce5d852370fcdfd129db4543774d3145c0de",
    ),
    VendoredFile(
        "youplot",
        "youplot/vendor/uplot.iife.min.js",
        "2d27e8ad3d228164525ce213f9dc716f39b4e3aee0cc773fb3491c96cf4921a2",
    ),
    VendoredFile(
        "youplot",
        "youplot/vendor/uplot.min.css",
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ),
)


def damaged_files(folder: Path = FOLDER) -> list[str]:
    """Names of the front-end files that are missing from `folder` or differ, in the order of `VENDORED`."""
    return [file.name for file in VENDORED if not file.is_intact_in(folder)]


def check_vendored(folder: Path = FOLDER) -> None:
    """Refuse to go on without the exact front-end files.

    Raises:
        RuntimeError: A file is missing or differs; the message names it and says what to do.
    """
    damaged = damaged_files(folder)
    if damaged:
        message = f"front-end files missing or changed: {', '.join(damaged)}; install the package again to restore them"
        raise RuntimeError(message)
