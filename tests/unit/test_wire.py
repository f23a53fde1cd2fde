"""Requests: what each field takes, that nothing is coerced, and the canonical definition."""

import json
from dataclasses import fields as members

import pytest
from hypothesis import given
from hypothesis import strategies as st

from continuity import wire
from continuity.errors import MalformedError
from continuity.evidence import SearchEvidence

DEFINITION = {"name": "publish", "tool": "directory.publish"}
BEGIN = {"name": "publish", "run_id": "r1", "attempt_id": "a1"}
OUTCOME = {**BEGIN, "lease_token": "lt_x", "receipt": {"outcome": "unknown"}}
CONFIRM = {"name": "publish", "happened": True, "revision": 3, "late_receipts": 0, "reason": "seen",
           "receipt": {"effect_id": "e-1", "result": None}}  # fmt: skip
NOT_HAPPENED = {key: value for key, value in CONFIRM.items() if key != "receipt"} | {"happened": False}
REQUESTS = {
    "definition": (wire.OperationDefinition, DEFINITION),
    "create": (wire.CreateWorkflow, {"workflow_key": "k", "operations": [DEFINITION]}),
    "begin": (wire.BeginRequest, BEGIN),
    "outcome": (wire.OutcomeRequest, OUTCOME),
    "renew": (wire.RenewRequest, {**BEGIN, "lease_token": "lt_x"}),
    "configure": (wire.ConfigureRequest, {"enabled": True}),
    "abandon": (wire.AbandonRequest, {"name": "publish", "reason": "not wanted"}),
    "confirm": (wire.ConfirmRequest, CONFIRM),
    "confirm not": (wire.ConfirmRequest, NOT_HAPPENED),
}
OPTIONAL = {
    "definition": {"arguments", "capability", "timeout_seconds", "retention_seconds", "absence_final_after_seconds"},
    "create": {"activate", "begin"},
    "configure": {"revision"},
    "abandon": {"revision"},
}


def refused(cls, value):
    with pytest.raises(MalformedError) as refusal:
        cls.from_json(value)
    return refusal.value.message


def defined(**over):
    return wire.OperationDefinition.from_json({**DEFINITION, **over})


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_needs_each_of_its_fields_and_takes_no_other(name):
    cls, value = REQUESTS[name]
    assert cls.from_json(value)

    for field in value:
        assert field in refused(cls, {key: member for key, member in value.items() if key != field})
        assert field in refused(cls, {**value, field: None})
    assert "surprise" in refused(cls, {**value, "surprise": 1})
    assert "surprise" in refused(cls, {**value, "surprise": None})
    for other in ([value], "text", None, 1, True):
        assert "must be an object" in refused(cls, other)


@pytest.mark.parametrize(("name", "field"), [(name, field) for name in OPTIONAL for field in sorted(OPTIONAL[name])])
def test_null_in_an_optional_field_means_absent(name, field):
    cls, value = REQUESTS[name]

    assert cls.from_json({**value, field: None}) == cls.from_json(value)


@pytest.mark.parametrize("field", ["name", "run_id", "attempt_id"])
@pytest.mark.parametrize("bad", ["", "a" * 129, "a b", "a.b", "a/b", "ä", "a\n", "\n", "..", 1, True, ["a"], {}])
def test_an_identifier_is_a_few_plain_characters(field, bad):
    assert f"{field} must be 1 to 128" in refused(wire.BeginRequest, {**BEGIN, field: bad})


@pytest.mark.parametrize("good", ["a", "a" * 128, "A-Z_09", "-", "_"])
def test_an_identifier_may_be_of_any_of_these(good):
    assert wire.BeginRequest.from_json({**BEGIN, "attempt_id": good}).attempt_id == good


def test_an_unknown_field_is_named_only_when_its_name_can_be_shown():
    assert "<script>" not in refused(wire.BeginRequest, {**BEGIN, "<script>": 1})


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"tool": ""}, "tool"), ({"tool": "x" * 257}, "tool"), ({"tool": "a\nb"}, "tool"), ({"tool": 1}, "tool"),
        ({"arguments": []}, "arguments"), ({"arguments": "x"}, "arguments"),
        ({"capability": "maybe"}, "capability"), ({"capability": []}, "capability"), ({"capability": 1}, "capability"),
        ({"capability": ["query", "query"]}, "capability"), ({"capability": ["none", "query"]}, "capability"),
        ({"capability": [["query"]]}, "capability"), ({"capability": {"query": True}}, "capability"),
        ({"timeout_seconds": 0}, "timeout_seconds"), ({"timeout_seconds": -1}, "timeout_seconds"),
        ({"timeout_seconds": 90.001}, "timeout_seconds"), ({"timeout_seconds": True}, "timeout_seconds"),
        ({"timeout_seconds": "30"}, "timeout_seconds"), ({"timeout_seconds": float("nan")}, "timeout_seconds"),
        ({"retention_seconds": -1}, "retention_seconds"), ({"retention_seconds": 315_360_001}, "retention_seconds"),
        ({"capability": "idempotent"}, "retention_seconds"),
        ({"capability": "idempotent", "retention_seconds": 60}, "retention_seconds"),
        ({"capability": "idempotent", "retention_seconds": 100, "timeout_seconds": 70}, "retention_seconds"),
        ({"absence_final_after_seconds": 1}, "absence_final_after_seconds"),
        ({"capability": "idempotent", "retention_seconds": 99, "absence_final_after_seconds": 1}, "absence_final"),
        ({"capability": "query", "absence_final_after_seconds": 0}, "absence_final_after_seconds"),
        ({"capability": "query", "absence_final_after_seconds": 2_592_000.5}, "absence_final_after_seconds"),
    ],
)  # fmt: skip
def test_a_definition_that_breaks_a_rule_is_refused_by_the_name_of_the_field(over, words):
    assert words in refused(wire.OperationDefinition, {**DEFINITION, **over})


@pytest.mark.parametrize(
    "over",
    [
        {"tool": "x" * 256},
        {"tool": "ü ✓"},
        {"timeout_seconds": 90},
        {"timeout_seconds": 0.001},
        {"retention_seconds": 315_360_000},
        {"capability": "idempotent", "retention_seconds": 60.001},
        {"capability": "query", "absence_final_after_seconds": 2_592_000},
        {"capability": ["query", "idempotent"], "retention_seconds": 61, "absence_final_after_seconds": 0.5},
    ],
)
def test_a_definition_at_the_edge_of_a_rule_is_taken(over):
    assert defined(**over)


def test_defaults_are_filled_in():
    assert defined().to_json() == {
        "name": "publish", "tool": "directory.publish", "arguments": {}, "capability": "none",
        "timeout_seconds": 30, "retention_seconds": 0,
    }  # fmt: skip


def canonical(**over):
    request = wire.CreateWorkflow.from_json({"workflow_key": "k", "operations": [{**DEFINITION, **over}]})
    return request.definition_bytes()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"arguments": {}, "capability": "none", "timeout_seconds": 30, "retention_seconds": 0}),
        ({}, {"capability": None, "absence_final_after_seconds": None}),
        ({"capability": "none"}, {"capability": ["none"]}),
        ({"capability": "query"}, {"capability": ["query"]}),
        ({"capability": ["query", "idempotent"], "retention_seconds": 99},
         {"capability": ["idempotent", "query"], "retention_seconds": 99.0}),
        ({"timeout_seconds": 30}, {"timeout_seconds": 30.0}),
        ({"arguments": {"a": 1, "b": [2.0]}}, {"arguments": {"b": [2], "a": 1.0}}),
    ],
)  # fmt: skip
def test_two_ways_to_write_a_definition_are_the_same(one, other):
    assert canonical(**one) == canonical(**other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"arguments": {"a": True}}, {"arguments": {"a": 1}}),
        ({"arguments": {"a": "1"}}, {"arguments": {"a": 1}}),
        ({"arguments": {"a": None}}, {"arguments": {}}),
        ({"arguments": {"a": [1, 2]}}, {"arguments": {"a": [2, 1]}}),
        ({"timeout_seconds": 30}, {"timeout_seconds": 30.5}),
        ({"tool": "a"}, {"tool": "A"}),
    ],
)
def test_two_definitions_that_differ_are_not_the_same(one, other):
    assert canonical(**one) != canonical(**other)


@given(
    st.dictionaries(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])), st.integers(0, 9)),
    st.sampled_from(["none", "query", ["query", "idempotent"]]),
    st.floats(0.001, 90),
)
def test_a_definition_reads_back_from_what_it_writes(arguments, capability, timeout):
    definition = defined(arguments=arguments, capability=capability, timeout_seconds=timeout, retention_seconds=500)

    assert wire.OperationDefinition.from_json(json.loads(json.dumps(definition.to_json()))) == definition


def test_a_workflow_has_one_to_two_hundred_operations_of_different_names():
    def create(count, name="o{}"):
        operations = [{**DEFINITION, "name": name.format(number)} for number in range(count)]
        return {"workflow_key": "k", "operations": operations}

    assert len(wire.CreateWorkflow.from_json(create(200)).operations) == 200
    for bad in (create(0), create(201), {**create(1), "operations": {}}):
        assert "1 to 200" in refused(wire.CreateWorkflow, bad)
    assert "distinct" in refused(wire.CreateWorkflow, create(2, "same"))
    assert "operations[1].tool" in refused(
        wire.CreateWorkflow, {"workflow_key": "k", "operations": [DEFINITION, {"name": "b", "tool": ""}]}
    )


def test_a_first_begin_names_an_operation_of_the_workflow():
    value = {"workflow_key": "k", "operations": [DEFINITION], "begin": BEGIN}
    assert wire.CreateWorkflow.from_json(value).begin == wire.BeginRequest(**BEGIN)

    assert "begin.name" in refused(wire.CreateWorkflow, {**value, "begin": {**BEGIN, "name": "other"}})
    assert "begin.run_id" in refused(wire.CreateWorkflow, {**value, "begin": {**BEGIN, "run_id": ""}})


def test_a_definition_has_at_most_256_kib_in_canonical_form():
    empty = len(canonical(arguments={"a": ""}))

    assert len(canonical(arguments={"a": "x" * (256 * 1024 - empty)})) == 256 * 1024
    with pytest.raises(MalformedError, match="262144 bytes"):
        canonical(arguments={"a": "x" * (256 * 1024 - empty + 1)})


def test_a_receipt_has_at_most_64_kib_in_canonical_form():
    def outcome(count):
        return {**OUTCOME, "receipt": {"a": "x" * count}}

    assert wire.OutcomeRequest.from_json(outcome(64 * 1024 - 8))
    assert "65536 bytes" in refused(wire.OutcomeRequest, outcome(64 * 1024 - 7))


@pytest.mark.parametrize("receipt", [{}, {"anything": [1]}, {"outcome": "confirmed_succeeded", "more": {"kept": True}}])
def test_any_object_is_a_receipt_and_none_of_its_members_is_refused(receipt):
    assert wire.OutcomeRequest.from_json({**OUTCOME, "receipt": receipt}).receipt == receipt


@pytest.mark.parametrize("token", ["", "x" * 257, "a b", "a/b", "ä", "a\n", 1, None])
def test_a_lease_token_is_of_plain_characters(token):
    assert "lease_token" in refused(wire.OutcomeRequest, {**OUTCOME, "lease_token": token})


@pytest.mark.parametrize("bad", [1, 0, "true", "", [], {}])
def test_true_and_false_are_no_numbers_and_no_texts(bad):
    assert "enabled must be true or false" in refused(wire.ConfigureRequest, {"enabled": bad})


@pytest.mark.parametrize("bad", [True, False, -1, 1.5, "3", [3]])
@pytest.mark.parametrize("field", ["revision", "late_receipts"])
def test_a_count_is_a_whole_number(field, bad):
    assert field in refused(wire.ConfirmRequest, {**CONFIRM, field: bad})


@pytest.mark.parametrize("bad", ["", " \t", "x" * 1_001, 1, ["because"]])
def test_a_reason_says_something(bad):
    assert "reason" in refused(wire.ConfirmRequest, {**CONFIRM, "reason": bad})
    assert "reason" in refused(wire.AbandonRequest, {"name": "publish", "reason": bad})


def test_it_happened_needs_an_effect_and_it_did_not_takes_none():
    happened = wire.ConfirmRequest.from_json({**CONFIRM, "receipt": {"effect_id": "e-1", "result": {"url": "u"}}})
    assert (happened.effect_id, happened.result) == ("e-1", {"url": "u"})

    for receipt in ({}, {"result": 1}, {"effect_id": ""}, {"effect_id": 1}, {"effect_id": "x" * 1_025}, "e-1", []):
        assert "receipt" in refused(wire.ConfirmRequest, {**CONFIRM, "receipt": receipt})
    assert "receipt" in refused(wire.ConfirmRequest, {**NOT_HAPPENED, "receipt": {"effect_id": "e-1"}})
    assert "65536 bytes" in refused(
        wire.ConfirmRequest, {**CONFIRM, "receipt": {"effect_id": "e", "result": "x" * 65_536}}
    )


@pytest.mark.parametrize("name", ["outcome", "renew", "abandon", "confirm"])
def test_secrets_and_free_text_are_shown_in_no_repr(name):
    cls, value = REQUESTS[name]
    shown = repr(cls.from_json(value))

    hidden = {"lease_token", "receipt", "reason", "effect_id", "result"}
    for member in members(cls):
        if member.name in hidden:
            assert f"{member.name}=" not in shown


@pytest.mark.parametrize("words", ["", "%", " ".join("abcdefghi"), "a" * 201])
def test_a_search_that_is_refused_names_the_field_that_was_sent(words):
    with pytest.raises(MalformedError, match=r"^query must be"):
        SearchEvidence.from_json({"query": words})
    with pytest.raises(MalformedError, match=r"^q must be"):
        SearchEvidence.from_query({"q": words})
