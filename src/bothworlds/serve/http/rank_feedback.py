"""The endpoints that pages call: rank and feedback. They bypass the router, since they are most of the load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.types import Receive, Scope

from ..config import Config
from ..engine_protocol import EngineProtocol
from ..model import TooMany
from ..observability.metrics import Metrics
from ..schemas import Accepted, FeedbackBatch, FeedbackEvent, FeedbackResults, Pin, RankRequest, rfc3339
from .auth import Keyring
from .problems import Problem, decoding_problem
from .request_body import check_count, decode, media_type, read_body

__all__ = ["RankFeedbackEndpoints", "Reply"]

JSON = (b"application/json",)
# navigator.sendBeacon, which also works while a page is closed, can send only text without a CORS preflight. Tokens
# protect feedback from forgery.
JSON_OR_TEXT = (b"application/json", b"text/plain")
MAX_ECHOED_ID = 64

_rank_request = msgspec.json.Decoder(RankRequest)
_feedback_batch = msgspec.json.Decoder(FeedbackBatch)
_any_json = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


class Reply(NamedTuple):
    """A response that has not been sent yet."""

    status: int
    body: bytes
    request_bytes: int


class RankFeedbackEndpoints:
    """Rank and feedback; each method authorises, validates and answers one request.

    Both raise ``Problem`` or ``ServiceError``, with 429 if the engine is overloaded.
    """

    def __init__(self, engine: EngineProtocol, keyring: Keyring, config: Config, metrics: Metrics) -> None:
        self._engine, self._keyring, self._config, self._metrics = engine, keyring, config, metrics

    async def rank(self, scope: Scope, receive: Receive, surface: str) -> Reply:
        """Answer with the list for a page view."""
        client = await self._keyring.actor(scope, "serve", public=self._config.public_rank)
        media_type(scope, JSON)
        body = await read_body(scope, receive, self._config.limits)
        request = decode(body, _rank_request)
        pins = _by_slot(request.pins) if request.pins else {}
        try:
            ranked = await self._engine.rank(
                surface,
                request.request_id,
                segment=request.segment,
                exclude=request.exclude,
                pins=pins,
                client=client,
                visitor=request.visitor,
            )
        except TooMany as error:
            raise Problem(429, str(error)) from error
        answer = {
            "event_id": ranked.event_id,
            "surface": ranked.surface,
            "arm": ranked.arm,
            "policy_id": ranked.policy_id,
            "expires_at": rfc3339(ranked.expires_at),
            "token": ranked.token,
            "slots": ranked.slots,
            "segment": ranked.segment,
        }
        if request.exclude:
            answer |= self._unknown(surface, request.exclude)
        return Reply(200, _encode(answer), len(body))

    def _unknown(self, surface: str, exclude: Sequence[str]) -> dict[str, list[str]]:
        known = {item.name for item in self._engine.surface(surface).items}
        unknown = [name for name in exclude if name not in known]
        return {"unknown_items": unknown} if unknown else {}

    async def feedback(self, scope: Scope, receive: Receive) -> Reply:
        """Answer with one result per event; accepted events are durable. An invalid event is rejected by itself."""
        await self._keyring.actor(scope, "ingest", public=self._config.public_feedback)
        media_type(scope, JSON_OR_TEXT)
        body = await read_body(scope, receive, self._config.limits)
        events = self._decode_batch(body)
        valid = [event for event in events if isinstance(event, FeedbackEvent)]
        engine_results = iter(await self._pass_on(valid) if valid else ())
        results = [next(engine_results) if isinstance(event, FeedbackEvent) else event for event in events]
        self._metrics.count_feedback(results)
        return Reply(200, _encode(FeedbackResults(results)), len(body))

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
            return _without_repeated_slots(body, events) if any(event.rewards for event in events) else events
        except msgspec.ValidationError as error:
            return self._decode_one_by_one(body, error)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise decoding_problem(error) from None

    def _decode_one_by_one(self, body: bytes, error: msgspec.ValidationError) -> Sequence[FeedbackEvent | Accepted]:
        batch = decode(body, _any_json)
        if not isinstance(batch, dict) or batch.keys() != {"events"} or not isinstance(batch["events"], list):
            raise decoding_problem(error)
        check_count(len(batch["events"]), self._config.limits.batch, "events", "/events")
        return _without_repeated_slots(body, [_decode_event(event) for event in batch["events"]])


class _RawEvents(msgspec.Struct):
    events: list[msgspec.Raw]


class _RawRewards(msgspec.Struct):
    rewards: msgspec.Raw = msgspec.Raw(b"{}")


_raw_events = msgspec.json.Decoder(_RawEvents)
_raw_rewards = msgspec.json.Decoder(_RawRewards)


def _without_repeated_slots(body: bytes, events: Sequence[FeedbackEvent | Accepted]) -> list[FeedbackEvent | Accepted]:
    """Return the events of a batch; one whose rewards name a slot twice, which JSON allows, becomes a rejection."""
    checked = list(events)
    for k, raw in enumerate(_raw_events.decode(body).events):
        event = checked[k]
        if isinstance(event, FeedbackEvent) and event.rewards:
            pairs = json.loads(bytes(_raw_rewards.decode(raw).rewards), object_pairs_hook=list)
            if len(pairs) > len(event.rewards):
                checked[k] = Accepted(event.event_id, "rejected", "rewards must not name a slot twice")
    return checked


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
