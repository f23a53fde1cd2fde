"""A cursor outlives a change of the secret key, and nothing new is signed with an older one (security.md S09)."""

import pytest

from continuity.errors import MalformedError
from observations.cursors import Cursors

OLD, NEW, OTHER = bytes(32), bytes(range(32)), bytes(range(1, 33))
NOW = 1_750_000_000_000_000


def test_an_older_key_still_reads_and_signs_nothing():
    was = Cursors(OLD).write([1, "a"], asked=["ada"], now_us=NOW)
    rotated = Cursors(NEW, (OTHER, OLD))

    assert rotated.read(was, asked=["ada"], now_us=NOW) == [1, "a"]
    made = rotated.write([2], asked=["ada"], now_us=NOW)
    assert Cursors(NEW).read(made, asked=["ada"], now_us=NOW) == [2]
    with pytest.raises(MalformedError):
        Cursors(OLD).read(made, asked=["ada"], now_us=NOW)


def test_a_key_that_was_let_go_reads_nothing():
    was = Cursors(OLD).write([1], asked=["ada"], now_us=NOW)

    with pytest.raises(MalformedError):
        Cursors(NEW, (OTHER,)).read(was, asked=["ada"], now_us=NOW)
