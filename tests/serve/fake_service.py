"""A small service for tests of the clients: records requests, and fails on demand."""

from __future__ import annotations

import asyncio
import json

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

from bothworlds.serve.dashboard.routes import routes as pages
from bothworlds.serve.http.operations import OPERATIONS
from tests.serve.fake_engine import FakeEngine, audit


class FakeService:
    """Ranks items in reverse order; ``failing`` is a list of statuses to respond with first (0: a timeout)."""

    def __init__(self, items=("a", "b", "c", "d"), slots=3, more_routes=(), engine=None):
        self.items, self.slots, self.rejecting, self.delay = list(items), slots, False, 0.0
        self.failing, self.ranks, self.batches, self.headers, self.surfaces = [], [], [], [], {}
        self.app = Starlette(
            routes=[
                Route("/v1/surfaces/{name}/rank", self.rank, methods=["POST"]),
                Route("/v1/feedback", self.feedback, methods=["POST"]),
                Route("/v1/surfaces/{name}", self.surface, methods=["GET", "PUT"]),
                Route("/v1/surfaces/{name}/state", self.state),
                Route("/healthz", self.healthy),
                Route("/readyz", self.healthy),
                *more_routes,
                *pages(engine or FakeEngine(), audit=audit, operations=OPERATIONS),
            ],
            middleware=[Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])],
        )

    @classmethod
    def empty(cls):
        """Return a service without surfaces."""
        return cls(engine=FakeEngine([]))

    @property
    def clicks(self):
        """The clicks of every event, each counted once, and whether the event is final."""
        known = {}
        for event in (event for batch in self.batches for event in batch):
            clicks, final = known.get(event["event_id"], (frozenset(), False))
            known[event["event_id"]] = (clicks | set(event["clicks"]), final or event["final"])
        return known

    async def failure(self, request):
        self.headers.append(dict(request.headers))
        if not self.failing:
            return None
        status = self.failing.pop(0)
        if status == 0:
            await asyncio.sleep(5)
        problem = {"title": "Not now", "status": status, "detail": "not now"}
        return JSONResponse(problem, status or 503, {"Retry-After": "0"})

    async def rank(self, request):
        asked = await request.json()
        if failure := await self.failure(request):
            return failure
        self.ranks.append(asked)
        await asyncio.sleep(self.delay)
        shown = [item for item in reversed(self.items) if item not in asked.get("exclude", [])][: self.slots]
        slots = [{"slot": i, "item": item, "p": 0.5, "pinned": False, "learn": True} for i, item in enumerate(shown)]
        event = f"event of {asked['request_id']}"
        return JSONResponse({"event_id": event, "surface": request.path_params["name"], "arm": "learner",
                             "policy_id": "p", "expires_at": "2030-01-01T00:00:00.000Z", "token": "t" + event,
                             "slots": slots})  # fmt: skip

    async def feedback(self, request):
        events = json.loads(await request.body())["events"]  # a beacon sends text/plain
        if failure := await self.failure(request):
            return failure
        self.batches.append(events)
        status = "rejected" if self.rejecting else "accepted"
        return JSONResponse({"results": [{"event_id": event["event_id"], "status": status} for event in events]})

    async def surface(self, request):
        name = request.path_params["name"]
        if request.method == "PUT":
            self.surfaces[name] = await request.json()
            self.items, self.slots = self.surfaces[name]["items"], self.surfaces[name]["slots"]
        known = name in self.surfaces
        return JSONResponse(self.surfaces[name] if known else {"detail": "no such surface"}, 200 if known else 404)

    async def state(self, request):
        return JSONResponse({"rounds": 7})

    async def healthy(self, request):
        return JSONResponse({"ready": True})
