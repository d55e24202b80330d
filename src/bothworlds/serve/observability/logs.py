"""The log: JSON lines on stderr, or readable lines on a terminal.

A request is logged by its method, the template of its path, its status, its duration and its size: no ids, no
addresses, no query, no headers and no bodies, so that nothing personal and no key or token can get in.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, Literal, TextIO

import msgspec
import structlog

from ..schemas import rfc3339

__all__ = ["RequestLog", "logger", "set_up_logs", "warn_throttled"]

FLUSH_AFTER = 200
THROTTLE_SECONDS = 1.0

logger = structlog.get_logger("bothworlds")


class Forgiving:
    """A stream for logs; a disk that is full, or a pipe that nobody reads any more, is no reason to serve worse."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def set_up_logs(kind: Literal["auto", "json", "console"], stream: TextIO | None = None) -> bool:
    """Send all logs of the process to stderr; says whether they are JSON."""
    stream = stream or sys.stderr
    json = kind == "json" or (kind == "auto" and not stream.isatty())
    forgiving: Any = Forgiving(stream)
    renderer: Any = structlog.processors.JSONRenderer(_dumps) if json else _for_people()
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(forgiving),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    return json


def _for_people() -> structlog.dev.ConsoleRenderer:
    # Other tracebacks show the values of variables, and among these are tokens and keys.
    return structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)


def _dumps(entry: MutableMapping[str, Any], **options: Any) -> str:
    return msgspec.json.encode(entry, enc_hook=str).decode()


def warn_throttled(event: str, **fields: Any) -> None:
    """Log a warning that every request may cause, at most once in ``THROTTLE_SECONDS`` for each event and reason."""
    now, key = time.monotonic(), (event, fields.get("reason"))
    if now - _last_warnings.get(key, -THROTTLE_SECONDS) >= THROTTLE_SECONDS:
        _last_warnings[key] = now
        logger.warning(event, **fields)


_last_warnings: dict[tuple[str, Any], float] = {}


class RequestLog:
    """Requests, written some at a time: a line costs about a microsecond, not the thirty of a general logger."""

    def __init__(self, enabled: bool, json: bool, clock: Callable[[], int], stream: TextIO | None = None) -> None:
        self._enabled, self._json, self._clock = enabled, json, clock
        self._stream = stream
        self._lines: list[dict[str, Any]] = []

    def answered(self, method: str, route: str, status: int, seconds: float, size: int) -> None:
        """Note one request."""
        if not self._enabled:
            return
        entry = {"event": "request", "method": method, "route": route, "status": status}
        self._lines.append({**entry, "ms": round(seconds * 1000, 3), "bytes": size, "at": self._clock()})
        if len(self._lines) >= FLUSH_AFTER:
            self.flush()

    def flush(self) -> None:
        """Write what was noted."""
        lines, self._lines = self._lines, []
        stream = Forgiving(self._stream or sys.stderr)
        if lines:
            stream.write("".join(self._said(line) for line in lines))
            stream.flush()

    def _said(self, line: dict[str, Any]) -> str:
        timestamp = rfc3339(line.pop("at"))
        if self._json:
            return msgspec.json.encode({**line, "level": "info", "timestamp": timestamp}).decode() + "\n"
        return (
            f"{timestamp} {line['status']} {line['method']:6} {line['route']} {line['ms']} ms {line['bytes']} bytes\n"
        )
