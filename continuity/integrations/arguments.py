"""Whether a model's arguments fit what a tool takes, said in words that the model may read.

A schema is a JSON Schema as a mapping (needs the library jsonschema), or anything with the
``model_validate`` of pydantic. It is only asked: what is run are the arguments as they came.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

FAULT_CHARS: Final = 2_000
"""Enough for a model to mend its call; more would fill its context."""

Check = Callable[[Mapping[str, Any]], str]
"""Says what is wrong with arguments, in one text; empty when nothing is."""


def check_of(schema: object) -> Check:
    """Make the check of a schema.

    Args:
        schema: See the module; None for a tool that takes anything.

    Raises:
        TypeError: It is none of these.
        ValueError: It is a mapping and no JSON Schema.
        ImportError: It is a mapping and jsonschema is not installed.
    """
    if schema is None:
        return _anything
    if isinstance(schema, Mapping):
        return _json_schema_check(schema)
    validate = getattr(schema, "model_validate", None)
    if not callable(validate):
        raise TypeError("A schema must be a JSON Schema as a mapping or a pydantic model.")
    return lambda arguments: _raised_by(validate, arguments)


def _anything(_arguments: Mapping[str, Any]) -> str:
    return ""


def _raised_by(validate: Callable[[Any], object], arguments: Mapping[str, Any]) -> str:
    try:
        validate(dict(arguments))
    # pydantic's ValidationError is a ValueError; what a validator of the user's raises besides is his bug to see.
    except ValueError as error:
        return str(error)[:FAULT_CHARS]
    return ""


def _json_schema_check(schema: Mapping[str, Any]) -> Check:
    try:
        jsonschema = importlib.import_module("jsonschema")
    except ImportError as error:
        raise ImportError(
            "A JSON Schema for arguments needs jsonschema, which the extras langgraph and mcp bring."
        ) from error
    kept = dict(schema)
    validator_class = jsonschema.validators.validator_for(kept, default=jsonschema.Draft202012Validator)
    try:
        validator_class.check_schema(kept)
    except jsonschema.exceptions.SchemaError as error:
        raise ValueError(f"The arguments' schema is no JSON Schema: {error.message}") from error
    validator = validator_class(kept)

    def check(arguments: Mapping[str, Any]) -> str:
        fault = jsonschema.exceptions.best_match(validator.iter_errors(dict(arguments)))
        return "" if fault is None else f"{fault.json_path}: {fault.message}"[:FAULT_CHARS]

    return check
