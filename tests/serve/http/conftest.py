"""Fixtures: a service on a temporary store, and clients that call it without a network."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import contextmanager

import httpx
import pytest

from bothworlds.serve.config import Config
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.http.app import Service
from tests.serve.running import Clock, temporary_store


class Client:
    """Sends requests to an ASGI application, one after the other, in one event loop."""

    def __init__(self, service, raising=False):
        self.service, self._loop = service, asyncio.new_event_loop()
        transport = httpx.ASGITransport(service, raise_app_exceptions=raising)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    def __call__(self, method, path, **options):
        return self._loop.run_until_complete(self._client.request(method, path, **options))

    def sign(self, key):
        """Send this key with all further requests."""
        self.run(self.service.keyring.load())
        self._client.headers["authorization"] = f"Bearer {key}"

    def run(self, awaitable):
        return self._loop.run_until_complete(awaitable)

    def page(self, name, surface="home", **more):
        """The response to a rank request."""
        return self("POST", f"/v1/surfaces/{surface}/rank", json={"request_id": name, **more}).json()

    def click(self, page, clicks=(0,), **more):
        """The status of the final feedback on a page."""
        piece = {"event_id": page["event_id"], "token": page["token"], "clicks": list(clicks), "final": True}
        return self("POST", "/v1/feedback", json={"events": [piece | more]}).json()["results"][0]["status"]

    def settle(self):
        """Settle and learn all that is due."""
        self.run(self.service.engine.recorder.refresh())

    def close(self):
        self.run(self._client.aclose())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


@contextmanager
def failing(engine, error):
    """Every call of the engine that needs the store raises this error."""

    async def fail(*arguments, **options):
        raise error

    def fail_at_once(*arguments):
        raise error

    with pytest.MonkeyPatch.context() as patch:
        for part in (engine, engine.administration, engine.log, engine.reports):
            for name, _ in inspect.getmembers(type(part), inspect.iscoroutinefunction):
                if not name.startswith("_") and name not in ("start", "stop"):
                    patch.setattr(part, name, fail)
        patch.setattr(engine.log, "export", fail_at_once)
        yield


def engine_on(store, **options):
    """An engine at a fixed time, which settles and learns only when it is asked to."""
    return Engine(store, clock=Clock(), refresh_ms=3_600_000, **options)


@pytest.fixture
def store():
    return temporary_store()


@pytest.fixture
def engine(store):
    """The engine of the first client that a test makes."""
    return engine_on(store)


@pytest.fixture
def serving(engine, store):
    """Return a function that makes a client of a service with the given settings, and starts the service."""
    made = []

    def make(config=None, **options):
        own = engine_on(store) if made else engine
        made.append(Client(Service(own, store, config or Config(request_log=False), **options)))
        made[-1].run(made[-1].service.start())
        return made[-1]

    yield make
    for client in made:
        client.run(client.service.stop())
        client.close()


@pytest.fixture
def call(serving):
    """A client of a service with one surface."""
    client = serving()
    assert client("PUT", "/v1/surfaces/home", json={"slots": 3, "items": ["a", "b", "c", "d"]}).status_code == 201
    return client
