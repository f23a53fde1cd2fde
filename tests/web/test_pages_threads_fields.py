"""Forms made of schemas: whatever is filled in is what the server would take, or is refused beside its field."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from app.pages.threads_asks import ask_form
from app.pages.threads_fields import FIELDS_MOST, Unfit, form_of, leaves
from continuity.decisions.threads.schemas import check_schema, problem


class Contact(BaseModel):
    phone: str = Field(max_length=30)
    mail: str | None = None


class Parcel(BaseModel):
    """What pydantic makes of a model as people write it."""

    street: str = Field(min_length=3, max_length=80)
    country: Literal["Austria", "France", "Italy"]
    labels: int = Field(default=1, ge=1, le=5)
    weight: float | None = Field(description="In kilograms.")
    is_gift: bool
    notes: list[str] = []
    numbers: list[int] = Field(default=[], max_length=3)
    days: list[Literal["Monday", "Friday"]] = []
    contact: Contact | None = None


PARCEL = TypeAdapter(Parcel).json_schema()
FILLED = {
    "street": "Long Street 4", "country": "1", "labels": "2", "weight": "1.5", "is_gift": "false",
    "notes": "Ring twice\r\n\n Leave it ", "numbers": "1\n2", "days": "yes", "phone": "+43 1", "mail": "",
}  # fmt: skip


def asked(schema, shown=None, kind="reply"):
    check_schema(schema)
    return {"schema": schema, "shown": shown or {}, "kind": kind}


def named(node):
    """Return the names of fields by the last part of their path."""
    return {leaf.path.rpartition(".")[2]: leaf.names for leaf in leaves(node)}


def filled(node, values):
    names = named(node)
    return {names[key][-1]: value for key, value in values.items() if value}


def test_what_must_be_filled_in_comes_first_and_a_description_does_not_run_into_its_bounds():
    seat = {
        "type": "object", "required": ["row"],
        "properties": {"meal": {"type": "boolean"}, "row": {"type": "integer", "maximum": 40, "description": "Seats"}},
    }  # fmt: skip

    first, second = leaves(form_of(seat, "Your reply"))

    assert (first.path, second.path) == ("reply.row", "reply.meal")
    assert first.hint == "Seats. At most 40."


def test_a_model_as_people_write_it_is_a_form():
    form = ask_form(asked(PARCEL))
    kinds = {leaf.path: leaf.kind for leaf in leaves(form.node)}

    assert kinds == {
        "reply.street": "text", "reply.country": "choice", "reply.labels": "integer", "reply.weight": "number",
        "reply.is_gift": "boolean", "reply.notes": "lines", "reply.numbers": "lines", "reply.days": "choices",
        "reply.contact.phone": "text", "reply.contact.mail": "area",
    }  # fmt: skip
    value, problems = form.read(filled(form.node, FILLED))
    assert problems == {}
    assert problem(PARCEL, value) is None
    assert Parcel.model_validate(value) == Parcel(
        street="Long Street 4", country="France", labels=2, weight=1.5, is_gift=False, notes=["Ring twice", "Leave it"],
        numbers=[1, 2], days=["Friday"], contact=Contact(phone="+43 1"),
    )  # fmt: skip


def test_what_may_be_left_out_is_left_out_and_nothing_is_made_up():
    form = ask_form(asked(PARCEL))
    value, problems = form.read(filled(form.node, {**dict.fromkeys(FILLED, ""), "street": "Long Street", "country": "0",
                                                   "is_gift": "true"}))  # fmt: skip

    assert problems == {}
    # Weight must be there, and may be null.
    assert value == {"street": "Long Street", "country": "Austria", "is_gift": True, "weight": None}


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("street", "", "Fill this in."), ("country", "", "Choose one."), ("country", "3", "Choose one of these."),
        ("country", "-1", "Choose one of these."), ("labels", "1.5", "Must be a whole number."),
        ("labels", "1e2", "Must be a whole number."), ("labels", "٣", "Must be a whole number."),
        ("labels", "9" * 400, "Must be a whole number."), ("weight", "1,5", "Must be a number, with a point"),
        ("weight", "NaN", "Must be a number"), ("weight", "1e999", "Must be a number"),
        ("is_gift", "yes", "Choose yes or no."), ("is_gift", "1", "Choose yes or no."), ("is_gift", "", "Choose one."),
        ("numbers", "1\nx", "One of the lines"),
    ],
)  # fmt: skip
def test_what_is_no_value_is_refused_beside_its_field(key, text, words):
    form = ask_form(asked(PARCEL))
    _, problems = form.read(filled(form.node, {**FILLED, key: text}))

    assert list(problems) == [named(form.node)[key][0]]
    assert words in next(iter(problems.values()))


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("boolean", {"type": "boolean"}),
        ("boolean", {"type": "boolean", "title": "Go on?"}),
        ("any", {}),
        ("any", {"title": "Anything"}),
        ("fields", {"type": "string"}),
        ("fields", {"enum": ["a", 1, None, True]}),
        ("fields", {"$ref": "#/$defs/x", "$defs": {"x": {"type": "integer"}}}),
        ("fields", {"type": ["string", "null"]}),
        ("fields", {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ("json", {"type": "object"}),
        ("json", {"type": "object", "properties": {"a": {}}}),
        ("json", {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
        ("json", {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ("json", {"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x"}}}),
        ("json", {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}),
        ("json", {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(FIELDS_MOST + 1)}}),
        ("json", {"enum": list(range(200))}),
        ("json", {"type": "null"}),
        ("json", {"type": ["string", "integer"]}),
        ("json", {"properties": {"a": True}}),
    ],
    ids=lambda each: json.dumps(each)[:60],
)
def test_every_schema_has_the_form_that_can_express_it(kind, schema):
    form = ask_form(asked(schema))

    assert form.kind == kind
    assert len(form.names) <= FIELDS_MOST
    assert len(set(form.names)) == len(form.names)


def test_a_definition_may_be_called_whatever_the_agent_likes():
    form = ask_form(asked({"$ref": "#/$defs/a/b", "$defs": {"a/b": {"type": "integer"}, "b": {"type": "string"}}}))

    assert form.node.kind == "integer"


@pytest.mark.parametrize("allowed", [[["approve"]], [{}, None], "approve", None])
def test_what_an_agent_says_wrongly_of_its_actions_leaves_yes_and_no(allowed):
    actions = [{"name": "send", "args": {}}]
    configs = [{"action_name": "send", "allowed_decisions": allowed}]
    schema = {"type": "object", "properties": {"decisions": {"type": "array"}}}
    form = ask_form(asked(schema, {"action_requests": actions, "review_configs": configs}))

    assert [action.allowed for action in form.actions] == [("approve", "reject")]


@pytest.mark.parametrize("is_required", [True, False])
def test_nobody_agrees_to_the_one_thing_that_may_be_left_out(is_required):
    required = {"required": ["agree"]} if is_required else {}
    form = ask_form(asked({"type": "object", "properties": {"agree": {"const": True}}, **required}))
    (leaf,) = leaves(form.node)

    assert leaf.default == ("0" if is_required else "")
    assert form.read({leaf.name: leaf.default})[0] == ({"agree": True} if is_required else {})


class Card(BaseModel):
    """An object that may be left out, with something in it from the beginning."""

    kind: Literal["card"] = "card"
    country: str = "Austria"
    number: str


class Paid(BaseModel):
    by: Card | None = None
    back: Card | None


@pytest.mark.parametrize(("number", "by"), [("", None), ("41", {"kind": "card", "country": "Austria", "number": "41"})])
def test_an_object_that_may_be_left_out_is_there_once_somebody_writes_in_it(number, by):
    schema = TypeAdapter(Paid).json_schema()
    form = ask_form(asked(schema))
    values = {leaf.name: leaf.default for leaf in leaves(form.node)}
    value, problems = form.read({**values, form.field_of("reply.by.number"): number})

    assert problems == {}
    assert problem(schema, value) is None
    assert value == ({"back": None} if by is None else {"by": by, "back": None})


TYPES = st.sampled_from([
    "string", "number", "boolean", "array", "object", "null", ["string", "null"], ["object", "null"], ["array"],
])  # fmt: skip
NAMES = st.sampled_from(["a", "b", "decisions"])
ODD = st.recursive(
    st.just({"type": "string"}),
    lambda inner: st.fixed_dictionaries({}, optional={
        "type": TYPES, "enum": st.lists(st.sampled_from([None, True, 1, "a", [], {}]), min_size=1, max_size=3),
        "const": st.sampled_from([None, [1]]), "default": st.sampled_from([None, 1, "a", [1], {}]),
        "title": st.sampled_from([1, {}]), "properties": st.dictionaries(NAMES, inner, max_size=3),
        "required": st.lists(NAMES, max_size=2), "items": inner, "anyOf": st.lists(inner, min_size=1, max_size=2),
        "allOf": st.lists(inner, min_size=1, max_size=2), "$ref": st.sampled_from(["#/$defs/x", "#/$defs/x/y"]),
    }),
    max_leaves=6,
)  # fmt: skip


@given(ODD)
def test_no_schema_that_was_let_through_is_without_a_form(schema):
    schema = {**schema, "$defs": {"x": {"type": "string"}, "x/y": {"properties": {"a": {"type": "integer"}}}}}
    form = ask_form(asked(schema, {"action_requests": [{}], "review_configs": [{}]}))
    values = {} if form.node is None else {leaf.name: leaf.default for leaf in leaves(form.node)}

    form.read(values)


@pytest.mark.parametrize("own", ["string", ["string", "null"]])
def test_null_is_offered_where_all_that_is_said_of_a_value_allows_it(own):
    node = ask_form(asked({"type": own, "anyOf": [{"type": "string"}, {"type": "null"}]})).node

    assert (node.kind, node.is_nullable) == ("area", isinstance(own, list))


def test_a_schema_that_names_itself_is_answered_as_json():
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "name": {"type": "string"}}}

    assert ask_form(asked({"$ref": "#/$defs/tree", "$defs": {"tree": tree}})).kind == "json"


SCALARS = st.sampled_from([
    {"type": "string"}, {"type": "string", "maxLength": 5, "minLength": 2}, {"type": "integer", "minimum": 0},
    {"type": "number", "maximum": 9.5}, {"type": "boolean"}, {"enum": ["a", 2, None]}, {"const": "c"},
    {"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1},
    {"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": ["boolean", "null"]},
])  # fmt: skip


@st.composite
def objects(draw, depth=0):
    inner = SCALARS if depth > 1 else st.one_of(SCALARS, objects(depth + 1))
    properties = draw(st.dictionaries(st.sampled_from("abcde"), inner, min_size=1, max_size=4))
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@given(schema=st.one_of(SCALARS, objects()), data=st.data())
def test_whatever_is_typed_becomes_a_value_of_the_right_shape_or_a_problem_at_a_field(schema, data):
    check_schema(schema)
    try:
        node = form_of(schema, "Reply")
    except Unfit:
        return
    texts = st.sampled_from(["", "0", "1", "2", "7.25", "true", "false", "yes", "abc", "x\ny", "-3", "  "])
    values = {name: data.draw(texts) for leaf in leaves(node) for name in leaf.names}
    form = ask_form(asked(schema)) if schema != {"type": "boolean"} else ask_form(asked({"type": "boolean"}))

    value, problems = form.read(values)

    assert set(problems) <= set(form.names) | {leaf.name for leaf in leaves(node)}
    if not problems:
        wrong = problem(schema, value)
        # What is left are bounds and choices that must be made: never a type, a missing member or one too many.
        assert wrong is None or not any(words in wrong for words in (" be string", " be integer", "not asked for")), (
            wrong
        )
        assert wrong is None or form.field_of(wrong.partition(" ")[0]) in {
            *form.names,
            "reply",
            *(leaf.name for leaf in leaves(node)),
        }


def test_fields_keep_their_names_for_the_same_schema():
    assert list(leaves(form_of(PARCEL, "x"))) == list(leaves(form_of(PARCEL, "x")))
