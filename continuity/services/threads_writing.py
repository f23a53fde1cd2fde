"""Writes one change of a thread: its inputs, records, transcript, declared state, runs and waiting requests.

`ThreadLedger.record` writes the head afterwards. Nothing here decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from continuity.decisions.threads import bounds, transcript
from continuity.decisions.threads.entries import EntryKind
from continuity.decisions.threads.model import Ask, Change, Record, RecordKind, Run
from continuity.decisions.threads.records import run_to_json
from continuity.decisions.threads.states import RequestState
from continuity.errors import IntegrityError, TooLargeError
from continuity.jsontext import canonical_bytes
from continuity.services import chains
from continuity.services.documents import seconds
from continuity.services.sealing import seal_json
from continuity.services.threads_sealing import (
    OpenedThread,
    input_place,
    item_place,
    record_place,
    reply_place,
    request_place,
    run_place,
    state_place,
)
from continuity.store import threads as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.threads_ledger import ThreadLedger

_PREFIXES: Final = {"message": "m:", "tool_call": "c:", "answer": "a:"}
_SERVER_KINDS: Final = frozenset(kind.value for kind in RecordKind)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a change is about and what no head holds.

    Attributes:
        said: Content of an input that is accepted now, by input_id.
        asked: ``{task, ordinal, schema, shown, digest, place_ix}`` of requests that are opened now, by waiting_id.
        replied: ``{reply, actor, receipt}`` of the request that is answered now, by waiting_id.
        shown: What the request that is answered now has shown, by waiting_id.
        ended: ``output`` or ``message`` of the run that ends now.
        claim_ix: Blind index of the claim that is granted now.
    """

    said: Mapping[str, Any] = field(default_factory=dict, repr=False)
    asked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    replied: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    shown: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    ended: Mapping[str, Any] = field(default_factory=dict, repr=False)
    claim_ix: bytes | None = None


class Writing:
    """One change, being written. Used once, inside one transaction."""

    def __init__(
        self, connection: Connection, ledger: ThreadLedger, opened: OpenedThread, change: Change, *,
        contents: Contents, at_us: int,
    ) -> None:  # fmt: skip
        """Keep what is written and to where."""
        self._connection = connection
        self._ledger = ledger
        self._opened = opened
        self._change = change
        self._contents = contents
        self._at_us = at_us
        self._items: dict[int, tuple[Mapping[str, Any] | None, int]] = {}
        self._state: dict[str, Any] | None = None

    def write(self) -> bytes:
        """Write everything but the head; returns the hash of the last record."""
        self._keep_inputs()
        chain_hash = self._write_records()
        self._write_items()
        if self._state is not None:
            self._write_state(self._state)
        for run in {run.number: run for run in self._change.runs}.values():
            self._write_run(run)
        for ask in {ask.waiting_id: ask for ask in self._change.asks}.values():
            self._write_request(ask)
        return chain_hash

    # ---- inputs

    def _keep_inputs(self) -> None:
        for queued in self._change.inputs:
            if queued.number > self._opened.head.input_count and queued.input_id in self._contents.said:
                value = {
                    "input_id": queued.input_id, "kind": queued.kind.value, "at": seconds(self._at_us),
                    "content": self._contents.said[queued.input_id],
                }  # fmt: skip
                place = input_place(self._opened.thread_id, queued.number)
                statements.insert_input(self._connection, {
                    "thread_pk": self._opened.thread_pk, "input_no": queued.number, "at": self._at_us,
                    "sealed_input": seal_json(self._opened.key, value, place),
                })  # fmt: skip

    def _said(self, queued_no: int, input_id: str) -> Any:
        if input_id in self._contents.said:
            return self._contents.said[input_id]
        return self._ledger.contents(self._connection, self._opened, [queued_no])[queued_no]["content"]

    # ---- records

    def _write_records(self) -> bytes:
        self._load_items()
        chain_hash, seq, rows = self._opened.chain_hash, self._opened.head.last_seq, []
        for record in self._change.records:
            seq += 1
            data = self._complete(record)
            self._fold(record, data, seq)
            sealed = seal_json(
                self._opened.key, [record.run_id, record.generation, data], record_place(self._opened.thread_id, seq)
            )
            chain_hash = chains.link(
                self._opened.thread_id, seq=seq, kind=record.kind, at_us=self._at_us, sealed_event=sealed,
                previous=chain_hash,
            )  # fmt: skip
            rows.append({
                "thread_pk": self._opened.thread_pk, "seq": seq, "kind": record.kind, "generation": record.generation,
                "at": self._at_us, "hash": chain_hash, "sealed_record": sealed,
            })  # fmt: skip
        if rows:
            statements.insert_records(self._connection, rows)
        return chain_hash

    def _complete(self, record: Record) -> dict[str, Any]:
        """Put content and revision into what the core says of a record."""
        data = {name: value for name, value in record.data.items() if value is not None}
        if record.kind in _SERVER_KINDS:
            data["thread_revision"] = self._change.head.revision
        match record.kind:
            case RecordKind.INPUT_QUEUED:
                data["content"] = self._said(data.pop("input_no"), data["input_id"])
            case RecordKind.MESSAGE_ADDED:
                data["message"] = transcript.user_message(
                    self._said(data.pop("input_no"), data["input_id"]), input_id=data["input_id"],
                    item_no=data["item_no"], kind=data.pop("kind"), run_id=record.run_id, at=seconds(self._at_us),
                )  # fmt: skip
            case RecordKind.REQUEST_OPENED:
                asked = self._contents.asked[data["waiting_id"]]
                data |= {name: asked[name] for name in ("task", "ordinal", "schema", "shown")}
            case RecordKind.REQUEST_ANSWERED:
                data["reply"] = self._contents.replied[data["waiting_id"]]["reply"]
                data["shown"] = self._contents.shown[data["waiting_id"]]
            case RecordKind.RUN_SETTLED | RecordKind.RUN_STOPPED | RecordKind.RUN_FAILED | RecordKind.RUN_INTERRUPTED:
                data |= self._contents.ended
            case RecordKind.RUN_QUEUED:
                data.setdefault("resumes", None)
            case _:
                pass
        return data

    def _fold(self, record: Record, data: Mapping[str, Any], seq: int) -> None:
        shown = {"kind": record.kind, "data": data, "run_id": record.run_id, "at": seconds(self._at_us)}
        if "item_no" in data:
            number = data["item_no"]
            before, _ = self._items.get(number, (None, 0))
            self._items[number] = (transcript.fold_item(before, shown), seq)
        if record.kind == EntryKind.STATE_CHANGED:
            before_state = self._read_state() if self._state is None else self._state
            self._state = transcript.fold_state(before_state, data["values"])

    # ---- transcript and state

    def _load_items(self) -> None:
        """Read the items that records go on with; each of them was there before."""
        known = self._opened.head.item_count
        numbers = sorted({
            record.data["item_no"] for record in self._change.records if 0 < record.data.get("item_no", 0) <= known
        })  # fmt: skip
        if not numbers:
            return
        place = {"thread_pk": self._opened.thread_pk, "numbers": numbers}
        for row in self._connection.execute(statements.ITEMS, place):
            sealed_place = item_place(self._opened.thread_id, row.item_no)
            self._items[row.item_no] = (json.loads(self._opened.key.open(row.sealed_item, place=sealed_place)), 0)
        if len(self._items) != len(numbers):
            raise IntegrityError("A message of the thread is missing. Nothing was done.")

    def _write_items(self) -> None:
        for number, (item, seq) in self._items.items():
            if item is None or seq == 0:
                continue
            statements.put_item(self._connection, {
                "thread_pk": self._opened.thread_pk, "item_no": number, "changed_seq": seq,
                "item_ix": item_index(self._ledger, self._opened.thread_id, _PREFIXES[item["type"]] + item["id"]),
                "sealed_item": seal_json(
                    self._opened.key, {**item, "changed_seq": seq}, item_place(self._opened.thread_id, number)
                ),
            })  # fmt: skip

    def _read_state(self) -> dict[str, Any]:
        sealed = self._connection.execute(statements.STATE, {"thread_pk": self._opened.thread_pk}).scalar_one_or_none()
        if sealed is None:
            return {}
        value: dict[str, Any] = json.loads(self._opened.key.open(sealed, place=state_place(self._opened.thread_id)))
        return value

    def _write_state(self, state: Mapping[str, Any]) -> None:
        if len(canonical_bytes(state)) > bounds.STATE_BYTES:
            raise TooLargeError(f"Declared state holds at most {bounds.STATE_BYTES} bytes. Nothing was written.")
        sealed = seal_json(self._opened.key, state, state_place(self._opened.thread_id))
        statements.put_state(self._connection, {"thread_pk": self._opened.thread_pk, "sealed_state": sealed})

    # ---- runs and requests

    def _write_run(self, run: Run) -> None:
        detail: Mapping[str, Any] = {}
        if run.ended_us == self._at_us and self._contents.ended:
            detail = self._contents.ended
        elif run.number <= self._opened.head.run_count:
            detail = self._detail_of(run.number)
        row = {
            "thread_pk": self._opened.thread_pk, "number": run.number, "run_id": run.run_id, "state": run.state.value,
            "sealed_run": seal_json(
                self._opened.key, {"run": run_to_json(run), "detail": detail},
                run_place(self._opened.thread_id, run.number),
            ),
        }  # fmt: skip
        if self._contents.claim_ix is not None:
            row["claim_ix"] = self._contents.claim_ix
        statements.put_run(self._connection, row)

    def _detail_of(self, number: int) -> Mapping[str, Any]:
        """Return what was kept with a run that is there: a stop must not take what its failure said."""
        place = {"thread_pk": self._opened.thread_pk, "number": number}
        sealed = self._connection.execute(statements.RUN_AT, place).scalar_one_or_none()
        value = json.loads(self._opened.key.open(sealed or b"", place=run_place(self._opened.thread_id, number)))
        detail: Mapping[str, Any] = value["detail"]
        return detail

    def _write_request(self, ask: Ask) -> None:
        thread_id, key = self._opened.thread_id, self._opened.key
        if ask.state is RequestState.OPEN:
            asked = self._contents.asked[ask.waiting_id]
            value = {
                **{name: asked[name] for name in ("task", "ordinal", "schema", "shown", "digest")},
                "kind": ask.kind.value, "revision": ask.revision, "at": seconds(self._at_us),
                "run_id": None if self._change.head.run is None else self._change.head.run.run_id,
            }  # fmt: skip
            statements.put_request(self._connection, {
                "waiting_id": ask.waiting_id, "thread_pk": self._opened.thread_pk, "revision": ask.revision,
                "state": ask.state.value, "place_ix": asked["place_ix"], "sealed_reply": None,
                "sealed_request": seal_json(key, value, request_place(thread_id, ask.waiting_id)),
            })  # fmt: skip
            return
        values: dict[str, Any] = {"state": ask.state.value}
        if ask.waiting_id in self._contents.replied:
            reply = {**self._contents.replied[ask.waiting_id], "at": seconds(self._at_us), "revision": ask.revision}
            values["sealed_reply"] = seal_json(key, reply, reply_place(thread_id, ask.waiting_id))
        statements.update_request(self._connection, ask.waiting_id, values)


def item_index(ledger: ThreadLedger, thread_id: str, key: str) -> bytes:
    """Return the blind index of an item's key."""
    return ledger.vault.index("thread_item", thread_id, key)
