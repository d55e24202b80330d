"""The endpoints that pages call: rank and feedback. They bypass the router, since they are most of the load."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import Receive, Scope, Send

from ..config import Config
from ..model import TooMany
from ..observability.metrics import RANK, Metrics
from ..schemas import Accepted, FeedbackBatch, FeedbackEvent, FeedbackResults, Pin, RankRequest, Role
from .auth import PUBLIC, Keyring, address_of
from .body import check_count, check_media_type, decode, read_body
from .problems import Problem, decoding_problem

if TYPE_CHECKING:
    from ..engine.engine import Engine

FEEDBACK = "/v1/feedback"
RANK_PREFIX, RANK_SUFFIX = "/v1/surfaces/", "/rank"
JSON = (b"application/json",)
# navigator.sendBeacon, which also works while a page is closed, can send only text without a CORS preflight. Tokens
# protect feedback from forgery.
JSON_OR_TEXT = (b"application/json", b"text/plain")
MAX_ECHOED_ID = 64
BURST_SECONDS = 20.0
MAX_ADDRESSES = 100_000
MAX_CALLERS = 1_000_000  # addresses and visitors of a day
DAY_SECONDS = 86_400

_rank_request = msgspec.json.Decoder(RankRequest)
_feedback_batch = msgspec.json.Decoder(FeedbackBatch)
_any_json = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


def page_route(path: str) -> str:
    """Return the route of a path that pages call, which is rank or feedback; empty for any other path.

    >>> page_route("/v1/surfaces/home/rank")
    '/v1/surfaces/{surface}/rank'
    >>> page_route("/v1/surfaces/home/report")
    ''
    """
    if path == FEEDBACK:
        return FEEDBACK
    return RANK if path.endswith(RANK_SUFFIX) and path.startswith(RANK_PREFIX) and path.count("/") == 4 else ""


def ranked_surface(path: str) -> str:
    """Return the surface that a path of the route of rank names."""
    return percent_decoded(path[len(RANK_PREFIX) : -len(RANK_SUFFIX)])


def percent_decoded(part: str | bytes) -> str:
    """Decode a segment of a path; an encoded slash is part of the name.

    >>> percent_decoded("menu%2Fleft")
    'menu/left'
    """
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise Problem(404, "names in a path are percent-encoded UTF-8") from None


async def send_json(send: Send, body: bytes) -> None:
    """Send a successful response; faster than by ``json_response``."""
    head = [(b"content-type", JSON[0]), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


class RateLimit:
    """Bounds the requests from each address: ``per_second`` in the long run, ``BURST_SECONDS`` of them at once.

    A token bucket, kept as the time at which it is full again. Buckets that are full are forgotten.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._clock = per_second, clock
        self._recent: dict[str, float] = {}  # by address: when its bucket is full
        self._earlier: dict[str, float] = {}
        self._rotated_at = clock()

    def check(self, scope: Scope) -> None:
        """Count a request; raise a 429 if its address has sent too many. An IPv6 address counts with its /64."""
        now = self._clock()
        if now - self._rotated_at > BURST_SECONDS or len(self._recent) >= MAX_ADDRESSES:
            self._recent, self._earlier, self._rotated_at = {}, self._recent, now
        address = _address(scope)
        full_at = max(now, self._recent.get(address) or self._earlier.get(address, 0.0)) + 1 / self._per_second
        wait = full_at - now - BURST_SECONDS
        if wait > 0:
            detail = f"too many requests without a key from this address: {self._per_second:g} a second are allowed"
            raise Problem(429, detail, headers={"retry-after": str(math.ceil(wait))})
        self._recent[address] = full_at


class PageLimit:
    """Which pages without a key are counted: ``a_day`` (UTC) of each address, and of each visitor, on a surface."""

    def __init__(self, a_day: int, clock: Callable[[], float] = time.time) -> None:
        self._a_day, self._clock = a_day, clock
        self._day, self._pages = 0, Counter[tuple[str, str]]()

    def counts(self, scope: Scope, surface: str, visitor: str) -> bool:
        """Count a page; return whether it may be learned from and compared."""
        day = int(self._clock() // DAY_SECONDS)
        if day != self._day or len(self._pages) >= MAX_CALLERS:
            self._day, self._pages = day, Counter()
        callers = [(surface, caller) for caller in (_address(scope), f"visitor {visitor}" * bool(visitor)) if caller]
        self._pages.update(callers)
        return all(self._pages[caller] <= self._a_day for caller in callers)


def _address(scope: Scope) -> str:
    """Return the address or network that a request comes from; empty if a proxy does not say it."""
    try:
        address = address_of(scope["client"][0])
    except (TypeError, ValueError):
        return ""
    return str(address if address.version == 4 else ipaddress.ip_network((address, 64), strict=False))


class RankFeedbackEndpoints:
    """Rank and feedback; each method authorises and validates one request and returns the body of its response.

    Both raise ``Problem`` or ``ServiceError``, with 429 if the engine is overloaded or the caller over the rate limit.
    """

    def __init__(self, engine: Engine, keyring: Keyring, config: Config, metrics: Metrics) -> None:
        self._engine, self._keyring, self._config, self._metrics = engine, keyring, config, metrics
        self._rate_limit = RateLimit(config.public_rate) if config.public_rate else None
        self._page_limit = PageLimit(config.public_pages_a_day) if config.public_pages_a_day else None

    async def _actor(self, scope: Scope, role: Role, public: bool) -> str:
        actor = await self._keyring.actor(scope, role, public=public)
        if actor == PUBLIC and self._rate_limit is not None:
            self._rate_limit.check(scope)
        return actor

    async def rank(self, scope: Scope, receive: Receive, surface: str) -> bytes:
        """Return the list for a page view."""
        client = await self._actor(scope, "serve", self._config.public_rank)
        check_media_type(scope, JSON)
        body = await read_body(scope, receive, self._config.limits)
        request = decode(body, _rank_request)
        pins = _by_slot(request.pins) if request.pins else {}
        counted = True
        if client == PUBLIC and self._page_limit is not None:
            counted = self._page_limit.counts(scope, surface, request.visitor)
        try:
            ranked = await self._engine.rank(
                surface,
                request.request_id,
                segment=request.segment,
                context=request.context,
                exclude=request.exclude,
                pins=pins,
                client=client,
                visitor=request.visitor,
                counted=counted,
            )
        except TooMany as error:
            raise Problem(429, str(error)) from error
        if request.exclude:
            known = {item.name for item in self._engine.registry.surface(surface).items}
            unknown = tuple(name for name in request.exclude if name not in known)
            ranked = msgspec.structs.replace(ranked, unknown_items=unknown)
        return _encode(ranked)

    async def feedback(self, scope: Scope, receive: Receive) -> bytes:
        """Return one result per event; accepted events are durable. An invalid event is rejected by itself."""
        await self._actor(scope, "ingest", self._config.public_feedback)
        check_media_type(scope, JSON_OR_TEXT)
        body = await read_body(scope, receive, self._config.limits)
        events = self._decode_batch(body)
        valid = [event for event in events if isinstance(event, FeedbackEvent)]
        engine_results = iter(await self._pass_on(valid) if valid else ())
        results = [next(engine_results) if isinstance(event, FeedbackEvent) else event for event in events]
        self._metrics.count_feedback(results)
        return _encode(FeedbackResults(results))

    async def _pass_on(self, events: list[FeedbackEvent]) -> list[Accepted]:
        try:
            return await self._engine.feedback(events)
        except TooMany as error:  # here it means overload, not a limit of the request
            raise Problem(429, str(error)) from error

    def _decode_batch(self, body: bytes) -> Sequence[FeedbackEvent | Accepted]:
        """Return the events of a batch; an event that does not match the schema becomes its own rejection."""
        try:
            events = _feedback_batch.decode(body).events
            check_count(len(events), self._config.limits.batch, "events", "/events")
            return events
        except msgspec.ValidationError as error:
            return self._decode_one_by_one(body, error)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise decoding_problem(error) from None

    def _decode_one_by_one(self, body: bytes, error: msgspec.ValidationError) -> Sequence[FeedbackEvent | Accepted]:
        batch = decode(body, _any_json)
        if not isinstance(batch, dict) or batch.keys() != {"events"} or not isinstance(batch["events"], list):
            raise decoding_problem(error)
        check_count(len(batch["events"]), self._config.limits.batch, "events", "/events")
        return [_decode_event(event) for event in batch["events"]]


def _decode_event(content: Any) -> FeedbackEvent | Accepted:
    """Return the feedback, or its rejection."""
    try:
        return msgspec.convert(content, FeedbackEvent, str_keys=True)
    except msgspec.ValidationError as error:
        event_id = content.get("event_id") if isinstance(content, dict) else None
        reason = decoding_problem(error).detail.replace("body", "event", 1)
        return Accepted(event_id[:MAX_ECHOED_ID] if isinstance(event_id, str) else "", "rejected", reason)


def _by_slot(pins: Sequence[Pin]) -> dict[int, str]:
    by_slot = {pin.slot: pin.item for pin in pins}
    if len(by_slot) < len(pins):
        detail = "two pins are at the same slot"
        raise Problem(422, detail, errors=[{"pointer": "/pins", "detail": detail}])
    return by_slot
