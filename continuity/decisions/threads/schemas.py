"""What a reply must be: a strict part of JSON Schema, with the same answer in a worker and on the server.

Rules:

* A keyword that is not known here is refused when the question is asked, never ignored when it is answered.
* Nothing is coerced: "yes" and 1 are no booleans, true is no number, "1" is no integer. Numbers are by value, so 1.0 is
  an integer, as it is for `continuity.jsontext`.
* No ``pattern``: a regular expression that others chose can take for ever. ``format`` says what is meant and checks
  nothing, as the standard has it.
* A schema nests at most `DEPTH` levels, and checking a value takes at most `STEPS` steps, whatever ``$ref`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from continuity.errors import MalformedError
from continuity.jsontext import canonical_bytes

DEPTH: Final = 16
STEPS: Final = 10_000
NESTING: Final = 100
"""How deep checking a value goes: a ``$ref`` may name itself."""
ALTERNATIVES: Final = 16
"""How many schemas ``anyOf``, ``oneOf`` and ``allOf`` may list."""
_DEFINITION: Final = "#/$defs/"

_ANNOTATIONS: Final = frozenset({
    "title", "description", "default", "examples", "format", "readOnly", "writeOnly", "deprecated", "$schema",
    "$comment", "discriminator",
})  # fmt: skip
_SIZES: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LISTS: Final = ("anyOf", "oneOf", "allOf")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and float(value).is_integer(),
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list | tuple),
    "object": lambda value: isinstance(value, Mapping),
}


def check_schema(schema: object, *, at: str = "schema") -> None:
    """Refuse a schema that this module cannot check exactly.

    Args:
        schema: What a reply must be.
        at: The path that messages name it by.

    Raises:
        MalformedError: It is no schema, or holds a keyword that is not known here. The message names the path.
    """
    root = schema if isinstance(schema, Mapping) else {}
    definitions = root.get("$defs", {})
    if not isinstance(definitions, Mapping):
        raise MalformedError(f"{at}.$defs must be an object.")
    for name, definition in definitions.items():
        _check(definition, definitions, at=f"{at}.$defs.{name}", depth=2)
    _check({key: value for key, value in root.items() if key != "$defs"} if root else schema, definitions, at=at)


def problem(schema: Mapping[str, Any], value: Any) -> str | None:
    """Say what is wrong with a reply.

    Args:
        schema: One that `check_schema` has let through.
        value: Any JSON value.

    Returns:
        A path and what must be there, without any part of the value; None when the value is right.
    """
    checker = _Checker(schema)
    found = checker.problem(schema, value, "reply")
    # Whatever an alternative made of it: what was not checked to its end is not right.
    return f"reply takes more than {STEPS} steps to check" if checker.is_spent else found


def _check(schema: object, definitions: Mapping[str, Any], *, at: str, depth: int = 1) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise MalformedError(f"{at} must be an object, true or false.")
    if depth > DEPTH:
        raise MalformedError(f"{at} is nested deeper than {DEPTH} levels.")
    for keyword, operand in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        if keyword not in _KEYWORDS:
            raise MalformedError(f"{at} holds a keyword that replies are not checked by. See docs/threads.md.")
        if not _KEYWORDS[keyword](operand):
            raise MalformedError(f"{at}.{keyword} is not what this keyword takes.")
    reference = schema.get("$ref")
    if reference is not None and reference.removeprefix(_DEFINITION) not in definitions:
        raise MalformedError(f"{at}.$ref must name one of $defs.")
    for name, child in _children(schema):
        _check(child, definitions, at=f"{at}.{name}", depth=depth + 1)


def _children(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found = [(f"properties.{name}", child) for name, child in schema.get("properties", {}).items()]
    found += [(keyword, schema[keyword]) for keyword in ("items", "additionalProperties") if keyword in schema]
    for keyword in _LISTS:
        found += [(f"{keyword}[{number}]", child) for number, child in enumerate(schema.get(keyword, ()))]
    return found


def _is_type(operand: Any) -> bool:
    names = [operand] if isinstance(operand, str) else operand
    return isinstance(names, list | tuple) and bool(names) and all(isinstance(n, str) and n in _TYPES for n in names)


def _is_size(operand: Any) -> bool:
    return isinstance(operand, int) and not isinstance(operand, bool) and operand >= 0


def _is_list_of_schemas(operand: Any) -> bool:
    return isinstance(operand, list | tuple) and 0 < len(operand) <= ALTERNATIVES


def _is_list_of_names(operand: Any) -> bool:
    return isinstance(operand, list | tuple) and all(isinstance(name, str) for name in operand)


_KEYWORDS: Final[dict[str, Callable[[Any], bool]]] = {
    "type": _is_type,
    "enum": lambda operand: isinstance(operand, list | tuple) and bool(operand),
    "const": lambda _operand: True,
    "properties": lambda operand: isinstance(operand, Mapping),
    "required": _is_list_of_names,
    "additionalProperties": lambda operand: isinstance(operand, bool | Mapping),
    "items": lambda operand: isinstance(operand, bool | Mapping),
    "uniqueItems": lambda operand: isinstance(operand, bool),
    "$ref": lambda operand: isinstance(operand, str) and operand.startswith(_DEFINITION),
    **dict.fromkeys(_SIZES, _is_size),
    **dict.fromkeys(_NUMBERS, _is_number),
    **dict.fromkeys(_LISTS, _is_list_of_schemas),
}
"""Every keyword that constrains, and what it takes."""


class _Checker:
    """Checks one value against one schema, within a bound on steps."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._definitions: Mapping[str, Any] = root.get("$defs", {})
        self._left = STEPS
        self._depth = 0

    @property
    def is_spent(self) -> bool:
        """Whether the bound was met."""
        return self._left < 0

    def problem(self, schema: Any, value: Any, at: str) -> str | None:
        self._left -= 1
        if self._left < 0 or self._depth >= NESTING:
            self._left = -1
            return f"{at} takes more than {STEPS} steps to check"
        self._depth += 1
        try:
            return self._problem(schema, value, at)
        finally:
            self._depth -= 1

    def _problem(self, schema: Any, value: Any, at: str) -> str | None:
        if isinstance(schema, bool):
            return None if schema else f"{at} must not be there"
        found = self._own_problem(schema, value, at)
        if found is not None:
            return found
        reference = schema.get("$ref")
        if reference is not None:
            found = self.problem(self._definitions[reference.removeprefix(_DEFINITION)], value, at)
        return found or self._combined(schema, value, at) or self._inside(schema, value, at)

    def _own_problem(self, schema: Mapping[str, Any], value: Any, at: str) -> str | None:
        names = schema.get("type", ())
        names = (names,) if isinstance(names, str) else names
        if names and not any(_TYPES[name](value) for name in names):
            return f"{at} must be {' or '.join(names)}"
        if "const" in schema and not _is_same(schema["const"], value):
            return f"{at} must be the one value that was offered"
        if "enum" in schema and not any(_is_same(choice, value) for choice in schema["enum"]):
            return f"{at} must be one of the values that were offered"
        return _number_problem(schema, value, at) or _size_problem(schema, value, at)

    def _combined(self, schema: Mapping[str, Any], value: Any, at: str) -> str | None:
        for child in schema.get("allOf", ()):
            found = self.problem(child, value, at)
            if found is not None:
                return found
        if "anyOf" in schema and all(self.problem(child, value, at) is not None for child in schema["anyOf"]):
            return f"{at} must be one of the kinds that were offered"
        if "oneOf" in schema:
            fitting = sum(self.problem(child, value, at) is None for child in schema["oneOf"])
            if fitting != 1:
                return f"{at} must be exactly one of the kinds that were offered"
        return None

    def _inside(self, schema: Mapping[str, Any], value: Any, at: str) -> str | None:
        if isinstance(value, Mapping):
            return self._members_problem(schema, value, at)
        if isinstance(value, list | tuple) and "items" in schema:
            for number, item in enumerate(value):
                found = self.problem(schema["items"], item, f"{at}[{number}]")
                if found is not None:
                    return found
        return None

    def _members_problem(self, schema: Mapping[str, Any], value: Mapping[str, Any], at: str) -> str | None:
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                return f"{at}.{name} is required"
        for name, child in properties.items():
            if name in value:
                found = self.problem(child, value[name], f"{at}.{name}")
                if found is not None:
                    return found
        others = schema.get("additionalProperties", True)
        for name in value:
            if name not in properties and self.problem(others, value[name], at) is not None:
                return f"{at} holds a member that was not asked for"
        return None


def _is_same(one: Any, other: Any) -> bool:
    """Compare by value; true is not 1."""
    return canonical_bytes(one) == canonical_bytes(other)


def _number_problem(schema: Mapping[str, Any], value: Any, at: str) -> str | None:
    if not _is_number(value):
        return None
    if "minimum" in schema and value < schema["minimum"]:
        return f"{at} must be at least {schema['minimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        return f"{at} must be at most {schema['maximum']}"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        return f"{at} must be more than {schema['exclusiveMinimum']}"
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        return f"{at} must be less than {schema['exclusiveMaximum']}"
    return None


def _size_problem(schema: Mapping[str, Any], value: Any, at: str) -> str | None:
    what = next((what for kind, what in _SIZED if isinstance(value, kind)), None)
    if what is None:
        return None
    least, most = schema.get(f"min{what}", 0), schema.get(f"max{what}")
    if len(value) < least or (most is not None and len(value) > most):
        return f"{at} must hold {least} to {'any number of' if most is None else most}"
    is_list = isinstance(value, list | tuple)
    if is_list and schema.get("uniqueItems") and len({canonical_bytes(item) for item in value}) != len(value):
        return f"{at} must hold no value twice"
    return None


_SIZED: Final = ((str, "Length"), (list, "Items"), (tuple, "Items"), (Mapping, "Properties"))
