"""Endpoints for API keys: list, create, revoke.

They exist beside the command line because a running service owns its SQLite file, so that no other process can write
keys to it.
"""

from __future__ import annotations

import asyncio
import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..config import Limits
from ..model import Invalid, Unknown
from ..schemas import KeyRequest, KeyView, NewKey, rfc3339
from ..stores.base import Store
from .auth import Keyring, create_key, list_keys, revoke_key
from .request_body import decode, media_type, read_body
from .responses import json_response

__all__ = ["KeyEndpoints"]

_key_request = msgspec.json.Decoder(KeyRequest)


class KeyEndpoints:
    """Handlers for administrators; the store is called in threads. Changes are durable and in force on return."""

    def __init__(self, store: Store, keyring: Keyring, limits: Limits) -> None:
        self._store, self._keyring, self._limits = store, keyring, limits

    async def list_keys(self, request: Request, actor: str) -> Response:
        stored = await asyncio.to_thread(list_keys, self._store)
        views = [
            KeyView(
                key["id"],
                key["roles"],
                key["note"],
                rfc3339(key["created_at"]),
                rfc3339(key["revoked_at"]) if key["revoked_at"] else None,
            )
            for key in stored
        ]
        return json_response({"keys": views})

    async def create_key(self, request: Request, actor: str) -> Response:
        media_type(request.scope, [b"application/json"])
        body = decode(await read_body(request.scope, request.receive, self._limits), _key_request)
        stored = await asyncio.to_thread(list_keys, self._store)
        if "admin" not in body.roles and not any("admin" in key["roles"] and not key["revoked_at"] for key in stored):
            raise Invalid("the first key must have the role admin: no other role can create keys", "/roles")
        key = await asyncio.to_thread(create_key, self._store, body.roles, body.note, _now(), actor)
        await self._keyring.load()
        return json_response(NewKey(key.split("_")[1], key), 201, {"cache-control": "no-store"})

    async def revoke_key(self, request: Request, actor: str) -> Response:
        try:
            await asyncio.to_thread(revoke_key, self._store, request.path_params["key_id"], _now(), actor)
        except ValueError as error:
            raise Unknown(str(error)) from error
        await self._keyring.load()
        return Response(status_code=204)


def _now() -> int:
    return time.time_ns() // 1_000_000
