"""One call of the service after another, over connections that are kept; the standard library is all it needs.

Rank and feedback may be repeated without harm, for a request id always gives the same list and an event is counted
once; so may GET, PUT and DELETE. Such calls are made again, with growing pauses, if they fail for want of an answer.
Others are made once: a warm start would count twice, and a key that nobody has read would stay.
"""

from __future__ import annotations

import json
import queue
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Caller", "ClientError", "worth_another_try"]

NOT_NOW = (408, 429, 502, 503, 504)
REPEATABLE_METHODS = ("GET", "HEAD", "PUT", "DELETE")


class ClientError(Exception):
    """What the service answered, or that it did not (status 0)."""

    def __init__(self, status: int, detail: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.problem = status, detail, dict(problem or {})


def worth_another_try(error: ClientError) -> bool:
    """Whether the same call may fare better in a moment."""
    return not error.status or error.status in NOT_NOW


class Caller:
    """Calls one service; any number of threads may share it."""

    def __init__(self, url: str, key: str, *, timeout: float, tries: int, pause: Callable[[float], None]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be like http://127.0.0.1:8080; got {url!r}")
        self._parts, self._timeout, self._tries, self._pause = parts, timeout, max(1, tries), pause
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._idle: queue.LifoQueue[HTTPConnection] = queue.LifoQueue()
        self._closed = False

    def call(self, method: str, path: str, body: Any = None, *, tries: int | None = None) -> Any:
        """Any call of the API; the answer's JSON, or ``ClientError``. ``tries`` says how often, if it is up to you."""
        sent = None if body is None else json.dumps(body).encode()
        repeatable = _may_be_repeated(method, path)
        most = tries or (self._tries if repeatable else 1)
        for attempt in range(most):
            try:
                return self._once(method, path, sent, fresh=not repeatable)
            except ClientError as error:
                if attempt + 1 == most or not worth_another_try(error):
                    raise
                asked = float(error.problem.get("retry_after", 0.0))
                self._pause(max(asked, 0.1 * 2**attempt * random.uniform(0.5, 1.5)))
        raise AssertionError("at least one try is made")

    def _once(self, method: str, path: str, body: bytes | None, *, fresh: bool) -> Any:
        connection, used = self._connection(fresh)
        try:
            try:
                answer = self._exchange(connection, method, path, body)
            except (HTTPException, OSError) as error:
                connection.close()
                if not used or isinstance(error, TimeoutError):
                    raise
                # The service may close a connection that was idle just as it is used again.
                answer = self._exchange(connection, method, path, body)
            text = answer.read()
        except (HTTPException, OSError) as error:
            connection.close()
            said = str(error) or type(error).__name__
            raise ClientError(0, f"no answer from {self._parts.netloc}: {said}") from error
        self._idle.put(connection)
        if self._closed:  # by another thread, in the meantime
            self._hang_up()
        return _read(answer, text)

    def _exchange(self, connection: HTTPConnection, method: str, path: str, body: bytes | None) -> HTTPResponse:
        connection.request(method, self._parts.path.rstrip("/") + path, body, self._headers)
        return connection.getresponse()

    def _connection(self, fresh: bool) -> tuple[HTTPConnection, bool]:
        """A connection, and whether it was used before; one that is fresh fails only if the service does."""
        if not fresh:
            with suppress(queue.Empty):
                return self._idle.get_nowait(), True
        made = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        return made(str(self._parts.hostname), self._parts.port, timeout=self._timeout), False

    def _hang_up(self) -> None:
        try:
            while True:
                self._idle.get_nowait().close()
        except queue.Empty:
            return

    def _begin_anew(self) -> None:
        """In a process that was just forked off: two on one connection would read each other's answers."""
        for connection in self._idle.queue:  # as it is: whoever held a lock is not in this process
            connection.close()
        self._idle = queue.LifoQueue()


def _may_be_repeated(method: str, path: str) -> bool:
    """Whether a call that was made twice comes to the same.

    >>> _may_be_repeated("POST", "/v1/surfaces/home/rank"), _may_be_repeated("POST", "/v1/surfaces/home/warm-start")
    (True, False)
    """
    return method in REPEATABLE_METHODS or path == "/v1/feedback" or path.endswith("/rank")


def _read(answer: HTTPResponse, text: bytes) -> Any:
    try:
        said = json.loads(text) if text else {}
    except ValueError:
        said = {}
    if answer.status < 400:
        return said
    problem = said if isinstance(said, dict) else {}
    wait = answer.getheader("Retry-After", "")
    if wait.isdigit():
        problem["retry_after"] = min(int(wait), 30)
    raise ClientError(answer.status, str(problem.get("detail") or problem.get("title") or answer.reason), problem)
