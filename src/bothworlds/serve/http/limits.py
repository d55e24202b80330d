"""Reading what is sent, and no more than is allowed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any

import msgspec
from starlette.types import Receive, Scope

from ..config import Limits
from .problems import Problem, decoding_problem

__all__ = ["Gone", "check_count", "chunks", "decode", "header", "media_type", "read_body"]


# Of a body that is too large so much is read, and for so long, so that its sender comes to hear the answer.
LINGER_BYTES, LINGER_SECONDS = 32 << 20, 5.0
SILENCE_SECONDS = 1.0  # after which the sender is thought to listen


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
    await _check_length(scope, receive, limits.body_bytes)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _whole(receive, limits.body_bytes)
    except TimeoutError:
        raise _late(limits.body_seconds) from None
    except _Larger as found:
        raise await _too_large(receive, limits.body_bytes, found.more) from None


async def chunks(scope: Scope, receive: Receive, most: int, seconds: float) -> AsyncIterator[bytes]:
    """The body piece by piece; each piece may take that many seconds to arrive."""
    await _check_length(scope, receive, most)
    size, more = 0, True
    while more:
        try:
            async with asyncio.timeout(seconds):
                part, more = await _piece(receive, most - size)
        except TimeoutError:
            raise _late(seconds) from None
        except _Larger as found:
            raise await _too_large(receive, most, found.more) from None
        size += len(part)
        yield part


async def _whole(receive: Receive, most: int) -> bytes:
    body, more = await _piece(receive, most)
    if not more:
        return body
    parts, size = [body], len(body)
    while more:
        part, more = await _piece(receive, most - size)
        parts.append(part)
        size += len(part)
    return b"".join(parts)


async def _piece(receive: Receive, most: int) -> tuple[bytes, bool]:
    """What has arrived, and whether there is more to come."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    part, more = message.get("body", b""), message.get("more_body", False)
    if len(part) > most:
        raise _Larger(more)
    return part, more


class _Larger(Exception):
    """A body is larger than allowed; is there more of it to come?"""

    def __init__(self, more: bool) -> None:
        self.more = more


_CLOSE = {"connection": "close"}  # what is left of the body is not read


async def _check_length(scope: Scope, receive: Receive, most: int) -> None:
    """Refuse a body that is said to be too large. Whoever asks before sending, or sends for long, hears it at once."""
    said = header(scope, b"content-length")
    length = int(said[:20]) if said.isdigit() else 0
    if length > most:
        raise await _too_large(receive, most, not header(scope, b"expect") and length <= LINGER_BYTES)


async def _too_large(receive: Receive, most: int, more: bool) -> Problem:
    """The refusal, once the rest has arrived and been thrown away: many programs send all of it before they listen."""
    left = LINGER_BYTES
    with suppress(TimeoutError):
        # Two timeouts and no wait_for, which on 3.11 forgets a timeout around it that passes while a piece comes in.
        async with asyncio.timeout(LINGER_SECONDS):
            while more and left > 0:
                async with asyncio.timeout(SILENCE_SECONDS):
                    last = await receive()
                more, left = last.get("more_body", False), left - len(last.get("body", b""))
    return Problem(413, f"the body may have {most} bytes at most", headers=_CLOSE)


def _late(seconds: float) -> Problem:
    return Problem(408, f"the body did not arrive within {seconds:g} seconds", headers=_CLOSE)


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
