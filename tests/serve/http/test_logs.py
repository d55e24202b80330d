"""Export and import of logs."""

from __future__ import annotations

import asyncio
import json
import threading

import msgspec
import pytest

from bothworlds.export_format import EXPORT_FORMAT
from bothworlds.serve.config import Config, Limits
from bothworlds.serve.http import logs
from bothworlds.serve.http.app import CLIENT_CLOSED
from bothworlds.serve.http.operations import NDJSON
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


@pytest.mark.parametrize("how", [{}, {"headers": {"accept": NDJSON}}, {"params": {"format": "ndjson"}}])
def test_a_log_is_exported_line_by_line(call, rows, how):
    answer = call("GET", EXPORT, **how)
    assert answer.headers["content-type"] == NDJSON
    assert [json.loads(line) for line in answer.text.splitlines()] == rows


HEADER = {"format": EXPORT_FORMAT, "surface": {"name": "home", "items": [{"name": "a", "state": "active"}]}}


def test_an_export_begins_with_the_surface_and_so_does_an_import(call, engine, rows):
    engine.rows = [HEADER, *rows]
    lines = call("GET", EXPORT).text
    assert [json.loads(line) for line in lines.splitlines()] == engine.rows
    engine.rows = []
    assert call("POST", IMPORT, content=lines.encode(), headers={"content-type": NDJSON}).status_code == 200
    assert (engine.rows[0], len(engine.rows)) == (HEADER, len(ROWS) + 1)


def test_the_first_line_of_an_export_may_be_longer_than_others(call, engine):
    items = [{"name": "x" * 100, "state": "active"}] * 50_000
    long = msgspec.json.encode({"format": EXPORT_FORMAT, "surface": {"name": "home", "items": items}})
    assert len(long) > Limits().body_bytes
    head = {"content-type": NDJSON}
    assert call("POST", IMPORT, content=long + b"\n" + lines_of(ROWS[:2]).encode(), headers=head).status_code == 200
    other = long.replace(b"format", b"former", 1)
    assert call("POST", IMPORT, content=other + b"\n", headers=head).status_code == 413


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


def test_an_empty_log_is_exported(call):
    answer = call("GET", EXPORT)
    assert (answer.status_code, answer.content) == (200, b"")


def test_what_was_exported_can_be_imported(call, engine, rows):
    body, engine.rows = lines_of(rows), []
    answer = call("POST", IMPORT, content=body, headers={"content-type": NDJSON})
    assert answer.json() == {"taken": 5000, "known": 0, "refused": 0, "reasons": {}}
    assert engine.rows == rows


@pytest.mark.parametrize(
    "body",
    [
        lines_of(ROWS) + '{"event": ',
        lines_of(ROWS) + "[]",
        lines_of(ROWS).encode() + b'{"event": "\xff"}',
    ],
)
def test_nothing_is_imported_from_an_invalid_file(call, engine, body):
    answer = call("POST", IMPORT, content=body, headers={"content-type": NDJSON})
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
    assert call("GET", EXPORT, params={"format": "parquet"}).status_code == 422
    assert call("POST", IMPORT, content="a,b", headers={"content-type": "text/csv"}).status_code == 415
    assert call("POST", IMPORT, content="x", headers={"content-encoding": "gzip"}).status_code == 415


@pytest.mark.slow
def test_an_export_that_fails_midway_is_truncated_visibly(call, engine, monkeypatch):
    monkeypatch.setattr(logs, "ROWS_PER_PIECE", 10)

    def broken(surface):
        yield from ROWS[:15]
        raise OSError("the disk is gone")

    engine.export = broken
    strict = Client(call.service, raising=True)
    with pytest.raises(OSError, match="gone"):  # the server cuts the connection
        strict("GET", EXPORT)
    strict.close()
