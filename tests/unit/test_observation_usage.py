"""Replies of providers become arguments of `record_charge`: what is said, nothing that is not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from observations.events import AMOUNT_MAX
from observations.usage import anthropic_usage, langchain_usage, openai_usage


def thing(**members):
    return SimpleNamespace(**members)


OPENAI = {
    "id": "chatcmpl-1", "model": "gpt-x", "usage": {
        "prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64},
    },
}  # fmt: skip
READ = {
    "charge_id": "chatcmpl-1", "model": "gpt-x", "input_tokens": 100, "output_tokens": 7, "cached_input_tokens": 64,
    "cached_basis": "included",
}  # fmt: skip


def test_cached_tokens_of_openai_are_part_of_the_input():
    assert openai_usage(OPENAI) == READ
    usage = thing(prompt_tokens=100, completion_tokens=7, prompt_tokens_details=thing(cached_tokens=64))
    assert openai_usage(thing(id="chatcmpl-1", model="gpt-x", usage=usage)) == READ


def test_the_responses_of_openai_spell_it_otherwise():
    usage = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 64}}

    assert openai_usage({**OPENAI, "usage": usage}) == READ


def test_cached_tokens_of_anthropic_come_on_top():
    usage = thing(input_tokens=100, output_tokens=7, cache_read_input_tokens=64, cache_creation_input_tokens=9)

    assert anthropic_usage(thing(id="msg_1", model="claude-x", usage=usage)) == {
        "charge_id": "msg_1", "model": "claude-x", "input_tokens": 100, "output_tokens": 7, "cached_input_tokens": 64,
        "cached_basis": "separate",
    }  # fmt: skip


def test_langchain_counts_all_input_and_names_the_provider_s_reply_first():
    usage = {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107, "input_token_details": {"cache_read": 64}}
    message = thing(id="run-9", usage_metadata=usage, response_metadata={"id": "chatcmpl-1", "model_name": "gpt-x"})

    assert langchain_usage(message) == READ
    assert langchain_usage(thing(id="run-9", usage_metadata=usage, response_metadata={}))["charge_id"] == "run-9"


@pytest.mark.parametrize("read", [openai_usage, anthropic_usage, langchain_usage])
@pytest.mark.parametrize("reply", [None, {}, thing(), {"usage": None}, {"usage": 7, "usage_metadata": []}, "text"])
def test_what_is_not_said_is_left_out_and_never_zero(read, reply):
    assert read(reply) == {}


@pytest.mark.parametrize("count", [None, True, -1, 1.5, "7", AMOUNT_MAX + 1])
def test_what_is_no_number_of_tokens_is_left_out(count):
    usage = {"prompt_tokens": count, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": count}}

    assert openai_usage({"id": "x", "usage": usage}) == {"charge_id": "x", "output_tokens": 0}


def test_no_price_is_guessed():
    reply = {**OPENAI, "usage": {**OPENAI["usage"], "cost": 12, "total_cost": 0.1}}

    assert openai_usage(reply) == READ
