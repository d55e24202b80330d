"""Export and import of logs."""

from __future__ import annotations

import asyncio
import io
import json
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bothworlds.serve.config import Config, Limits
from bothworlds.serve.http import log_endpoints
from bothworlds.serve.http.app import CLIENT_CLOSED
from bothworlds.serve.http.log_endpoints import COLUMNS
from bothworlds.serve.http.media_types import NDJSON, PARQUET
from tests.serve.fake_engine import row

from .conftest import Client

EXPORT, IMPORT = "/v1/surfaces/home/export", "/v1/surfaces/home/import"
ROWS = [row(f"e{k // 2}", k % 2, k % 3 == 0) for k in range(5000)]


@pytest.fixture
def rows(engine):
    engine.rows = [dict(said, click=int(said["click"])) for said in ROWS]
    return engine.rows


def lines_of(rows):
    return "".join(json.dumps(said) + "\n" for said in rows)


def parquet_of(rows):
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


@pytest.mark.parametrize("how", [{}, {"headers": {"accept": NDJSON}}, {"params": {"format": "ndjson"}}])
def test_a_log_is_exported_line_by_line(call, rows, how):
    answer = call("GET", EXPORT, **how)
    assert answer.headers["content-type"] == NDJSON
    assert [json.loads(line) for line in answer.text.splitlines()] == rows


@pytest.mark.parametrize("how", [{"headers": {"accept": f"{PARQUET}, */*;q=0.1"}}, {"params": {"format": "parquet"}}])
def test_a_log_is_exported_as_parquet(call, rows, how):
    answer = call("GET", EXPORT, **how)
    assert answer.headers["content-type"] == PARQUET
    table = pq.read_table(io.BytesIO(answer.content))
    assert [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()] == rows
    assert table.column_names == list(COLUMNS)


def test_an_export_whose_client_disconnects_releases_the_store(call, engine, rows):
    released = threading.Event()

    def exported(surface):
        try:
            yield from rows
        finally:
            released.set()

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        await asyncio.Event().wait()  # a client that does not read

    async def disconnect():
        scope = {"type": "http", "method": "GET", "path": EXPORT, "raw_path": EXPORT.encode(), "query_string": b""}
        await call.service({**scope, "headers": [(b"host", b"127.0.0.1")]}, receive, send)
        assert await asyncio.to_thread(released.wait, 60)

    engine.export = exported
    call.run(disconnect())
    assert f'status="{CLIENT_CLOSED}"' in call("GET", "/metrics").text


@pytest.mark.parametrize("kind", ["ndjson", "parquet"])
def test_an_empty_log_is_exported(call, kind):
    answer = call("GET", EXPORT, params={"format": kind})
    assert answer.status_code == 200
    assert kind == "ndjson" or pq.read_table(io.BytesIO(answer.content)).num_rows == 0


@pytest.mark.parametrize(("kind", "written"), [(NDJSON, lines_of), (PARQUET, parquet_of)])
def test_what_was_exported_can_be_imported(call, engine, rows, kind, written):
    body, engine.rows = written(rows), []
    answer = call("POST", IMPORT, content=body, headers={"content-type": kind})
    assert answer.json() == {"taken": 5000, "known": 0, "refused": 0, "reasons": {}}
    assert engine.rows == rows


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (NDJSON, lines_of(ROWS) + '{"event": '),
        (NDJSON, lines_of(ROWS) + "[]"),
        (NDJSON, lines_of(ROWS).encode() + b'{"event": "\xff"}'),
        (PARQUET, parquet_of(ROWS)[:-20]),
        (PARQUET, b"PAR1"),
        (PARQUET, b""),
    ],
)
def test_nothing_is_imported_from_an_invalid_file(call, engine, kind, body):
    answer = call("POST", IMPORT, content=body, headers={"content-type": kind})
    assert answer.status_code == 400
    assert engine.rows == []


def test_an_import_has_its_own_size_limit(serving, engine):
    call = serving(Config(limits=Limits(body_bytes=1000, import_bytes=10_000), request_log=False))
    call("PUT", "/v1/surfaces/home", json={"slots": 1})
    head = {"content-type": NDJSON}
    assert call("POST", IMPORT, content=lines_of(ROWS[:20]), headers=head).status_code == 200
    assert call("POST", IMPORT, content=lines_of(ROWS[:100]), headers=head).status_code == 413
    assert call("POST", IMPORT, content=lines_of(ROWS[:10]).replace("\n", " "), headers=head).status_code == 413
    assert len(engine.rows) == 20


def test_an_unknown_format_is_refused(call):
    assert call("GET", EXPORT, headers={"accept": "text/csv"}).status_code == 406
    assert call("GET", EXPORT, params={"format": "csv"}).status_code == 422
    assert call("POST", IMPORT, content="a,b", headers={"content-type": "text/csv"}).status_code == 415
    assert call("POST", IMPORT, content="x", headers={"content-encoding": "gzip"}).status_code == 415


@pytest.mark.slow
def test_an_export_that_fails_midway_is_truncated_visibly(call, engine, monkeypatch):
    monkeypatch.setattr(log_endpoints, "ROWS_PER_PIECE", 10)

    def broken(surface):
        yield from ROWS[:15]
        raise OSError("the disk is gone")

    engine.export = broken
    strict = Client(call.service, raising=True)
    with pytest.raises(OSError, match="gone"):  # the server cuts the connection
        strict("GET", EXPORT)
    strict.close()
    assert call("GET", EXPORT, params={"format": "parquet"}).status_code == 500
