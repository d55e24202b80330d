"""Traces and metrics for a collector: the interface, and the implementation that does nothing.

Without the setting ``telemetry``, OpenTelemetry is not imported, and a span costs the call of a function.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from ...extras import install_command

__all__ = ["NO_TELEMETRY", "Span", "Telemetry", "open_telemetry"]


class Span(Protocol):
    """A span that has been started."""

    def set_attribute(self, key: str, value: Any) -> None:
        """Adds an attribute."""
        ...


class Telemetry(Protocol):
    """Receives spans and measurements. All methods can be called in any thread, and none blocks but ``close``."""

    enabled: bool

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[Span]:
        """Returns a span of the code in a ``with`` statement; an exception is recorded and marks it as failed."""
        ...

    def request_span(self, name: str, headers: Mapping[bytes, bytes]) -> AbstractContextManager[Span]:
        """Returns a span of a request; its parent is the one named by the W3C trace context of the headers, if any."""
        ...

    def record_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Records the duration of a request."""
        ...

    def record_feedback(self, counts: Mapping[str, int]) -> None:
        """Counts feedback by status."""
        ...

    def record_health(self, values: Mapping[str, float]) -> None:
        """Sets gauges by name."""
        ...

    def close(self) -> None:
        """Sends what is buffered. Blocks, up to the timeout of the exporter."""
        ...


class _NoSpan:
    def set_attribute(self, key: str, value: Any) -> None:
        pass


class NoTelemetry:
    """Does nothing."""

    enabled = False
    _nothing: AbstractContextManager[Span] = nullcontext(_NoSpan())

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[Span]:
        return self._nothing

    def request_span(self, name: str, headers: Mapping[bytes, bytes]) -> AbstractContextManager[Span]:
        return self._nothing

    def record_request(self, method: str, route: str, status: int, seconds: float) -> None:
        pass

    def record_feedback(self, counts: Mapping[str, int]) -> None:
        pass

    def record_health(self, values: Mapping[str, float]) -> None:
        pass

    def close(self) -> None:
        pass


NO_TELEMETRY: Telemetry = NoTelemetry()


def open_telemetry(enabled: bool) -> Telemetry:
    """Returns the telemetry of this process; raises ValueError if it is enabled and its extra is not installed."""
    if not enabled:
        return NO_TELEMETRY
    try:
        from .otlp_telemetry import OtlpTelemetry
    except ModuleNotFoundError as error:
        raise ValueError(f"the setting telemetry needs {error.name}: {install_command('telemetry')}") from error
    return OtlpTelemetry.from_environment()
