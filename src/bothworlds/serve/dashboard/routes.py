"""The pages for people: a first-run page, the surfaces, how each of them does, and why a list was shown.

Rendered on the server from ``Engine.report``; a page refreshes itself by fetching its changing part again. Nothing is
loaded from elsewhere, and the content security policy allows no inline script or style.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from ..engine_protocol import EngineProtocol
from ..model import Invalid, ServiceError, Surface, Unavailable, Unknown
from . import svg, text
from .view_model import RANGES, View, heat_table, latest_segments, likeliest, pages_of_items, story

__all__ = ["HEADERS", "SESSION", "page", "routes"]

HERE = Path(__file__).parent
SESSION = "bothworlds_session"  # the cookie of somebody who has signed in
TRACED = 10  # items whose probabilities are drawn over time

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Figures = Callable[[], Mapping[str, Any]]
Audit = Callable[[int | None, int], Sequence[Mapping[str, Any]]]  # of a surface's id, or of all; so many


def routes(
    engine: EngineProtocol,
    *,
    latency: Figures | None = None,
    audit: Audit | None = None,
    operations: Sequence[object] = (),
) -> list[BaseRoute]:
    """The routes of all pages.

    ``latency`` adds figures of the HTTP side (``rank_p50_ms``, ...) to the health; ``audit`` is ``Store.audit``, which
    tells the latest changes of a surface. ``operations`` are those of the API (``http.operations``), for the page that
    lists them.
    """

    async def home(request: Request) -> Response:
        surfaces = engine.surfaces()
        if not surfaces:
            return page(request, "welcome.html", address=_address(request))
        headlines = await asyncio.gather(*(_headline_or_none(engine, surface) for surface in surfaces))
        names: dict[Any, str] = {surface.id: surface.name for surface in surfaces}
        latest = await asyncio.to_thread(audit, None, 20) if audit else []
        changes = [{**entry, "where": names.get(entry.get("surface_id"), "")} for entry in latest]
        return page(request, "surfaces.html", lines=list(zip(surfaces, headlines, strict=True)), audit=changes)

    async def surface(request: Request) -> Response:
        return page(request, "surface.html", **await _seen(engine, request, latency, audit))

    async def live(request: Request) -> Response:
        return page(request, "live.html", **await _seen(engine, request, latency, audit))

    async def event(request: Request) -> Response:
        event_id = request.query_params.get("id", "").strip()
        if not event_id:
            return page(request, "event.html", event_id="", story=None, problem="")
        try:
            told = story(await engine.event(event_id))
        except Unknown as error:
            return page(request, "event.html", 404, event_id=event_id, story=None, problem=str(error))
        return page(request, "event.html", event_id=event_id, problem="", **told)

    async def api(request: Request) -> Response:
        return page(request, "api.html", operations=operations)

    return [
        Route("/", _said(home)),
        Route("/surfaces/{surface:path}", _said(surface)),
        Route("/live/{surface:path}", _said(live)),
        Route("/event", _said(event)),
        Route("/api", _said(api)),
        Mount("/static", StaticFiles(directory=HERE / "static"), name="static"),
    ]


def page(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """A rendered page, with the headers that every page has."""
    root, signed_in = request.scope.get("root_path", ""), SESSION in request.cookies
    rendered = _environment().get_template(template).render(root=root, signed_in=signed_in, **context)
    return HTMLResponse(rendered, status, HEADERS)


async def _seen(
    engine: EngineProtocol, request: Request, latency: Figures | None, audit: Audit | None
) -> dict[str, Any]:
    surface, view = engine.surface(request.path_params["surface"]), View.of(request.query_params)
    report = await engine.report(surface.name, since=view.since(surface), until=None, segment=view.segment)
    shown = likeliest(report["marginals"], 25)
    return {
        "surface": surface,
        "view": view,
        "report": report,
        "ranges": RANGES,
        "heat": heat_table(report["marginals"], shown),
        "strips": svg.strips(report["marginals"], report["marginals_history"], shown[:TRACED])[:6],
        "traced": min(TRACED, len(shown)),
        "segments": latest_segments(await engine.segments(surface.name)),
        "items": pages_of_items(report["items"], view.all_items),
        "health": {**await asyncio.to_thread(engine.health), **(latency() if latency else {})},
        "audit": await asyncio.to_thread(audit, surface.id, 50) if audit else [],
    }


async def _headline_or_none(engine: EngineProtocol, surface: Surface) -> Mapping[str, Any] | None:
    """Not the report, which costs so much that a page of all of them would slow ranking."""
    try:
        return await engine.headline(surface.name)
    except ServiceError:
        return None  # gone in the meantime, or the store is away: the others can still be shown


def _said(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The handler, with errors said on a page."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except ServiceError as error:
            status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 422)
            return page(request, "problem.html", status, title=_TITLE[status], detail=str(error))

    return answer


_STATUS: dict[type[ServiceError], int] = {Unknown: 404, Invalid: 422, Unavailable: 503}
_TITLE = {404: "Not found", 422: "That cannot be shown", 503: "The store is away"}


def _address(request: Request) -> str:
    """Where this service is, for commands to copy; a host that no shell should see is not repeated."""
    url = request.base_url
    host = url.netloc if re.fullmatch(r"[A-Za-z0-9.:\[\]-]+", url.netloc) else "127.0.0.1:8080"
    root = request.scope.get("root_path", "") if re.fullmatch(r"[\w/.-]*", request.scope.get("root_path", "")) else ""
    return f"{url.scheme}://{host}{root}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"text": text, "svg": svg, "urlencode": urlencode}
    made.filters |= {
        "count": text.count,
        "many": text.many,
        "number": text.number,
        "percent": text.percent,
        "duration": text.duration,
        "moment": text.moment,
        "segment": lambda name: name or "(no segment)",
        "path": lambda name: quote(name, safe=""),
    }
    return made
