"""The one way to read a body and a query. A Flask client on the edge."""

from __future__ import annotations

import pytest

from tests.web.bare import BASE, bare_app

JSON = "application/json"


@pytest.fixture
def send():
    client = bare_app().test_client()

    def post(data: bytes, *, limit: int = 1_000, content_type: str | None = JSON, **headers: str):
        return client.post(
            f"/v1/body/{limit}", base_url=BASE, data=data, content_type=content_type,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )  # fmt: skip

    return post


@pytest.fixture
def ask():
    client = bare_app().test_client()
    return lambda query: client.get(f"/v1/query?{query}", base_url=BASE)


@pytest.mark.parametrize("content_type", [JSON, "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"])
def test_a_json_object_is_read(send, content_type):
    assert send(b'{"a": 1.0}', content_type=content_type).json == {"read": {"a": 1}}


@pytest.mark.parametrize(
    "content_type",
    [
        None, "", "text/plain", "text/json", "application/vnd.api+json", "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x", "application/json; charset=utf-16", "application/json, text/plain",
        "application/json;", "application/jsonx",
    ],
)  # fmt: skip
def test_anything_but_application_json_is_415(send, content_type):
    reply = send(b"{}", content_type=content_type)

    assert reply.status_code == 415
    assert reply.json["error"]["code"] == "unsupported_media_type"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity"])
def test_an_encoded_body_is_415(send, encoding):
    assert send(b"{}", Content_Encoding=encoding).status_code == 415


@pytest.mark.parametrize("limit", [20, 1_000, 266_240])
def test_a_body_may_be_exactly_as_long_as_its_limit(send, limit):
    def of_length(length: int) -> bytes:
        return b'{"a":"' + b"x" * (length - 8) + b'"}'

    statuses = [send(of_length(limit + by), limit=limit).status_code for by in (-1, 0, 1)]

    assert statuses == [200, 200, 413]


def test_a_body_above_its_limit_is_not_parsed(send):
    assert send(b"[" * 2_000).json["error"]["code"] == "too_large"


LENGTHS = [(None, 411), ("", 411), ("0", 400), ("x", 400), ("-1", 400), ("1e1", 400), ("٣", 400)]


@pytest.mark.parametrize(("length", "status"), LENGTHS)
def test_a_body_says_how_long_it_is_in_digits(length, status):
    environ = {"CONTENT_TYPE": JSON} if length is None else {"CONTENT_TYPE": JSON, "CONTENT_LENGTH": length}

    reply = bare_app().test_client().post("/v1/body/10", base_url=BASE, environ_overrides=environ)

    assert reply.status_code == status


def test_a_body_that_is_shorter_than_it_said_is_refused():
    reply = (
        bare_app()
        .test_client()
        .post("/v1/body/99", base_url=BASE, data=b"{}", content_type=JSON, environ_overrides={"CONTENT_LENGTH": "3"})
    )

    assert reply.status_code == 400


@pytest.mark.parametrize(
    "text",
    [
        b" ", b"[]", b'"a"', b"1", b"null", b"{", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":1e999}', b"{} {}",
        b'\xef\xbb\xbf{"a":1}', b'{"a":"\\ud800"}', b'{"a":"\\u0000"}', b'{"a":"\xff"}', b"[" * 900,
        '{"a":1}'.encode("utf-16"),
    ],
)  # fmt: skip
def test_text_that_breaks_a_rule_is_400_and_says_nothing_of_the_text(send, text):
    reply = send(text)

    assert reply.status_code == 400
    assert reply.json["error"]["code"] == "malformed"


def test_a_query_is_read(ask):
    assert ask("limit=5&q=two%20words").json == {"limit": "5", "q": "two words"}
    assert ask("limit=&q=").json == {}
    assert ask("").json == {}


@pytest.mark.parametrize(
    "query",
    [
        "limit=1&limit=2", "limit=1&limit=1", "other=1", "limit", "q=%00", "q=%0d%0a", "q=%ff", "q=%ed%a0%80", "=1",
        "&".join(f"q{n}=1" for n in range(99)), "q=" + "x" * 5_000,
    ],
)  # fmt: skip
def test_a_query_with_anything_unexpected_is_400(ask, query):
    assert ask(query).status_code == 400
