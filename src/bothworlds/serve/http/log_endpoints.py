"""Endpoints that export and import the log of a surface as NDJSON or Parquet, in pieces of bounded memory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import IO, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ...extras import install_command
from ..config import Limits
from ..engine_protocol import EngineProtocol
from ..schemas import RetentionView, rfc3339
from .media_types import NDJSON, PARQUET
from .problems import Problem
from .request_body import media_type, stream_body
from .responses import json_response

__all__ = ["LogEndpoints"]

ROWS_PER_PIECE = 2000
BYTES_PER_PIECE = 1 << 18
PARQUET_MISSING = f"Parquet needs {install_command('parquet')}, where the service runs"
COLUMNS = {
    "event": "string",
    "timestamp": "string",
    "surface": "string",
    "segment": "string",
    "arm": "string",
    "own": "bool",
    "policy_id": "string",
    "position": "int32",
    "item": "string",
    "click": "int8",
    "reward": "float64",
    "propensity": "float64",
    "pinned": "bool",
    "learn": "bool",
    "absent": "list<string>",
    "eligible": "list<string>",
}

# What events have and rows do not, so that an import cannot restore it.
NOT_EXPORTED = {"bothworlds-not-exported": "visitors, predicted losses, comparison of mixed learners"}

_row = msgspec.json.Decoder(dict[str, Any])


class LogEndpoints:
    """Handlers of export and import.

    An export ends, and releases its view of the store, when the client disconnects or reads nothing for
    ``limits.write_seconds``, after which the connection is aborted.
    """

    def __init__(self, engine: EngineProtocol, limits: Limits) -> None:
        self._engine, self._limits = engine, limits

    async def export(self, request: Request, actor: str) -> Response:
        kind = _requested_format(request)
        self._engine.surface(request.path_params["surface"])
        missing = NOT_EXPORTED | _missing_events(await self._engine.retention_of(request.path_params["surface"]))
        pieces = _read_in_pieces(self._engine.export(request.path_params["surface"]))
        # The first piece is read before the response starts: an unavailable store then gives an error response instead
        # of a truncated one.
        first: list[dict[str, Any]] = await anext(pieces, [])
        if kind == NDJSON:
            return ClosingStream(_ndjson(first, pieces), pieces, NDJSON, missing)
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has been sent
        try:
            await _write_parquet(file, first, pieces, missing)
        except BaseException:
            file.close()
            raise
        content = _file_content(file)
        return ClosingStream(content, content, PARQUET, missing)

    async def import_log(self, request: Request, actor: str) -> Response:
        kind = media_type(request.scope, [NDJSON.encode(), PARQUET.encode()])
        self._engine.surface(request.path_params["surface"])
        with tempfile.TemporaryFile() as file:
            async for piece in stream_body(
                request.scope, request.receive, self._limits.import_bytes, self._limits.body_seconds
            ):
                file.write(piece)
            await asyncio.to_thread(self._check, file, kind)
            rows = self._rows(file, kind)
            return json_response(await self._engine.import_rows(request.path_params["surface"], rows, actor=actor))

    def _check(self, file: IO[bytes], kind: bytes) -> None:
        """Decode all rows once, so that nothing is imported from a file that is invalid anywhere; raises a 400."""
        for _ in self._rows(file, kind):
            pass

    def _rows(self, file: IO[bytes], kind: bytes) -> Iterator[dict[str, Any]]:
        file.seek(0)
        return _rows_of_parquet(file) if kind == PARQUET.encode() else _rows_of_ndjson(file, self._limits.body_bytes)


def _requested_format(request: Request) -> str:
    """Return the media type requested by ``?format=`` or ``Accept``; NDJSON by default. Raises a 406 or 422."""
    named = request.query_params.get("format")
    if named is not None:
        if named not in ("ndjson", "parquet"):
            raise Problem(422, f"there is no format {named[:40]!r}; formats are ndjson and parquet")
        return PARQUET if named == "parquet" else NDJSON
    for part in request.headers.get("accept", "*/*").split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind in (PARQUET, "application/x-parquet"):
            return PARQUET
        if kind in ("*/*", "application/*", NDJSON, "application/ndjson", "application/jsonl"):
            return NDJSON
    raise Problem(406, f"a log is sent as {NDJSON} or {PARQUET}")


def _missing_events(retention: RetentionView) -> dict[str, str]:
    """Return what an export says about deleted events: headers, which a Parquet file has as metadata."""
    headers = {"bothworlds-deleted-events": str(retention["deleted"])} if retention["deleted"] else {}
    return headers | ({} if retention["until"] is None else {"bothworlds-deleted-until": rfc3339(retention["until"])})


class ClosingStream(StreamingResponse):
    """A streamed response that closes its source at the end, also if the client disconnects before."""

    def __init__(
        self, content: AsyncIterator[bytes], source: AsyncGenerator[Any], kind: str, headers: Mapping[str, str]
    ) -> None:
        super().__init__(content, media_type=kind, headers=headers)
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._source.aclose()


async def _read_in_pieces(rows: Iterator[dict[str, Any]]) -> AsyncGenerator[list[dict[str, Any]]]:
    """Yield lists of rows; all are read in one thread, since SQLite connections may not change threads."""
    loop, reader = asyncio.get_running_loop(), ThreadPoolExecutor(1)
    try:
        while piece := await loop.run_in_executor(reader, lambda: list(islice(rows, ROWS_PER_PIECE))):
            yield piece
    finally:
        with suppress(AttributeError):
            reader.submit(rows.close)  # type: ignore[attr-defined]
        reader.shutdown(wait=False)


async def _ndjson(first: list[dict[str, Any]], pieces: AsyncIterator[list[dict[str, Any]]]) -> AsyncIterator[bytes]:
    encoder = msgspec.json.Encoder()
    yield encoder.encode_lines(first)
    async for piece in pieces:
        yield encoder.encode_lines(piece)


async def _write_parquet(
    file: IO[bytes],
    first: list[dict[str, Any]],
    pieces: AsyncIterator[list[dict[str, Any]]],
    metadata: Mapping[str, str],
) -> None:
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError:
        raise Problem(406, PARQUET_MISSING) from None
    lists = {"list<string>": pa.list_(pa.string())}
    schema = pa.schema([(name, lists.get(kind) or pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])
    schema = schema.with_metadata(dict(metadata))
    with ParquetWriter(file, schema) as writer:
        writer.write_table(pa.Table.from_pylist(first, schema))
        async for piece in pieces:
            await asyncio.to_thread(writer.write_table, pa.Table.from_pylist(piece, schema))


async def _file_content(file: IO[bytes]) -> AsyncGenerator[bytes]:
    with file:
        file.seek(0)
        while piece := await asyncio.to_thread(file.read, BYTES_PER_PIECE):
            yield piece


def _rows_of_ndjson(file: IO[bytes], max_line_bytes: int) -> Iterator[dict[str, Any]]:
    number = 0
    while line := file.readline(max_line_bytes + 1):
        number += 1
        if len(line) > max_line_bytes:
            raise Problem(413, f"line {number} has more than {max_line_bytes} bytes")
        if line.strip():
            yield _decode_row(line, number)


def _decode_row(line: bytes, number: int) -> dict[str, Any]:
    try:
        return _row.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"line {number} is not a JSON object: {error}", title="Not valid NDJSON") from None


def _rows_of_parquet(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise Problem(415, PARQUET_MISSING) from None
    try:
        for batch in ParquetFile(file).iter_batches(ROWS_PER_PIECE):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Problem(400, f"this cannot be read as Parquet: {error}", title="Not valid Parquet") from None
