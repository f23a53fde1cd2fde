"""What every reply carries, and how errors look. A Flask client on the edge."""

from __future__ import annotations

import json

import pytest

from app.errors import STATUS
from app.headers import DATA_POLICY, PAGE_POLICY
from continuity.errors import CONFLICT_CODES
from tests.web.bare import BASE, SECRET, FixedClock, bare_app

EVERYWHERE = ["/page", "/v1/dict", "/defect", "/refused/not_found", "/nowhere", "/%00", "/v1/query?x=1"]


@pytest.fixture
def client():
    return bare_app().test_client()


@pytest.mark.parametrize("path", EVERYWHERE)
def test_every_reply_has_the_security_headers(client, path):
    reply = client.get(path, base_url=BASE)

    headers = reply.headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "camera=()" in headers["Permissions-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert headers.getlist("Vary") == ["Cookie", "HX-Request"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert len(headers.getlist("Content-Security-Policy")) == 1
    assert "Access-Control-Allow-Origin" not in headers
    assert "Strict-Transport-Security" not in headers


def test_a_page_may_load_its_own_files_and_data_may_load_nothing(client):
    assert client.get("/page", base_url=BASE).headers["Content-Security-Policy"] == PAGE_POLICY
    assert client.get("/v1/dict", base_url=BASE).headers["Content-Security-Policy"] == DATA_POLICY
    assert "sandbox" in DATA_POLICY


def test_over_https_browsers_are_told_to_stay_there():
    client = bare_app({"ATMEM_URL": "https://atmem.example"}).test_client()

    reply = client.get("/page", base_url="https://atmem.example")

    assert int(reply.headers["Strict-Transport-Security"].removeprefix("max-age=")) >= 31_536_000


def test_plain_http_to_an_https_server_moves_a_browser_and_refuses_a_program():
    client = bare_app({"ATMEM_URL": "https://atmem.example"}).test_client()

    page = client.get("//evil.example/x", base_url="http://atmem.example")
    program = client.get("/v1/dict", base_url="http://atmem.example", headers={"Authorization": "Bearer x"})
    form = client.post("/page", base_url="http://atmem.example")

    assert page.status_code == 308
    assert page.headers["Location"].startswith("https://atmem.example/")
    assert program.status_code == form.status_code == 403
    assert "Location" not in program.headers
    assert program.json["error"]["code"] == "https_required"


def test_an_https_server_still_serves_plain_http_on_its_own_machine():
    client = bare_app({"ATMEM_URL": "https://atmem.example"}).test_client()

    assert client.get("/v1/dict", base_url="http://127.0.0.1:8768").status_code == 200


def test_json_is_utf_8_and_says_so(client):
    reply = client.get("/v1/dict", base_url=BASE)

    assert reply.headers["Content-Type"] == "application/json; charset=utf-8"
    assert reply.data == '{"name":"Zoë"}'.encode()


@pytest.mark.parametrize("target", ["//evil.example", "https:evil", "\\evil", "login"])
def test_a_reply_never_moves_the_browser_to_a_place_that_is_not_ours(client, target):
    reply = client.get(f"/moved/{target}", base_url=BASE)

    assert "HX-Redirect" not in reply.headers


def test_an_error_has_the_one_format_and_the_id_of_its_request(client):
    reply = client.get("/refused/not_found", base_url=BASE)

    assert reply.json == {
        "error": {"code": "not_found", "message": "A sentence."},
        "format": "atmem-api-error-v1",
        "request_id": reply.headers["X-Request-Id"],
    }


def test_every_request_has_an_id_of_its_own_whatever_the_client_sends(client):
    replies = [client.get("/page", base_url=BASE, headers={"X-Request-Id": "mine"}) for _ in range(3)]

    ids = {reply.headers["X-Request-Id"] for reply in replies}
    assert len(ids) == 3
    assert "mine" not in ids


EXPECTED = {
    "malformed": 400, "unauthenticated": 401, "forbidden": 403, "not_found": 404, "operation_not_found": 404,
    "length_required": 411, "too_large": 413, "unsupported_media_type": 415, "vault_locked": 423, "throttled": 429,
    "vault_integrity_error": 500, "vault_key_unavailable": 503, "storage_unavailable": 503,
    **dict.fromkeys(CONFLICT_CODES, 409),
}  # fmt: skip


@pytest.mark.parametrize("code", sorted(EXPECTED))
def test_the_code_of_an_error_decides_its_status(client, code):
    reply = client.get(f"/refused/{code}", base_url=BASE)

    assert reply.status_code == EXPECTED[code]
    assert reply.json["error"]["code"] == code


def test_statuses_that_mean_later_say_when(client):
    for code in ("vault_locked", "throttled", "storage_unavailable", "vault_key_unavailable"):
        assert int(client.get(f"/refused/{code}", base_url=BASE).headers["Retry-After"]) >= 1
    assert client.get("/refused/unauthenticated", base_url=BASE).headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("code", ["vault_integrity_error", "vault_key_unavailable"])
def test_what_is_wrong_with_the_vaults_files_is_for_the_log_alone(client, code, caplog):
    reply = client.get(f"/refused/{code}", base_url=BASE)

    assert "A sentence." not in reply.text
    assert "Nothing was done" in reply.json["error"]["message"]
    assert caplog.records[-1].fields["message"] == "A sentence."


def test_no_status_stands_twice_for_one_class():
    assert len(STATUS) == len({cls.__name__ for cls in STATUS})


@pytest.mark.parametrize("path", ["/defect", "/unlisted"])
def test_a_defect_is_a_500_that_tells_only_its_request_id(client, path):
    reply = client.get(path, base_url=BASE)

    assert reply.status_code == 500
    assert SECRET not in reply.text
    assert "Traceback" not in reply.text
    assert "ValueError" not in reply.text
    assert json.loads(reply.data)["request_id"] == reply.headers["X-Request-Id"]


def test_an_unknown_address_and_a_wrong_method_have_the_one_format(client):
    missing = client.get("/nowhere", base_url=BASE)
    wrong = client.delete("/page", base_url=BASE)

    assert (missing.status_code, missing.json["error"]["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json["error"]["code"]) == (405, "method_not_allowed")
    assert "GET" in wrong.headers["Allow"]


@pytest.mark.parametrize("path", ["/%00", "/a%0d%0ab", "/%1b[31m", "/é", "/%e2%80%ae"])
def test_an_address_that_is_not_printable_ascii_is_refused(client, path):
    assert client.get(path, base_url=BASE).status_code == 400


def test_the_host_is_checked_before_routing_and_without_its_port():
    client = bare_app({"ATMEM_TRUSTED_HOSTS": "work.example"}).test_client()

    known = ["work.example", "WORK.example:99", "localhost:1", "127.0.0.1", "[::1]:8768"]
    unknown = ["evil.example", "work.example.evil", "xwork.example", "work.example:"]
    unknown += ["work.example:a", "a@work.example"]
    assert [client.get("/page", headers={"Host": host}).status_code for host in known] == [200] * len(known)
    assert [client.get("/nowhere", headers={"Host": host}).status_code for host in unknown] == [400] * len(unknown)


def test_one_runaway_client_is_throttled_and_the_others_are_not():
    clock = FixedClock()
    client = bare_app({"ATMEM_REQUESTS_PER_SECOND": "5"}, clock=clock).test_client()

    def ask(token: str, path: str = "/v1/dict", method: str = "GET") -> int:
        return client.open(path, method=method, base_url=BASE, headers={"Authorization": token}).status_code

    statuses = [ask("Bearer one") for _ in range(12)]

    assert statuses == [200] * 10 + [429] * 2
    assert ask("Bearer two") == 200
    assert ask("Bearer one", "/v1/continuity/wf_1/outcome", "POST") == 200
    clock.elapsed_us += 1_000_000
    assert [ask("Bearer one") for _ in range(6)] == [200] * 5 + [429]


PROXY = {"ATMEM_URL": "https://atmem.example", "ATMEM_TRUSTED_PROXIES": "10.0.0.0/24"}


@pytest.mark.parametrize(
    ("peer", "forwarded", "seen"),
    [
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ("10.0.0.5", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.5", "1.2.3.4, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.5", "1.2.3.4, 198.51.100.1, 10.0.0.6", "198.51.100.1"),
        ("10.0.0.5", "1.2.3.4, junk", "10.0.0.5"),
        ("10.0.0.5", "", "10.0.0.5"),
    ],
)
def test_the_address_of_a_client_is_what_a_trusted_proxy_saw(peer, forwarded, seen):
    app = bare_app(PROXY)
    found = {}
    app.before_request(lambda: found.update(address=_remote_address()))

    app.test_client().get(
        "/page", base_url="https://atmem.example",
        environ_overrides={"REMOTE_ADDR": peer}, headers={"X-Forwarded-For": forwarded},
    )  # fmt: skip

    assert found["address"] == seen


def test_forwarded_headers_of_a_stranger_change_nothing():
    client = bare_app(PROXY).test_client()
    stranger, proxy = {"REMOTE_ADDR": "203.0.113.9"}, {"REMOTE_ADDR": "10.0.0.5"}
    headers = {"X-Forwarded-Proto": "https"}

    spoofed = client.get("/v1/dict", base_url="http://atmem.example", environ_overrides=stranger, headers=headers)
    honest = client.get("/v1/dict", base_url="http://atmem.example", environ_overrides=proxy, headers=headers)
    appended = client.get(
        "/v1/dict", base_url="http://atmem.example", environ_overrides=proxy,
        headers={"X-Forwarded-Proto": "https, http"},
    )  # fmt: skip

    assert (spoofed.status_code, honest.status_code, appended.status_code) == (403, 200, 403)


def _remote_address() -> str | None:
    from flask import request  # noqa: PLC0415

    assert "HTTP_X_FORWARDED_FOR" not in request.environ
    return request.remote_addr
