"""The two calls that a page makes, rank and feedback: straight from bytes to the engine and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.types import Receive, Scope

from ..config import Config
from ..model import TooMany
from ..observability.metrics import Metrics
from ..schemas import Accepted, FeedbackBatch, FeedbackEvent, FeedbackResults, Pin, RankRequest, rfc3339
from .auth import Keyring
from .limits import check_count, decode, media_type, read_body
from .problems import Problem, decoding_problem

__all__ = ["Hot", "Reply"]

JSON = (b"application/json",)
# A page that is being left can send text only (navigator.sendBeacon); tokens protect feedback from forgery.
JSON_OR_TEXT = (b"application/json", b"text/plain")

_rank_request = msgspec.json.Decoder(RankRequest)
_feedback_batch = msgspec.json.Decoder(FeedbackBatch)
_encode = msgspec.json.Encoder().encode


class Reply(NamedTuple):
    """An answer before it is sent."""

    status: int
    body: bytes
    size: int  # of the request


class Hot:
    """Rank and feedback."""

    def __init__(self, engine: Any, keyring: Keyring, config: Config, metrics: Metrics) -> None:
        self._engine, self._keyring, self._config, self._metrics = engine, keyring, config, metrics

    async def rank(self, scope: Scope, receive: Receive, surface: str) -> Reply:
        """Which items to show."""
        client = await self._keyring.actor(scope, "serve", public=self._config.public_rank)
        media_type(scope, JSON)
        body = await read_body(scope, receive, self._config.limits)
        asked = decode(body, _rank_request)
        pins = _by_slot(asked.pins) if asked.pins else {}
        try:
            ranked = await self._engine.rank(
                surface, asked.request_id, segment=asked.segment, exclude=asked.exclude, pins=pins, client=client
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
        return Reply(200, _encode(answer), len(body))

    async def feedback(self, scope: Scope, receive: Receive) -> Reply:
        """What visitors did; each event is judged alone."""
        await self._keyring.actor(scope, "ingest", public=self._config.public_feedback)
        media_type(scope, JSON_OR_TEXT)
        body = await read_body(scope, receive, self._config.limits)
        events = self._events(body)
        good = [event for event in events if isinstance(event, FeedbackEvent)]
        taken = iter(await self._taken(good) if good else ())
        results = [next(taken) if isinstance(event, FeedbackEvent) else event for event in events]
        self._metrics.fed_back(results)
        return Reply(200, _encode(FeedbackResults(results)), len(body))

    async def _taken(self, events: list[FeedbackEvent]) -> list[Accepted]:
        try:
            results: list[Accepted] = await self._engine.feedback(events)
        except TooMany as error:  # not a limit of what may be asked for, but of what can be done now
            raise Problem(429, str(error)) from error
        return results

    def _events(self, body: bytes) -> Sequence[FeedbackEvent | Accepted]:
        """The events of a batch; one that is not as expected becomes its own rejection."""
        try:
            events = _feedback_batch.decode(body).events
            check_count(len(events), self._config.limits.batch, "events", "/events")
            return events
        except msgspec.ValidationError as error:
            return self._one_by_one(body, error)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise decoding_problem(error) from None

    def _one_by_one(self, body: bytes, error: msgspec.ValidationError) -> Sequence[FeedbackEvent | Accepted]:
        batch = decode(body, _anything)
        if not isinstance(batch, dict) or batch.keys() != {"events"} or not isinstance(batch["events"], list):
            raise decoding_problem(error)
        check_count(len(batch["events"]), self._config.limits.batch, "events", "/events")
        return [_judged(event) for event in batch["events"]]


_anything = msgspec.json.Decoder()


def _judged(said: Any) -> FeedbackEvent | Accepted:
    try:
        return msgspec.convert(said, FeedbackEvent)
    except msgspec.ValidationError as error:
        name = said.get("event_id") if isinstance(said, dict) else None
        reason = decoding_problem(error)
        event_id = name[:64] if isinstance(name, str) else ""
        return Accepted(event_id, "rejected", reason.detail.replace("body", "event", 1))


def _by_slot(pins: Sequence[Pin]) -> dict[int, str]:
    by_slot = {pin.slot: pin.item for pin in pins}
    if len(by_slot) < len(pins):
        detail = "two pins are at the same slot"
        raise Problem(422, detail, errors=[{"pointer": "/pins", "detail": detail}])
    return by_slot
