"""The service on a temporary store, which records what clients send, and fails on demand.

As a program it takes the place of ``bothworlds serve``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
from types import SimpleNamespace
from unittest.mock import patch

from starlette.responses import JSONResponse
from starlette.routing import Router

from bothworlds.serve.config import Config
from bothworlds.serve.engine import served
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.rank_feedback import FEEDBACK
from bothworlds.serve.model import DRAW_KEY, event_id_of
from bothworlds.serve.stores import open_store
from tests.serve.app_server import listening
from tests.serve.running import temporary_store

ITEMS = ("a", "b", "c", "d")


class RecordedService:
    """An application around the service, whose surfaces show their last items first.

    ``ranks`` and ``batches`` are the requests that were answered, ``headers`` those of all. ``failing`` is a list of
    statuses to respond with first (0: after five seconds), ``delay`` how long a list takes, and with ``rejecting`` the
    tokens of feedback are wrong. ``more_routes`` are answered before those of the service.
    """

    def __init__(self, surfaces=("home",), items=ITEMS, slots=3, more_routes=(), store=None):
        self.store = store or temporary_store()
        self.store.put(DRAW_KEY, bytes(32), only_if_absent=True)  # events have the same ids in every run
        self.engine = Engine(self.store)
        config = Config(allowed_origins=("*",), request_log=False)
        self.service = Service(self.engine, self.store, config)
        self.failing, self.ranks, self.batches, self.headers = [], [], [], []
        self.rejecting, self.delay = False, 0.0
        self._surfaces, self._items, self._slots = surfaces, items, slots
        self._more = Router(list(more_routes), default=self._answer)

    def event(self, request_id, surface_id=1):
        """The id of the event of a request."""
        return event_id_of(surface_id, request_id, bytes(32)).hex()

    @property
    def clicks(self):
        """The clicks of every event, each counted once, and whether the event is final."""
        known = {}
        for event in (event for batch in self.batches for event in batch):
            clicks, final = known.get(event["event_id"], (frozenset(), False))
            known[event["event_id"]] = (clicks | set(event["clicks"]), final or event["final"])
        return known

    async def start(self):
        """Start the service, and create the surfaces that it does not have."""
        self._loop = asyncio.get_running_loop()
        self._seeds = patch.object(served, "secrets", SimpleNamespace(randbits=random.Random(1).getrandbits))
        self._seeds.start()
        await self.service.start()
        for name in self._surfaces:
            await self._put(name, self._items, self._slots)

    async def stop(self):
        await self.service.stop()
        self._seeds.stop()

    async def _put(self, name, items, slots):
        order = [*reversed(range(len(items)))][:slots]
        body = {"slots": slots, "items": items, "policy": "fixed", "policy_settings": {"ranking": order}}
        await self.engine.administration.put_surface(name, body | {"floor": 0.001}, actor="test")

    def show(self, items, slots=3, surface="home"):
        """Show these items from now on, the last one first; for another thread."""

        async def replace():
            if surface in self.engine.registry.surfaces:
                await self.engine.administration.delete_surface(surface, actor="test")
            await self._put(surface, items, slots)

        asyncio.run_coroutine_threadsafe(replace(), self._loop).result(60)

    async def __call__(self, scope, receive, send):
        await self._more(scope, receive, send)

    async def _answer(self, scope, receive, send):
        path = scope.get("path", "")
        if scope["type"] != "http" or scope["method"] != "POST" or not (path == FEEDBACK or path.endswith("/rank")):
            await self.service(scope, receive, send)
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message.get("more_body"):
                break
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        if self.failing:
            status = self.failing.pop(0)
            if status == 0:
                await asyncio.sleep(5)
            problem = {"title": "Not now", "status": status, "detail": "not now"}
            origin = {"Retry-After": "0", "Access-Control-Allow-Origin": "*"}
            await JSONResponse(problem, status or 503, origin)(scope, receive, send)
            return
        sent = json.loads(body)
        if path == FEEDBACK:
            self.batches.append(sent["events"])
            tokens = {"token": "forged"} if self.rejecting else {}
            body = json.dumps({"events": [event | tokens for event in sent["events"]]}).encode()
            length = (b"content-length", b"%d" % len(body))
            scope["headers"] = [*(h for h in scope["headers"] if h[0] != b"content-length"), length]
        else:
            self.ranks.append(sent)
            await asyncio.sleep(self.delay)
        pieces = [{"type": "http.request", "body": body, "more_body": False}]

        async def again():
            return pieces.pop() if pieces else await receive()

        await self.service(scope, again, send)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store")
    parser.add_argument("--port", type=int)
    parser.add_argument("--rejecting", action="store_true")
    asked = parser.parse_args()
    service = RecordedService((), store=open_store(asked.store))
    service.rejecting = asked.rejecting
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # also in the threads of the server
    with listening(service, port=asked.port, started=True):
        signal.sigwait([signal.SIGTERM])
    service.store.close()


if __name__ == "__main__":
    main()
