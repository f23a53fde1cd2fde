"""The head of a thread as JSON and back, and a run as its own row keeps it.

Members are lists in the order of the fields of `model`; a field is added at the end, with a default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from continuity.decisions.threads.model import Ask, Claim, Head, InputKind, OpenItem, Queued, Run
from continuity.decisions.threads.states import Cause, Reason, RequestKind, RequestState, RunState


def head_to_json(head: Head) -> dict[str, Any]:
    """Return a head as JSON, without its id, by which it is found."""
    return {
        "revision": head.revision,
        "mark": head.clock_high_water_us,
        "seq": [head.last_seq, head.trimmed_seq],
        "generation": head.generation,
        "counts": [head.run_count, head.input_count, head.item_count],
        "run": None if head.run is None else run_to_json(head.run),
        "asks": [[a.waiting_id, a.revision, a.state.value, a.kind.value, a.digest, a.reply_digest] for a in head.asks],
        "steers": [_queued_to_json(queued) for queued in head.steers],
        "follow_ups": [_queued_to_json(queued) for queued in head.follow_ups],
        "open": [[item.key, item.number] for item in head.open_items],
        "deleting": head.is_deleting,
    }


def head_from_json(value: Mapping[str, Any], *, thread_id: str) -> Head:
    """Return the head that `head_to_json` wrote."""
    return Head(
        thread_id=thread_id,
        revision=value["revision"],
        clock_high_water_us=value["mark"],
        last_seq=value["seq"][0],
        trimmed_seq=value["seq"][1],
        generation=value["generation"],
        run_count=value["counts"][0],
        input_count=value["counts"][1],
        item_count=value["counts"][2],
        run=None if value["run"] is None else run_from_json(value["run"]),
        asks=tuple(Ask(a[0], a[1], RequestState(a[2]), RequestKind(a[3]), a[4], a[5]) for a in value["asks"]),
        steers=tuple(_queued_from_json(each) for each in value["steers"]),
        follow_ups=tuple(_queued_from_json(each) for each in value["follow_ups"]),
        open_items=tuple(OpenItem(*each) for each in value["open"]),
        is_deleting=value["deleting"],
    )


def run_to_json(run: Run) -> list[Any]:
    """Return a run as JSON."""
    claim = run.claim
    return [
        run.run_id, run.number, run.state.value, run.cause.value, run.epoch, run.queued_us, run.input_no, run.resumes,
        list(run.answers),
        None if claim is None else [claim.generation, claim.secret_hash, claim.until_us, claim.actor],
        run.is_stopping, run.ended_us, None if run.reason is None else run.reason.value, run.workflow_id,
    ]  # fmt: skip


def run_from_json(value: Sequence[Any]) -> Run:
    """Return the run that `run_to_json` wrote."""
    return Run(
        run_id=value[0], number=value[1], state=RunState(value[2]), cause=Cause(value[3]), epoch=value[4],
        queued_us=value[5], input_no=value[6], resumes=value[7], answers=tuple(value[8]),
        claim=None if value[9] is None else Claim(*value[9]), is_stopping=value[10], ended_us=value[11],
        reason=None if value[12] is None else Reason(value[12]), workflow_id=value[13],
    )  # fmt: skip


def _queued_to_json(queued: Queued) -> list[Any]:
    return [queued.number, queued.input_id, queued.kind.value, queued.is_read]


def _queued_from_json(value: Sequence[Any]) -> Queued:
    return Queued(value[0], value[1], InputKind(value[2]), value[3])
