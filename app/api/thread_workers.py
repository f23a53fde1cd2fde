"""Threads for those who work: declare agents, claim runs, and write what becomes of them."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from app.auth.admission import admits, admitted
from app.body import DEFINITION_BODY_BYTES, SMALL_BODY_BYTES, read_json
from app.extensions import wiring
from app.replies import json_response
from continuity.services.callers import CallerKind
from continuity.thread_requests import (
    AppendRequest,
    ClaimRequest,
    DeclareAgents,
    FailRequest,
    HeartbeatRequest,
    SettleRequest,
    WaitRequest,
)

blueprint = Blueprint("thread_workers", __name__)

_workers = admits(CallerKind.THREAD_WORKER)


@blueprint.post("/v1/threads/agents")
@_workers
def declare() -> Response:
    """Say which agents this worker runs, and what clients may see of them and do."""
    asked = DeclareAgents.from_json(read_json(limit_bytes=DEFINITION_BODY_BYTES))
    return json_response(wiring().threads.work.declare(admitted(), asked))


@blueprint.post("/v1/threads/claims")
@_workers
def claim() -> Response:
    """Take the oldest queued run, for 60 seconds; ``run`` is null when there is none."""
    asked = ClaimRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return _written(wiring().threads.work.claim(admitted(), asked))


@blueprint.post("/v1/threads/runs/<run:thread_run_id>/heartbeat")
@_workers
def heartbeat(thread_run_id: str) -> Response:
    """Keep a live claim for another 60 seconds."""
    asked = HeartbeatRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return json_response(wiring().threads.work.heartbeat(admitted(), thread_run_id, asked))


@blueprint.post("/v1/threads/runs/<run:thread_run_id>/append")
@_workers
def append(thread_run_id: str) -> Response:
    """Write records into the thread's journal, all of them or none."""
    asked = AppendRequest.from_json(read_json(limit_bytes=DEFINITION_BODY_BYTES))
    return _written(wiring().threads.work.append(admitted(), thread_run_id, asked))


@blueprint.post("/v1/threads/runs/<run:thread_run_id>/wait")
@_workers
def wait(thread_run_id: str) -> Response:
    """End a run with questions; their last answer starts the next one."""
    asked = WaitRequest.from_json(read_json(limit_bytes=DEFINITION_BODY_BYTES))
    return _written(wiring().threads.work.wait(admitted(), thread_run_id, asked))


@blueprint.post("/v1/threads/runs/<run:thread_run_id>/settle")
@_workers
def settle(thread_run_id: str) -> Response:
    """End a run; the next queued follow-up starts by itself."""
    asked = SettleRequest.from_json(read_json(limit_bytes=DEFINITION_BODY_BYTES))
    return _written(wiring().threads.work.settle(admitted(), thread_run_id, asked))


@blueprint.post("/v1/threads/runs/<run:thread_run_id>/fail")
@_workers
def fail(thread_run_id: str) -> Response:
    """End a run that failed, or that governed work does not let go on."""
    asked = FailRequest.from_json(read_json(limit_bytes=DEFINITION_BODY_BYTES))
    return _written(wiring().threads.work.fail(admitted(), thread_run_id, asked))


def _written(body: dict[str, Any]) -> Response:
    """Answer, and wake whoever waits for what was written."""
    wiring().threads.streams.signals.give()
    return json_response(body)
