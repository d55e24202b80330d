"""Reading requests within limits: headers, media types, bodies, and their decoding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any

import msgspec
from starlette.types import Receive, Scope

from ..config import Limits
from .problems import Problem, decoding_problem

__all__ = ["ARRIVED", "ClientDisconnected", "check_count", "decode", "header", "media_type", "read_body", "stream_body"]

# Many clients send the whole body before they read the response. The rest of a body that is too large is therefore read
# and discarded, up to so many bytes and seconds.
LINGER_BYTES, LINGER_SECONDS = 32 << 20, 5.0
SILENCE_SECONDS = 1.0  # a client that sends nothing for so long is waiting for the response
CLOSE = {"connection": "close"}  # the rest of the body is not read
ARRIVED = "bothworlds.arrived"  # in a scope: the whole body has arrived, so that receiving it does not wait


class ClientDisconnected(Exception):
    """The client closed the connection; no response can be sent."""


def header(scope: Scope, name: bytes) -> bytes:
    """Return the first header of that name (lower case), or empty bytes."""
    headers: dict[bytes, bytes] | None = scope.get("bothworlds.headers")
    if headers is None:
        headers = scope["bothworlds.headers"] = dict(reversed(scope["headers"]))
    return headers.get(name, b"")


def media_type(scope: Scope, expected: Iterable[bytes]) -> bytes:
    """Return the media type of the body; the first of those expected if the request has no ``Content-Type``.

    Raises a 415 for any other type, and for an encoded body.
    """
    expected = tuple(expected)
    if header(scope, b"content-encoding") not in (b"", b"identity"):
        raise Problem(415, "send the body as it is, without a Content-Encoding")
    declared = header(scope, b"content-type").partition(b";")[0].strip().lower()
    if declared and declared not in expected:
        raise Problem(415, f"the body must be {' or '.join(kind.decode() for kind in expected)}")
    return declared or expected[0]


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Return the whole body.

    Raises a 413 over ``limits.body_bytes``, a 408 after ``limits.body_seconds``, and ClientDisconnected.
    """
    try:
        if ARRIVED in scope:
            return (await _read_piece(receive, limits.body_bytes))[0]
        await _check_length(scope, receive, limits.body_bytes)
        async with asyncio.timeout(limits.body_seconds):
            return await _read_all(receive, limits.body_bytes)
    except TimeoutError:
        raise _timed_out(limits.body_seconds) from None
    except _TooLarge as error:
        raise await _too_large(receive, limits.body_bytes, error.more) from None


async def stream_body(scope: Scope, receive: Receive, max_bytes: int, seconds: float) -> AsyncIterator[bytes]:
    """Yield the body in pieces; raises as ``read_body``, but each piece may take ``seconds``."""
    await _check_length(scope, receive, max_bytes)
    size, more = 0, True
    while more:
        try:
            async with asyncio.timeout(seconds):
                piece, more = await _read_piece(receive, max_bytes - size)
        except TimeoutError:
            raise _timed_out(seconds) from None
        except _TooLarge as error:
            raise await _too_large(receive, max_bytes, error.more) from None
        size += len(piece)
        yield piece


async def _read_all(receive: Receive, max_bytes: int) -> bytes:
    body, more = await _read_piece(receive, max_bytes)
    if not more:
        return body
    pieces, size = [body], len(body)
    while more:
        piece, more = await _read_piece(receive, max_bytes - size)
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


async def _read_piece(receive: Receive, max_bytes: int) -> tuple[bytes, bool]:
    """Return the next piece and whether more will follow."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    piece, more = message.get("body", b""), message.get("more_body", False)
    if len(piece) > max_bytes:
        raise _TooLarge(more)
    return piece, more


class _TooLarge(Exception):
    """A body is larger than allowed; ``more`` if it has not arrived completely."""

    def __init__(self, more: bool) -> None:
        self.more = more


async def _check_length(scope: Scope, receive: Receive, max_bytes: int) -> None:
    """Raise a 413 by the ``Content-Length``; the body is not read for ``Expect: 100-continue`` or if it is huge."""
    declared = header(scope, b"content-length")
    length = int(declared[:20]) if declared.isdigit() else 0
    if length > max_bytes:
        raise await _too_large(receive, max_bytes, not header(scope, b"expect") and length <= LINGER_BYTES)


async def _too_large(receive: Receive, max_bytes: int, more: bool) -> Problem:
    """Discard the rest of the body, if there is more, then return the 413."""
    if more:
        await _discard(receive)
    return Problem(413, f"the body may have {max_bytes} bytes at most", headers=CLOSE)


async def _discard(receive: Receive) -> None:
    left, more = LINGER_BYTES, True
    with suppress(TimeoutError):
        # Not wait_for: on Python 3.11 it swallows an enclosing timeout that expires just as its awaitable completes.
        async with asyncio.timeout(LINGER_SECONDS):
            while more and left > 0:
                async with asyncio.timeout(SILENCE_SECONDS):
                    message = await receive()
                more, left = message.get("more_body", False), left - len(message.get("body", b""))


def _timed_out(seconds: float) -> Problem:
    return Problem(408, f"the body did not arrive within {seconds:g} seconds", headers=CLOSE)


def decode(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decode and validate a body; raises a 400 if it is not JSON, a 422 if it does not match the decoder's type."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise decoding_problem(error) from None


def check_count(count: int, limit: int, what: str, pointer: str) -> None:
    """Raise a 422 that points to ``pointer`` if ``count`` is above the limit."""
    if count > limit:
        detail = f"{count} {what}; {limit} are allowed at most"
        raise Problem(422, detail, title="Over a limit", errors=[{"pointer": pointer, "detail": detail}])
