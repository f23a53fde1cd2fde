"""JSON text: what the strict loader refuses (security requirements J05 to J10), and one canonical form (J11)."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from continuity.errors import MalformedError
from continuity.jsontext import canonical_bytes, check_value, digest, loads_strict


def refused(text):
    body = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    with pytest.raises(MalformedError) as refusal:
        loads_strict(body)
    return refusal.value.message


# Requirement J05: what is no JSON, or says two things at once.


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "null", "1", '"a"', "[]", "[{}]", "{", "{}{}", "{} x", '{"a":1,}', '{"a" 1}', "{'a':1}", '{"a":01}',
        '{"a":NaN}', '{"a":Infinity}', '{"a":-Infinity}', '{"a":1e999}', '{"a":-1e999}', '{"a":[{"b":NaN}]}',
        '{"a":1,"a":1}', '{"a":1,"\\u0061":2}', '{"x":{"a":1,"a":2}}', '{"x":[[{"a":1,"b":2,"a":3}]]}',
        '{"a":"\t"}', '{"a":"\n"}', '{"a":tru}', '{"a":"\\x41"}', '{"a":.5}', '{"a":1.}', '{"a":+1}', "{\u00a0}",
        '/* */{"a":1}', '{"a":"unterminated', '{"a":"\\',
    ],
)  # fmt: skip
def test_what_is_not_one_plain_object_is_refused(text):
    refused(text)


@pytest.mark.parametrize(
    "body", [b'{"a":"\xff"}', '{"a":1}'.encode("utf-16"), b"\xef\xbb\xbf{}", b'{"a":"\xed\xa0\x80"}']
)
def test_only_utf_8_without_a_mark_is_read(body):
    assert "UTF-8" in refused(body)


def test_a_refusal_says_where_and_repeats_nothing():
    message = refused('{\n"password": "hunter2" oops}')

    assert "line 2, column 23" in message
    assert "hunter2" not in message


# Requirement J06: depth.


@pytest.mark.parametrize("opening", ["[", "{", '{"a":', "[[{", '{"":['])
def test_sixty_thousand_brackets_are_refused_at_once(opening):
    body = ('{"a":' + opening * 60_000).encode()

    started = time.thread_time()
    refused(body)

    assert time.thread_time() - started < 0.1


def test_thirty_two_levels_are_read_and_thirty_three_are_not():
    deepest = '{"a":' + "[" * 31 + "]" * 31 + "}"
    assert loads_strict(deepest.encode())
    assert loads_strict(('{"a":' * 32 + "1" + "}" * 32).encode())

    assert "32 levels" in refused('{"a":' + "[" * 32 + "]" * 32 + "}")
    assert "32 levels" in refused('{"a":' * 33 + "1" + "}" * 33)


def test_brackets_within_strings_are_no_levels():
    value = {"a": "[" * 100, '{"': '\\"[[' * 50}

    assert loads_strict(json.dumps(value).encode()) == value


@pytest.mark.parametrize("text", ['"\\"[[', "]]]]]]]]", '"', '\\"', '""', '"\\', "[]", '{"a":"\\\\"},'])
def test_hostile_quotes_and_brackets_take_linear_time(text):
    def seconds(count):
        # Enough brackets that the text is scanned, none of them deep.
        body = b'{"a":[' + b"[]," * 40 + text.encode() * count
        started = time.thread_time()
        with pytest.raises(MalformedError):
            loads_strict(body)
        return time.thread_time() - started

    best = min(seconds(60_000 // len(text)) for _ in range(3))

    # Quadratic work on 60 kB would take seconds.
    assert best < 0.2


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='{}[]":,\\a1 ', max_size=200))
def test_the_scan_for_depth_never_calls_shallow_text_deep(text):
    try:
        value = json.loads(text)
    except ValueError:
        refused(text)
        return
    if isinstance(value, dict) and text.count('"') == text.count("\\") == 0:
        assert loads_strict(text.encode()) == value


# Requirement J07: how many.


def test_keys_and_values_are_counted():
    assert loads_strict(json.dumps({str(n): 0 for n in range(2_000)}).encode())
    assert "2000 keys" in refused(json.dumps({str(n): 0 for n in range(2_001)}))

    # One object, one list and its elements.
    assert loads_strict(json.dumps({"a": [0] * 9_998}).encode())
    assert "10000 values" in refused(json.dumps({"a": [0] * 9_999}))
    assert "10000 values" in refused(json.dumps({"a": [[]] * 9_999}))
    assert "10000 values" in refused(json.dumps({"a": [{str(n): n for n in range(1_000)} for _ in range(10)]}))


def test_commas_within_strings_are_no_values():
    assert loads_strict(json.dumps({"a": "," * 20_000}).encode())


# Requirement J08: integers.


@pytest.mark.parametrize("number", [2**53 - 1, -(2**53 - 1), 0, -1])
def test_exact_integers_are_read(number):
    assert loads_strict(f'{{"a":{number}}}'.encode()) == {"a": number}


@pytest.mark.parametrize("text", [str(2**53), str(-(2**53)), str(2**63), "9" * 5_000, "-" + "9" * 5_000])
def test_integers_that_a_float_cannot_hold_are_refused(text):
    assert "2^53" in refused(f'{{"a":{text}}}')


# Requirement J09: text.


@pytest.mark.parametrize("bad", ["\\u0000", "\\ud800", "\\udfff", "\\uDC00x", "\\ud800\\ud800", "\\udc00\\ud800"])
@pytest.mark.parametrize("shape", ['{"a":"%s"}', '{"%s":1}', '{"a":["x",{"b":"y%s"}]}', '{"a":{"k%s":0}}'])
def test_nul_and_lone_surrogates_are_refused_everywhere(shape, bad):
    assert "surrogate" in refused(shape % bad)


def test_a_pair_of_surrogates_is_one_character():
    assert loads_strict(b'{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}


# Requirement J10: no coercion.


def test_true_is_not_one_and_text_is_no_number():
    value = loads_strict(b'{"a":true,"b":1,"c":"1","d":1.0,"e":null,"f":1.5}')

    assert {key: type(member) for key, member in value.items()} == {
        "a": bool, "b": int, "c": str, "d": int, "e": type(None), "f": float,
    }  # fmt: skip


# Requirement J11: one canonical form.


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, b"{}"),
        ({"b": 1, "a": [True, None, "é"]}, '{"a":[true,null,"é"],"b":1}'.encode()),
        ({"a": 30.0}, b'{"a":30}'),
        ({"a": -0.0}, b'{"a":0}'),
        ({"a": 0.1}, b'{"a":0.1}'),
        ({"a": 1e300}, b'{"a":1e+300}'),
        ({"a": (1, 2)}, b'{"a":[1,2]}'),
        ({"\U0001f600": 1, "\uffff": 2}, '{"\uffff":2,"\U0001f600":1}'.encode()),
        ({"a": '"\\\n\x7f'}, b'{"a":"\\"\\\\\\n\x7f"}'),
    ],
)
def test_the_canonical_form_is_these_bytes(value, expected):
    assert canonical_bytes(value) == expected


def test_digests_of_known_values_never_change():
    # Vectors for other implementations: SHA-256 of the bytes above.
    assert digest({}).hex() == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert digest({"b": 30.0, "a": "é"}).hex() == digest({"a": "é", "b": 30}).hex()
    assert digest({"a": True}) != digest({"a": 1})
    assert digest({"a": "1"}) != digest({"a": 1})
    assert digest({"a": None}) != digest({})


@pytest.mark.parametrize(
    "value",
    [
        {"a": float("nan")}, {"a": float("inf")}, {1: "a"}, {"a": {None: 1}}, {"a": {1, 2}}, {"a": b"x"},
        {"a": object()}, {"a": "\ud800"}, {"\udc00": 1}, {"a": 2**53}, {"a": -(2**53)}, {"a": "\x00"}, {"\x00": 1},
    ],
)  # fmt: skip
def test_what_json_has_no_word_for_or_the_loader_refuses_is_not_written(value):
    with pytest.raises(MalformedError):
        canonical_bytes(value)


def test_a_value_that_contains_itself_is_not_written():
    endless = {}
    endless["a"] = endless

    with pytest.raises(MalformedError):
        canonical_bytes(endless)


TEXT = st.text(alphabet=st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=6)


@given(OBJECTS)
def test_canonical_bytes_are_a_fixed_point(value):
    body = canonical_bytes(value)

    assert canonical_bytes(loads_strict(body)) == body


@given(OBJECTS, st.booleans())
def test_the_same_value_written_otherwise_has_the_same_bytes(value, ascii_only):
    written = json.dumps(dict(reversed(value.items())), ensure_ascii=ascii_only, indent=1)

    assert canonical_bytes(loads_strict(written.encode())) == canonical_bytes(value)


@given(OBJECTS)
def test_what_the_loader_gives_is_what_was_said(value):
    assert loads_strict(json.dumps(value).encode()) == value
    check_value(value)


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_a_whole_number_is_the_same_with_and_without_its_point(number):
    assert digest({"a": float(number)}) == digest({"a": number})


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='{}[]":,\\u0018dD-+.eE truefalsn\t', max_size=80).map(str.encode))
def test_any_bytes_give_an_object_or_one_kind_of_error(body):
    try:
        value = loads_strict(body)
    except MalformedError:
        return
    assert json.loads(body) == value
    assert loads_strict(canonical_bytes(value)) == value


@pytest.mark.parametrize("value", [{"a": "\x00"}, {"\ud800": 1}, {1: 2}, ["x", {"y": ["\udfff"]}]])
def test_values_that_came_without_text_are_checked_alike(value):
    with pytest.raises(MalformedError):
        check_value(value)


def test_levels_keys_and_values_are_counted_in_values_too():
    deep = "x"
    for _ in range(33):
        deep = [deep]
    for value in (deep, {str(n): n for n in range(2_001)}, [0] * 10_000):
        with pytest.raises(MalformedError):
            check_value(value)
