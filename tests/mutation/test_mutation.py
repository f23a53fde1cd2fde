"""Every guard of the list is where it says, and at night: without it a test fails."""

from __future__ import annotations

import pytest

from tests.mutation.__main__ import copy_of_the_tree, is_killed
from tests.mutation.guards import GUARDS
from tests.servers import ROOT

NAMES = [f"{guard.row}-{number}" for number, guard in enumerate(GUARDS)]


@pytest.mark.parametrize("guard", GUARDS, ids=NAMES)
def test_a_guard_stands_where_the_list_says_and_so_does_its_test(guard):
    file, *names = guard.test.split("::")

    assert (ROOT / guard.file).read_text().count(guard.line) == 1
    assert not names or f"def {names[-1]}(" in (ROOT / file).read_text()


@pytest.fixture(scope="module")
def folder():
    with copy_of_the_tree() as made:
        yield made


@pytest.mark.soak
@pytest.mark.parametrize("guard", GUARDS, ids=NAMES)
def test_without_a_guard_its_test_fails(folder, guard):
    assert is_killed(guard, folder)
