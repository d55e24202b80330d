"""Attacks with the key of a public page, which anyone can read in its source, on a real service in its own process."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from bothworlds.labels import MAX_VALUES
from bothworlds.serve.http.auth import create_key
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores import open_store

from .kill_service import ServiceProcess
from .load_clients import piece_of
from .postgres_server import PostgresServer

RANK = "/v1/surfaces/home/rank"
HEADERS = {"Content-Type": "application/json"}
ITEMS = ["a", "b", "c", "d"]


class Shop:
    """A service with keys, and a page key that is public."""

    def __init__(self, place: str, folder: Path, **settings: Any) -> None:
        # Both before the service starts: a key that is made later reaches the other workers within a second or two.
        with closing(open_store(place)) as store:
            self._admin = create_key(store, ["admin"], "", 0)
            self.page_key = create_key(store, ["serve", "ingest"], "", 0)
        self.service = ServiceProcess(place, folder)
        assert self.as_admin("PUT", "/v1/surfaces/home", {"slots": 2, "items": ITEMS, **settings})[0] == 201

    def as_admin(self, method: str, path: str, body: Any = None) -> tuple[int, Any, str]:
        return self.service.call(method, path, body, Authorization=f"Bearer {self._admin}")

    def rank(self, request_id: str, segment: str) -> tuple[int, Any]:
        """Return status and response of a rank request."""
        body = {"request_id": request_id, "segment": segment}
        authorization = f"Bearer {self.page_key}"
        return self.service.call("POST", "/v1/surfaces/home/rank", body, Authorization=authorization)[:2]

    def visit(self, request_id: str, segment: str, clicks: list[int]) -> Any:
        """Rank a page and send its final feedback; return the page."""
        status, page = self.rank(request_id, segment)
        assert status == 200, page
        self.feedback([piece_of(page, clicks, True)])
        return page

    def feedback(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        body, authorization = {"events": events}, f"Bearer {self.page_key}"
        results: list[dict[str, Any]] = self.service.call("POST", "/v1/feedback", body, Authorization=authorization)[1][
            "results"
        ]
        return results

    def until_served(self, name: str, segment: str) -> None:
        """Rank until a segment has a place, which each worker notices at its next refresh."""
        deadline = time.monotonic() + 60.0
        for k in itertools.count():
            if self.rank(f"{name}-{k}", segment)[1]["context"] == {"segment": segment}:
                return
            assert time.monotonic() < deadline, f"segment {segment!r} has no place"

    def flood(self, segments: int, name: str = "junk") -> list[Any]:
        """Request made-up segments and send feedback for each; return statuses and responses."""
        responses = []
        for k in range(segments):
            status, page = self.rank(f"{name}-{k}", f"{name}-{k}")
            if status == 200:
                self.feedback([piece_of(page, [], True)])
            responses.append((status, page))
        return responses

    def restart(self) -> None:
        assert self.service.stop() == 0
        assert self.service.process.stdout is not None
        self.service.process.stdout.close()
        self.service.start()


def check_junk_segments(place: str, folder: Path) -> None:
    """Take all values of a label; real visitors are served, and administrators can declare the values that exist."""
    shop = Shop(place, folder)
    try:
        shop.visit("r0", "mobile", [0])
        answers = shop.flood(MAX_VALUES + 9)
        assert {status for status, _ in answers} == {200}
        assert [page["context"]["segment"] for _, page in answers].count("") >= 10
        assert shop.rank("d0", "desktop")[1]["context"] == {"segment": ""}
        assert shop.rank("m0", "mobile")[1]["context"] == {"segment": "mobile"}  # it has its place
        shop.restart()
        assert shop.rank("m1", "mobile")[1]["context"] == {"segment": "mobile"}
        labels = {"segment": ["mobile", "desktop"]}
        assert shop.as_admin("PATCH", "/v1/surfaces/home", {"labels": labels})[0] == 200
        shop.until_served("d1", "desktop")
        assert shop.rank("j1", "junk-1")[1]["context"] == {"segment": ""}
        assert shop.service.stop() == 0
        with closing(open_store(place, read_only=True)) as store:
            assert verify(store).clean
    finally:
        shop.service.end()


@pytest.mark.slow
def test_junk_segments_do_not_block_real_ones(tmp_path: Path) -> None:
    check_junk_segments(str(tmp_path / "shop.db"), tmp_path)


@pytest.mark.slow
@pytest.mark.nightly
def test_junk_segments_do_not_block_real_ones_on_two_workers_with_postgresql(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    check_junk_segments(postgres.fresh_address(), tmp_path)


class Flood(threading.Thread):
    """Sends a new exclusion set with each request until it is stopped."""

    def __init__(self, where: tuple[str, int], items: list[str], seed: int) -> None:
        super().__init__(daemon=True)
        self._where, self._items, self._seed = where, items, seed
        self._enough = threading.Event()
        self.statuses: Counter[int] = Counter()

    def run(self) -> None:
        connection = HTTPConnection(*self._where, timeout=60)
        chance = random.Random(self._seed)
        for k in itertools.count():
            if self._enough.is_set():
                break
            exclude = chance.sample(self._items, chance.randrange(1, 21))
            status, _ = rank(connection, {"request_id": f"flood-{self._seed}-{k}", "exclude": exclude})
            self.statuses[status] += 1
        connection.close()

    def stop(self) -> None:
        self._enough.set()
        self.join()


def rank(connection: HTTPConnection, body: dict[str, Any]) -> tuple[int, Any]:
    connection.request("POST", RANK, json.dumps(body), HEADERS)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.mark.slow
@pytest.mark.nightly
def test_a_flood_of_exclusion_sets_does_not_slow_other_clients(tmp_path: Path) -> None:
    items = [f"item-{k}" for k in range(200)]
    service = ServiceProcess(str(tmp_path / "flood.db"), tmp_path)
    try:
        assert service.call("PUT", "/v1/surfaces/home", {"slots": 20, "items": items})[0] == 201
        floods = [Flood(service.where, items, seed) for seed in range(24)]
        for flood in floods:
            flood.start()
        connection = HTTPConnection(*service.where, timeout=60)
        for k in range(300):
            assert rank(connection, {"request_id": f"plain-{k}"})[0] == 200
        for flood in floods:
            flood.stop()
        statuses = sum((flood.statuses for flood in floods), floods[0].statuses.__class__())
        assert statuses.keys() == {200, 429}
        connection.request("GET", "/readyz")
        assert json.loads(connection.getresponse().read())["ready"]
        connection.close()
    finally:
        service.end()
