"""HTTP requests with kept-alive connections, retries and backoff, on the standard library only.

Idempotent requests are retried: GET, HEAD, PUT, DELETE, rank (the same request id gets the same list) and feedback (an
event is counted once). Other requests are sent once: a retried creation of
a key would leave behind a key that no one has read.
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

RETRYABLE_STATUSES = (408, 429, 502, 503, 504)
IDEMPOTENT_METHODS = ("GET", "HEAD", "PUT", "DELETE")
BACKOFF_SECONDS = 0.1  # before the first retry; doubled for each further one
MAX_RETRY_AFTER = 30


class ClientError(Exception):
    """An error response of the service, or no response (status 0).

    ``problem`` is the body of the error response (RFC 9457), with ``retry_after`` in seconds if the service sent it.
    """

    def __init__(self, status: int, detail: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.problem = status, detail, dict(problem or {})


def is_retryable(error: ClientError) -> bool:
    """Return whether the same request may succeed later."""
    return not error.status or error.status in RETRYABLE_STATUSES


class HttpClient:
    """Sends requests to one service; thread-safe.

    ``tries`` is the number of attempts for idempotent requests; ``pause`` is called to sleep between them. Raises
    ValueError for a malformed URL.
    """

    def __init__(self, url: str, key: str, *, timeout: float, tries: int, pause: Callable[[float], None]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be like http://127.0.0.1:8080; got {url!r}")
        self._parts, self._timeout, self._tries, self._pause = parts, timeout, max(1, tries), pause
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._idle: queue.LifoQueue[HTTPConnection] = queue.LifoQueue()
        self._closed = False

    def call(self, method: str, path: str, body: Any = None, *, tries: int | None = None) -> Any:
        """Send a request and return the JSON of the response; raises ClientError.

        ``tries`` overrides the number of attempts, also for requests that are not idempotent.
        """
        content = None if body is None else json.dumps(body).encode()
        idempotent = _is_idempotent(method, path)
        attempts = tries or (self._tries if idempotent else 1)
        for attempt in range(attempts):
            try:
                return self._try(method, path, content, fresh=not idempotent)
            except ClientError as error:
                if attempt + 1 == attempts or not is_retryable(error):
                    raise
                retry_after = float(error.problem.get("retry_after", 0.0))
                self._pause(max(retry_after, BACKOFF_SECONDS * 2**attempt * random.uniform(0.5, 1.5)))
        raise AssertionError("at least one attempt is made")

    def close(self) -> None:
        """Close idle connections, and those in use once their request is done. The client still works."""
        self._closed = True
        self._close_idle()

    def reset_after_fork(self) -> None:
        """Drop the parent's connections in a forked process: two processes would read each other's responses."""
        for connection in self._idle.queue:  # without its lock, which a thread of the parent may have held
            connection.close()
        self._idle = queue.LifoQueue()

    def _try(self, method: str, path: str, body: bytes | None, *, fresh: bool) -> Any:
        connection, reused = self._connection(fresh)
        try:
            try:
                response = self._send(connection, method, path, body)
            except (HTTPException, OSError) as error:
                connection.close()
                if not reused or isinstance(error, TimeoutError):
                    raise
                # The service may have closed the idle connection just before it was reused.
                response = self._send(connection, method, path, body)
            content = response.read()
        except (HTTPException, OSError) as error:
            connection.close()
            reason = str(error) or type(error).__name__
            raise ClientError(0, f"no answer from {self._parts.netloc}: {reason}") from error
        self._idle.put(connection)
        if self._closed:  # by another thread meanwhile
            self._close_idle()
        return _decode(response, content)

    def _send(self, connection: HTTPConnection, method: str, path: str, body: bytes | None) -> HTTPResponse:
        connection.request(method, self._parts.path.rstrip("/") + path, body, self._headers)
        return connection.getresponse()

    def _connection(self, fresh: bool) -> tuple[HTTPConnection, bool]:
        """Return a connection and whether it was used before.

        A request that must not be repeated gets a fresh one: on a stale connection, a failure would not show whether
        the service has received the request.
        """
        if not fresh:
            with suppress(queue.Empty):
                return self._idle.get_nowait(), True
        connection_class = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        return connection_class(str(self._parts.hostname), self._parts.port, timeout=self._timeout), False

    def _close_idle(self) -> None:
        try:
            while True:
                self._idle.get_nowait().close()
        except queue.Empty:
            return


def _is_idempotent(method: str, path: str) -> bool:
    """Return whether sending a request twice has the same effect as sending it once.

    >>> _is_idempotent("POST", "/v1/surfaces/home/rank"), _is_idempotent("POST", "/v1/surfaces/home/warm-start")
    (True, False)
    """
    return method in IDEMPOTENT_METHODS or path == "/v1/feedback" or path.endswith("/rank")


def _decode(response: HTTPResponse, content: bytes) -> Any:
    """Return the JSON of a response, ``{}`` if it has none; raises ClientError for an error status."""
    try:
        decoded = json.loads(content) if content else {}
    except ValueError:
        decoded = {}
    if response.status < 400:
        return decoded
    problem = decoded if isinstance(decoded, dict) else {}
    retry_after = response.getheader("Retry-After", "")
    if retry_after.isdigit():
        problem["retry_after"] = min(int(retry_after), MAX_RETRY_AFTER)
    raise ClientError(response.status, str(problem.get("detail") or problem.get("title") or response.reason), problem)
