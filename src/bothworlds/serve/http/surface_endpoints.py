"""Calls that change surfaces and items, and those that show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..config import Limits
from ..model import Conflict, Surface, Unknown
from ..schemas import (
    Reset,
    Rotation,
    SegmentView,
    SurfaceChanges,
    SurfaceRequest,
    WarmStart,
    rfc3339,
    view_of,
)
from ..stores.base import VersionConflict
from .limits import check_count, decode, media_type, read_body
from .problems import Problem

__all__ = ["Managing", "answer", "etag"]

_surface_request = msgspec.json.Decoder(SurfaceRequest)
_surface_changes = msgspec.json.Decoder(SurfaceChanges)
_reset = msgspec.json.Decoder(Reset)
_rotation = msgspec.json.Decoder(Rotation)
_warm_start = msgspec.json.Decoder(WarmStart)


def answer(said: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON."""
    body = msgspec.json.encode(said, enc_hook=_plain)
    return Response(body, status, headers, media_type="application/json")


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as those of Python."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} cannot be written as JSON")


def etag(surface: Surface) -> str:
    """The version of a surface as HTTP names it."""
    return f'"{surface.version}"'


class Managing:
    """What an administrator can do."""

    def __init__(self, engine: Any, limits: Limits) -> None:
        self._engine, self._limits = engine, limits

    async def list_surfaces(self, request: Request, actor: str) -> Response:
        return answer({"surfaces": [view_of(surface) for surface in self._engine.surfaces()]})

    async def get_surface(self, request: Request, actor: str) -> Response:
        surface = self._engine.surface(_path(request, "surface"))
        if etag(surface) in _tags(request, "if-none-match"):
            return Response(status_code=304, headers={"etag": etag(surface)})
        return _shown(surface)

    async def put_surface(self, request: Request, actor: str) -> Response:
        name, body = _path(request, "surface"), await self._body(request, _surface_request)
        self._check_limits(name, body)
        expected = self._expected(request, name, body)
        surface, created = await _guarded(request, self._engine.put_surface)(
            name, body, actor=actor, if_version=expected
        )
        return _shown(surface, 201 if created else 200)

    async def patch_surface(self, request: Request, actor: str) -> Response:
        name, body = _path(request, "surface"), await self._body(request, _surface_changes)
        self._check_limits(name, body)
        expected = self._expected(request, name, body)
        change = _guarded(request, self._engine.patch_surface)
        return _shown(await change(name, body, actor=actor, if_version=expected))

    async def put_item(self, request: Request, actor: str) -> Response:
        name, item = _path(request, "surface"), _path(request, "item")
        known = {kept.name for kept in self._engine.surface(name).items if kept.state != "removed"}
        self._check_limits(name, {"items": [item]})
        surface = await self._change_item(request, self._engine.put_item, actor)
        return _shown(surface, 200 if item in known else 201)

    async def delete_item(self, request: Request, actor: str) -> Response:
        return _shown(await self._change_item(request, self._engine.delete_item, actor))

    async def pause_item(self, request: Request, actor: str) -> Response:
        return _shown(await self._change_item(request, self._engine.pause_item, actor))

    async def resume_item(self, request: Request, actor: str) -> Response:
        return _shown(await self._change_item(request, self._engine.resume_item, actor))

    async def reset(self, request: Request, actor: str) -> Response:
        body = await read_body(request.scope, request.receive, self._limits)
        asked = decode(_json(request, body) or b"{}", _reset)
        await self._engine.reset(_path(request, "surface"), segment=asked.segment, actor=actor)
        return Response(status_code=204)

    async def list_segments(self, request: Request, actor: str) -> Response:
        name = _path(request, "surface")
        segments = [_dated(segment) for segment in await self._engine.segments(name)]
        return answer({"segments": segments, "max_segments": self._engine.surface(name).settings.max_segments})

    async def delete_segment(self, request: Request, actor: str) -> Response:
        await self._engine.delete_segment(_path(request, "surface"), _path(request, "segment"), actor=actor)
        return Response(status_code=204)

    async def warm_start(self, request: Request, actor: str) -> Response:
        body = await read_body(request.scope, request.receive, self._limits)
        asked = decode(_json(request, body), _warm_start)
        await self._engine.warm_start(
            _path(request, "surface"), asked.model, rounds=asked.rounds, segment=asked.segment, actor=actor
        )
        return Response(status_code=204)

    async def rotate_secret(self, request: Request, actor: str) -> Response:
        body = await read_body(request.scope, request.receive, self._limits)
        asked = decode(_json(request, body) or b"{}", _rotation)
        await self._engine.rotate_secret(actor=actor, forget=asked.forget)
        return Response(status_code=204)

    async def _change_item(self, request: Request, change: Callable[..., Any], actor: str) -> Surface:
        name = _path(request, "surface")
        self._expected(request, name, {})
        surface: Surface = await _guarded(request, change)(name, _path(request, "item"), actor=actor)
        return surface

    async def _body(self, request: Request, decoder: msgspec.json.Decoder[Any]) -> dict[str, Any]:
        body = await read_body(request.scope, request.receive, self._limits)
        said: dict[str, Any] = msgspec.to_builtins(decode(_json(request, body), decoder))
        return said

    def _expected(self, request: Request, name: str, body: dict[str, Any]) -> int | None:
        """The version that a change is meant for: the one in If-Match (412 otherwise), or in the body (409)."""
        version: int | None = body.pop("version", None)
        current = self._find(name)
        tags, absent = _tags(request, "if-match"), _tags(request, "if-none-match")
        if tags and (current is None or not {"*", etag(current)} & tags):
            raise Problem(412, _stale(current))
        if current is not None and {"*", etag(current)} & absent:
            raise Problem(412, "the surface exists already")
        if current is not None and version not in (None, current.version):
            raise Problem(409, _stale(current))
        return current.version if current is not None and tags - {"*"} else version

    def _find(self, name: str) -> Surface | None:
        try:
            found: Surface = self._engine.surface(name)
        except Unknown:
            return None
        return found

    def _check_limits(self, name: str, body: dict[str, Any]) -> None:
        known = self._find(name)
        kept = {item.name for item in known.items if item.state != "removed"} if known else set()
        check_count(body.get("slots", 0), self._limits.slots, "slots", "/slots")
        check_count(len(kept | set(body.get("items", ()))), self._limits.items, "items on one surface", "/items")
        if known is None:
            check_count(len(self._engine.surfaces()) + 1, self._limits.surfaces, "surfaces", "")


def _guarded(request: Request, change: Callable[..., Any]) -> Callable[..., Any]:
    """A change that was meant for another version fails with 412 if a header said so, with 409 otherwise."""

    async def guarded(*arguments: Any, **options: Any) -> Any:
        try:
            return await change(*arguments, **options)
        except (Conflict, VersionConflict) as error:
            if "if-match" not in request.headers:
                raise
            raise Problem(412, str(error)) from error

    return guarded


def _path(request: Request, name: str) -> str:
    part: str = request.path_params[name]
    return part


def _json(request: Request, body: bytes) -> bytes:
    if body:
        media_type(request.scope, [b"application/json"])
    return body


def _tags(request: Request, name: str) -> set[str]:
    return {tag.strip() for tag in request.headers.get(name, "").split(",") if tag.strip()}


def _stale(current: Surface | None) -> str:
    if current is None:
        return "there is no such surface"
    return f"the surface has version {current.version} by now; read it again, and send the change for that version"


def _dated(segment: SegmentView) -> dict[str, Any]:
    """Returns the segment with its times as RFC 3339."""
    used_at, expires_at = (None if at is None else rfc3339(at) for at in (segment["used_at"], segment["expires_at"]))
    return {**segment, "used_at": used_at, "expires_at": expires_at}


def _shown(surface: Surface, status: int = 200) -> Response:
    return answer(view_of(surface), status, {"etag": etag(surface)})
