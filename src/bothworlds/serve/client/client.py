"""Clients for programs in Python: lists to show, and clicks that wait to be sent together."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

from .http import Caller, ClientError, worth_another_try

__all__ = ["AsyncClient", "Client", "ClientError", "Page"]

logger = logging.getLogger("bothworlds.client")

T = TypeVar("T")
BATCH = 500
MOST_WAITING = 10_000


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
    segment: str = ""  # that the list was drawn for: empty if the service had no place for the one asked for

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
        known["segment"] = answer.get("segment", "")
        return cls(items=[slot["item"] for slot in slots], p=tuple(slot["p"] for slot in slots), **known)


class Client(Caller):
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
        super().__init__(url, key, timeout=timeout, tries=tries, pause=pause)
        self._waiting: dict[str, dict[str, Any]] = {}
        self._lock, self._flush_seconds = threading.Lock(), flush_seconds
        self._sending = threading.Lock()  # held while events are on their way: they are in nobody's hands then
        self._timer: threading.Timer | None = None
        self.dropped = 0  # events given up: too many were waiting, or the service did not take them, or did not answer
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
            event = {"event_id": page.event_id, "token": page.token, "clicks": [*slots], "final": final}
            self._waiting[page.event_id] = _merged(self._waiting.pop(page.event_id, event), event)
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
                if worth_another_try(error):
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
        super()._begin_anew()
        self._waiting, self._timer = {}, None
        self._lock, self._sending = threading.Lock(), threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _take_back(self, events: Sequence[dict[str, Any]]) -> None:
        with self._lock:
            newer, self._waiting = self._waiting, {event["event_id"]: event for event in events}
            for event_id, event in newer.items():
                self._waiting[event_id] = _merged(self._waiting.get(event_id, event), event)
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


def _merged(older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """What is known of an event from two reports of it."""
    clicks = sorted({*older["clicks"], *newer["clicks"]})
    return {**newer, "clicks": clicks, "final": older["final"] or newer["final"]}


def _expect(field: str, answer: Any) -> Any:
    """A field of an answer; without it, whoever has answered is not the service, but a proxy before it perhaps."""
    if not isinstance(answer, dict) or field not in answer:
        raise ClientError(0, f"the answer is none of the service: it has no {field!r}")
    return answer[field]


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
