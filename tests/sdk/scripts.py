"""Replies of wire.md, and a stub server that gives one operation's replies in the order a test lists."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager

from continuity.client import ContinuityClient
from tests.sdk.stub_server import serving

TOKEN = "atm_w_" + "s3cr3tS3NT1NEL" + "x" * 29 + "_abcdef"
WORKFLOW = "wf_" + "0" * 32
OPERATION = "op_" + "1" * 32
LEASE_TOKEN = "lease-SENTINEL-token"
SUCCESS = {
    "outcome": "confirmed_succeeded", "operation_id": OPERATION, "effect_id": "effect-1", "result": {"url": "there"},
}  # fmt: skip
ABSENT = {"outcome": "absent", "operation_id": OPERATION}


def granted(mode="execute", **over):
    def reply(handler, seen):
        value = {
            "action": mode, "reason": "authorized_attempt", "operation_id": OPERATION, "revision": 3,
            "tool": "upload", "arguments": {"a": [1, "two"]}, "idempotency_key": "ik_1", "timeout_seconds": 30,
            "lease_token": LEASE_TOKEN, "lease_until": 2_000_000_000.5,
            "run_id": seen.body["run_id"], "attempt_id": seen.body["attempt_id"],
        }  # fmt: skip
        handler.reply({**value, **over})

    return reply


def blocked(reason, **more):
    return lambda handler, _seen: handler.reply(
        {"action": "blocked", "reason": reason, "operation_id": OPERATION, "revision": 3, **more}
    )


def completed(receipt=SUCCESS):
    return lambda handler, _seen: handler.reply(
        {"action": "completed", "reason": "saved_receipt", "operation_id": OPERATION, "revision": 4, "receipt": receipt}
    )


def accepted(status="completed", **more):
    return lambda handler, _seen: handler.reply({"accepted": True, "status": status, "revision": 4, **more})


def late(status="uncertain"):
    return lambda handler, _seen: handler.reply(
        {"accepted": False, "reason": "stale_lease", "status": status, "revision": 4}
    )


def refused(status, code, **headers):
    return lambda handler, _seen: handler.refuse(status, code, headers)


def lost(handler, _seen):
    handler.hang_up()


class World:
    """A server with a script, a client of it, and a clock that only sleeping moves."""

    def __init__(self, server, client, clock, sleeps):
        self.server = server
        self.client = client
        self.clock = clock
        self.sleeps = sleeps

    def calls(self, name):
        return self.server.calls(name)

    def receipts(self):
        return [seen.body["receipt"] for seen in self.calls("outcome")]


make_client: Callable = ContinuityClient
"""What makes the client of a world; a module may run its tests with another (tests/sdk/waiting.py)."""


@contextmanager
def world(*, begin=(), outcome=(), view=None, others: Callable | None = None, token=TOKEN, **options):
    """Serve `begin` and `outcome` replies in their order, the last one for ever."""
    scripts = {"begin": list(begin), "outcome": list(outcome)}
    now, sleeps = [1_000.0], []

    def answer(handler, seen):
        script = scripts.get(seen.call)
        if script:
            (script.pop(0) if len(script) > 1 else script[0])(handler, seen)
        elif seen.method == "GET" and view is not None:
            handler.reply(view(handler.server.seen))
        elif others is not None:
            others(handler, seen)
        else:
            handler.refuse(404, "not_found")

    def sleep(seconds):
        sleeps.append(seconds)
        now[0] += seconds

    with serving(answer) as server:
        settings = {"clock": lambda: now[0], "sleep": sleep, **options}
        with make_client(server.url, token, **settings) as client:
            yield World(server, client, now, sleeps)
