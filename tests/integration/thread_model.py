"""A second reading of threads.md, as a plain object that changes: what the services are compared with.

It knows no generations, hashes or receipts; it knows what a person would expect to see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CLAIM_US = 60_000_000
MOST = 32


@dataclass
class Thread:
    """One thread as the design describes it. Methods return the code of a refusal, or None when it happened."""

    thread_id: str = ""
    run: str = "none"
    is_stopping: bool = False
    until_us: int = 0
    mark_us: int = 0
    steers: list[list[Any]] = field(default_factory=list)
    follow_ups: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    asks: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    begun_with: str | None = None
    runs: list[str] = field(default_factory=list)
    calls: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return {
            "none": "idle", "settled": "idle", "stopped": "idle", "queued": "running", "claimed": "running",
            "waiting": "waiting", "interrupted": "needs_attention", "failed": "needs_attention",
        }[self.run]  # fmt: skip

    @property
    def is_idle(self) -> bool:
        return self.state == "idle"

    @property
    def queue(self) -> list[str]:
        return [text for text, is_read in self.steers if not is_read] + self.follow_ups

    def note_time(self, now_us: int) -> None:
        if self.run == "claimed" and self.until_us <= now_us:
            self.end("interrupted")

    def begin(self, text: str | None = None) -> None:
        self.run, self.is_stopping = "queued", False
        self.runs.append("queued")
        if text is not None:
            self.begun_with = text
            self.said.append(text)

    def end(self, how: str) -> None:
        self.run = self.runs[-1] = how

    def close_calls(self) -> None:
        for call, outcome in self.calls.items():
            if outcome == "open":
                self.calls[call] = "unknown"

    def leave(self, how: str) -> None:
        """End for good: what nobody has read comes first in the queue."""
        self.follow_ups = [text for text, is_read in self.steers if not is_read] + self.follow_ups
        self.steers = []
        self.close_calls()
        self.end(how)

    # ---- clients

    def message(self, text: str) -> str | None:
        if not self.is_idle:
            return "thread_busy"
        return self._enqueue_and_begin(text)

    def follow_up(self, text: str) -> str | None:
        if self.is_idle:
            return self._enqueue_and_begin(text)
        if len(self.follow_ups) >= MOST:
            return "queue_full"
        self.follow_ups.append(text)
        return None

    def _enqueue_and_begin(self, text: str) -> str | None:
        if len(self.follow_ups) >= MOST:
            return "queue_full"
        self.follow_ups.append(text)
        self.answers = {}
        self.begin(self.follow_ups.pop(0))
        return None

    def steer(self, text: str) -> str | None:
        if self.run not in {"queued", "claimed"}:
            return "thread_not_running"
        if self.is_stopping:
            return "thread_stopping"
        self.steers.append([text, False])
        return None

    def stop(self) -> str | None:
        if self.is_idle:
            return "thread_not_running"
        if self.run == "claimed":
            self.is_stopping = True
        else:
            self.asks = {} if self.run == "waiting" else self.asks
            self.leave("stopped")
        return None

    def resume(self) -> str | None:
        if self.is_idle and self.follow_ups:
            self.answers = {}
            self.begin(self.follow_ups.pop(0))
            return None
        if self.state != "needs_attention":
            return "nothing_to_resume"
        self.begin()
        return None

    def reply(self, waiting_id: str, value: bool) -> None:
        self.asks[waiting_id] = value
        if None not in self.asks.values():
            self.answers, self.asks = dict(self.asks), {}
            self.begun_with = None
            self.begin()

    # ---- workers

    def claim(self, now_us: int) -> None:
        self.end("claimed")
        self.until_us = now_us + CLAIM_US

    def read(self, count: int) -> None:
        for steer in self.steers[:count]:
            if not steer[1]:
                steer[1] = True
                self.said.append(steer[0])

    def wait(self, ids: list[str]) -> str | None:
        if self.is_stopping:
            return "thread_stopping"
        self.steers = [steer for steer in self.steers if not steer[1]]
        self.asks = dict.fromkeys(ids)
        self.end("waiting")
        return None

    def settle(self) -> None:
        if self.is_stopping:
            self.leave("stopped")
            return
        self.leave("settled")
        self.answers = {}
        if self.follow_ups:
            self.begin(self.follow_ups.pop(0))
