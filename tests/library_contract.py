"""The import contract for other people's libraries: each ring names those it may use, all others are refused.

import-linter's own contracts can forbid a list; here the list is what is allowed, so that a new
dependency fails until somebody has decided which ring it belongs to.
"""

from __future__ import annotations

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

# The stubs of the standard library have a module that only type checkers import.
_STANDARD = sys.stdlib_module_names | {"_typeshed"}


class LibraryContract(Contract):
    """Checks every direct import of a third-party package against the ring of the module that makes it.

    A ring is written ``module: library, library``; a module belongs to the longest name that it is
    or lies below. A module of no ring breaks the contract, whatever it imports.
    """

    type_name = "libraries"

    rings = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect the offending imports as (module, library or None for a module without a ring)."""
        rings = dict(_parse(line) for line in self.rings)
        roots = self.session_options["root_packages"]
        broken: list[tuple[str, str | None]] = []
        for module in sorted(name for name in graph.modules if name.split(".", maxsplit=1)[0] in roots):
            ring = _ring_of(module, rings)
            if ring is None:
                broken.append((module, None))
                continue
            imported = {name.split(".", maxsplit=1)[0] for name in graph.find_modules_directly_imported_by(module)}
            foreign = imported - set(roots) - _STANDARD
            broken += [(module, library) for library in sorted(foreign - rings[ring])]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line an offence."""
        for module, library in check.metadata["broken"]:
            said = f"{module} has no ring" if library is None else f"{module} may not import {library}"
            output.print_error(f"- {said}", bold=False)


def _parse(line: str) -> tuple[str, frozenset[str]]:
    module, _, libraries = line.partition(":")
    return module.strip(), frozenset(name.strip() for name in libraries.split(",") if name.strip())


def _ring_of(module: str, rings: dict[str, frozenset[str]]) -> str | None:
    """The longest ring name that is `module` or one of its parents."""
    while module:
        if module in rings:
            return module
        module = module.rpartition(".")[0]
    return None
