"""Endpoints that export and import the log of a surface as NDJSON, in pieces of bounded memory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ..config import Limits
from .body import check_media_type, stream_body
from .operations import NDJSON
from .problems import Problem, json_response

if TYPE_CHECKING:
    from ..engine.engine import Engine

ROWS_PER_PIECE = 2000
HEADER_START = b'{"format":'
MAX_HEADER_BYTES = 64 << 20  # the first line of an export lists up to 50,000 items

_row = msgspec.json.Decoder(dict[str, Any])


class LogEndpoints:
    """Handlers of export and import.

    An export ends, and releases its view of the store, when the client disconnects or its connection is aborted.
    """

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._registry, self._log, self._limits = engine.registry, engine.log, limits

    async def export(self, request: Request, actor: str) -> Response:
        pieces = _read_in_pieces(self._log.export(request.path_params["surface"]))
        # The first piece is read before the response starts: an unavailable store then gives an error response instead
        # of a truncated one.
        first = await anext(pieces, b"")
        return ClosingStream(first, pieces)

    async def import_log(self, request: Request, actor: str) -> Response:
        check_media_type(request.scope, [NDJSON.encode()])
        self._registry.surface(request.path_params["surface"])
        with tempfile.TemporaryFile() as file:
            async for piece in stream_body(
                request.scope, request.receive, self._limits.import_bytes, self._limits.body_seconds
            ):
                file.write(piece)
            await asyncio.to_thread(self._check, file)
            rows = self._rows(file)
            return json_response(await self._log.import_rows(request.path_params["surface"], rows, actor=actor))

    def _check(self, file: IO[bytes]) -> None:
        """Decode all rows once, so that nothing is imported from a file that is invalid anywhere; raises a 400."""
        for _ in self._rows(file):
            pass

    def _rows(self, file: IO[bytes]) -> Iterator[dict[str, Any]]:
        file.seek(0)
        number, most = 0, self._limits.body_bytes
        while line := file.readline(most + 1):
            number += 1
            if number == 1 and line.startswith(HEADER_START):
                line += file.readline(MAX_HEADER_BYTES) if len(line) > most else b""
            elif len(line) > most:
                raise Problem(413, f"line {number} has more than {most} bytes")
            if line.strip():
                yield _decode_row(line, number)


class ClosingStream(StreamingResponse):
    """A streamed response that closes its source at the end, also if the client disconnects before."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes]) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield first
            async for piece in rest:
                yield piece

        super().__init__(pieces(), media_type=NDJSON)
        self._source = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._source.aclose()


async def _read_in_pieces(rows: Iterator[dict[str, Any]]) -> AsyncGenerator[bytes]:
    """Yield lines; all are read in one thread, since SQLite connections may not change threads."""
    loop, reader = asyncio.get_running_loop(), ThreadPoolExecutor(1)
    try:
        while piece := await loop.run_in_executor(reader, lambda: _lines(islice(rows, ROWS_PER_PIECE))):
            yield piece
    finally:
        with suppress(AttributeError):
            reader.submit(rows.close)  # type: ignore[attr-defined]
        reader.shutdown(wait=False)


def _lines(rows: Iterator[dict[str, Any]]) -> bytes:
    return msgspec.json.Encoder().encode_lines(list(rows))


def _decode_row(line: bytes, number: int) -> dict[str, Any]:
    try:
        return _row.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"line {number} is not a JSON object: {error}", title="Not valid NDJSON") from None
