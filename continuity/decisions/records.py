"""State and events as JSON and back: what is sealed into the vault.

Every decision writes them, so attempts and late receipts are lists of their fields in order. Enums are
written as their values, times as integers. A renewal must not change how long a record is, as it is
written without its bytes being counted: at most ten renewals are one hexadecimal digit. A test writes
and reads every class with every field changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, Final

from continuity.decisions.events import EVENTS, Event, EventKind
from continuity.decisions.model import Attempt, LateReceipt, Operation, Reply, Standing, Workflow
from continuity.decisions.states import Mode, Outcome, Status


def workflow_to_json(workflow: Workflow) -> dict[str, Any]:
    """Write a head, without its id, which is the place it is sealed for."""
    return {
        "revision": workflow.revision,
        "enabled": workflow.is_enabled,
        "was_enabled": workflow.was_enabled,
        "high_water": workflow.clock_high_water_us,
        "epoch": workflow.epoch,
        "deleting": workflow.is_deleting,
        "operations": [[s.status.value, s.change_seq, s.epoch] for s in workflow.standings],
    }


def workflow_from_json(value: Mapping[str, Any], *, workflow_id: str) -> Workflow:
    """Read what `workflow_to_json` wrote."""
    return Workflow(
        workflow_id=workflow_id,
        revision=value["revision"],
        is_enabled=value["enabled"],
        was_enabled=value["was_enabled"],
        clock_high_water_us=value["high_water"],
        epoch=value["epoch"],
        is_deleting=value["deleting"],
        standings=tuple(Standing(Status(status), seq, epoch) for status, seq, epoch in value["operations"]),
    )


def operation_to_json(operation: Operation) -> dict[str, Any]:
    """Write an operation with its attempts and late receipts."""
    return {
        "id": operation.operation_id,
        "name": operation.name,
        "key": operation.idempotency_key,
        "query": operation.can_query,
        "idempotent": operation.is_idempotent,
        "timeout": operation.timeout_us,
        "retention": operation.retention_us,
        "absence": operation.absence_us,
        "status": operation.status.value,
        "first": operation.first_dispatch_us,
        "decided": operation.late_decided,
        "epoch": operation.epoch,
        "seq": operation.change_seq,
        "attempts": [_attempt_to_json(attempt) for attempt in operation.attempts],
        "late": [_late_to_json(late) for late in operation.late],
    }


def operation_from_json(value: Mapping[str, Any], *, ordinal: int) -> Operation:
    """Read what `operation_to_json` wrote."""
    return Operation(
        ordinal=ordinal,
        operation_id=value["id"],
        name=value["name"],
        idempotency_key=value["key"],
        can_query=value["query"],
        is_idempotent=value["idempotent"],
        timeout_us=value["timeout"],
        retention_us=value["retention"],
        absence_us=value["absence"],
        status=Status(value["status"]),
        first_dispatch_us=value["first"],
        late_decided=value["decided"],
        epoch=value["epoch"],
        change_seq=value["seq"],
        attempts=tuple(_attempt_from_json(item) for item in value["attempts"]),
        late=tuple(_late_from_json(item) for item in value["late"]),
    )


def event_to_json(event: Event) -> dict[str, Any]:
    """Write an event with its kind; the members are those of its class."""
    value: dict[str, Any] = {"kind": event.kind.value}
    for name in _MEMBERS[type(event)]:
        member = getattr(event, name)
        value[name] = member.value if isinstance(member, StrEnum) else member
    return value


def event_from_json(value: Mapping[str, Any]) -> Event:
    """Read what `event_to_json` wrote."""
    cls = EVENTS[EventKind(value["kind"])]
    return cls(**{name: _member(name, value[name]) for name in _MEMBERS[cls]})


_MEMBERS: Final = {cls: tuple(field.name for field in fields(cls)) for cls in EVENTS.values()}
"""The members of each class of events, in order."""


def _member(name: str, value: Any) -> Any:
    if name == "mode":
        return Mode(value)
    if name == "outcome":
        return Outcome(value)
    return value


def _attempt_to_json(attempt: Attempt) -> list[Any]:
    return [
        attempt.attempt_id, attempt.run_id, attempt.mode.value, attempt.started_us, attempt.lease_until_us,
        attempt.lease_hash, f"{attempt.renewals:x}", attempt.ended_us,
        None if attempt.outcome is None else attempt.outcome.value, attempt.digest,
        None if attempt.reply is None else _reply_to_json(attempt.reply), attempt.is_attested,
    ]  # fmt: skip


def _attempt_from_json(value: list[Any]) -> Attempt:
    attempt_id, run_id, mode, started, until, lease_hash, renewals, ended, outcome, digest, reply, attested = value
    return Attempt(
        attempt_id, run_id, Mode(mode), started, until, lease_hash, int(renewals, 16), ended,
        None if outcome is None else Outcome(outcome), digest,
        None if reply is None else _reply_from_json(reply), attested,
    )  # fmt: skip


def _late_to_json(late: LateReceipt) -> list[Any]:
    return [
        late.attempt_id, late.run_id, late.received_us, late.is_proved, late.is_extra, late.outcome.value,
        late.digest, _reply_to_json(late.reply),
    ]  # fmt: skip


def _late_from_json(value: list[Any]) -> LateReceipt:
    attempt_id, run_id, received, proved, extra, outcome, digest, reply = value
    return LateReceipt(attempt_id, run_id, received, proved, extra, Outcome(outcome), digest, _reply_from_json(reply))


def _reply_to_json(reply: Reply) -> list[Any]:
    return [reply.accepted, reply.status.value, reply.revision, reply.reason]


def _reply_from_json(value: list[Any]) -> Reply:
    accepted, status, revision, reason = value
    return Reply(accepted, Status(status), revision, reason)
