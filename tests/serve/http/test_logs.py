"""Export and import of logs."""

from __future__ import annotations

import asyncio
import json
import threading

import msgspec
import pytest

from bothworlds.export_format import EXPORT_FORMAT
from bothworlds.serve.config import Config, Limits
from bothworlds.serve.http.app import CLIENT_CLOSED
from bothworlds.serve.http.operations import NDJSON

EXPORT, IMPORT = "/v1/surfaces/home/export", "/v1/surfaces/home/import"
LINES = {"content-type": NDJSON}


def rows_of(events):
    """The rows of a log of pages with three slots, which another service has drawn."""
    return [
        {"event": f"e{k}", "position": slot, "item": "abc"[slot], "click": int((k + slot) % 3 == 0), "propensity": 0.25}
        for k in range(events)
        for slot in range(3)
    ]


def lines_of(rows):
    return "".join(json.dumps(said) + "\n" for said in rows)


@pytest.fixture
def log(call):
    """The lines of a log that the surface has learned."""
    assert call("POST", IMPORT, content=lines_of(rows_of(200)), headers=LINES).json()["taken"] == 200
    return [json.loads(line) for line in call("GET", EXPORT).text.splitlines()]


def test_a_log_is_exported_line_by_line(call, log):
    answer = call("GET", EXPORT)
    assert answer.headers["content-type"] == NDJSON
    header, *rows = [json.loads(line) for line in answer.text.splitlines()]
    assert (header["format"], header["surface"]["name"]) == (EXPORT_FORMAT, "home")
    assert [(row["item"], row["click"]) for row in rows] == [(row["item"], row["click"]) for row in rows_of(200)]


def test_the_first_line_of_an_export_may_be_longer_than_others(call):
    items = [{"name": "x" * 100, "state": "active"}] * 50_000
    long = msgspec.json.encode({"format": EXPORT_FORMAT, "surface": {"name": "home", "items": items}})
    assert len(long) > Limits().body_bytes
    assert call("POST", IMPORT, content=long + b"\n" + lines_of(rows_of(1)).encode(), headers=LINES).status_code == 200
    other = long.replace(b"format", b"former", 1)
    assert call("POST", IMPORT, content=other + b"\n", headers=LINES).status_code == 413


def test_an_export_whose_client_disconnects_releases_the_store(call, engine, log):
    released = threading.Event()

    def exported(surface):
        try:
            yield from log
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

    engine.log.export = exported
    call.run(disconnect())
    assert f'status="{CLIENT_CLOSED}"' in call("GET", "/metrics").text


def test_the_export_of_an_empty_log_is_the_description_of_the_surface(call):
    (header,) = map(json.loads, call("GET", EXPORT).text.splitlines())
    assert [item["name"] for item in header["surface"]["items"]] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "body",
    [
        lines_of(rows_of(200)) + '{"event": ',
        lines_of(rows_of(200)) + "[]",
        lines_of(rows_of(200)).encode() + b'{"event": "\xff"}',
    ],
)
def test_nothing_is_imported_from_an_invalid_file(call, body):
    assert call("POST", IMPORT, content=body, headers=LINES).status_code == 400
    assert len(call("GET", EXPORT).text.splitlines()) == 1


def test_an_import_has_its_own_size_limit(serving):
    call = serving(Config(limits=Limits(body_bytes=1000, import_bytes=10_000), request_log=False))
    call("PUT", "/v1/surfaces/home", json={"slots": 3, "items": ["a", "b", "c"]})
    for events, ending, status in ((10, "\n", 200), (100, "\n", 413), (10, " ", 413)):
        body = lines_of(rows_of(events)).replace("\n", ending)
        assert call("POST", IMPORT, content=body, headers=LINES).status_code == status
    assert len(call("GET", EXPORT).text.splitlines()) == 1 + 30


def test_an_unknown_format_is_refused(call):
    assert call("POST", IMPORT, content="a,b", headers={"content-type": "text/csv"}).status_code == 415
    assert call("POST", IMPORT, content="x", headers={"content-encoding": "gzip"}).status_code == 415
