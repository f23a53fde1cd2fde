"""Which questions a stored step still asks, on every version of LangGraph."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("langgraph")

from continuity.threads.places import Waiting, numbered

WAITING = Waiting("t1", {}, "i1", "Which?")
ASKED = ("t1", "__interrupt__", ["Which?"])


@pytest.mark.parametrize(
    ("writes", "ordinals"),
    [
        ([ASKED], [0]),
        ([ASKED, ("t1", "__resume__", ["a"])], [1]),
        ([ASKED, ("t1", "__resume__", ["a", "b"])], [2]),
        ([ASKED, ("t2", "said", 1)], [0]),
        ([ASKED, ("t1", "__resume__", ["a"]), ("t1", "said", 1)], []),
        ([ASKED, ("t1", "__resume__", ["a"]), ("t1", "__no_writes__", None)], []),
        ([ASKED, ("t1", "__return__", 1)], []),
        ([ASKED, ("t1", "__error__", "E")], [0]),
        (None, [0]),
    ],
    ids=[
        "first", "second", "third", "another has answered", "has answered", "has answered nothing", "has returned",
        "has raised", "nothing stored",
    ],
)  # fmt: skip
def test_a_task_asks_until_something_that_it_gives_is_stored(writes, ordinals):
    found = numbered([(WAITING, SimpleNamespace(pending_writes=writes))])

    assert [ordinal for _, ordinal in found] == ordinals
