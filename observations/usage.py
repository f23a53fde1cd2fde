"""What a provider's reply says of its usage, as arguments of `record_charge`. No price is guessed.

Example::

    response = client.chat.completions.create(…)
    record_charge(**openai_usage(response), charge_source="my-account")

Rules:

* What the reply does not say is left out, never made 0.
* Providers count cached tokens in two ways, and the basis is kept: OpenAI's cached tokens are part of the input
  tokens (``included``), Anthropic's come on top of them (``separate``).
* A reply is an object with attributes or a mapping; anything that is no whole number of tokens is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from observations.events import AMOUNT_MAX, CachedBasis

Arguments = dict[str, Any]
"""Arguments of `observations.client.record_charge`, `charge_source` and price aside."""


def openai_usage(response: object) -> Arguments:
    """Read a reply shaped like OpenAI's, of chat completions (``prompt_tokens``) or responses (``input_tokens``).

    Returns:
        ``charge_id`` and ``model`` of the reply, and the tokens that it reports, cached ones ``included``.
    """
    usage = _member(response, "usage")
    arguments = _named(response)
    for name, spellings in (
        ("input_tokens", ("prompt_tokens", "input_tokens")),
        ("output_tokens", ("completion_tokens", "output_tokens")),
    ):
        _put(arguments, name, *(_member(usage, spelling) for spelling in spellings))
    details = [_member(usage, name) for name in ("prompt_tokens_details", "input_tokens_details")]
    _put(arguments, "cached_input_tokens", *(_member(detail, "cached_tokens") for detail in details))
    return _with_basis(arguments, CachedBasis.INCLUDED)


def anthropic_usage(response: object) -> Arguments:
    """Read a reply shaped like Anthropic's messages.

    Returns:
        ``charge_id`` and ``model`` of the reply, and the tokens that it reports; cached ones are those read from the
        cache, ``separate`` from the input tokens. Tokens written to the cache are in neither number.
    """
    usage = _member(response, "usage")
    arguments = _named(response)
    for name in ("input_tokens", "output_tokens"):
        _put(arguments, name, _member(usage, name))
    _put(arguments, "cached_input_tokens", _member(usage, "cache_read_input_tokens"))
    return _with_basis(arguments, CachedBasis.SEPARATE)


def langchain_usage(message: object) -> Arguments:
    """Read the ``usage_metadata`` of a LangChain message.

    Returns:
        ``charge_id`` from the message's id (its provider's, where the metadata of the response has one), ``model``
        where the metadata name one, and the tokens; cached ones are ``included``, as LangChain counts all input.
    """
    usage, metadata = _member(message, "usage_metadata"), _member(message, "response_metadata")
    arguments: Arguments = {}
    _put_text(arguments, "charge_id", _member(metadata, "id"), _member(message, "id"))
    _put_text(arguments, "model", _member(metadata, "model_name"), _member(metadata, "model"))
    for name in ("input_tokens", "output_tokens"):
        _put(arguments, name, _member(usage, name))
    _put(arguments, "cached_input_tokens", _member(_member(usage, "input_token_details"), "cache_read"))
    return _with_basis(arguments, CachedBasis.INCLUDED)


def _member(holder: object, name: str) -> object:
    if isinstance(holder, Mapping):
        return holder.get(name)
    return getattr(holder, name, None)


def _named(response: object) -> Arguments:
    arguments: Arguments = {}
    _put_text(arguments, "charge_id", _member(response, "id"))
    _put_text(arguments, "model", _member(response, "model"))
    return arguments


def _put_text(arguments: Arguments, name: str, *values: object) -> None:
    for value in values:
        if isinstance(value, str) and value:
            arguments.setdefault(name, value)


def _put(arguments: Arguments, name: str, *values: object) -> None:
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= AMOUNT_MAX:
            arguments.setdefault(name, value)


def _with_basis(arguments: Arguments, basis: CachedBasis) -> Arguments:
    if "cached_input_tokens" in arguments:
        arguments["cached_basis"] = basis.value
    return arguments
