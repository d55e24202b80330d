"""Endpoints for surfaces and their items, and for the token secret."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..config import Limits
from ..model import Conflict, StateConflict, Surface, learned_again
from ..schemas import ItemChanges, Promotion, Reset, Rotation, SurfaceChanges, SurfaceRequest, WarmStart, view_of
from .body import check_count, check_media_type, decode, read_body
from .problems import Problem, json_response

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.surface_rules import ItemAction

T = TypeVar("T")

_surface_request = msgspec.json.Decoder(SurfaceRequest)
_surface_changes = msgspec.json.Decoder(SurfaceChanges)
_promotion = msgspec.json.Decoder(Promotion)
_reset = msgspec.json.Decoder(Reset)
_item_changes = msgspec.json.Decoder(ItemChanges)
_rotation = msgspec.json.Decoder(Rotation)
_warm_start = msgspec.json.Decoder(WarmStart)


def etag(surface: Surface) -> str:
    """Return the entity tag of a surface, which is its version."""
    return f'"{surface.version}"'


class SurfaceEndpoints:
    """Handlers for administrators. A change is durable and served by this process when its response is sent.

    Changes of a surface honour ``If-Match`` and ``If-None-Match`` (412) and a ``version`` in the body (409).
    """

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._registry, self._administration = engine.registry, engine.administration
        self._log, self._limits = engine.log, limits

    async def list_surfaces(self, request: Request, actor: str) -> Response:
        return json_response({"surfaces": [view_of(surface) for surface in self._registry.all_surfaces()]})

    async def get_surface(self, request: Request, actor: str) -> Response:
        surface = self._registry.surface(request.path_params["surface"])
        # Weak comparison: a proxy that compresses responses makes entity tags weak.
        if etag(surface) in {tag.removeprefix("W/") for tag in _tags(request, "if-none-match")}:
            return Response(status_code=304, headers={"etag": etag(surface)})
        return _surface_response(surface)

    async def put_surface(self, request: Request, actor: str) -> Response:
        name, body = request.path_params["surface"], await self._body(request, _surface_request)
        self._check_limits(name, body)
        expected, before = self._expected_version(request, body), self._find(name)
        surface, created = await _with_preconditions(
            request, self._administration.put_surface(name, body, actor=actor, if_version=expected)
        )
        return await self._changed(before, surface, 201 if created else 200)

    async def patch_surface(self, request: Request, actor: str) -> Response:
        name, body = request.path_params["surface"], await self._body(request, _surface_changes)
        self._check_limits(name, body)
        expected, before = self._expected_version(request, body), self._find(name)
        change = self._administration.patch_surface(name, body, actor=actor, if_version=expected)
        return await self._changed(before, await _with_preconditions(request, change))

    async def delete_surface(self, request: Request, actor: str) -> Response:
        name = request.path_params["surface"]
        self._registry.surface(name)
        expected = self._expected_version(request, {})
        await _with_preconditions(request, self._administration.delete_surface(name, actor=actor, if_version=expected))
        return Response(status_code=204)

    async def put_item(self, request: Request, actor: str) -> Response:
        name, item = request.path_params["surface"], request.path_params["item"]
        before = {known.name for known in self._registry.surface(name).items if known.state != "removed"}
        self._check_limits(name, {"items": [item]})
        changes = msgspec.to_builtins(await self._decoded(request, _item_changes, b"{}"))
        surface = await self._change_item(request, "add", actor, changes.get("labels"))
        return _surface_response(surface, 200 if item in before else 201)

    async def delete_item(self, request: Request, actor: str) -> Response:
        return _surface_response(await self._change_item(request, "remove", actor))

    async def pause_item(self, request: Request, actor: str) -> Response:
        return _surface_response(await self._change_item(request, "pause", actor))

    async def resume_item(self, request: Request, actor: str) -> Response:
        return _surface_response(await self._change_item(request, "resume", actor))

    async def reset(self, request: Request, actor: str) -> Response:
        await self._decoded(request, _reset, b"{}")
        await self._administration.reset(request.path_params["surface"], actor=actor)
        return Response(status_code=204)

    async def restart_comparison(self, request: Request, actor: str) -> Response:
        name, expected = request.path_params["surface"], self._expected_version(request, {})
        change = self._administration.restart_comparison(name, actor=actor, if_version=expected)
        return _surface_response(await _with_preconditions(request, change))

    async def promote(self, request: Request, actor: str) -> Response:
        name, body = request.path_params["surface"], await self._body(request, _promotion)
        expected = self._expected_version(request, body)
        change = self._administration.promote(name, body["arm"], actor=actor, if_version=expected)
        return _surface_response(await _with_preconditions(request, change))

    async def warm_start(self, request: Request, actor: str) -> Response:
        start = await self._decoded(request, _warm_start)
        if not start.baseline:
            raise Problem(422, "a warm start needs baseline: true")
        name = request.path_params["surface"]
        await self._administration.start_from_baseline(name, rounds=start.rounds, actor=actor)
        return Response(status_code=204)

    async def rotate_secret(self, request: Request, actor: str) -> Response:
        options = await self._decoded(request, _rotation, b"{}")
        await self._administration.rotate_secret(actor=actor, forget=options.forget)
        return Response(status_code=204)

    async def _change_item(
        self, request: Request, action: ItemAction, actor: str, labels: dict[str, Any] | None = None
    ) -> Surface:
        name, item = request.path_params["surface"], request.path_params["item"]
        expected = self._expected_version(request, {})
        change = self._administration.change_item(name, item, action, labels=labels, actor=actor, if_version=expected)
        return await _with_preconditions(request, change)

    async def _decoded(self, request: Request, decoder: msgspec.json.Decoder[Any], empty: bytes = b"") -> Any:
        """Return the decoded body; that of ``empty`` if there is none, which needs no media type."""
        body = await read_body(request.scope, request.receive, self._limits)
        if body:
            check_media_type(request.scope, [b"application/json"])
        return decode(body or empty, decoder)

    async def _body(self, request: Request, decoder: msgspec.json.Decoder[Any]) -> dict[str, Any]:
        content: dict[str, Any] = msgspec.to_builtins(await self._decoded(request, decoder))
        return content

    def _expected_version(self, request: Request, body: dict[str, Any]) -> int | None:
        """Return the version that the surface must have; None for any, 0 if it must not exist, -1 for none at all.

        Removes ``version`` from the body.
        """
        version: int | None = body.pop("version", None)
        current = self._find(request.path_params["surface"])
        known = set() if current is None else {"*", etag(current)}
        if match := _tags(request, "if-match"):
            if current is None or not known & match:
                return -1
            return current.version if version is None and "*" not in match else version
        if absent := _tags(request, "if-none-match"):
            return 0 if "*" in absent else -1 if known & absent else version
        return version

    async def _changed(self, before: Surface | None, after: Surface, status: int = 200) -> Response:
        """Return a changed surface, with how many events of its log are learned again because of the change."""
        again = before is not None and learned_again(before, after)
        events = (await self._log.retention_of(after.name))["events"] if again else msgspec.UNSET
        return _surface_response(after, status, events)

    def _find(self, name: str) -> Surface | None:
        served = self._registry.surfaces.get(name)
        return None if served is None else served.surface

    def _check_limits(self, name: str, body: dict[str, Any]) -> None:
        known = self._find(name)
        items = {item.name for item in known.items if item.state != "removed"} if known else set()
        check_count(body.get("slots", 0), self._limits.slots, "slots", "/slots")
        given = {item["name"] if isinstance(item, dict) else item for item in body.get("items", ())}
        check_count(len(items | given), self._limits.items, "items on one surface", "/items")
        if known is None:
            check_count(len(self._registry.all_surfaces()) + 1, self._limits.surfaces, "surfaces", "")


async def _with_preconditions(request: Request, change: Awaitable[T]) -> T:
    """Await a change; another version is a 412 if there is an ``If-Match`` or ``If-None-Match``, otherwise a 409."""
    try:
        return await change
    except StateConflict:
        raise
    except Conflict as error:
        if "if-match" not in request.headers and "if-none-match" not in request.headers:
            raise
        raise Problem(412, str(error)) from error


def _tags(request: Request, name: str) -> set[str]:
    return {tag.strip() for tag in request.headers.get(name, "").split(",") if tag.strip()}


def _surface_response(surface: Surface, status: int = 200, again: int | msgspec.UnsetType = msgspec.UNSET) -> Response:
    return json_response(view_of(surface, again), status, {"etag": etag(surface)})
