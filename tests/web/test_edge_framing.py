"""What the shipped server refuses before any application sees it. Raw bytes against the real process."""

from __future__ import annotations

import json
import socket

import pytest

from tests.patience import PATIENCE_S
from tests.servers import RunningServer

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


def reply_to(server: RunningServer, raw: bytes) -> bytes:
    """Send `raw` and return all that comes back until the server closes, or two seconds of silence."""
    with server.connect(timeout_s=2) as connection:
        connection.sendall(raw)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(65_536):
            received += chunk
    except TimeoutError:
        received += b"<still open>"
    return received


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1])


def post(headers: bytes, body: bytes = b"") -> bytes:
    return b"POST /healthz HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n" + body


REFUSED = {
    "chunked": (411, post(b"Transfer-Encoding: chunked\r\n", b"2\r\n{}\r\n0\r\n\r\n")),
    "xchunked": (411, post(b"Transfer-Encoding: xchunked\r\n", b"2\r\n{}\r\n0\r\n\r\n")),
    "identity": (411, post(b"Transfer-Encoding: identity\r\nContent-Length: 2\r\n", b"{}")),
    "length and chunked": (411, post(b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n")),
    "chunked in HTTP/1.0": (411, post(b"Transfer-Encoding: chunked\r\n").replace(b"HTTP/1.1", b"HTTP/1.0")),
    "two lengths": (400, post(b"Content-Length: 2\r\nContent-Length: 3\r\n", b"{}")),
    "two equal lengths": (400, post(b"Content-Length: 2\r\nContent-Length: 2\r\n", b"{}")),
    "negative length": (400, post(b"Content-Length: -2\r\n", b"{}")),
    "signed length": (400, post(b"Content-Length: +2\r\n", b"{}")),
    "length of 4,400 digits": (400, post(b"Content-Length: " + b"9" * 4_400 + b"\r\n", b"{}")),
    "listed length": (400, post(b"Content-Length: 2, 2\r\n", b"{}")),
    "no Host": (400, b"GET /healthz HTTP/1.1\r\n\r\n"),
    "no Host in HTTP/1.0": (400, b"GET /healthz HTTP/1.0\r\n\r\n"),
    "two Hosts": (400, GET + b"Host: localhost\r\n\r\n"),
    "another's address in the target": (400, b"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "unknown version": (400, b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n"),
    "no version": (400, b"GET /healthz\r\nHost: localhost\r\n\r\n"),
    "bare line feed in a header": (400, GET + b"X: a\nb: c\r\n\r\n"),
    "space before the colon": (400, GET + b"Content-Length : 2\r\n\r\n{}"),
    "body too large": (413, post(b"Content-Length: 300000\r\n", b"x" * 300_000)),
    "headers too large": (431, GET + b"X: " + b"x" * 20_000 + b"\r\n\r\n"),
    "refused though it expects to continue": (411, post(b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_of_doubtful_framing_is_refused_and_the_connection_closed(shared_server, case):
    expected, raw = REFUSED[case]

    reply = reply_to(shared_server, raw)

    assert status_of(reply) == expected
    assert not reply.endswith(b"<still open>")
    assert reply.count(b"HTTP/1.") == 1


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_server_refuses_by_itself_has_the_one_error_format_and_the_headers(shared_server, case):
    head, _, body = reply_to(shared_server, REFUSED[case][1]).partition(b"\r\n\r\n")

    error = json.loads(body)
    assert error["format"] == "atmem-api-error-v1"
    assert f"X-Request-Id: {error['request_id']}".encode() in head
    assert b"Content-Security-Policy: default-src 'none'" in head
    assert b"X-Content-Type-Options: nosniff" in head
    assert b"Server:" not in head


def test_a_request_hidden_behind_a_doubtful_one_is_never_answered(shared_server):
    smuggled = GET + b"\r\n"
    raw = post(b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(smuggled), b"0\r\n\r\n" + smuggled)

    reply = reply_to(shared_server, raw)

    assert reply.count(b"HTTP/1.") == 1
    assert b'"status":"ok"' not in reply


def test_a_body_that_was_announced_too_large_is_answered_though_the_client_goes_on_sending(shared_server):
    with shared_server.connect(timeout_s=PATIENCE_S) as connection:
        connection.sendall(post(b"Content-Length: 900000\r\n"))
        for _ in range(9):
            connection.sendall(b"x" * 100_000)
        reply = read_all(connection)

    assert status_of(reply) == 413


def test_a_get_that_expects_to_continue_is_answered(shared_server):
    reply = reply_to(shared_server, GET + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")

    assert status_of(reply) == 200


def test_requests_in_one_packet_are_answered_in_order(shared_server):
    reply = reply_to(shared_server, GET + b"\r\n" + GET + b"Connection: close\r\n\r\n")

    assert reply.count(b"HTTP/1.1 200 OK") == 2


def test_a_request_may_arrive_byte_by_byte(shared_server):
    with shared_server.connect() as connection:
        for byte in GET + b"Connection: close\r\n\r\n":
            connection.sendall(bytes([byte]))
        reply = read_all(connection)

    assert status_of(reply) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "localhost:1@evil", "127.0.0.2", "localhost:x", ""]
)
def test_an_unknown_host_is_refused_before_routing(shared_server, host):
    for path in (b"/healthz", b"/nowhere"):
        reply = reply_to(
            shared_server, b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (path, host.encode())
        )

        assert status_of(reply) == 400
        assert b"Host" in reply.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8768", "[::1]", "[::1]:80"])
def test_names_of_this_machine_are_known(shared_server, host):
    reply = reply_to(shared_server, b"GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host.encode())

    assert status_of(reply) == 200


@pytest.mark.parametrize("method", ["TRACE", "OPTIONS", "DELETE", "PUT", "PATCH", "CONNECT", "BREW"])
def test_a_method_that_no_view_takes_is_405(shared_server, method):
    reply = reply_to(shared_server, GET.replace(b"GET", method.encode()) + b"Connection: close\r\n\r\n")

    assert status_of(reply) == 405
    assert b"Access-Control" not in reply


def test_head_is_get_without_its_body(shared_server):
    close = b"Connection: close\r\n\r\n"

    get_head, _, get_body = reply_to(shared_server, GET + close).partition(b"\r\n\r\n")
    head_head, _, head_body = reply_to(shared_server, GET.replace(b"GET", b"HEAD") + close).partition(b"\r\n\r\n")

    changing = (b"Date", b"X-Request-Id")
    assert [line for line in head_head.split(b"\r\n") if not line.startswith(changing)] == [
        line for line in get_head.split(b"\r\n") if not line.startswith(changing)
    ]
    assert get_body
    assert not head_body
