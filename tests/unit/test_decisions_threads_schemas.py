"""Replies against schemas: what fits, what does not, what is refused when it is asked; nothing takes for ever."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from continuity.decisions.threads import schemas
from continuity.errors import MalformedError

VALUES = [None, True, False, 0, 1, -1, 1.5, 1.0, "", "yes", "true", "1", [], [1], {}, {"a": 1}]
FITS = {
    "null": [None],
    "boolean": [True, False],
    "integer": [0, 1, -1, 1.0],
    "number": [0, 1, -1, 1.5, 1.0],
    "string": ["", "yes", "true", "1"],
    "array": [[], [1]],
    "object": [{}, {"a": 1}],
}


def fits(schema, value):
    schemas.check_schema(schema)
    return schemas.problem(schema, value) is None


def is_among(value, values):
    return any(type(value) is type(other) and value == other for other in values)


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("name", FITS)
def test_a_type_takes_its_own_values_and_no_other(name, value):
    assert fits({"type": name}, value) == is_among(value, FITS[name])
    assert fits({"type": [name, "null"]}, value) == (is_among(value, FITS[name]) or value is None)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"const": True}, [True], [1, "true", None]),
        ({"enum": ["approve", 1, None]}, ["approve", 1, 1.0, None], [True, "Approve", "1"]),
        ({"minimum": 1, "maximum": 3}, [1, 3, 2.5, "0"], [0, 4, 0.99]),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, [2, 1.01], [1, 3]),
        ({"minLength": 1, "maxLength": 2}, ["a", "ab", 7], ["", "abc"]),
        ({"minItems": 1, "maxItems": 2, "uniqueItems": True}, [[1], [1, True]], [[], [1, 2, 3], [1, 1.0]]),
        ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
        ({"items": {"type": "integer"}}, [[], [1, 2]], [["1"], [1, None]]),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, [None, "x"], [1]),
        ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, [0, 4], [2, 1]),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, [2], [0, 4]),
        (
            {"properties": {"decision": {"enum": ["approve", "deny"]}}, "required": ["decision"],
             "additionalProperties": False, "type": "object"},
            [{"decision": "deny"}], [{}, {"decision": "no"}, {"decision": "deny", "more": 1}, "deny"],
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"a": 1}, {}], [{"a": "1"}]),
        (
            {"$defs": {"tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}},
             "additionalProperties": False}}, "$ref": "#/$defs/tree"},
            [{}, {"next": {"next": {}}}], [{"next": {"last": 1}}, {"next": 1}],
        ),
        ({"title": "Go?", "type": "boolean", "default": False, "format": "yes-or-no"}, [True], ["yes"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_every_keyword_takes_what_fits_and_refuses_the_rest(schema, right, wrong):
    assert [fits(schema, value) for value in right] == [True] * len(right)
    assert [fits(schema, value) for value in wrong] == [False] * len(wrong)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "(a+)+$"}, {"if": {}}, {"type": "text"}, {"type": []}, {"minLength": -1}, {"minLength": True},
        {"minimum": "1"}, {"enum": []}, {"enum": "ab"}, {"required": [1]}, {"properties": []}, {"items": [{}]},
        {"anyOf": []}, {"anyOf": [{}] * 17}, {"$ref": "#/$defs/none"}, {"$ref": "https://example.org/x"},
        {"properties": {"a": {"pattern": "x"}}}, {"$defs": {"a": {"not": {}}}}, {"uniqueItems": 1}, [], "boolean", 1,
        {"$ref": "#/$defs/a/b", "$defs": {"a": {}}},
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_not_checked_whole_is_refused_when_it_is_asked(schema):
    with pytest.raises(MalformedError):
        schemas.check_schema(schema)


def test_a_schema_that_nests_too_deep_is_refused():
    schema = {}
    for _ in range(schemas.DEPTH + 1):
        schema = {"items": schema}

    with pytest.raises(MalformedError, match="nested deeper"):
        schemas.check_schema(schema)


def test_true_and_false_are_schemas():
    assert fits({"properties": {"a": True, "b": False}}, {"a": 1})
    assert not fits({"properties": {"a": True, "b": False}}, {"b": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 16}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"allOf": [{"$ref": "#/$defs/a"}] * 16}}}},
    ],
    ids=["itself", "any", "one", "all"],
)  # fmt: skip
def test_no_schema_takes_for_ever_and_none_is_met_by_running_out(schema):
    schemas.check_schema(schema)
    value = []
    for _ in range(20):
        value = [value]
    begun = time.thread_time()

    assert "steps" in schemas.problem(schema, value)
    assert time.thread_time() - begun < 2


def test_a_problem_names_the_place_and_no_part_of_the_value():
    schema = {"type": "object", "properties": {"order": {"type": "array", "items": {"type": "integer"}}}}

    assert schemas.problem(schema, {"order": [1, "a secret"]}) == "reply.order[1] must be integer"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(value=JSON, other=JSON)
def test_a_constant_is_met_by_itself_alone(value, other):
    from continuity.jsontext import canonical_bytes  # noqa: PLC0415

    assert fits({"const": value}, value)
    assert fits({"const": value}, other) == (canonical_bytes(value) == canonical_bytes(other))
    assert fits({"anyOf": [{"const": other}, {"const": value}]}, value)
    assert fits({"enum": [other, value]}, value)
