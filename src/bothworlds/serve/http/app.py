"""The service as an ASGI application: dispatches, authorises, answers, counts and logs every request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from ... import __version__
from ..config import Config
from ..dashboard.routes import MAY_EDIT
from ..engine_protocol import EngineProtocol
from ..observability.logs import RequestLog, logger
from ..observability.metrics import RANK, Metrics
from ..schemas import Role
from ..stores.base import Store
from .auth import PUBLIC, Keyring
from .cors import CorsPolicy
from .deletion_endpoints import DeletionEndpoints
from .descriptors import check_free_descriptor
from .key_endpoints import KeyEndpoints
from .log_endpoints import LogEndpoints
from .openapi import describe
from .paths import FEEDBACK, page_route, ranked_surface
from .problems import Problem
from .rank_feedback import RankFeedbackEndpoints, Reply
from .read_endpoints import ReadEndpoints
from .request_body import ClientDisconnected, header
from .responses import JSON, ResponseRecorder, json_response, logged_problem, send_problem, send_response
from .routing import API_PATHS, Handler, api_routes, not_found
from .sessions import Sessions, sign_in_path
from .surface_endpoints import SurfaceEndpoints
from .surface_forms import SurfaceForms

__all__ = ["Service"]

METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}  # in metrics; all others are "other"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
PUBLIC_PAGES = ("/static/", "/sign-in", "/sign-out")
MONITOR_SECONDS = 1.0
CLIENT_CLOSED = 499  # the status, in log and metrics, of a request whose client disconnected before the end


class Service:
    """The ASGI application around an engine.

    ``keys_required`` refuses requests even while the store has no keys. ``pages`` are the routes of the dashboard.
    ``hosts``, if given, are the only values of ``Host`` that are answered while no key is needed (DNS rebinding).
    All methods are called on the event loop.
    """

    def __init__(
        self,
        engine: EngineProtocol,
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
        self._rank_feedback = RankFeedbackEndpoints(engine, self.keyring, self.config, self.metrics)
        self._read = ReadEndpoints(engine, self.keyring, self.metrics)
        self._surfaces = SurfaceEndpoints(engine, self.config.limits)
        self._cors = CorsPolicy(self.config.allowed_origins)
        self._hosts = frozenset(host.encode() for host in hosts)
        self._api = Router(api_routes(self.handlers(), self._authorise), redirect_slashes=False, default=not_found)
        forms = SurfaceForms(engine, self._surfaces, self._sessions, self.config.limits)
        own_pages = [*self._session_routes(), *forms.routes()]
        self._pages = Router([*own_pages, *pages], redirect_slashes=False, default=not_found)
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
        if self.metrics.telemetry.enabled:
            await asyncio.to_thread(self.metrics.telemetry.close)

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
        """Once a second: flush the request log, check for a free descriptor, update the gauges of the engine."""
        while True:
            await asyncio.sleep(MONITOR_SECONDS)
            self.log.flush()
            try:
                check_free_descriptor(self.metrics)
                self.metrics.set_health(await asyncio.to_thread(self.engine.health))
            except Exception as error:  # one failed check must not end the monitor
                logger.error("health", exc_info=error)

    async def _answer_and_record(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        path = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else quote(scope["path"])
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = page_route(path)
        if route and method == "POST":
            if self.metrics.telemetry.enabled:
                status, size = await self._answer_traced(scope, receive, send, route, path)
            else:
                status, size = await self._answer_rank_feedback(scope, receive, send, route, path)
        else:
            status, size = await self._answer_other(scope, receive, send, path)
            route = scope.get("bothworlds.route", "unmatched")
        seconds = time.perf_counter() - started
        self.metrics.count_request(method, route, status, seconds)
        self.log.record(method, route, status, seconds, size)

    async def _answer_traced(
        self, scope: Scope, receive: Receive, send: Send, route: str, path: str
    ) -> tuple[int, int]:
        """As ``_answer_rank_feedback``, in a span."""
        header(scope, b"traceparent")  # collects the headers
        name = "rank" if route == RANK else "feedback"
        with self.metrics.telemetry.request_span(name, scope["bothworlds.headers"]) as span:
            status, size = await self._answer_rank_feedback(scope, receive, send, route, path)
            span.set_attribute("http.request.method", "POST")
            span.set_attribute("http.route", route)
            span.set_attribute("http.response.status_code", status)
        return status, size

    async def _answer_rank_feedback(
        self, scope: Scope, receive: Receive, send: Send, route: str, path: str
    ) -> tuple[int, int]:
        """Answer a rank or feedback request; return the status and the size of the request."""
        cors_headers = self._cors.headers(scope)
        try:
            reply = await self._rank_feedback_reply(scope, receive, route, path)
        except ClientDisconnected:
            return CLIENT_CLOSED, 0
        except Exception as error:
            return await send_problem(send, logged_problem(error, route), cors_headers), 0
        await send_response(send, reply.status, reply.body, JSON, cors_headers)
        return reply.status, reply.request_bytes

    async def _rank_feedback_reply(self, scope: Scope, receive: Receive, route: str, path: str) -> Reply:
        self._check_keyless_request(scope, cors_endpoint=True)
        if route == FEEDBACK:
            return await self._rank_feedback.feedback(scope, receive)
        return await self._rank_feedback.rank(scope, receive, ranked_surface(path))

    async def _answer_other(self, scope: Scope, receive: Receive, send: Send, path: str) -> tuple[int, int]:
        """Answer any other request; return the status and the size of the request."""
        recorder = ResponseRecorder(send)
        declared = header(scope, b"content-length")
        size = int(declared) if declared.isdigit() and len(declared) < 16 else 0
        try:
            self._check_keyless_request(scope, cors_endpoint=False)
            if path.startswith("/v1/") or path in API_PATHS:
                await self._answer_api(scope, receive, recorder, path)
            else:
                await self._answer_page(scope, receive, recorder)
        except ClientDisconnected:
            return CLIENT_CLOSED, size
        except Exception as error:
            problem = logged_problem(error, scope.get("bothworlds.route", "unmatched"))
            if recorder.status:  # The server then cuts the connection: the client sees that the response is truncated.
                raise
            return await send_problem(send, problem, []), size
        return recorder.status if recorder.complete else CLIENT_CLOSED, size

    async def _answer_api(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        is_preflight = scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method")
        if is_preflight and page_route(path):
            scope["bothworlds.route"] = "preflight"
            await send_response(send, 204, b"", JSON, self._cors.preflight(scope))
        else:
            # The path as it was sent: an encoded slash stays part of a name.
            scope.update(path=path, root_path="")
            await self._api(scope, receive, send)

    async def _answer_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["bothworlds.route"] = "pages"
        scope["app"] = self
        if not scope["path"].startswith(PUBLIC_PAGES):
            try:
                actor = await self._sessions.viewer(scope)
            except Problem as problem:
                if problem.status != 401 or b"text/html" not in header(scope, b"accept"):
                    raise
                await RedirectResponse(sign_in_path(scope), 303)(scope, receive, send)
                return
            scope[MAY_EDIT] = self.keyring.is_admin(actor)
        await self._pages(scope, receive, send)

    async def _authorise(self, scope: Scope, role: Role) -> str:
        """Return the actor of an API request; raises a 401 or 403."""
        if scope["bothworlds.route"] == "/metrics" and self.config.public_metrics:
            return PUBLIC
        actor = await self.keyring.actor(scope, role)
        surface = scope["path_params"].get("surface")
        # Administrators must see changes that another worker has just made.
        if role == "admin" or (surface is not None and not self.engine.knows(surface)):
            await self.engine.catch_up()
        return actor

    def _check_keyless_request(self, scope: Scope, *, cors_endpoint: bool) -> None:
        """While no key is needed, raise a 403 for cross-origin changes (CSRF) and for foreign hosts (DNS rebinding)."""
        if self.keyring.needed:
            return
        if scope["method"] not in SAFE_METHODS:
            self._cors.check_origin(scope, cors_endpoint=cors_endpoint)
        if self._hosts:
            host = header(scope, b"host")
            name = host if host.endswith(b"]") else host.rpartition(b":")[0] or host
            if name.lower() not in self._hosts:
                raise Problem(403, "without keys, the service answers under its loopback address only")

    def handlers(self) -> dict[str, Handler]:
        """Return the handler of every operation, by name, except rank and feedback, which bypass the router."""
        keys = KeyEndpoints(self._store, self.keyring, self.config.limits)
        surfaces = self._surfaces
        logs = LogEndpoints(self.engine, self.config.limits)
        deletion = DeletionEndpoints(self.engine)
        read = self._read
        document = describe(__version__)

        async def openapi(request: Request, actor: str) -> Response:
            return json_response(document)

        return {
            "get_event": read.get_event,
            "delete_event": deletion.delete_event,
            "delete_events": deletion.delete_events,
            "list_surfaces": surfaces.list_surfaces,
            "get_surface": surfaces.get_surface,
            "put_surface": surfaces.put_surface,
            "patch_surface": surfaces.patch_surface,
            "delete_surface": surfaces.delete_surface,
            "put_item": surfaces.put_item,
            "delete_item": surfaces.delete_item,
            "pause_item": surfaces.pause_item,
            "resume_item": surfaces.resume_item,
            "reset": surfaces.reset,
            "restart_comparison": surfaces.restart_comparison,
            "promote": surfaces.promote,
            "list_segments": surfaces.list_segments,
            "delete_segment": surfaces.delete_segment,
            "warm_start": surfaces.warm_start,
            "get_state": read.get_state,
            "get_report": read.get_report,
            "export": logs.export,
            "import_log": logs.import_log,
            "list_keys": keys.list_keys,
            "create_key": keys.create_key,
            "revoke_key": keys.revoke_key,
            "rotate_secret": surfaces.rotate_secret,
            "alive": read.alive,
            "ready": read.ready,
            "metrics": read.metrics,
            "openapi": openapi,
        }

    def _session_routes(self) -> list[BaseRoute]:
        return [
            Route("/sign-in", self._sessions.show_form, methods=["GET"]),
            Route("/sign-in", self._sessions.sign_in, methods=["POST"]),
            Route("/sign-out", self._sessions.sign_out, methods=["POST"]),
        ]
