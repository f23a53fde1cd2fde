"""Many threads in one process that ask the same at the same instant; several processes start together.

Over HTTP they are clients. With an instance they are the server's own services, in as many processes as a test
starts: what `atmem users` beside a running server does to the database, but worse.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from app.cli.remote import PersonConnection
from app.config import load_settings
from app.wiring import Overrides, built
from continuity.errors import ContinuityError
from continuity.services.callers import Caller, CallerKind
from continuity.transport import Connection, Transport
from continuity.wire import BeginRequest, OutcomeRequest
from tests.crash.entry import FileClock
from tests.patience import PATIENCE_S

Request = Mapping[str, Any]


def race(
    *, requests: Sequence[Request], meeting: str, report: str, url: str = "", token: str = "", username: str = "",
    password: str = "", instance: str = "", clock: str = "",
) -> None:  # fmt: skip
    """Send each request from a thread of its own, all at once, and write down every answer."""
    answers: list[dict[str, Any]] = [{}] * len(requests)
    gate = threading.Barrier(len(requests) + 1)
    with ExitStack() as stack:
        if instance:
            send = _by_services(stack, instance, clock)
        else:
            send = _over_http(stack, _connected(url, token, username=username, password=password))

        def run(number: int) -> None:
            gate.wait()
            answers[number] = _answer(lambda: send(requests[number]))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(len(requests))]
        for thread in threads:
            thread.start()
        _meet(Path(meeting))
        gate.wait()
        for thread in threads:
            thread.join()
    Path(report).write_text(json.dumps(answers))


def _connected(url: str, token: str, *, username: str, password: str) -> Connection:
    if token:
        return Transport(url, token)
    person = PersonConnection(url)
    person.sign_in(username, password)
    return person


def _over_http(stack: ExitStack, connection: Connection) -> Callable[[Request], Mapping[str, Any]]:
    stack.enter_context(connection)
    # The pool of connections opens one for each thread that finds none idle.
    return lambda request: connection.call(request.get("method", "POST"), request["path"], request.get("body"))


def _by_services(stack: ExitStack, instance: str, clock: str) -> Callable[[Request], Mapping[str, Any]]:
    settings = load_settings({"ATMEM_INSTANCE": instance})
    overrides = Overrides(clock=FileClock(Path(clock)))
    attempts = stack.enter_context(built(settings, overrides=overrides)).services.attempts
    caller = Caller(CallerKind.OPERATOR, "cred:racer", "req_racer", workspaces=None, home_workspace=1)
    calls = {
        "begin": lambda workflow, body: attempts.begin(caller, workflow, BeginRequest.from_json(body)),
        "outcome": lambda workflow, body: attempts.outcome(caller, workflow, OutcomeRequest.from_json(body)),
    }

    def send(request: Request) -> Mapping[str, Any]:
        *_, workflow_id, call = request["path"].split("/")
        return calls[call](workflow_id, request["body"])

    return send


def _answer(send: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    try:
        return {"reply": dict(send())}
    except ContinuityError as error:
        return {"code": error.code}
    except Exception as error:  # noqa: BLE001 - the test wants to see it
        return {"code": f"unexpected: {error!r}"}


def _meet(folder: Path) -> None:
    """Say that this process is ready, and wait for the word of the test."""
    (folder / str(os.getpid())).touch()
    give_up = time.monotonic() + PATIENCE_S
    while not (folder / "go").exists():
        if time.monotonic() > give_up:
            raise TimeoutError("nobody has started the race")
        time.sleep(0.0005)
