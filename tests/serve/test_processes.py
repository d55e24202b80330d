"""Two processes on one store: a call to one, then a call to the other, as if there were one."""

from __future__ import annotations

from bothworlds.serve.app import Service
from bothworlds.serve.config import Config
from bothworlds.serve.engine import Engine

from .fakes import FakeStore
from .http.conftest import Client

NEVER = 3_600_000  # milliseconds between looks at the store


def test_versions_that_one_process_tells_are_good_for_the_other():
    store = FakeStore()
    one, two = (
        Client(Service(Engine(store, shared=True, refresh_ms=NEVER), store, Config(request_log=False)))
        for _ in range(2)
    )
    try:
        for client in (one, two):
            client.run(client.service.start())
        made = one("PUT", "/v1/surfaces/home", json={"slots": 2, "items": ["a", "b", "c"]})
        assert made.status_code == 201
        for k, client in enumerate((two, one, two, one)):
            tag = {"If-Match": made.headers["etag"]}
            made = client("PATCH", "/v1/surfaces/home", json={"floor": 0.01 * (k + 1)}, headers=tag)
            assert made.status_code == 200
        assert two("GET", "/v1/surfaces/home").headers["etag"] == made.headers["etag"]
        assert one("PUT", "/v1/surfaces/home/items/d").status_code == 201
        assert two("PUT", "/v1/surfaces/home/items/d").status_code == 200
        old = two("PATCH", "/v1/surfaces/home", json={"floor": 0.5}, headers={"If-Match": made.headers["etag"]})
        assert old.status_code == 412
        ranked = two("POST", "/v1/surfaces/home/rank", json={"request_id": "r", "pins": [{"slot": 0, "item": "d"}]})
        assert one("GET", f"/v1/events/{ranked.json()['event_id']}").json()["slots"][0]["item"] == "d"
    finally:
        for client in (one, two):
            client.run(client.service.stop())
            client.close()
