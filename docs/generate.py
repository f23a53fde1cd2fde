# ruff: noqa: INP001
"""Write the generated parts of ``docs/operations.md`` from the decision core: ``python docs/generate.py``.

A part stands between ``<!-- generated: name -->`` and ``<!-- end -->``; the rest of the page is written by
hand. ``tests/unit/test_decisions_documented.py`` compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from continuity.decisions.beginning import ROWS
from continuity.decisions.states import FINAL, TRANSITIONS, Status

PAGE: Final = Path(__file__).parent / "operations.md"
PART: Final = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def states() -> Iterator[str]:
    """Yield the lines of the state diagram, one arrow for all steps between the same two states."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {Status.PENDING}"
    for status, steps in TRANSITIONS.items():
        for target in Status:
            words = [step.value for step, leads_to in steps.items() if leads_to is target]
            if words:
                # A colon and a comma end or split a label in some renderers; a break keeps one step a line.
                label = "<br>".join(word.replace(": ", " that ").replace(",", " –") for word in words)
                yield f"    {status} --> {target}: {label}"
    for status in Status:
        if status in FINAL:
            yield f"    {status} --> [*]"
    yield "```"


def begin() -> Iterator[str]:
    """Yield the lines of the decision table."""
    yield "| | when | action | reason |"
    yield "|---|---|---|---|"
    for number, row in enumerate(ROWS, start=1):
        yield f"| {number} | {row.when} | {row.action} | `{row.reason}` |"


PARTS: Final[dict[str, Callable[[], Iterator[str]]]] = {"states": states, "begin": begin}


def regenerate(page: str) -> str:
    """Return `page` with its generated parts written anew."""
    return PART.sub(lambda part: f"{part[1]}\n" + "\n".join(PARTS[part[2]]()) + f"\n\n{part[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(regenerate(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
