"""A host as users write it, in a process of its own, that dies or stops where a test says.

Beside the points of `continuity.running.Seams` it can die at ``begin.sent`` and ``outcome.sent``, when the whole
request is with the server and nobody is left to hear the reply, and inside the callback: at ``effect.started`` before
the effect and at ``effect.done`` after it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from requests.adapters import HTTPAdapter

from continuity.client import ContinuityClient, RecoveryBlocked, Tool
from continuity.errors import ContinuityError
from continuity.stops import OutcomeNotRecorded
from continuity.transport import elapsed_s
from tests.crash.sink import Destination, Sink

POINTS = (
    "begin.before_send", "begin.sent", "begin.after_reply", "effect.before", "effect.started", "effect.done",
    "effect.after", "outcome.before_send", "outcome.sent", "outcome.after_reply",
)  # fmt: skip
TOOL = "publish"
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class LastWords(HTTPAdapter):
    """Sends one kind of request to the last byte and dies."""

    def __init__(self, call: str, end: Callable[[], None]) -> None:
        super().__init__(max_retries=0)
        self._call = call
        self._end = end

    def send(self, request: Any, **options: Any) -> Any:
        parts = urlsplit(request.url)
        if not parts.path.endswith(f"/{self._call}"):
            return super().send(request, **options)
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        connection = socket.create_connection((parts.hostname, parts.port))
        first = f"{request.method} {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{head}\r\n"
        connection.sendall(first.encode() + request.body)
        self._end()
        raise AssertionError("still here")


class Host(ContinuityClient):
    """Writes down what the server has answered before anything is done about it."""

    def __init__(self, *arguments: Any, acks: Path, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._acks = acks
        self.attempt_id = ""

    def create_workflow(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        reply = super().create_workflow(*arguments, **options)
        self._note("create", {}, reply)
        if options.get("begin") is not None:
            self.attempt_id = options["begin"]["attempt_id"]
            self._note("begin", dict(options["begin"]), reply["begin"])
        return reply

    def begin(self, workflow_id: str, name: str, **ids: str) -> dict[str, Any]:
        reply = super().begin(workflow_id, name, **ids)
        self.attempt_id = ids["attempt_id"]
        self._note("begin", ids, reply)
        return reply

    def send_outcome(self, workflow_id: str, name: str, **sent: Any) -> dict[str, Any]:
        reply = super().send_outcome(workflow_id, name, **sent)
        self._note("outcome", sent, reply)
        return reply

    def _note(self, call: str, sent: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
        line = json.dumps({"call": call, "sent": sent, "reply": reply}).encode() + b"\n"
        descriptor = os.open(self._acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, line)
        os.close(descriptor)


class _Point:
    """Ends this process at the point that was asked for."""

    def __init__(self, at: str, number: signal.Signals) -> None:
        self._at = at
        self._number = number

    def passed(self, point: str) -> None:
        if point == self._at:
            # A stopped process goes on from here some day, and must not stop again.
            self._at = ""
            self.end()

    def end(self) -> None:
        os.kill(os.getpid(), self._number)


def work(
    *, url: str, token: str, name: str, folder: str, clock: str, report: str, retention_s: float = 0,
    workflow_id: str = "", creating: Mapping[str, Any] | None = None, die_at: str = "", end: str = "kill",
) -> None:  # fmt: skip
    """Run one operation once: of a workflow, or as a coordinator that creates the workflow with the first begin."""
    here = Path(folder)
    point = _Point(die_at, SIGNALS[end])

    def now_s() -> float:
        return elapsed_s() + float(Path(clock).read_text())

    client = Host(
        url, token, acks=here / "acks", clock=now_s, trace=point.passed,
        adapter=LastWords(die_at.partition(".")[0], point.end) if die_at.endswith(".sent") else None,
    )  # fmt: skip
    destination = Destination(Sink(here / "sink"), retention_s)

    def execute(_arguments: Any, operation_id: str, key: str, _timeout_s: float) -> dict[str, Any]:
        point.passed("effect.started")
        receipt = destination.execute(operation_id, client.attempt_id, key, now_s=now_s())
        point.passed("effect.done")
        return receipt

    def query(_arguments: Any, operation_id: str, _key: str, _timeout_s: float) -> dict[str, Any]:
        receipt = destination.query(operation_id)
        point.passed("effect.done")
        return receipt

    tools = {TOOL: Tool(execute=execute, query=query)}
    if creating is None:
        found = _told(lambda: client.run_operation(workflow_id, name, tools))
    else:
        found = _told(lambda: client.run_new_operation(creating["workflow_key"], creating["operation"], tools))
    Path(report).write_text(json.dumps(found))


def _told(run: Callable[[], Any]) -> dict[str, Any]:
    """Say how a run ended, as a test reads it."""
    try:
        return {"end": "result", "result": run()}
    except RecoveryBlocked as stop:
        return {"end": "blocked", "code": stop.code, "lease_until": stop.lease_until}
    except OutcomeNotRecorded as error:
        return {"end": "not_recorded", "code": str(error.__cause__)}
    except ContinuityError as error:
        return {"end": "error", "code": error.code}
