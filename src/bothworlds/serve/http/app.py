"""The service as an ASGI application: dispatches, authorises, answers, counts and logs every request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.requests import Request
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..config import Config
from ..dashboard.routes import MAY_EDIT, Sources, routes
from ..observability.logs import RequestLog, logger
from ..observability.metrics import Metrics
from ..schemas import Role
from ..stores import Store
from .auth import PUBLIC, KeyEndpoints, Keyring, check_host, check_origin, with_cors
from .body import ClientDisconnected, header
from .forms import ERRORS, SurfaceForms, error_page
from .logs import LogEndpoints
from .operations import (
    API_PATHS,
    OPERATIONS,
    ROUTE,
    Handler,
    api_routes,
    not_found,
)
from .problems import logged_problem, send_problem
from .rank_feedback import FEEDBACK, RankFeedbackEndpoints, page_route, ranked_surface, send_json
from .reads import ReadEndpoints
from .sessions import Sessions
from .surfaces import SurfaceEndpoints

if TYPE_CHECKING:
    from ..engine.engine import Engine

METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}  # in metrics; all others are "other"
PUBLIC_PAGES = ("/static/", "/sign-in", "/sign-out")
MONITOR_SECONDS = 1.0
CLIENT_CLOSED = 499  # the status, in log and metrics, of a request whose client disconnected before the end
PATH, RESPONSE = "bothworlds.path", "bothworlds.response"  # in a scope: the path as it was sent, and a ``_Response``


class _Response:
    """An ASGI ``send`` that records the status of a response, 0 until it has started, and whether it is complete."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status, self.complete = 0, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.complete = not message.get("more_body", False)
        await self._send(message)


class Service:
    """The ASGI application around an engine.

    ``keys_required`` refuses requests even while the store has no keys. ``hosts``, if given, are the only values of
    ``Host`` that are answered while no key is needed (DNS rebinding). All methods are called on the event loop.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        config: Config | None = None,
        *,
        keys_required: bool = False,
        hosts: Iterable[str] = (),
        json_log: bool = True,
    ) -> None:
        self.engine, self.config = engine, config or Config()
        self._store = store
        self.metrics = Metrics()
        self.log = RequestLog(self.config.request_log, json_log, lambda: time.time_ns() // 1_000_000)
        self.keyring = Keyring(store, required=keys_required)
        self._sessions = Sessions(store, self.keyring, self.config.limits)
        self._rank_feedback = RankFeedbackEndpoints(engine, self.keyring, self.config, self.metrics)
        self._read = ReadEndpoints(engine, self.keyring, self.metrics)
        self._surfaces = SurfaceEndpoints(engine, self.config.limits)
        self._cors = with_cors(self._with_problems(self._answer_rank_feedback), self.config.allowed_origins)
        self._rank_feedback_app = self._cors if self.config.allowed_origins else self._cors.app
        self._other_app = self._with_problems(self._answer_other)
        self._hosts = frozenset(host.encode() for host in hosts)
        self._api = Router(api_routes(self.handlers(), self._authorise), redirect_slashes=False, default=not_found)
        forms = SurfaceForms(engine, self._surfaces, self._sessions, self.config.limits)
        own_pages = routes(Sources(engine, OPERATIONS))
        pages = [*self._sessions.routes(), *forms.routes(), *own_pages]
        self._pages = Router(pages, redirect_slashes=False, default=not_found)
        self._monitor: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer_and_record(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def start(self) -> None:
        """Start the engine, load the keys and start the monitor; raises if the engine or the store fails."""
        self._read.stopping = False
        await self.engine.start()
        await self.keyring.load()
        self._monitor = asyncio.create_task(self._run_monitor())

    async def stop(self) -> None:
        """Stop the monitor and the engine, which writes all that is queued; flush the request log."""
        self._read.stopping = True
        if self._monitor is not None:
            self._monitor.cancel()
            await asyncio.wait([self._monitor])
        await self.engine.stop()
        self.log.flush()

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        for change in (self.start, self.stop):
            phase = (await receive())["type"]
            try:
                await change()
            except Exception as error:
                await send({"type": f"{phase}.failed", "message": str(error)})
                raise
            await send({"type": f"{phase}.complete"})

    async def _run_monitor(self) -> None:
        """Once a second: flush the request log, update the gauges of the engine."""
        while True:
            await asyncio.sleep(MONITOR_SECONDS)
            self.log.flush()
            try:
                self.metrics.set_health(await asyncio.to_thread(self.engine.health))
            except Exception as error:  # one failed check must not end the monitor
                logger.error("health", exc_info=error)

    async def _answer_and_record(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        path = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else quote(scope["path"])
        response = _Response(send)
        scope[PATH], scope[RESPONSE], scope[ROUTE] = path, response, page_route(path)
        await (self._rank_feedback_app if scope[ROUTE] else self._other_app)(scope, receive, response)
        seconds = time.perf_counter() - started
        method, route = scope["method"] if scope["method"] in METHODS else "other", scope[ROUTE] or "unmatched"
        status = response.status if response.complete else CLIENT_CLOSED
        self.metrics.count_request(method, route, status, seconds)
        declared = header(scope, b"content-length")
        size = int(declared) if declared.isdigit() and len(declared) < 16 else 0
        self.log.record(method, route, status, seconds, size)

    def _with_problems(self, app: ASGIApp) -> ASGIApp:
        """Return an application that responds with a problem to an exception.

        An exception during a response is raised again: the server then cuts the connection, so that the client sees
        that the response is truncated. No variable may hold an exception: its traceback would hold ``receive`` until
        the next garbage collection, and with it the connection of a client that does not send its body.
        """

        async def answering(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            except Exception as error:
                route = scope[ROUTE] or "unmatched"
                if scope[RESPONSE].status:
                    logged_problem(error, route)
                    raise
                await send_problem(send, logged_problem(error, route))
                scope[RESPONSE].complete = not isinstance(error, ClientDisconnected)

        return answering

    async def _answer_rank_feedback(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a rank or feedback request, or one of another method with a path of theirs."""
        self._check_keyless_request(scope, cors_endpoint=True)
        if scope["method"] != "POST":
            await self._answer_api(scope, receive, send)
        elif scope[ROUTE] == FEEDBACK:
            await send_json(send, await self._rank_feedback.feedback(scope, receive))
        else:
            await send_json(send, await self._rank_feedback.rank(scope, receive, ranked_surface(scope[PATH])))

    async def _answer_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._check_keyless_request(scope, cors_endpoint=False)
        if scope[PATH].startswith("/v1/") or scope[PATH] in API_PATHS:
            await self._answer_api(scope, receive, send)
        else:
            await self._answer_page(scope, receive, send)

    async def _answer_api(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.update(path=scope[PATH], root_path="")  # as it was sent: an encoded slash stays part of a name
        await self._api(scope, receive, send)

    async def _answer_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ROUTE] = "pages"
        scope["app"] = self
        try:
            if not scope["path"].startswith(PUBLIC_PAGES):
                scope[MAY_EDIT] = self.keyring.is_admin(await self._sessions.viewer(scope))
            await self._pages(scope, receive, send)
        except ERRORS as error:
            if scope[RESPONSE].status or b"text/html" not in header(scope, b"accept"):
                raise
            await error_page(Request(scope), error)(scope, receive, send)

    async def _authorise(self, scope: Scope, role: Role) -> str:
        """Return the actor of an API request; raises a 401 or 403."""
        if scope[ROUTE] == "/metrics" and self.config.public_metrics:
            return PUBLIC
        actor = await self.keyring.actor(scope, role)
        surface = scope["path_params"].get("surface")
        # Administrators must see changes that another worker has just made.
        if role == "admin" or (surface is not None and surface not in self.engine.registry.surfaces):
            await self.engine.registry.catch_up()
        return actor

    def _check_keyless_request(self, scope: Scope, *, cors_endpoint: bool) -> None:
        """While no key is needed, raise a 403 for cross-origin changes (CSRF) and for foreign hosts (DNS rebinding)."""
        if not self.keyring.needed:
            check_origin(scope, self._cors if cors_endpoint else None)
            if self._hosts:
                check_host(scope, self._hosts)

    def handlers(self) -> dict[str, Handler]:
        """Return the handler of every operation, which has its name, except rank and feedback: they have no router."""
        keys = KeyEndpoints(self._store, self.keyring, self.config.limits)
        endpoints = (self._read, self._surfaces, LogEndpoints(self.engine, self.config.limits), keys)
        names = [operation.name for operation in OPERATIONS if operation.name not in ("rank", "feedback")]
        return {name: next(getattr(found, name) for found in endpoints if hasattr(found, name)) for name in names}
