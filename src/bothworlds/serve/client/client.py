"""Clients for Python programs: lists to show, and clicks that are queued and sent in batches."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NotRequired, ParamSpec, Self, TypedDict, TypeVar
from urllib.parse import quote, urlencode

from .http import ClientError, HttpClient, is_retryable

if TYPE_CHECKING:
    from ..model import Status

logger = logging.getLogger("bothworlds.client")

P = ParamSpec("P")
T = TypeVar("T")
BATCH = 500
MAX_QUEUED = 10_000


class FeedbackEvent(TypedDict):
    """Clicks on one list, as ``schemas.FeedbackEvent``; ``final`` if no more clicks will follow.

    On a surface that counts rewards, ``rewards`` from 0 to 1 by slot instead of clicks. ``shown`` is whether the
    visitor could see the list.
    """

    event_id: str
    token: str
    clicks: NotRequired[list[int]]
    final: NotRequired[bool]
    rewards: NotRequired[dict[int, float]]
    shown: NotRequired[bool | None]


class FeedbackResult(TypedDict):
    """The result of one event, as ``schemas.Accepted``; ``reason`` is there if the event was rejected."""

    event_id: str
    status: Status
    reason: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Page:
    """A list to show: the items slot by slot, and the fields that feedback on it needs.

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
    segment: str = ""  # the value of the label segment; empty if unknown
    context: Mapping[str, str] = field(default_factory=dict)  # the labels that are learned for; empty: unknown
    unknown_items: tuple[str, ...] = ()  # names in exclude that the surface does not have

    @property
    def learned(self) -> bool:
        """Whether the service chose this list; False for the page's own order."""
        return bool(self.event_id)

    @classmethod
    def own(cls, items: Sequence[str], surface: str = "") -> Page:
        """Return a page in its own order; no feedback is sent for it."""
        return cls(surface, list(items))

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Page:
        """Return the page of a rank response; unknown fields are ignored."""
        slots = answer["slots"]
        return cls(
            surface=answer["surface"],
            items=[slot["item"] for slot in slots],
            event_id=answer["event_id"],
            token=answer["token"],
            arm=answer["arm"],
            policy_id=answer["policy_id"],
            p=tuple(slot["p"] for slot in slots),
            segment=answer.get("segment", ""),
            context=answer.get("context", {}),
            unknown_items=tuple(answer.get("unknown_items", ())),
        )


class Client:
    """A client of one service; thread-safe.

    ``key`` is an API key, if the service needs one. ``timeout`` is in seconds per attempt, ``tries`` the number of
    attempts for requests that may be repeated, ``pause`` is called to sleep between them. Clicks that are queued with
    ``click`` and ``done`` are sent in batches: after ``flush_seconds`` at the latest, by ``close``, and at the exit of
    the program. ``rank`` with ``fallback`` does not raise if the service fails. A forked process starts with an empty
    queue; the events queued before the fork are sent by its parent.
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
        self._http = HttpClient(url, key, timeout=timeout, tries=tries, pause=pause)
        self._queued: dict[str, FeedbackEvent] = {}
        self._lock, self._flush_seconds = threading.Lock(), flush_seconds
        self._sending = threading.Lock()  # held while events are neither queued nor acknowledged
        self._timer: threading.Timer | None = None
        self._closed = False
        self.dropped = 0  # events lost: the queue was full, or the service refused them or could not be reached
        _clients.add(self)

    def rank(
        self,
        surface: str,
        request_id: str | None = None,
        *,
        segment: str = "",
        context: Mapping[str, str | bool | float] | None = None,
        exclude: Sequence[str] = (),
        pins: Mapping[int, str] | None = None,
        fallback: Sequence[str] | None = None,
        visitor: str = "",
        shown: bool = True,
    ) -> Page:
        """Return the list to show; the same ``request_id`` gets the same list, None gets a new one.

        ``context`` are the visitor's labels, and ``segment`` is the label of that name. ``visitor`` is your id of the
        visitor, who stays in the same arm; the service keeps only a hash of it. The list is reported as shown, with
        the next clicks; with ``shown=False`` it is not, until ``shown`` or ``done`` is called: pages that nobody
        reports as shown are not learned from.

        Raises ClientError. With ``fallback``, makes a single attempt and returns these items in their own order,
        without the excluded ones, if it fails.
        """
        body: dict[str, Any] = {"request_id": request_id or uuid.uuid4().hex}
        body |= {"segment": segment} if segment else {}
        body |= {"context": dict(context)} if context else {}
        body |= {"visitor": visitor} if visitor else {}
        body |= {"exclude": list(exclude)} if exclude else {}
        body |= {"pins": [{"slot": slot, "item": item} for slot, item in pins.items()]} if pins else {}
        path = f"/v1/surfaces/{quote(surface, safe='')}/rank"
        try:
            answer = self.call("POST", path, body, tries=None if fallback is None else 1)
            _require("slots", answer)
            page = Page.of(answer)
        except ClientError as error:
            if fallback is None:
                raise
            logger.warning("the page's own order is shown: %s", error)
            return Page.own([item for item in fallback if item not in set(exclude)], surface)
        if shown:
            self._enqueue({**_no_clicks(page), "shown": True})  # sent with others: the list must not wait for it
        return page

    def feedback(self, events: Sequence[FeedbackEvent]) -> list[FeedbackResult]:
        """Send feedback now and return one result per event, in order; accepted events are durable. Raises ClientError.

        More than ``BATCH`` events take several requests; those of requests before a failed one have been sent.
        """
        results: list[FeedbackResult] = []
        for start in range(0, len(events), BATCH):
            answer = self.call("POST", "/v1/feedback", {"events": list(events[start : start + BATCH])})
            results += _require("results", answer)
        return results

    def call(self, method: str, path: str, body: Any = None, *, tries: int | None = None) -> Any:
        """Send any request of the API and return the JSON of the response; raises ClientError.

        Requests that may be repeated are retried; ``tries`` sets the number of attempts for this request.
        """
        return self._http.call(method, path, body, tries=tries)

    def delete_surface(self, surface: str) -> bool:
        """Delete a surface with all its events; return False if there was none. Needs the role admin."""
        return self._delete(f"/v1/surfaces/{quote(surface, safe='')}")

    def delete_event(self, event_id: str) -> bool:
        """Delete an event; what was learned from it stays. Return False if there was none. Needs the role admin."""
        return self._delete(f"/v1/events/{quote(event_id, safe='')}")

    def delete_request(self, surface: str, request_id: str) -> int:
        """Delete the event of a request, if there is one; return how many were deleted. Needs the role admin."""
        query = urlencode({"surface": surface, "request_id": request_id})
        return int(_require("deleted", self.call("DELETE", f"/v1/events?{query}")))

    def delete_context(self, surface: str, context: Mapping[str, str]) -> int:
        """Delete the events of visitors with all of these labels; return how many there were. Needs the role admin."""
        query = urlencode({"surface": surface, "context": json.dumps(dict(context))})
        return int(_require("deleted", self.call("DELETE", f"/v1/events?{query}")))

    def delete_visitor(self, visitor: str) -> int:
        """Delete all events of a visitor; return how many were deleted. Needs the role admin."""
        return int(_require("deleted", self.call("DELETE", f"/v1/events?{urlencode({'visitor': visitor})}")))

    def _delete(self, path: str) -> bool:
        try:
            self.call("DELETE", path)
        except ClientError as error:
            if error.status != 404:
                raise
            return False
        return True

    def click(self, page: Page, *slots: int, final: bool = False) -> None:
        """Queue clicks on slots of a page; a no-op for a page in its own order.

        A full batch is sent at once, in this thread, unless another thread is sending.
        """
        if page.learned:
            self._queue({**_no_clicks(page), "clicks": [*slots], "final": final})

    def shown(self, page: Page, shown: bool = True) -> None:
        """Queue that the list of a page was shown, or that it was not; otherwise as ``click``.

        A page that was not shown, and has no click, is neither learned from nor compared.
        """
        if page.learned:
            self._queue({**_no_clicks(page), "shown": shown})

    def reward(self, page: Page, rewards: Mapping[int, float], *, final: bool = False) -> None:
        """Queue rewards from 0 to 1 by slot of a page, for a surface that counts rewards; otherwise as ``click``.

        Of several rewards for the same slot, the largest counts. Raises ValueError for a reward outside [0, 1].
        """
        for slot, value in rewards.items():
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"a reward must be a number from 0 to 1; got {value!r} for slot {slot}")
        if page.learned:
            self._queue({**_no_clicks(page), "final": final, "rewards": dict(rewards)})

    def _queue(self, event: FeedbackEvent) -> None:
        if self._enqueue(event) >= BATCH and self._sending.acquire(blocking=False):
            try:
                self._send()
            finally:
                self._sending.release()

    def _enqueue(self, event: FeedbackEvent) -> int:
        """Queue an event and return how many are queued."""
        with self._lock:
            self._queued[event["event_id"]] = _merged(self._queued.pop(event["event_id"], event), event)
            self._drop_oldest()
            self._start_timer()
            return len(self._queued)

    @property
    def queued(self) -> int:
        """How many events wait to be sent."""
        return len(self._queued)

    def done(self, page: Page, *slots: int) -> None:
        """Queue clicks as ``click``; no more clicks on this page will follow."""
        self.click(page, *slots, final=True)

    def flush(self) -> bool:
        """Send all queued events; return False if some were not taken.

        Events that may be taken later stay queued; refused ones are counted as dropped.
        """
        with self._sending:
            return self._send()

    def _send(self) -> bool:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            events, self._queued = list(self._queued.values()), {}
        taken = True
        for start in range(0, len(events), BATCH):
            batch = events[start : start + BATCH]
            try:
                self._count_rejected(self.feedback(batch))
            except ClientError as error:
                taken = False
                if is_retryable(error):
                    self._requeue(events[start:])
                    break
                self.dropped += len(batch)
                logger.warning("the service refused %d events: %s", len(batch), error)
        return taken

    def _count_rejected(self, results: Sequence[FeedbackResult]) -> None:
        """Count and log events that the service rejected one by one: the response itself is a success."""
        rejected = [result for result in results if result["status"] == "rejected"]
        if rejected:
            self.dropped += len(rejected)
            logger.warning("the service rejected %d events: %s", len(rejected), rejected[0].get("reason", ""))

    def close(self) -> None:
        """Send all queued events, drop those that cannot be sent, and close the connections.

        Waits for a flush of another thread and sends what that could not.
        """
        self._closed = True
        self.flush()
        with self._lock:
            lost, self._queued = len(self._queued), {}
        if lost:
            self.dropped += lost
            logger.warning("%d events are dropped: the service could not be reached", lost)
        self._http.close()

    def _reset_after_fork(self) -> None:
        self._http.reset_after_fork()
        self._queued, self._timer = {}, None
        self._lock, self._sending = threading.Lock(), threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _requeue(self, events: Sequence[FeedbackEvent]) -> None:
        with self._lock:
            newer, self._queued = self._queued, {event["event_id"]: event for event in events}
            for event_id, event in newer.items():
                self._queued[event_id] = _merged(self._queued.get(event_id, event), event)
            self._drop_oldest()
            self._start_timer()

    def _drop_oldest(self) -> None:
        while len(self._queued) > MAX_QUEUED:
            self._queued.pop(next(iter(self._queued)))
            self.dropped += 1

    def _start_timer(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = threading.Timer(self._flush_seconds, self.flush)
            self._timer.daemon = True
            self._timer.start()


def _no_clicks(page: Page) -> FeedbackEvent:
    return {"event_id": page.event_id, "token": page.token, "clicks": [], "final": False}


def _merged(older: FeedbackEvent, newer: FeedbackEvent) -> FeedbackEvent:
    """Return one event with the clicks of both, the larger rewards, and what the newer one says of being shown."""
    clicks = sorted({*older["clicks"], *newer["clicks"]})
    merged: FeedbackEvent = {**older, **newer, "clicks": clicks, "final": older["final"] or newer["final"]}
    one, other = older.get("rewards", {}), newer.get("rewards", {})
    if one or other:
        merged["rewards"] = {slot: max(one.get(slot, 0.0), other.get(slot, 0.0)) for slot in sorted({*one, *other})}
    return merged


def _require(field: str, answer: Any) -> Any:
    """Return a field of a response; raises ClientError if it is missing: a proxy may have answered instead."""
    if not isinstance(answer, dict) or field not in answer:
        raise ClientError(
            0, f"the response has no {field!r}; it did not come from the service: a proxy may have answered"
        )
    return answer[field]


def _in_thread(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Return a coroutine method that calls a method of ``Client`` in a thread."""

    @wraps(method)
    async def call(client: AsyncClient, /, *args: P.args, **options: P.kwargs) -> T:
        job = partial(method, client._client, *args, **options)
        return await asyncio.get_running_loop().run_in_executor(client._threads, job)

    return call


class AsyncClient:
    """``Client`` for asyncio: each call runs in one of ``connections`` threads. Settings are those of ``Client``."""

    def __init__(self, url: str, key: str = "", *, connections: int = 16, **settings: Any) -> None:
        self._client, self._connections = Client(url, key, **settings), connections
        self._reset_after_fork()
        _clients.add(self)

    def _reset_after_fork(self) -> None:
        self._threads = ThreadPoolExecutor(self._connections, thread_name_prefix="bothworlds-client")

    @property
    def dropped(self) -> int:
        """As ``Client.dropped``."""
        return self._client.dropped

    rank = _in_thread(Client.rank)
    feedback = _in_thread(Client.feedback)
    call = _in_thread(Client.call)
    delete_surface = _in_thread(Client.delete_surface)
    delete_event = _in_thread(Client.delete_event)
    delete_request = _in_thread(Client.delete_request)
    delete_context = _in_thread(Client.delete_context)
    delete_visitor = _in_thread(Client.delete_visitor)
    click = _in_thread(Client.click)
    shown = _in_thread(Client.shown)
    reward = _in_thread(Client.reward)
    done = _in_thread(Client.done)
    flush = _in_thread(Client.flush)
    _close = _in_thread(Client.close)

    async def close(self) -> None:
        """As ``Client.close``; also ends the threads."""
        await self._close()
        self._threads.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


_clients: weakref.WeakSet[Client | AsyncClient] = weakref.WeakSet()


def _reset_all_after_fork() -> None:
    for client in list(_clients):
        client._reset_after_fork()


def _close_all() -> None:
    for client in list(_clients):
        if isinstance(client, Client):
            client.close()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all_after_fork)
