# ruff: noqa: INP001
"""Write the generated parts of ``docs/operations.md`` and ``docs/threads.md``: ``python docs/generate.py``.

A part stands between ``<!-- generated: name -->`` and ``<!-- end -->``; the rest of the page is written by
hand. ``tests/unit/test_decisions_documented.py`` and ``test_decisions_threads_documented.py`` compare.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from continuity.decisions.beginning import ROWS
from continuity.decisions.states import FINAL, TRANSITIONS, Status
from continuity.decisions.threads import states as threads

PAGES: Final = tuple(Path(__file__).parent / name for name in ("operations.md", "threads.md"))
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


def runs() -> Iterator[str]:
    """Yield the lines of the diagram of a run."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {threads.RunState.QUEUED}"
    for state, steps in threads.RUN_STEPS.items():
        for target in threads.RunState:
            words = [step.value for step, leads_to in steps.items() if leads_to is target]
            if words:
                yield f"    {state} --> {target}: {'<br>'.join(words)}"
    for state in (threads.RunState.SETTLED, threads.RunState.STOPPED):
        yield f"    {state} --> [*]"
    yield "```"


def requests() -> Iterator[str]:
    """Yield the lines of the diagram of a waiting request."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {threads.RequestState.OPEN}"
    for state, steps in threads.REQUEST_STEPS.items():
        for words, target in steps.items():
            yield f"    {state} --> {target}: {words}"
    yield "```"


def situations() -> Iterator[str]:
    """Yield the table of situation and event: what follows, or the code of the refusal."""
    for events in (tuple(threads.Event)[:7], tuple(threads.Event)[7:]):
        yield "| | " + " | ".join(event.value for event in events) + " |"
        yield "|---" * (len(events) + 1) + "|"
        for situation, outcomes in threads.TABLE.items():
            cells = (_cell(outcomes[event]) for event in events)
            yield f"| {situation.value} | " + " | ".join(cells) + " |"
        yield ""


def _cell(outcome: threads.Outcome) -> str:
    if isinstance(outcome, threads.Refused):
        return f"`{outcome.code}`"
    return " or ".join(situation.value for situation in outcome) or "–"


PARTS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "states": states, "begin": begin, "runs": runs, "requests": requests, "situations": situations,
}  # fmt: skip


def regenerate(page: str) -> str:
    """Return `page` with its generated parts written anew."""
    return PART.sub(lambda part: f"{part[1]}\n" + "\n".join(PARTS[part[2]]()) + f"\n\n{part[3]}", page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(regenerate(path.read_text(encoding="utf-8")), encoding="utf-8")
