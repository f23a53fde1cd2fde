"""One connection for many replies, those without a body too: a page that polls must not connect again each time."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator

import pytest

from app import serving
from app.config import load_settings
from tests.patience import PATIENCE_S

STATUSES = {"/nothing": "204 No Content", "/same": "304 Not Modified", "/words": "200 OK"}


def application(environ, start_response):
    path = environ["PATH_INFO"]
    body = b"words" if path == "/words" else b""
    # As Flask answers: a 204 says nothing of a length, a 304 may.
    start_response(STATUSES[path], [] if path == "/nothing" else [("Content-Length", str(len(body)))])
    return [body]


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    listener = serving.listen("127.0.0.1", 0)
    server = serving.Server(application, listener, load_settings({}))
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield listener.getsockname()
    server.stop()
    thread.join()


def replies(address: tuple[str, int], paths: list[str], **headers: str) -> tuple[list[int], bool]:
    """Ask for `paths` on one connection; return the statuses, and whether the connection outlived them."""
    client = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
    client.connect()
    connection, statuses = client.sock, []
    for path in paths:
        client.request("GET", path, headers=headers)
        reply = client.getresponse()
        reply.read()
        statuses.append(reply.status)
        if client.sock is not connection:
            client.close()
            return statuses, False
    client.close()
    return statuses, True


@pytest.mark.parametrize("path", STATUSES)
def test_a_connection_outlives_every_reply(address, path):
    statuses, is_open = replies(address, [path, "/words", path])

    assert is_open
    assert statuses == [int(STATUSES[each][:3]) for each in (path, "/words", path)]


@pytest.mark.parametrize("path", STATUSES)
def test_who_asks_to_close_is_closed(address, path):
    assert replies(address, [path], Connection="close") == ([int(STATUSES[path][:3])], False)
