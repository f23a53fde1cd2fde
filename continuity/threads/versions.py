"""Whether the versions that are installed may run agents: the range is that of governed calls (docs/langgraph.md)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from importlib.metadata import version

from continuity.integrations.checks import Untested, check_version, is_tested
from continuity.integrations.langgraph import UntestedVersionWarning


def admit_versions(libraries: Iterable[str], *, untested: Untested) -> None:
    """Refuse libraries that no test has run on, or warn where the application accepts them.

    Args:
        libraries: Names of distributions.
        untested: What the application has said.

    Raises:
        ValueError: A version is not tested. Nothing was opened.
    """
    for library in libraries:
        installed = version(library)
        refusal = check_version(library, installed, untested=untested)
        if refusal is not None:
            raise ValueError(f"{refusal.code}: {refusal.because}")
        if not is_tested(library, installed):
            warnings.warn(
                f"{library} {installed} is not tested: nothing proves that a thread goes on from where it was "
                "interrupted. An effect may happen twice.",
                UntestedVersionWarning,
                stacklevel=2,
            )
