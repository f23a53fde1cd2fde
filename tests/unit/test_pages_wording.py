"""What pages call things."""

from __future__ import annotations

import pytest

from app.pages.wording import work_title
from continuity.integrations.identity import workflow_key

CALL = workflow_key(namespace="shop", thread_id="th_1", continuity_namespace="", message_id="m", call_id="c")


def test_work_of_a_call_that_a_model_chose_has_the_name_of_its_tool():
    assert work_title(CALL, ["cancel_order"]) == "cancel_order"


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("release-42", ["publish"]),
        ("call-me-back", ["phone"]),
        (f"{CALL}-again", ["cancel_order"]),
        (CALL, ["first", "second"]),
        (CALL, []),
    ],
)
def test_all_other_work_has_its_key(key, names):
    assert work_title(key, names) == key
