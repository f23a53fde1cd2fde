"""The rows of the authorisation matrix about threads: what is sent, on whose thread, and the status for everybody.

A thread belongs to the application ``application`` and its subject ``ann``, in the workspace ``default``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from continuity.services.callers import Caller
from continuity.thread_requests import (
    ClaimRequest,
    DeclareAgents,
    NewThread,
    SayRequest,
    WaitRequest,
)

THREADS = "/v1/threads"
AGENT = "support"
SUBJECT = "ann"
SECRET = "s" * 43
DECLARATION = {
    "agents": [{"name": AGENT, "controls": ["steer", "follow-up", "stop", "approve"], "public": True}],
}  # fmt: skip
QUESTION = {"task": "t-1", "ordinal": 0, "kind": "approval", "schema": {"type": "boolean"}, "shown": {"what": "cancel"}}

THREAD_WORKERS = ("thread worker", "thread worker of other agents", "thread worker elsewhere")
APPLICATIONS = (
    "application", "application for another subject", "application of another principal", "application elsewhere",
)  # fmt: skip
THREADERS = (*THREAD_WORKERS, *APPLICATIONS)
SUBJECTS = {name: "bob" if "subject" in name else SUBJECT for name in APPLICATIONS}

_PEOPLE_OF_DEFAULT = ("person: operator", "person: investigator", "person: administrator")
_STRANGERS = (*APPLICATIONS[1:], "person: investigator", "person: operator elsewhere", "person: investigator elsewhere")
_FORGED = ("operator with another's CSRF token",)
_STALE = ("operator with an old password check",)
_TEMPORARY = ("person with a temporary password",)


def tokens(world: Any) -> dict[str, str]:
    """Issue the credentials of threads, and declare the agent in both workspaces."""
    application = world.grant("shop", "thread_application", workspace_id="default")
    issued = {
        "thread worker": world.grant("runner", "thread_worker", workspace_id="default", agents=[AGENT]),
        "thread worker of other agents": world.grant(
            "idler", "thread_worker", workspace_id="default", agents=["other"]
        ),
        "thread worker elsewhere": world.grant("runner-there", "thread_worker", workspace_id="other", agents=[AGENT]),
        "application": application,
        "application for another subject": application,
        "application of another principal": world.grant("shop-two", "thread_application", workspace_id="default"),
        "application elsewhere": world.grant("shop-there", "thread_application", workspace_id="other"),
    }
    for name in ("thread worker", "thread worker elsewhere"):
        worker = world.site.wiring.auth.principals.bearer(f"Bearer {issued[name]}", request_id="req_test")
        world.site.wiring.threads.work.declare(worker, DeclareAgents.from_json(DECLARATION))
    return issued


def owner_of(world: Any) -> Caller:
    return replace(world.caller_of("application"), subject=SUBJECT)


def thread(world: Any, state: str = "idle") -> tuple[str, dict[str, Any]]:
    """Make a thread: idle, running, claimed, waiting or interrupted; returns its id and what is known of it."""
    acting, work = world.site.wiring.threads.acting, world.site.wiring.threads.work
    owner = owner_of(world)
    name = world.new_name("thread")
    created = acting.create(owner, NewThread.from_json({"request_id": name, "name": name, "agent": AGENT}))
    thread_id, known = created["thread_id"], {"revision": created["revision"], "receipt": f"{name}-m"}
    if state == "idle":
        return thread_id, known
    acting.message(owner, thread_id, SayRequest.from_json({"request_id": f"{name}-m", "content": "Hello"}))
    if state == "running":
        return thread_id, known
    worker = world.caller_of("thread worker")
    while known.get("thread_id") != thread_id:
        # Runs that other cells have left come first.
        asked = ClaimRequest.from_json({"request_id": world.new_name("claim"), "secret": SECRET})
        known = {**known, **work.claim(worker, asked)["run"]}
    if state == "waiting":
        hold = {"generation": known["generation"], "secret": SECRET}
        body = {"request_id": f"{name}-w", **hold, "requests": [QUESTION]}
        waiting = work.wait(worker, known["run_id"], WaitRequest.from_json(body))["waiting"][0]
        return thread_id, {**known, **waiting}
    if state == "interrupted":
        world.site.clock.advance(61)
    return thread_id, known


def _on(state: str, rest: str, body: Callable[[Any, dict[str, Any]], Any] | None = None) -> Callable[..., Any]:
    def request(world: Any, _target: Any, _asker: str) -> tuple[str, Any]:
        thread_id, known = thread(world, state)
        filled = {name: str(value) for name, value in known.items() if isinstance(value, str)}
        return f"{THREADS}/{thread_id}{rest.format(**filled)}", None if body is None else body(world, known)

    return request


def _said(world: Any, _known: dict[str, Any]) -> dict[str, Any]:
    return {"request_id": world.new_name("rq"), "content": "Where is it?"}


def _asked(world: Any, _known: dict[str, Any]) -> dict[str, Any]:
    return {"request_id": world.new_name("rq")}


def _replied(world: Any, known: dict[str, Any]) -> dict[str, Any]:
    return {"request_id": world.new_name("rq"), "revision": known["revision"], "reply": True}


def _create(world: Any, _target: Any, _asker: str) -> tuple[str, Any]:
    return THREADS, {"request_id": world.new_name("rq"), "name": world.new_name("named"), "agent": AGENT}


def _held(verb: str, **more: Any) -> Callable[..., Any]:
    def request(world: Any, _target: Any, _asker: str) -> tuple[str, Any]:
        _, known = thread(world, "claimed")
        named = {} if verb == "heartbeat" else {"request_id": world.new_name("rq")}
        return f"{THREADS}/runs/{known['run_id']}/{verb}", {
            "generation": known["generation"], "secret": SECRET, **named, **more,
        }  # fmt: skip

    return request


def _claim(world: Any, _target: Any, _asker: str) -> tuple[str, Any]:
    return f"{THREADS}/claims", {"request_id": world.new_name("rq"), "secret": SECRET}


def _fixed(path: str, body: Any = None) -> Callable[..., Any]:
    return lambda _world, _target, _asker: (path, body)


def _journal(world: Any, _target: Any, _asker: str) -> tuple[str, Any]:
    thread_id, _ = thread(world)
    return f"{THREADS}/{thread_id}/journal?after=1-0", None


def _history(world: Any, _target: Any, _asker: str) -> tuple[str, Any]:
    thread_id, _ = thread(world)
    return f"{THREADS}/{thread_id}/history?cursor=none", None


def rows(make: Callable[..., Any], *, askers: Mapping[str, int]) -> dict[str, Any]:
    """Return the rows. `make` is `Row`, `askers` a status for everybody that a later rule overrules."""

    def table(*rules: tuple[tuple[str, ...], int]) -> dict[str, int]:
        made = dict(askers)
        for names, status in rules:
            made.update(dict.fromkeys(names, status))
        return made

    anybody = (
        (APPLICATIONS, 200), (_PEOPLE_OF_DEFAULT, 200), (("person: operator elsewhere",), 200),
        (("person: investigator elsewhere",), 200), (_STALE, 200),
    )  # fmt: skip
    lookers = table(*anybody, (_FORGED, 200), (_TEMPORARY, 403))
    makers = table(*anybody, (_FORGED, 403), (_TEMPORARY, 403))
    seen = ((("application", "person: operator", "person: administrator"), 200), (_STALE, 200), (_STRANGERS, 404))
    readers = table(*seen, (_FORGED, 200))
    controllers = table(*seen, (_FORGED, 403))
    feeders = table((("application",), 200), (_STRANGERS, 404))
    deleters = table((("application", "person: administrator"), 200), (_STRANGERS, 404))
    workers = table((("thread worker",), 200), (THREAD_WORKERS[1:], 404))
    claimers = table((THREAD_WORKERS, 200))
    return {
        "threads_api.create": make("none", "POST", _create, makers),
        "threads_api.index": make("none", "GET", _fixed(THREADS), lookers),
        "threads_api.agents": make("none", "GET", _fixed(f"{THREADS}/agents"), lookers),
        "threads_api.show": make("none", "GET", _on("idle", ""), readers),
        "threads_api.journal": make("none", "GET", _journal, readers),
        "threads_api.history": make(
            "none", "GET", _history, {name: 404 if status == 200 else status for name, status in readers.items()}
        ),
        "threads_api.receipt": make(
            "none", "GET", _on("running", "/receipts/{receipt}"),
            {name: 404 if status == 200 and name != "application" else status for name, status in readers.items()},
        ),
        "threads_api.message": make("none", "POST", _on("idle", "/messages", _said), feeders),
        "threads_api.steer": make("none", "POST", _on("claimed", "/steer", _said), feeders),
        "threads_api.follow_up": make("none", "POST", _on("claimed", "/follow-ups", _said), feeders),
        "threads_api.stop": make("none", "POST", _on("running", "/stop", _asked), controllers),
        "threads_api.resume": make("none", "POST", _on("interrupted", "/resume", _asked), controllers),
        "threads_api.reply": make(
            "none", "POST", _on("waiting", "/waiting/{waiting_id}/reply", _replied), feeders
        ),
        "threads_api.delete": make("none", "DELETE", _on("idle", ""), deleters),
        "thread_workers.declare": make(
            "none", "POST", _fixed(f"{THREADS}/agents", DECLARATION),
            {**claimers, "thread worker of other agents": 403},
        ),
        "thread_workers.claim": make("none", "POST", _claim, claimers),
        "thread_workers.heartbeat": make("none", "POST", _held("heartbeat"), workers),
        "thread_workers.append": make(
            "none", "POST", _held("append", records=[{"kind": "progress", "data": 1}]), workers
        ),
        "thread_workers.wait": make("none", "POST", _held("wait", requests=[QUESTION]), workers),
        "thread_workers.settle": make("none", "POST", _held("settle", output="Done."), workers),
        "thread_workers.fail": make("none", "POST", _held("fail", reason="failed", message="It broke."), workers),
    }  # fmt: skip
