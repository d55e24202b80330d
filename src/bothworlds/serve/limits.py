"""Reading what is sent, and no more than is allowed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any

import msgspec
from starlette.types import Message, Receive, Scope

from .config import Limits
from .problems import Problem, decoding_problem

__all__ = ["Gone", "check_count", "chunks", "decode", "header", "media_type", "read_body"]


LINGER_BYTES = 32 << 20  # of a body that is too large, read so that its sender comes to hear the answer
LINGER_SECONDS = 1.0  # without any of it, after which the sender is thought to listen


class Gone(Exception):
    """The caller hung up; nobody waits for an answer."""


def header(scope: Scope, name: bytes) -> bytes:
    """The first header of that name, in lower case; empty if there is none."""
    headers: dict[bytes, bytes] | None = scope.get("bothworlds.headers")
    if headers is None:
        headers = scope["bothworlds.headers"] = dict(reversed(scope["headers"]))
    return headers.get(name, b"")


def media_type(scope: Scope, expected: Iterable[bytes]) -> bytes:
    """The type of the body, which must be one of those expected; the first of them if the request does not say."""
    expected = tuple(expected)
    if header(scope, b"content-encoding") not in (b"", b"identity"):
        raise Problem(415, "send the body as it is, without a Content-Encoding")
    said = header(scope, b"content-type").partition(b";")[0].strip().lower()
    if said and said not in expected:
        raise Problem(415, f"the body must be {' or '.join(kind.decode() for kind in expected)}")
    return said or expected[0]


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The whole body, unless it is larger than allowed or takes too long."""
    if _length(scope) > limits.body_bytes:
        raise await _announced(scope, receive, limits.body_bytes)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    body: bytes = message.get("body", b"")
    if len(body) > limits.body_bytes:
        raise await _too_large(receive, limits.body_bytes, message)
    if not message.get("more_body", False):
        return body
    parts = [body]
    async for part in _further(receive, limits.body_bytes, len(body), limits.body_seconds):
        parts.append(part)
    return b"".join(parts)


async def chunks(scope: Scope, receive: Receive, most: int, seconds: float) -> AsyncIterator[bytes]:
    """The body piece by piece; each piece may take that many seconds to arrive."""
    if _length(scope) > most:
        raise await _announced(scope, receive, most)
    async for part in _further(receive, most, 0, seconds):
        yield part


async def _further(receive: Receive, most: int, size: int, seconds: float) -> AsyncIterator[bytes]:
    more = True
    while more:
        try:
            message = await asyncio.wait_for(receive(), seconds)
        except TimeoutError:
            raise Problem(408, f"the body did not arrive within {seconds:g} seconds", headers=_CLOSE) from None
        if message["type"] == "http.disconnect":
            raise Gone
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise await _too_large(receive, most, message)
        yield part
        more = message.get("more_body", False)


_CLOSE = {"connection": "close"}  # what is left of the body is not read


def _length(scope: Scope) -> int:
    said = header(scope, b"content-length")
    return int(said[:20]) if said.isdigit() else 0


async def _announced(scope: Scope, receive: Receive, most: int) -> Problem:
    """Whoever asks before sending, or means to send without end, is answered at once."""
    heard_out = not header(scope, b"expect") and _length(scope) <= LINGER_BYTES
    return await _too_large(receive, most, {"more_body": heard_out})


async def _too_large(receive: Receive, most: int, last: Message) -> Problem:
    """The refusal, once the rest has arrived and been thrown away: many programs send all of it before they listen."""
    left = LINGER_BYTES
    with suppress(TimeoutError):
        while last.get("more_body", False) and left > 0:
            last = await asyncio.wait_for(receive(), LINGER_SECONDS)
            left -= len(last.get("body", b""))
    return Problem(413, f"the body may have {most} bytes at most", headers=_CLOSE)


def decode(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """A body as a struct."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise decoding_problem(error) from None


def check_count(count: int, most: int, what: str, pointer: str) -> None:
    """Refuse more than a limit allows."""
    if count > most:
        detail = f"{count} {what}; {most} are allowed at most"
        raise Problem(422, detail, title="Over a limit", errors=[{"pointer": pointer, "detail": detail}])
