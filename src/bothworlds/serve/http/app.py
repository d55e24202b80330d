"""The service as an ASGI application: every request is answered in one place, which also counts and logs it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from ... import __version__
from ..config import Config
from ..observability.logs import RequestLog, logger
from ..observability.metrics import RANK, Metrics
from ..schemas import Role
from ..stores.base import Store
from .auth import PUBLIC, Keyring
from .cors import Origins
from .descriptors import check_free_descriptor
from .key_endpoints import Doorkeeping
from .limits import Gone, header
from .log_endpoints import Transfers
from .openapi import describe
from .problems import Problem
from .rank_feedback import Hot, Reply
from .read_endpoints import Reading
from .responses import JSON, Observed, said_problem, send_answer, send_problem
from .routing import API_PATHS, Handler, api_routes, nowhere, unquoted
from .sessions import Sessions
from .surface_endpoints import Managing, answer

__all__ = ["Service"]

FEEDBACK = "/v1/feedback"
PREFIX, SUFFIX = "/v1/surfaces/", "/rank"
METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
READING = ("GET", "HEAD", "OPTIONS")  # what changes nothing
OPEN_PAGES = ("/static/", "/sign-in", "/sign-out")
LOOK_SECONDS = 1.0
HUNG_UP = 499  # what the log and the metrics say of a request whose caller did not wait


class Service:
    """HTTP around an engine; ``hosts``, if given, are the only names under which it answers."""

    def __init__(
        self,
        engine: Any,
        store: Store,
        config: Config | None = None,
        *,
        keys_required: bool = False,
        pages: Sequence[BaseRoute] = (),
        hosts: Iterable[str] = (),
        json_log: bool = True,
        metrics: Metrics | None = None,
    ) -> None:
        self.engine, self.config = engine, config or Config()
        self._store = store
        self.metrics = metrics or Metrics()
        self.log = RequestLog(self.config.request_log, json_log, lambda: time.time_ns() // 1_000_000)
        self.keyring = Keyring(store, required=keys_required)
        self._sessions = Sessions(store, self.keyring, self.config.limits)
        self._hot = Hot(engine, self.keyring, self.config, self.metrics)
        self._origins = Origins(self.config.allowed_origins)
        self._hosts = frozenset(host.encode() for host in hosts)
        self._reading = Reading(engine, self.keyring, self.metrics)
        self._api = Router(api_routes(self._handlers(), self._admit), redirect_slashes=False, default=nowhere)
        self._pages = Router([*self._session_routes(), *pages], redirect_slashes=False, default=nowhere)
        self._looking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._observe(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def start(self) -> None:
        """Start the engine and all that goes with it."""
        self._reading.stopping = False
        await self.engine.start()
        await self.keyring.load()
        self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Stop in such a way that nothing is lost."""
        self._reading.stopping = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self.engine.stop()
        self.log.flush()

    async def _live(self, receive: Receive, send: Send) -> None:
        for verb in (self.start, self.stop):
            phase = (await receive())["type"]
            try:
                await verb()
            except Exception as error:
                await send({"type": f"{phase}.failed", "message": str(error)})
                raise
            await send({"type": f"{phase}.complete"})

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.log.flush()
            try:
                check_free_descriptor(self.metrics)
                self.metrics.look(await asyncio.to_thread(self.engine.health))
            except Exception as error:  # figures that cannot be had now are no reason to stop looking
                logger.error("health", exc_info=error)

    async def _observe(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        path = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else quote(scope["path"])
        method = scope["method"] if scope["method"] in METHODS else "other"
        if path.startswith(PREFIX) and path.endswith(SUFFIX) and path.count("/") == 4:
            route = RANK
        else:
            route = FEEDBACK if path == FEEDBACK else ""
        if route and method == "POST":
            status, size = await self._answer_hot(scope, receive, send, route, path)
        else:
            status, size = await self._answer(scope, receive, send, path)
            route = scope.get("bothworlds.route", "unmatched")
        seconds = time.perf_counter() - started
        self.metrics.answered(method, route, status, seconds)
        self.log.answered(method, route, status, seconds, size)

    async def _answer_hot(self, scope: Scope, receive: Receive, send: Send, route: str, path: str) -> tuple[int, int]:
        origin = self._origins.headers(scope)
        try:
            reply = await self._reply(scope, receive, route, path)
        except Gone:
            return HUNG_UP, 0
        except Exception as error:
            return await send_problem(send, said_problem(error, route), origin), 0
        await send_answer(send, reply.status, reply.body, JSON, origin)
        return reply.status, reply.size

    async def _reply(self, scope: Scope, receive: Receive, route: str, path: str) -> Reply:
        self._check_caller(scope, for_pages=True)
        if route is FEEDBACK:
            return await self._hot.feedback(scope, receive)
        return await self._hot.rank(scope, receive, unquoted(path[len(PREFIX) : -len(SUFFIX)]))

    async def _answer(self, scope: Scope, receive: Receive, send: Send, path: str) -> tuple[int, int]:
        observed = Observed(send)
        said = header(scope, b"content-length")
        size = int(said) if said.isdigit() and len(said) < 16 else 0
        try:
            self._check_caller(scope, for_pages=False)
            if path.startswith("/v1/") or path in API_PATHS:
                await self._answer_call(scope, receive, observed, path)
            else:
                await self._answer_page(scope, receive, observed)
        except Gone:
            return HUNG_UP, size
        except Exception as error:
            problem = said_problem(error, scope.get("bothworlds.route", "unmatched"))
            if observed.status:  # too late to say so: the connection is cut, so that a stump is not taken for the whole
                raise
            return await send_problem(send, problem, []), size
        return observed.status or HUNG_UP, size

    async def _answer_call(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        asks_before = scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method")
        if asks_before and (path == FEEDBACK or path.endswith(SUFFIX)):
            scope["bothworlds.route"] = "preflight"
            await send_answer(send, 204, b"", JSON, self._origins.preflight(scope))
        else:
            # Names are taken out of the path as it was sent, so that an encoded slash stays part of a name.
            scope.update(path=path, root_path="")
            await self._api(scope, receive, send)

    async def _answer_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["bothworlds.route"] = "pages"
        scope["app"] = self
        if not scope["path"].startswith(OPEN_PAGES):
            try:
                await self._sessions.viewer(scope)
            except Problem as problem:
                if problem.status != 401 or b"text/html" not in header(scope, b"accept"):
                    raise
                await RedirectResponse("/sign-in", 303)(scope, receive, send)
                return
        await self._pages(scope, receive, send)

    async def _admit(self, scope: Scope, role: Role) -> str:
        if scope["bothworlds.route"] == "/metrics" and self.config.public_metrics:
            return PUBLIC
        actor = await self.keyring.actor(scope, role)
        surface = scope["path_params"].get("surface")
        # Whoever changes something must meet what was changed a moment ago, though by another worker.
        if role == "admin" or (surface is not None and not self.engine.knows(surface)):
            await self.engine.catch_up()
        return actor

    def _check_caller(self, scope: Scope, *, for_pages: bool) -> None:
        """Without keys, refuse pages elsewhere, even if they have made their own name point to this machine."""
        if self.keyring.needed:
            return
        if scope["method"] not in READING:
            self._origins.check(scope, for_pages=for_pages)
        if self._hosts:
            host = header(scope, b"host")
            name = host if host.endswith(b"]") else host.rpartition(b":")[0] or host
            if name.lower() not in self._hosts:
                raise Problem(403, "without keys, the service answers under its loopback address only")

    def _handlers(self) -> dict[str, Handler]:
        limits = self.config.limits
        parts = (
            Doorkeeping(self._store, self.keyring, limits),
            Managing(self.engine, limits),
            self._reading,
            Transfers(self.engine, limits),
        )
        found = {name: getattr(part, name) for part in parts for name in dir(part) if not name.startswith("_")}
        description = describe(__version__)

        async def openapi(request: Request, actor: str) -> Response:
            return answer(description)

        return {**found, "openapi": openapi}

    def _session_routes(self) -> list[BaseRoute]:
        return [
            Route("/sign-in", self._sessions.show, methods=["GET"]),
            Route("/sign-in", self._sessions.sign_in, methods=["POST"]),
            Route("/sign-out", self._sessions.sign_out, methods=["POST"]),
        ]
