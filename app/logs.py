"""Logs: one JSON object a line on standard error.

Rules:

* No query string, no body, no header, no message of an unexpected exception: each may hold a secret. What an
  unexpected exception leaves is its class and where it was raised.
* Everything but printable ASCII is escaped, so that no value can forge a line or speak to a terminal.
* A long value is cut, and anything that looks like a credential is masked.
* A log that cannot be written takes no reply away: what was done is committed. Lines that were lost are counted, and
  the first one that can be written again says how many.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

VALUE_CHARS: Final = 500
_FRAMES: Final = 12
_CAUSES: Final = 3
# The format of wire.md without its checksum: a token with a typing error is a secret too.
_TOKEN: Final = re.compile(r"atm_([a-z])_[A-Za-z0-9_-]{16,}")

_PLAIN: Final = re.compile(r"[A-Za-z0-9/_.:-]{0,200}")
"""What may stand in a line as it is."""

logger: Final = logging.getLogger("atmem")
# Without `configure` nothing is written: the standard library's last resort would print messages of exceptions.
logger.addHandler(logging.NullHandler())


def escape(value: object) -> str:
    """Return `value` as text that is safe in a log line: cut, credentials masked."""
    text = str(value)
    if len(text) > VALUE_CHARS:
        text = text[:VALUE_CHARS] + "…"
    return _TOKEN.sub(r"atm_\1_***", text)


def line(event: str, fields: Mapping[str, Any], *, level: str, time_us: int) -> str:
    """Return one line of the log, with its line break."""
    entry: dict[str, Any] = {"time": _stamp(time_us), "level": level, "event": event}
    for name, value in fields.items():
        entry[name] = value if isinstance(value, int | float | list) or value is None else escape(value)
    return json.dumps(entry, separators=(",", ":")) + "\n"


def describe_exception(error: BaseException) -> list[str]:
    """Say what was raised and where, without its words: classes, files, lines, functions; causes after it."""
    described: list[str] = []
    current: BaseException | None = error
    for _ in range(_CAUSES):
        if current is None:
            break
        described.append(f"{type(current).__module__}.{type(current).__qualname__}")
        frames = traceback.extract_tb(current.__traceback__)[-_FRAMES:]
        described.extend(f"  {escape(f.filename)}:{f.lineno} {f.name}" for f in frames)
        current = current.__cause__ or current.__context__
    return described


class JSONFormatter(logging.Formatter):
    """Writes a record of the standard library's logging as one JSON line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = dict(getattr(record, "fields", {}))
        if record.name != logger.name:
            fields["logger"] = record.name
        if record.exc_info and record.exc_info[1] is not None:
            fields["exception"] = describe_exception(record.exc_info[1])
        level, time_us = record.levelname.lower(), int(record.created * 1_000_000)
        return line(escape(record.getMessage()), fields, level=level, time_us=time_us).rstrip("\n")


def event(level: int, name: str, /, **fields: Any) -> None:
    """Log one event with its fields; `name` is a constant, never data."""
    logger.log(level, name, extra={"fields": fields})


def failure(error: BaseException, **fields: Any) -> None:
    """Log what nobody expected, while something was being done for a request or in the background."""
    logger.error("failed", exc_info=error, extra={"fields": fields})


class _Sink:
    """Where lines go. Each is one write past every buffer, so that lines do not mix and none is kept half written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._lost = 0
        self._is_torn = False
        try:
            self._descriptor: int | None = stream.fileno()
        except (OSError, ValueError, AttributeError):
            self._descriptor = None

    def write(self, text: str, time_us: int) -> None:
        with self._lock:
            told = line("log_lost", {"lost": self._lost}, level="warning", time_us=time_us) if self._lost else ""
            try:
                self._put(told + text)
            except OSError:
                self._lost += 1
            else:
                self._lost = 0

    def _put(self, text: str) -> None:
        if self._descriptor is None:
            self._stream.write(text)
            self._stream.flush()
            return
        # What a full disk had room for ends here, and the next line begins as one.
        left = (b"\n" if self._is_torn else b"") + text.encode("ascii", "backslashreplace")
        while left:
            written = os.write(self._descriptor, left)
            self._is_torn = written < len(left)
            left = left[written:]


class _Handler(logging.Handler):
    def __init__(self, sink: _Sink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        self._sink.write(self.format(record) + "\n", int(record.created * 1_000_000))


class _AccessLog:
    """Where the line of each request goes: nowhere until `configure`."""

    sink: _Sink | None = None
    second: tuple[int, str] = (0, "")
    """The last second that was spelled out."""


def access(time_us: int, environ: Mapping[str, Any], **numbers: int | str) -> None:
    """Log one served request. Written out by hand: this stands in every request's way.

    `numbers` are ``request_id``, ``status`` and ``took_us``, which the server made and which need no escaping.
    """
    sink = _AccessLog.sink
    if sink is None:
        return
    text = (
        f'{{"time":"{_stamp(time_us)}","level":"info","event":"request","request_id":"{numbers["request_id"]}",'
        f'"status":{numbers["status"]},"took_us":{numbers["took_us"]},'
        f'"method":{_quoted(environ["REQUEST_METHOD"])},"path":{_quoted(environ["PATH_INFO"])},'
        f'"address":{_quoted(environ.get("REMOTE_ADDR", ""))}}}\n'
    )
    sink.write(text, time_us)


def _stamp(time_us: int) -> str:
    second, spelled = _AccessLog.second
    if second != time_us // 1_000_000:
        second = time_us // 1_000_000
        spelled = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        _AccessLog.second = (second, spelled)
    return f"{spelled}.{time_us % 1_000_000:06d}Z"


def _quoted(text: str) -> str:
    return f'"{text}"' if _PLAIN.fullmatch(text) and "atm_" not in text else json.dumps(escape(text))


def configure_access(stream: TextIO | None) -> None:
    """Send the line of each request to `stream`, or nowhere."""
    _AccessLog.sink = None if stream is None else _Sink(stream)


def configure(stream: TextIO | None = None) -> None:
    """Send every log of this process to `stream` (default standard error) as JSON lines."""
    sink = _Sink(stream or sys.stderr)
    _AccessLog.sink = sink
    handler = _Handler(sink)
    handler.setFormatter(JSONFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logger.setLevel(logging.INFO)
    # One warning a queued request would be the loudest voice just when the server is busiest.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
