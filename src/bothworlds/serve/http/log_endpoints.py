"""Logs in and out, as NDJSON or Parquet, a piece at a time: neither end holds a whole log in memory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import IO, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from ..config import Limits
from .limits import Gone, chunks, media_type
from .problems import Problem
from .surface_endpoints import answer

__all__ = ["NDJSON", "PARQUET", "Transfers"]

NDJSON, PARQUET = "application/x-ndjson", "application/vnd.apache.parquet"
ROWS_AT_A_TIME = 2000
BYTES_AT_A_TIME = 1 << 18
LISTEN_SECONDS = 300.0  # who takes nothing for so long is gone; an export holds a view of the store
COLUMNS = {
    "event": "string",
    "timestamp": "string",
    "surface": "string",
    "segment": "string",
    "arm": "string",
    "policy_id": "string",
    "position": "int32",
    "item": "string",
    "click": "int8",
    "propensity": "float64",
    "pinned": "bool",
    "learn": "bool",
    "absent": "list<string>",
    "eligible": "list<string>",
}

_row = msgspec.json.Decoder(dict[str, Any])


class Transfers:
    """Export and import."""

    def __init__(self, engine: Any, limits: Limits) -> None:
        self._engine, self._limits = engine, limits

    async def export(self, request: Request, actor: str) -> Response:
        kind = _wanted(request)
        self._engine.surface(request.path_params["surface"])
        pieces = _in_pieces(self._engine.export(request.path_params["surface"]))
        # The first piece is read before the answer begins, so that a store that is away is an error and not a stump.
        first: list[dict[str, Any]] = await anext(pieces, [])
        if kind == NDJSON:
            return Streamed(_lines(first, pieces), pieces, NDJSON)
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has been sent
        try:
            await _write_parquet(file, first, pieces)
        except BaseException:
            file.close()
            raise
        content = _bytes(file)
        return Streamed(content, content, PARQUET)

    async def import_log(self, request: Request, actor: str) -> Response:
        kind = media_type(request.scope, [NDJSON.encode(), PARQUET.encode()])
        self._engine.surface(request.path_params["surface"])
        with tempfile.TemporaryFile() as file:
            async for chunk in chunks(
                request.scope, request.receive, self._limits.import_bytes, self._limits.body_seconds
            ):
                file.write(chunk)
            await asyncio.to_thread(self._check, file, kind)
            rows = self._rows(file, kind)
            return answer(await self._engine.import_rows(request.path_params["surface"], rows, actor=actor))

    def _check(self, file: IO[bytes], kind: bytes) -> None:
        """Read everything once, so that nothing is taken from a file that turns out to be broken at its end."""
        for _ in self._rows(file, kind):
            pass

    def _rows(self, file: IO[bytes], kind: bytes) -> Iterator[dict[str, Any]]:
        file.seek(0)
        return _from_parquet(file) if kind == PARQUET.encode() else _from_lines(file, self._limits.body_bytes)


def _wanted(request: Request) -> str:
    """The format asked for, by ``?format=`` or by Accept; NDJSON if nothing is said."""
    named = request.query_params.get("format")
    if named is not None:
        if named not in ("ndjson", "parquet"):
            raise Problem(422, f"there is no format {named[:40]!r}; ask for ndjson or parquet")
        return PARQUET if named == "parquet" else NDJSON
    for part in request.headers.get("accept", "*/*").split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind in (PARQUET, "application/x-parquet"):
            return PARQUET
        if kind in ("*/*", "application/*", NDJSON, "application/ndjson", "application/jsonl"):
            return NDJSON
    raise Problem(406, f"a log is sent as {NDJSON} or {PARQUET}")


class Streamed(StreamingResponse):
    """An answer as it is read; lets go of where it comes from at the end, even if nobody takes it any more."""

    def __init__(self, content: AsyncIterator[bytes], source: AsyncGenerator[Any], kind: str) -> None:
        super().__init__(content, media_type=kind)
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def patiently(message: Message) -> None:
            try:
                async with asyncio.timeout(LISTEN_SECONDS):
                    await send(message)
            except TimeoutError:
                raise Gone from None

        try:
            await super().__call__(scope, receive, patiently)
        finally:
            await self._source.aclose()


async def _in_pieces(rows: Iterator[dict[str, Any]]) -> AsyncGenerator[list[dict[str, Any]]]:
    """Rows some at a time; all are read by the same thread, which not every database connection can do without."""
    loop, reader = asyncio.get_running_loop(), ThreadPoolExecutor(1)
    try:
        while piece := await loop.run_in_executor(reader, lambda: list(islice(rows, ROWS_AT_A_TIME))):
            yield piece
    finally:
        with suppress(AttributeError):
            reader.submit(rows.close)  # type: ignore[attr-defined]
        reader.shutdown(wait=False)


async def _lines(first: list[dict[str, Any]], pieces: AsyncIterator[list[dict[str, Any]]]) -> AsyncIterator[bytes]:
    encoder = msgspec.json.Encoder()
    yield encoder.encode_lines(first)
    async for piece in pieces:
        yield encoder.encode_lines(piece)


async def _write_parquet(
    file: IO[bytes], first: list[dict[str, Any]], pieces: AsyncIterator[list[dict[str, Any]]]
) -> None:
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError:
        raise Problem(406, "Parquet needs pip install 'bothworlds[parquet]' where the service runs") from None
    lists = {"list<string>": pa.list_(pa.string())}
    schema = pa.schema([(name, lists.get(kind) or pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])
    with ParquetWriter(file, schema) as writer:
        writer.write_table(pa.Table.from_pylist(first, schema))
        async for piece in pieces:
            await asyncio.to_thread(writer.write_table, pa.Table.from_pylist(piece, schema))


async def _bytes(file: IO[bytes]) -> AsyncGenerator[bytes]:
    with file:
        file.seek(0)
        while piece := await asyncio.to_thread(file.read, BYTES_AT_A_TIME):
            yield piece


def _from_lines(file: IO[bytes], most: int) -> Iterator[dict[str, Any]]:
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise Problem(413, f"line {number} has more than {most} bytes")
        if line.strip():
            yield _decoded(line, number)


def _decoded(line: bytes, number: int) -> dict[str, Any]:
    try:
        return _row.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"line {number} is not a JSON object: {error}", title="Not valid NDJSON") from None


def _from_parquet(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise Problem(415, "Parquet needs pip install 'bothworlds[parquet]' where the service runs") from None
    try:
        for batch in ParquetFile(file).iter_batches(ROWS_AT_A_TIME):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Problem(400, f"this cannot be read as Parquet: {error}", title="Not valid Parquet") from None
