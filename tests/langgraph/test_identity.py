"""A call is known by where it stands, and by nothing of what it says."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from continuity.integrations import workflow_key
from continuity.wire import IDENTIFIER

PARTS = {"namespace": "shop", "thread_id": "t", "continuity_namespace": "", "message_id": "m", "call_id": "c"}
TEXT = st.text(st.characters(exclude_categories=[]), max_size=6)


def test_the_key_of_a_call_is_a_legal_one_and_the_same_in_every_process():
    assert workflow_key(**PARTS) == "call-" + "0ed27e918eb5207d6577ab8843fb53aa49a746139aeac70508870b6cd1c40764"
    assert re.fullmatch(IDENTIFIER, workflow_key(**PARTS))


@pytest.mark.parametrize("part", PARTS)
def test_each_part_counts(part):
    assert workflow_key(**{**PARTS, part: "other"}) != workflow_key(**PARTS)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.tuples(*[TEXT] * 5), st.tuples(*[TEXT] * 5))
def test_two_lists_of_parts_never_share_a_key(one, other):
    keys = [workflow_key(**dict(zip(PARTS, parts, strict=True))) for parts in (one, other)]
    assert (keys[0] == keys[1]) is (one == other)


def test_a_character_that_moves_from_one_part_to_the_next_makes_another_key():
    texts = [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", "")]
    for first, second in itertools.pairwise(PARTS):
        assert len({workflow_key(**{**PARTS, first: one, second: two}) for one, two in texts}) == len(texts)
