"""The pages of the dashboard: the list of surfaces, a page per surface, the event lookup and the list of API calls.

To add a page: write a handler below, add its path to ``PAGES``, its data to ``view_model``, and its HTML to
``templates/`` (every page extends ``base.html``, which also has the navigation). Sentences and number formats are in
``text``, charts in ``svg``.

Pages are rendered on the server from ``Engine.report``. The page of a surface refreshes itself: ``static/pages.js``
fetches its changing part again. Nothing is loaded from other hosts, and the content security policy forbids inline
scripts and styles. Pages with forms that change something are in ``http/forms.py``, with their fields in
``surface_form``; they have the same look, through ``page``.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from ..model import ServiceError, Surface, Unknown
from ..schemas import Headline
from . import arm_text, svg, text
from .view_model import RANGES, View, event_view, heat_table, listed_items, most_likely_rows

if TYPE_CHECKING:
    from ..engine.engine import Engine

HERE = Path(__file__).parent
SESSION = "bothworlds_session"  # name of the session cookie
MAY_EDIT = "bothworlds.may_edit"  # key of the ASGI scope: whether the viewer may create and edit surfaces
HEAT_ITEMS = 25  # in the table of probabilities
CHART_ITEMS = 10  # in the charts of probabilities over time
CHART_SLOTS = 6
REFRESH_SECONDS = 5.0  # between two refreshes of the page of a surface
LISTED_SURFACES = 50  # on the page of all
SURFACE_CHANGES, LATEST_CHANGES = 50, 20  # audit log entries on the page of a surface, and of all surfaces

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Sources:
    """Where the pages get their data.

    ``operations`` are the calls listed at /api: each has a method, a path, a summary and a role.
    """

    engine: Engine
    operations: Sequence[Any] = ()

    async def changes(self, surface_id: int | None, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return the latest entries of the audit log; reads the store in a worker thread."""
        return await asyncio.to_thread(self.engine.registry.store.audit, surface_id, limit)


async def surfaces_page(sources: Sources, request: Request) -> Response:
    """The list of surfaces by name, from the name in the query on, or the first steps if there is no surface."""
    surfaces = sources.engine.registry.all_surfaces()
    if not surfaces:
        return page(request, "welcome.html", address=service_address(request))
    first = request.query_params.get("from", "")
    start = bisect_left([surface.name for surface in surfaces], first)
    listed = surfaces[start : start + LISTED_SURFACES]
    headlines = await asyncio.gather(*(_headline_or_none(sources.engine, surface) for surface in listed))
    names: dict[Any, str] = {surface.id: surface.name for surface in surfaces}
    latest = await sources.changes(None, LATEST_CHANGES)
    changes = [{**entry, "surface": names.get(entry.get("surface_id"), "")} for entry in latest]
    following = surfaces[start + LISTED_SURFACES : start + LISTED_SURFACES + 1]
    return page(
        request,
        "surfaces.html",
        lines=list(zip(listed, headlines, strict=True)),
        audit=changes,
        total=len(surfaces),
        start=start,
        following=following[0].name if following else "",
    )


async def surface_page(sources: Sources, request: Request) -> Response:
    """The page of one surface."""
    context = await _surface_context(sources, request)
    return page(request, "surface.html", address=service_address(request), refresh_seconds=REFRESH_SECONDS, **context)


async def surface_live(sources: Sources, request: Request) -> Response:
    """The part of the surface's page that changes; ``static/pages.js`` fetches it."""
    return page(request, "live.html", **await _surface_context(sources, request))


async def event_page(sources: Sources, request: Request) -> Response:
    """The lookup of an event by its id."""
    event_id = request.query_params.get("id", "").strip()
    if not event_id:
        return page(request, "event.html", event_id="", explanation=None, problem="")
    try:
        event = event_view(await sources.engine.reports.event(event_id))
    except Unknown as error:
        return page(request, "event.html", 404, event_id=event_id, explanation=None, problem=str(error))
    return page(request, "event.html", event_id=event_id, problem="", **event)


async def api_page(sources: Sources, request: Request) -> Response:
    """The list of API calls."""
    return page(request, "api.html", operations=sources.operations)


PAGES: dict[str, Callable[[Sources, Request], Awaitable[Response]]] = {
    "/": surfaces_page,
    "/surfaces/{surface:path}": surface_page,
    "/live/{surface:path}": surface_live,
    "/event": event_page,
    "/api": api_page,
}


def routes(sources: Sources) -> list[BaseRoute]:
    """Return the routes of all pages and of the static files; pages raise ServiceError."""
    pages: list[BaseRoute] = [Route(path, partial(handler, sources)) for path, handler in PAGES.items()]
    return [*pages, Mount("/static", StaticFiles(directory=HERE / "static"), name="static")]


def page(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a template with the headers that every page has."""
    root, signed_in = request.scope.get("root_path", ""), SESSION in request.cookies
    viewer = {"signed_in": signed_in, "may_edit": request.scope.get(MAY_EDIT, False)}
    rendered = _environment().get_template(template).render(root=root, **viewer, **context)
    return HTMLResponse(rendered, status, HEADERS)


async def _surface_context(sources: Sources, request: Request) -> dict[str, Any]:
    engine = sources.engine
    surface, view = engine.registry.surface(request.path_params["surface"]), View.of(request.query_params)
    visitors = engine.registry.served(surface.name).visitors
    labels = {name: visitors.values(name)[1:] for name in surface.labels}
    context = {name: value for name, value in view.context.items() if value in labels.get(name, ())}
    report = await engine.reports.report(
        surface.name, since=view.since(surface), until=None, segment=view.segment, context=context
    )
    is_labelled = surface.labels or surface.item_labels
    effects = (await engine.reports.effects(surface.name))["effects"] if is_labelled else []
    marginals = report["marginals"]
    rows = most_likely_rows(marginals, HEAT_ITEMS)
    return {
        "surface": surface,
        "view": view,
        "report": report,
        "ranges": RANGES,
        "heat": heat_table(marginals, rows),
        "charts": svg.probability_charts(marginals, report["marginals_history"], rows[:CHART_ITEMS])[:CHART_SLOTS],
        "charted_items": min(CHART_ITEMS, len(rows)),
        "labels": labels,
        "matters": text.what_matters(effects),
        "items": listed_items(report["items"], view.all_items),
        "health": await asyncio.to_thread(engine.health),
        "audit": await sources.changes(surface.id, SURFACE_CHANGES),
    }


async def _headline_or_none(engine: Engine, surface: Surface) -> Headline | None:
    """Return the headline, which is cheap; reports on all surfaces at once would slow down ranking."""
    try:
        return await engine.reports.headline(surface.name)
    except ServiceError:
        return None  # deleted meanwhile, or the store failed: the other surfaces can still be shown


def service_address(request: Request) -> str:
    """Return the address of this service for shell commands; a host with unsafe characters is replaced."""
    url = request.base_url
    host = url.netloc if re.fullmatch(r"[A-Za-z0-9.:\[\]-]+", url.netloc) else "127.0.0.1:8080"
    root = request.scope.get("root_path", "") if re.fullmatch(r"[\w/.-]*", request.scope.get("root_path", "")) else ""
    return f"{url.scheme}://{host}{root}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"arm_text": arm_text, "text": text, "svg": svg, "urlencode": urlencode}
    environment.filters |= {
        "count": text.count,
        "plural": text.plural,
        "number": text.number,
        "percent": text.percent,
        "duration": text.duration,
        "timestamp": text.timestamp,
        "value": lambda name: name or "(unknown)",
        "path": lambda name: quote(name, safe=""),
    }
    return environment
