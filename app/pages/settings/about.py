"""Settings → About: what this installation is made of. No paths, no addresses, nothing secret.

The numbers are for whoever reports a problem or reads an advisory; the licences are those of NOTICE.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from flask import Response

from app import databases, vaults
from app.auth.admission import admits
from app.extensions import wiring
from app.pages.settings.area import ADMINISTRATORS, blueprint, page
from app.query import read_query

__all__ = ["blueprint"]

_PRODUCT: Final = "atmem-continuity"
_DATABASES: Final = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


@dataclass(frozen=True, slots=True)
class Part:
    """Something of another project that this product is made of. `files` are its vendored files, without folders."""

    name: str
    what: str
    licence: str
    files: tuple[str, ...] = ()
    distribution: str = ""


BUNDLED: Final = (
    Part("htmx", "live parts of pages", "Zero-Clause BSD", ("htmx-2.min.js",)),
    Part("uPlot", "charts", "MIT", ("uplot.iife.min.js", "uplot.min.css")),
    Part("Heroicons", "the icons of these pages", "MIT", distribution="heroicons"),
)
"""What pages carry to the browser."""
LIBRARIES: Final = (
    Part("Flask", "pages and API", "BSD-3-Clause", distribution="flask"),
    Part("SQLAlchemy", "the database", "MIT", distribution="sqlalchemy"),
    Part("cryptography", "the vault", "Apache-2.0 or BSD-3-Clause", distribution="cryptography"),
    Part("argon2-cffi", "passwords and passphrases", "MIT", distribution="argon2-cffi"),
    Part("waitress", "the server", "ZPL 2.1", distribution="waitress"),
)
"""What advisories are most likely to be about; installed beside the product, each with its own licence."""


@blueprint.get("/settings/about")
@admits(people=ADMINISTRATORS)
def about() -> Response:
    read_query()
    facts = databases.facts(wiring().store)
    row = vaults.vault_row(wiring().store)
    return page(
        "about",
        version=installed(_PRODUCT) or "from source",
        python=platform.python_version(),
        implementation=platform.python_implementation(),
        database=_DATABASES.get(facts.kind, facts.kind),
        facts=facts,
        format=None if row is None else row.format,
        bundled=[(part, installed(part.distribution)) for part in BUNDLED],
        libraries=[(part, installed(part.distribution)) for part in LIBRARIES],
    )


def installed(distribution: str) -> str:
    """Return the version of an installed package, empty where it is none."""
    if not distribution:
        return ""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
