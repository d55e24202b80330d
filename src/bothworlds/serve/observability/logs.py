"""The log: JSON lines on stderr, or readable lines on a terminal.

A request is logged by its method, route, status, duration and size: no ids, addresses, queries, headers or bodies, so
that the log contains no personal data, keys or tokens.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TextIO

import msgspec

from ..model import rfc3339

MAX_BUFFERED_LINES = 200
THROTTLE_SECONDS = 1.0

logger = logging.getLogger("bothworlds")


class LossyStream:
    """A stream that drops what cannot be written: a full disk or a closed pipe must not affect requests."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at, fields = rfc3339(round(1000 * record.created)), getattr(record, "fields", {})
        entry = {"event": record.getMessage(), **fields, "level": record.levelname.lower(), "timestamp": at}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry, enc_hook=str).decode()


def set_up_logs(kind: Literal["auto", "json", "console"], stream: TextIO | None = None) -> bool:
    """Send all logs of the process to ``stream`` (stderr); return whether they are JSON.

    ``auto`` means console on a terminal, otherwise JSON.
    """
    stream = stream or sys.stderr
    json = kind == "json" or (kind == "auto" and not stream.isatty())
    handler = logging.StreamHandler(LossyStream(stream))
    lines = logging.Formatter("%(asctime)s %(levelname)s %(message)s %(fields)s", defaults={"fields": ""})
    handler.setFormatter(_JsonFormatter() if json else lines)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    return json


def warn_throttled(event: str, **fields: Any) -> None:
    """Log a warning that every request may cause, at most once in ``THROTTLE_SECONDS`` for each event and reason."""
    now, key = time.monotonic(), (event, fields.get("reason"))
    if now - _last_warnings.get(key, -THROTTLE_SECONDS) >= THROTTLE_SECONDS:
        _last_warnings[key] = now
        logger.warning(event, extra={"fields": fields})


_last_warnings: dict[tuple[str, Any], float] = {}
_Line = tuple[str, str, int, float, int, int]  # method, route, status, seconds, bytes of the request, time in ms


class RequestLog:
    """The log of requests, buffered: a line costs about 1 microsecond instead of the 30 of a general logger.

    Lines are written by ``flush``, or once ``MAX_BUFFERED_LINES`` are buffered. Called on the event loop.
    """

    def __init__(self, enabled: bool, json: bool, clock: Callable[[], int], stream: TextIO | None = None) -> None:
        self._enabled, self._json, self._clock = enabled, json, clock
        self._stream = stream
        self._lines: list[_Line] = []

    @property
    def pending(self) -> int:
        """How many lines are buffered."""
        return len(self._lines)

    def record(self, method: str, route: str, status: int, seconds: float, size: int) -> None:
        """Buffer one request; ``size`` is that of the request in bytes."""
        if not self._enabled:
            return
        self._lines.append((method, route, status, seconds, size, self._clock()))
        if len(self._lines) >= MAX_BUFFERED_LINES:
            self.flush()

    def flush(self) -> None:
        """Write all buffered lines; those that cannot be written are dropped."""
        lines, self._lines = self._lines, []
        stream = LossyStream(self._stream or sys.stderr)
        if lines:
            stream.write("".join([self._formatted(*line) for line in lines]))
            stream.flush()

    def _formatted(self, method: str, route: str, status: int, seconds: float, size: int, at: int) -> str:
        timestamp, ms = rfc3339(at), round(seconds * 1000, 3)
        if not self._json:
            return f"{timestamp} {status} {method:6} {route} {ms} ms {size} bytes\n"
        entry = {"event": "request", "method": method, "route": route, "status": status, "ms": ms, "bytes": size}
        return msgspec.json.encode({**entry, "level": "info", "timestamp": timestamp}).decode() + "\n"
