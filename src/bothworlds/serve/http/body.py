"""Reading requests within limits: headers, media types, bodies, forms, and their decoding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope

from ..config import Limits
from .problems import Problem, decoding_problem

CLOSE = {"connection": "close"}  # the rest of the body is not read
MAX_LENGTH_DIGITS = 18
MAX_FIELDS = 200  # of a form


class ClientDisconnected(Problem):
    """The body ended before its end: the client closed the connection, or the chunks are malformed."""

    def __init__(self) -> None:
        super().__init__(400, "the body is incomplete or malformed", title="Not a complete request", headers=CLOSE)


def header(scope: Scope, name: bytes) -> bytes:
    """Return the first header of that name (lower case), or empty bytes."""
    headers: dict[bytes, bytes] | None = scope.get("bothworlds.headers")
    if headers is None:
        headers = scope["bothworlds.headers"] = dict(reversed(scope["headers"]))
    return headers.get(name, b"")


def check_media_type(scope: Scope, expected: Sequence[bytes]) -> None:
    """Raise a 415 for a body of another media type than those expected, and for an encoded body."""
    if header(scope, b"content-encoding") not in (b"", b"identity"):
        raise Problem(415, "send the body as it is, without a Content-Encoding")
    declared = header(scope, b"content-type").partition(b";")[0].strip().lower()
    if declared and declared not in expected:
        raise Problem(415, f"the body must be {' or '.join(kind.decode() for kind in expected)}")


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Return the whole body.

    Raises a 413 over ``limits.body_bytes``, a 408 after ``limits.body_seconds``, and ClientDisconnected.
    """
    try:
        async with asyncio.timeout(limits.body_seconds):
            return b"".join([piece async for piece in _pieces(scope, receive, limits.body_bytes)])
    except TimeoutError:
        raise _timed_out(limits.body_seconds) from None


async def stream_body(scope: Scope, receive: Receive, max_bytes: int, seconds: float) -> AsyncIterator[bytes]:
    """Yield the body in pieces; raises as ``read_body``, but each piece may take ``seconds``."""
    pieces = _pieces(scope, receive, max_bytes)
    while True:
        try:
            async with asyncio.timeout(seconds):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise _timed_out(seconds) from None
        yield piece


async def _pieces(scope: Scope, receive: Receive, max_bytes: int) -> AsyncIterator[bytes]:
    """Yield the body as it arrives; the end of one with a ``Content-Length`` is not awaited, which takes as long."""
    declared = header(scope, b"content-length")
    length = int(declared[:MAX_LENGTH_DIGITS]) if declared.isdigit() else -1
    if length > max_bytes:
        raise _too_large(max_bytes)
    size, more = 0, length != 0
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        piece = message.get("body", b"")
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        yield piece
        more = message.get("more_body", False) and size != length


def _too_large(max_bytes: int) -> Problem:
    return Problem(413, f"the body may have {max_bytes} bytes at most", headers=CLOSE)


async def read_form(request: Request, limits: Limits) -> dict[str, str]:
    """Return the fields of the form in the body of a request; the last one of a name counts.

    Raises a 415 for other media types, a 400 for too many fields, and as ``read_body``.
    """
    check_media_type(request.scope, [b"application/x-www-form-urlencoded"])
    body = await read_body(request.scope, request.receive, limits)
    try:
        return dict(parse_qsl(body.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise Problem(400, f"the form has more than {MAX_FIELDS} fields", title="Not a form") from None


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
