"""Attacks with the key of a public page, on a real service in its own process."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores import open_store

from .flood_exclusions import Flood, rank
from .junk_segments import Shop
from .kill_service import ServiceProcess
from .load_clients import piece_of
from .postgres_server import PostgresServer

SEGMENTS = "/v1/surfaces/home/segments"


def check_junk_segments(place: str, folder: Path) -> None:
    """Fill a surface with made-up segments; real visitors are served, and administrators can delete the segments."""
    shop = Shop(place, folder, max_segments=5)
    try:
        shop.visit("r0", "mobile", [0])
        answers = shop.flood(20)
        assert {status for status, _ in answers} == {200}
        assert sorted(page["segment"] for _, page in answers)[:17] == [""] * 17
        status, page = shop.rank("open", "junk-0")  # still open when its segment is deleted
        assert (status, page["segment"]) == (200, "junk-0")
        for k in range(2):
            assert shop.rank(f"d{k}", "desktop")[1]["segment"] == ""
            assert shop.rank(f"m{k}", "mobile")[1]["segment"] == "mobile"  # it has its place
            if k == 0:
                shop.restart()
        listed = shop.as_admin("GET", SEGMENTS)[1]
        assert (len(listed["segments"]), listed["max_segments"]) == (5, 5)
        mobile = next(line for line in listed["segments"] if line["name"] == "mobile")
        assert (mobile["pages"], mobile["clicks"]) == (1, 1)
        for line in listed["segments"]:
            if line["name"].startswith("junk"):
                assert shop.as_admin("DELETE", f"{SEGMENTS}/{line['name']}")[0] == 204
                assert shop.as_admin("DELETE", f"{SEGMENTS}/{line['name']}")[0] == 404
        assert shop.feedback([piece_of(page, [0], True)])[0]["status"] == "expired"
        shop.until_served("d9", "desktop")
        names = [line["name"] for line in shop.as_admin("GET", SEGMENTS)[1]["segments"]]
        assert names == ["", "desktop", "mobile"]
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
