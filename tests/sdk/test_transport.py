"""HTTP to one server: where the token goes, what a reply may be, how long it may take."""

from __future__ import annotations

import datetime as dt
import gzip
import ipaddress
import itertools
import json
import logging
import os
import pickle
import socket
import ssl
import threading
import time
import traceback
from contextlib import closing

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from continuity import errors
from continuity.addresses import checked_url
from continuity.replies import load_reply
from continuity.transport import REPLY_BYTES, Transport, elapsed_s
from tests.patience import PATIENCE_S
from tests.sdk.scripts import TOKEN
from tests.sdk.stub_server import StubServer, serving


def call(server, method="POST", path="/v1/continuity/wf_1/begin", body=None, **options):
    settings = {"connect_timeout_s": 2.0, "reply_timeout_s": 2.0, **options}
    with Transport(server.url, TOKEN, **settings) as transport:
        return transport.call(method, path, {"a": 1} if body is None and method == "POST" else body)


def echo(handler, seen):
    handler.reply({"body": seen.body})


# --- Addresses and tokens ---


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://atmem.example", "https://atmem.example"),
        ("https://Atmem.Example:8443/", "https://atmem.example:8443"),
        ("https://host/prefix/v2/", "https://host/prefix/v2"),
        ("http://127.0.0.1:8768", "http://127.0.0.1:8768"),
        ("http://127.9.9.9", "http://127.9.9.9"),
        ("http://localhost:1", "http://localhost:1"),
        ("http://[::1]:8768", "http://[::1]:8768"),
    ],
)
def test_an_address_that_may_have_the_token_is_taken(url, plain):
    assert checked_url(url) == plain


@pytest.mark.parametrize(
    "url",
    [
        "", "127.0.0.1:8768", "//host", "ftp://host", "file:///etc/passwd", "https://", "https:///path", "https://:8",
        "http://atmem.example", "http://10.0.0.1", "http://0.0.0.0", "http://127.0.0.1.evil.example",
        "http://localhost.evil.example", "http://2130706433", "http://[::ffff:10.0.0.1]", "http://[fe80::1%25lo]",
        "https://user@host", "https://user:pass@host", "https://host?x=1", "https://host#x", "https://host/?",
        "https://host\\@evil", "https://host /x", " https://host", "https://ho\nst", "https://host/a\tb",
        "https://host/../x", "https://host/%2e%2e", "https://host//x", "https://höst", "https://host:0",
        "https://host:99999", "https://host:x", "https://[::1", "https://host/\u202e", None, 5,
    ],
)  # fmt: skip
def test_any_other_address_is_refused_before_anything_is_sent(url):
    with pytest.raises(errors.MalformedError):
        Transport(url, TOKEN)


def test_a_refused_address_is_told_that_http_will_do_on_this_machine():
    with pytest.raises(errors.MalformedError, match="http:// and a loopback host"):
        checked_url("127.0.0.1:8768")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1"])
def test_a_server_that_is_not_there_was_sent_nothing(url):
    with pytest.raises(errors.NotReachedError, match="Nothing was sent") as caught, Transport(url, TOKEN) as transport:
        transport.call("POST", "/x", {"a": 1})

    assert url in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb", "a\r\nX-Evil: 1", "tökén", "x" * 4097, "a\x00", None])
def test_a_token_that_is_no_header_value_is_refused(token):
    with pytest.raises(errors.MalformedError) as caught:
        Transport("https://host", token)

    assert not token or not token.strip() or token not in str(caught.value)


def test_the_token_travels_in_the_authorization_header_alone():
    with serving(echo) as server:
        call(server)

        (seen,) = server.seen
    assert seen.headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in seen.path
    assert TOKEN.encode() not in seen.raw


def test_the_token_is_in_no_repr_message_traceback_or_log(caplog):
    caplog.set_level(logging.DEBUG)
    transport = Transport("http://127.0.0.1:9", TOKEN, connect_timeout_s=0.5)

    with pytest.raises(errors.TransportError) as caught:
        transport.call("GET", "/v1/continuity")

    said = repr(transport) + str(transport) + "".join(traceback.format_exception(caught.value)) + caplog.text
    assert TOKEN not in said
    assert TOKEN not in str(vars(getattr(caught.value.__cause__, "request", None) or object.__new__(Plain)))


class Plain:
    """Something with empty vars."""


def test_a_transport_cannot_be_pickled():
    with pytest.raises(TypeError, match="token"):
        pickle.dumps(Transport("https://host", TOKEN))


# --- Nothing of the environment, no redirects, no cookies ---


def test_proxies_netrc_and_ca_bundles_of_the_environment_are_not_used(monkeypatch, tmp_path):
    def trap(handler, seen):
        handler.reply({"trapped": True})

    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login eve password evil\n")
    (tmp_path / ".netrc").chmod(0o600)
    with serving(trap) as proxy, serving(echo) as server:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)

        assert call(server) == {"body": {"a": 1}}

        assert proxy.seen == []
        assert server.seen[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308, 399])
@pytest.mark.parametrize("location", ["elsewhere", "//127.0.0.1/x", "/same", ""])
def test_a_redirect_is_an_error_and_nobody_else_sees_the_token(status, location):
    with serving(echo) as elsewhere:

        def redirect(handler, seen):
            target = elsewhere.url if location == "elsewhere" else location
            handler.reply_bytes(b"" if status == 304 else b'{"ok": true}', status, {"Location": target})

        with serving(redirect) as server, pytest.raises(errors.TransportError, match=str(status)):
            call(server)

        assert elsewhere.seen == []
        assert len(server.seen) == 1


def test_cookies_are_not_kept():
    def answer(handler, seen):
        handler.reply({"cookie": seen.headers.get("cookie")}, headers={"Set-Cookie": "id=1; Path=/"})

    with serving(answer) as server, Transport(server.url, TOKEN) as transport:
        transport.call("GET", "/")

        assert transport.call("GET", "/") == {"cookie": None}


# --- Keep-alive, and one request a call ---


def test_calls_share_one_connection():
    with serving(echo) as server, Transport(server.url, TOKEN) as transport:
        for _ in range(5):
            transport.call("POST", "/x", {"a": 1})

        assert len({seen.connection for seen in server.seen}) == 1


def test_a_refusal_keeps_the_connection():
    with serving(lambda handler, _seen: handler.refuse(409, "lease_live")) as server:
        with Transport(server.url, TOKEN) as transport:
            for _ in range(3):
                with pytest.raises(errors.ConflictError):
                    transport.call("POST", "/x", {"a": 1})

        assert len({seen.connection for seen in server.seen}) == 1


def test_a_lost_reply_is_an_error_and_is_not_asked_for_again():
    with serving(lambda handler, _seen: handler.hang_up()) as server:
        with pytest.raises(errors.TransportError):
            call(server)

        assert len(server.seen) == 1


def test_a_reply_lost_on_a_kept_connection_is_not_asked_for_again_either():
    def answer(handler, seen):
        if len(server.seen) == 1:
            echo(handler, seen)
        else:
            handler.hang_up()

    with serving(answer) as server, Transport(server.url, TOKEN) as transport:
        transport.call("POST", "/x", {"a": 1})
        with pytest.raises(errors.TransportError):
            transport.call("POST", "/x", {"a": 2})

        assert [seen.body for seen in server.seen] == [{"a": 1}, {"a": 2}]


def test_threads_may_share_a_transport():
    replies = []

    with serving(echo) as server, Transport(server.url, TOKEN) as transport:

        def work(number):
            for step in range(10):
                body = {"n": number, "s": step}
                replies.append(transport.call("POST", "/x", body)["body"] == body)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert replies == [True] * 80


@pytest.mark.skipif(not hasattr(os, "fork"), reason="No fork on this platform, so no shared sockets either.")
def test_a_forked_child_does_not_use_its_parents_connection():
    with serving(echo) as server, Transport(server.url, TOKEN) as transport:
        transport.call("POST", "/x", {"who": "parent"})
        child = threaded_fork(lambda: transport.call("POST", "/x", {"who": "child"}))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        transport.call("POST", "/x", {"who": "parent"})

        by_whom = {}
        for seen in server.seen:
            by_whom.setdefault(seen.body["who"], set()).add(seen.connection)
        assert len(by_whom["parent"]) == 1
        assert by_whom["parent"].isdisjoint(by_whom["child"])


def threaded_fork(work):
    import warnings  # noqa: PLC0415 - only here: the warning about threads is what this test accepts

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a child of a test must never run the rest of the suite
            os._exit(1)
        os._exit(0)
    return child


# --- Size and time of replies ---


def test_a_reply_of_the_largest_size_is_read_and_one_more_byte_is_refused():
    def answer(handler, seen):
        size = seen.body["size"]
        handler.reply_bytes(b'{"a":"' + b"x" * (size - 8) + b'"}')

    with serving(answer) as server:
        assert len(call(server, body={"size": REPLY_BYTES})["a"]) == REPLY_BYTES - 8

        with pytest.raises(errors.TransportError):
            call(server, body={"size": REPLY_BYTES + 1})


def test_an_endless_chunked_reply_is_cut_off():
    has_left = threading.Event()

    def answer(handler, _seen):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        chunk = b"ffff\r\n" + b" " * 0xFFFF + b"\r\n"
        try:
            while True:
                handler.wfile.write(chunk)
        except ConnectionError:
            has_left.set()

    with serving(answer) as server:
        with pytest.raises(errors.TransportError) as caught:
            call(server, reply_timeout_s=PATIENCE_S)

        assert not isinstance(caught.value, errors.TransportTimeoutError), "only its time has ended it"
        assert has_left.wait(PATIENCE_S)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, gzip"])
def test_a_compressed_reply_is_refused_without_being_inflated(encoding):
    bomb = gzip.compress(b'{"a":"' + b"x" * 50_000_000 + b'"}')

    def answer(handler, seen):
        assert seen.headers["accept-encoding"] == "identity"
        handler.reply_bytes(bomb, headers={"Content-Encoding": encoding})

    with serving(answer) as server, pytest.raises(errors.TransportError):
        call(server)


def drip_body(handler, _seen):
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not handler.server.leave.wait(0.05):
        handler.wfile.write(b" ")


def drip_headers(handler, _seen):
    for byte in itertools.chain(b"HTTP/1.1 200 OK\r\nX-Long: ", itertools.repeat(ord("x"))):
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        if handler.server.leave.wait(0.05):
            return


def endless_interim(handler, _seen):
    while not handler.server.leave.wait(0.05):
        handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        handler.wfile.flush()


def silent(handler, _seen):
    handler.server.leave.wait()


@pytest.mark.parametrize("answer", [drip_body, drip_headers, endless_interim, silent])
def test_a_reply_has_one_time_for_all_of_it(answer):
    with serving(answer) as server:
        server.leave = threading.Event()
        # Whoever drips does so for as long: without one time for all of it there would be a whole reply, or another
        # error than that of the time.
        ending = threading.Timer(PATIENCE_S, server.leave.set)
        ending.start()
        started = time.monotonic()
        try:
            with pytest.raises(errors.TransportTimeoutError):
                call(server, reply_timeout_s=0.5)

            assert time.monotonic() - started > 0.4
            assert not server.leave.is_set()
        finally:
            ending.cancel()
            server.leave.set()


def test_a_reply_that_ends_early_is_an_error():
    def answer(handler, _seen):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"a": 1}')
        handler.close_connection = True

    with serving(answer) as server, pytest.raises(errors.TransportError):
        call(server)


def test_what_is_no_http_is_an_error():
    with (
        serving(lambda handler, _seen: handler.wfile.write(b"\x00\x01garbage\r\n\r\n")) as server,
        pytest.raises(errors.TransportError),
    ):
        call(server)


def test_a_server_that_is_not_there_is_an_error():
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"

    with pytest.raises(errors.TransportError):
        Transport(url, TOKEN).call("GET", "/")


# --- What a reply means ---


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"1", b'"x"', b"null", b"{", b'{"a":1}x', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1e999}',
        b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}', b'\xef\xbb\xbf{"a":1}', '{"a":1}'.encode("utf-16"), b'{"a":"\xff"}',
        b"<html></html>", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a":' * 65 + b"1" + b"}" * 65,
        b'{"a":' + b"9" * 5_000 + b"}",
    ],
)  # fmt: skip
def test_a_reply_that_is_not_strict_json_is_outside_the_contract(body):
    with serving(lambda handler, _seen: handler.reply_bytes(body)) as server, pytest.raises(errors.TransportError):
        call(server)


def test_a_reply_may_hold_what_many_requests_brought():
    value = {"operations": [{"attempts": [{"n": i, "m": j} for i in range(100)]} for j in range(200)]}

    assert load_reply(json.dumps(value).encode()) == value


def test_brackets_inside_strings_are_no_nesting():
    value = {"a": "[" * 500 + '"' + "{" * 500}

    assert load_reply(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("status", "code", "cls"),
    [
        (400, "malformed", errors.MalformedError),
        (401, "unauthenticated", errors.UnauthenticatedError),
        (403, "forbidden", errors.ForbiddenError),
        (404, "not_found", errors.NotFoundError),
        (404, "operation_not_found", errors.OperationNotFoundError),
        (413, "too_large", errors.TooLargeError),
        (415, "unsupported_media_type", errors.UnsupportedMediaError),
        (411, "length_required", errors.LengthRequiredError),
        (423, "vault_locked", errors.SealedError),
        (500, "vault_integrity_error", errors.IntegrityError),
        (503, "vault_key_unavailable", errors.KeySourceError),
        *((409, code, errors.ConflictError) for code in sorted(errors.CONFLICT_CODES)),
    ],
)
def test_the_code_of_a_refusal_comes_back_as_its_class(status, code, cls):
    with (
        serving(lambda handler, _seen: handler.refuse(status, code)) as server,
        pytest.raises(errors.ContinuityError) as caught,
    ):
        call(server)

    assert type(caught.value) is cls
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("0", 0), ("999999", 3600), ("-1", 1), ("soon", 1), ("1.5", 1), ("", 1), ("٣", 1)],
)
@pytest.mark.parametrize(("status", "code"), [(429, "throttled"), (503, "storage_unavailable")])
def test_a_busy_server_says_how_long_to_wait(status, code, header, seconds):
    headers = {"Retry-After": header} if header.isascii() else {}
    with (
        serving(lambda handler, _seen: handler.refuse(status, code, headers)) as server,
        pytest.raises((errors.ThrottledError, errors.UnavailableError)) as caught,
    ):
        call(server)

    assert caught.value.code == code
    assert caught.value.retry_after_s == seconds


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (400, errors.TransportError), (401, errors.UnauthenticatedError), (404, errors.TransportError),
        (423, errors.SealedError), (429, errors.ThrottledError), (500, errors.TransportError),
        (502, errors.TransportError), (503, errors.UnavailableError), (504, errors.TransportError),
    ],
)  # fmt: skip
@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"error": "x"}', b'{"error": {"code": 1, "message": "x"}}', b""])
def test_a_refusal_without_a_code_is_read_by_its_status(status, cls, body):
    with (
        serving(lambda handler, _seen: handler.reply_bytes(body, status)) as server,
        pytest.raises(errors.ContinuityError) as caught,
    ):
        call(server)

    assert type(caught.value) is cls


def test_a_body_that_json_has_no_word_for_is_refused_unsent():
    with serving(echo) as server:
        for body in ({"a": float("nan")}, {"a": object()}, {1: 2}, {"a": "\ud800"}):
            with pytest.raises(errors.MalformedError):
                call(server, body=body)

        assert server.seen == []


# --- TLS ---


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + built.public_bytes(pem))
    return path


@pytest.fixture
def tls_url(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = StubServer(echo)
    server.handle_error = lambda *_: None
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server.url.replace("http://", "https://")
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_certificate_that_nobody_vouches_for_is_refused(tls_url):
    with pytest.raises(errors.NotReachedError, match="certificate"), Transport(tls_url, TOKEN) as transport:
        transport.call("GET", "/")


def test_an_authority_can_be_named_and_replies_over_tls_keep_their_time(tls_url, certificate):
    with Transport(tls_url, TOKEN, ca_file=certificate) as transport:
        assert transport.call("POST", "/x", {"a": 1}) == {"body": {"a": 1}}
        assert transport.call("POST", "/x", {"a": 2}) == {"body": {"a": 2}}


def test_a_certificate_for_another_name_is_refused(tls_url, certificate):
    with (
        pytest.raises(errors.TransportError),
        Transport(tls_url.replace("127.0.0.1", "localhost"), TOKEN, ca_file=certificate) as transport,
    ):
        transport.call("GET", "/")


def test_the_clock_of_a_grant_never_goes_back():
    readings = [elapsed_s() for _ in range(1_000)]

    assert readings == sorted(readings)


def test_head_and_body_of_a_request_arrive_together():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        arrived = []

        def serve():
            connection, _ = listener.accept()
            with connection:
                arrived.append(connection.recv(65_536))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        server = threading.Thread(target=serve)
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Transport(url, TOKEN, reply_timeout_s=PATIENCE_S) as transport:
            assert transport.call("POST", "/v1/continuity/wf_1/begin", {"a": 1}) == {}
        server.join()

    head, _, body = arrived[0].partition(b"\r\n\r\n")
    assert body == b'{"a":1}'
    assert b"content-length: 7" in head.lower()
