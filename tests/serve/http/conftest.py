"""Fixtures: a service on the engine in memory, and clients that call it without a network."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from bothworlds.serve.config import Config
from bothworlds.serve.http.app import Service
from tests.serve.fake_engine import FakeEngine
from tests.serve.running import temporary_store


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

    def close(self):
        self.run(self._client.aclose())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


@pytest.fixture
def engine():
    return FakeEngine([])


@pytest.fixture
def store():
    return temporary_store()


@pytest.fixture
def serving(engine, store):
    """Return a function that makes a client of a service with the given settings."""
    made = []

    def make(config=None, **options):
        made.append(Client(Service(engine, store, config or Config(request_log=False), **options)))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def call(serving):
    """A client of a service with one surface."""
    client = serving()
    assert client("PUT", "/v1/surfaces/home", json={"slots": 3, "items": ["a", "b", "c", "d"]}).status_code == 201
    return client
