"""Clients for programs in Python; the standard library is all they need.

Rank and feedback may be repeated without harm, for a request id always gives the same list and an event is counted
once; so may GET, PUT and DELETE. Such calls are made again, with growing pauses, if they fail for want of an answer.
Others are made once: a warm start would count twice, and a key that nobody has read would stay.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import queue
import random
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

__all__ = ["AsyncClient", "Client", "ClientError", "Page"]

logger = logging.getLogger("bothworlds.client")

T = TypeVar("T")
WORTH_ANOTHER_TRY = (408, 429, 502, 503, 504)
REPEATABLE_METHODS = ("GET", "HEAD", "PUT", "DELETE")
BATCH = 500
MOST_WAITING = 10_000


class ClientError(Exception):
    """What the service answered, or that it did not (status 0)."""

    def __init__(self, status: int, detail: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.problem = status, detail, dict(problem or {})


@dataclass(frozen=True, slots=True)
class Page:
    """What to show: the items slot by slot, and what feedback on them must carry.

    >>> Page.own(["a", "b"]).items, Page.own(["a", "b"]).learned
    (['a', 'b'], False)
    """

    surface: str
    items: list[str]
    event_id: str = ""
    token: str = ""
    arm: str = "fallback"
    policy_id: str = ""
    p: tuple[float, ...] = ()

    @property
    def learned(self) -> bool:
        """Whether this is the service's list, not the page's own order."""
        return bool(self.event_id)

    @classmethod
    def own(cls, items: Sequence[str], surface: str = "") -> Page:
        """The page's own order, which nothing is learned from."""
        return cls(surface, list(items))

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Page:
        """The list in an answer of the service."""
        slots = answer["slots"]
        known = {key: answer[key] for key in ("surface", "event_id", "token", "arm", "policy_id")}
        return cls(items=[slot["item"] for slot in slots], p=tuple(slot["p"] for slot in slots), **known)


class Client:
    """Talks to one service; any number of threads may share it.

    ``rank`` with ``fallback`` never raises for want of a service: it gives the page's own order instead. Clicks noted
    with ``click`` and ``done`` are sent in batches, at the latest after ``flush_seconds``, by ``close``, and when the
    program ends. A process that is forked off begins with a client of its own: what waits is left to its parent.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        timeout: float = 2.0,
        tries: int = 4,
        flush_seconds: float = 0.5,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be like http://127.0.0.1:8080; got {url!r}")
        self._parts, self._timeout, self._tries, self._pause = parts, timeout, max(1, tries), pause
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._idle: queue.LifoQueue[HTTPConnection] = queue.LifoQueue()
        self._waiting: dict[str, dict[str, Any]] = {}
        self._lock, self._flush_seconds = threading.Lock(), flush_seconds
        self._sending = threading.Lock()  # held while events are on their way: they are in nobody's hands then
        self._timer: threading.Timer | None = None
        self._closed = False
        self.dropped = 0  # events given up because too many were waiting, or because the service did not take them
        _made.add(self)

    def rank(
        self,
        surface: str,
        request_id: str | None = None,
        *,
        segment: str = "",
        exclude: Sequence[str] = (),
        pins: Mapping[int, str] | None = None,
        fallback: Sequence[str] | None = None,
    ) -> Page:
        """What to show on a page; with ``fallback``, one try, and the page's own order if it fails."""
        body: dict[str, Any] = {"request_id": request_id or uuid.uuid4().hex}
        body |= {"segment": segment} if segment else {}
        body |= {"exclude": list(exclude)} if exclude else {}
        body |= {"pins": [{"slot": slot, "item": item} for slot, item in pins.items()]} if pins else {}
        path = f"/v1/surfaces/{quote(surface, safe='')}/rank"
        try:
            answer = self.call("POST", path, body, tries=self._tries if fallback is None else 1)
            _expect("slots", answer)
            return Page.of(answer)
        except ClientError as error:
            if fallback is None:
                raise
            logger.warning("the page's own order is shown: %s", error)
            return Page.own([item for item in fallback if item not in set(exclude)], surface)

    def feedback(self, events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Report clicks now; one result for each event (``event_id``, ``token``, ``clicks``, ``final``)."""
        results: list[dict[str, Any]] = []
        for start in range(0, len(events), BATCH):
            answer = self.call("POST", "/v1/feedback", {"events": list(events[start : start + BATCH])})
            results += _expect("results", answer)
        return results

    def click(self, page: Page, *slots: int, final: bool = False) -> None:
        """Note that slots were clicked; sent soon, with others. Nothing is sent for a page in its own order."""
        if not page.learned:
            return
        with self._lock:
            known = self._waiting.pop(page.event_id, {"clicks": [], "final": False})
            self._waiting[page.event_id] = {
                "event_id": page.event_id,
                "token": page.token,
                "clicks": sorted({*known["clicks"], *slots}),
                "final": known["final"] or final,
            }
            self._drop_oldest()
            self._flush_later()
            full = len(self._waiting) >= BATCH
        if full and self._sending.acquire(blocking=False):  # who sends already will be followed by the timer
            try:
                self._send()
            finally:
                self._sending.release()

    def done(self, page: Page, *slots: int) -> None:
        """Note that there will be no more clicks on a page."""
        self.click(page, *slots, final=True)

    def flush(self) -> bool:
        """Send what waits; False if the service could not be reached, when it waits on."""
        with self._sending:
            return self._send()

    def _send(self) -> bool:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            events, self._waiting = list(self._waiting.values()), {}
        taken = True
        for start in range(0, len(events), BATCH):
            batch = events[start : start + BATCH]
            try:
                self._note_rejected(self.feedback(batch))
            except ClientError as error:
                taken = False
                if error.status in WORTH_ANOTHER_TRY or not error.status:
                    self._take_back(events[start:])
                    break
                self.dropped += len(batch)
                logger.warning("the service refused %d events: %s", len(batch), error)
        return taken

    def _note_rejected(self, results: Sequence[Mapping[str, Any]]) -> None:
        """The service says so of each event by itself, and whoever has only noted clicks would never hear of it."""
        rejected = [result for result in results if result["status"] == "rejected"]
        if rejected:
            self.dropped += len(rejected)
            logger.warning("the service rejected %d events: %s", len(rejected), rejected[0].get("reason", ""))

    def close(self) -> None:
        """Send what waits, and what another thread could not send just now; then hang up."""
        self._closed = True
        self.flush()
        with self._lock:
            lost, self._waiting = len(self._waiting), {}
        if lost:
            self.dropped += lost
            logger.warning("%d events are given up: the service could not be reached", lost)
        self._hang_up()

    def _begin_anew(self) -> None:
        """In a process that was just forked off: two on one connection would read each other's answers."""
        for connection in self._idle.queue:  # as it is: whoever held a lock is not in this process
            connection.close()
        self._idle, self._waiting, self._timer = queue.LifoQueue(), {}, None
        self._lock, self._sending = threading.Lock(), threading.Lock()

    def _hang_up(self) -> None:
        try:
            while True:
                self._idle.get_nowait().close()
        except queue.Empty:
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def call(self, method: str, path: str, body: Any = None, *, tries: int | None = None) -> Any:
        """Any call of the API; the answer's JSON, or ``ClientError``. ``tries`` says how often, if it is up to you."""
        sent = None if body is None else json.dumps(body).encode()
        repeatable = _may_be_repeated(method, path)
        most = tries or (self._tries if repeatable else 1)
        for attempt in range(most):
            try:
                return self._once(method, path, sent, fresh=not repeatable)
            except ClientError as error:
                if attempt + 1 == most or (error.status and error.status not in WORTH_ANOTHER_TRY):
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

    def _take_back(self, events: Sequence[dict[str, Any]]) -> None:
        with self._lock:
            newer, self._waiting = self._waiting, {event["event_id"]: event for event in events}
            for event_id, event in newer.items():
                older = self._waiting.get(event_id, {"clicks": [], "final": False})
                event["clicks"] = sorted({*older["clicks"], *event["clicks"]})
                event["final"] = older["final"] or event["final"]
                self._waiting[event_id] = event
            self._drop_oldest()
            self._flush_later()

    def _drop_oldest(self) -> None:
        while len(self._waiting) > MOST_WAITING:
            self._waiting.pop(next(iter(self._waiting)))
            self.dropped += 1

    def _flush_later(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = threading.Timer(self._flush_seconds, self.flush)
            self._timer.daemon = True
            self._timer.start()


def _may_be_repeated(method: str, path: str) -> bool:
    """Whether a call that was made twice comes to the same.

    >>> _may_be_repeated("POST", "/v1/surfaces/home/rank"), _may_be_repeated("POST", "/v1/surfaces/home/warm-start")
    (True, False)
    """
    return method in REPEATABLE_METHODS or path == "/v1/feedback" or path.endswith("/rank")


def _expect(field: str, answer: Any) -> Any:
    """A field of an answer; without it, whoever has answered is not the service, but a proxy before it perhaps."""
    if not isinstance(answer, dict) or field not in answer:
        raise ClientError(0, f"the answer is none of the service: it has no {field!r}")
    return answer[field]


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


class AsyncClient:
    """The same for asyncio: each call runs in one of a few threads, so that there is one way of talking HTTP."""

    def __init__(self, url: str, key: str = "", *, connections: int = 16, **settings: Any) -> None:
        self._client, self._connections = Client(url, key, **settings), connections
        self._begin_anew()
        _made.add(self)

    def _begin_anew(self) -> None:
        self._threads = ThreadPoolExecutor(self._connections, thread_name_prefix="bothworlds-client")

    @property
    def dropped(self) -> int:
        """As ``Client.dropped``."""
        return self._client.dropped

    async def rank(self, surface: str, request_id: str | None = None, **options: Any) -> Page:
        """As ``Client.rank``."""
        return await self._run(lambda: self._client.rank(surface, request_id, **options))

    async def feedback(self, events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """As ``Client.feedback``."""
        return await self._run(lambda: self._client.feedback(events))

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """As ``Client.call``."""
        return await self._run(lambda: self._client.call(method, path, body))

    async def click(self, page: Page, *slots: int, final: bool = False) -> None:
        """As ``Client.click``."""
        await self._run(lambda: self._client.click(page, *slots, final=final))

    async def done(self, page: Page, *slots: int) -> None:
        """As ``Client.done``."""
        await self.click(page, *slots, final=True)

    async def flush(self) -> bool:
        """As ``Client.flush``."""
        return await self._run(self._client.flush)

    async def close(self) -> None:
        """As ``Client.close``."""
        await self._run(self._client.close)
        self._threads.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, job)


_made: weakref.WeakSet[Client | AsyncClient] = weakref.WeakSet()


def _begin_all_anew() -> None:
    for client in list(_made):
        client._begin_anew()


def _close_all() -> None:
    for client in list(_made):
        if isinstance(client, Client):
            client.close()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all_anew)
