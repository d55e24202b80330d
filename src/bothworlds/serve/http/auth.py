"""Who may call the service: API keys and their roles, CORS, and checks against CSRF and DNS rebinding.

A key is ``bw_<id>_<secret>``. The store holds only the SHA-256 of the secret. A slow hash would not be safer: it
protects passwords that people choose, while this secret is 256 random bits, and every request pays for the hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

import msgspec
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from ..config import Limits
from ..model import Invalid, ServiceError, Unavailable, Unknown
from ..schemas import KeyRequest, NewKey, Role
from ..stores import Store, StoreError
from .body import check_media_type, decode, header, read_body
from .problems import Problem, json_response

ROLES: tuple[Role, ...] = get_args(Role)
REFRESH_SECONDS = 1.0  # a key that another process has revoked is refused after about so long
RETRY_SECONDS = 0.5  # between reads of the store for an unknown key
LOCAL, PUBLIC, COMMAND_LINE = "local", "public", "command line"  # actors without a key
CHALLENGE = {"www-authenticate": 'Bearer realm="bothworlds"'}
NO_DIGEST = bytes(32)
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}
CROSS_ORIGIN_FETCH = (b"cross-site", b"same-site")  # values of Sec-Fetch-Site
REFUSAL = (
    "without keys, pages of other origins may change nothing here; those among allowed_origins may call rank and "
    "feedback"
)

_key_request = msgspec.json.Decoder(KeyRequest)


class _Key(NamedTuple):
    digest: bytes
    roles: frozenset[str]


class Keyring:
    """The keys of a store, cached and reloaded about once a second.

    Without any key, everyone may do everything; with ``required``, no one may do anything. A revoked key still counts
    as a key: revoking the last one does not open the service. Methods are called on the event loop; the store is read
    in threads.
    """

    def __init__(self, store: Store, *, required: bool = False) -> None:
        self._store = store
        self._keys: dict[str, _Key] = {}
        self._needed = required
        self._required = required
        self._loaded_at = -1e9
        self._last_started = self._last_finished = 0  # numbers of loads
        self._loading: asyncio.Task[None] | None = None

    @property
    def needed(self) -> bool:
        """Whether requests need a key."""
        return self._needed

    async def actor(self, scope: Scope, role: Role, *, public: bool = False) -> str:
        """Return who makes a request: the id of its key, or ``local`` or ``public``.

        Raises a 401 without a valid key and a 403 if the key does not have the role; with ``public``, no key is needed.
        """
        await self.refresh()
        actor = await self._actor(scope, role, public)
        if role == "admin":
            # Another process may just have created the first key, or revoked this one.
            await self._load_or_keep()
            actor = await self._actor(scope, role, public)
        return actor

    async def _actor(self, scope: Scope, role: Role, public: bool) -> str:
        if not self._needed:
            return LOCAL
        authorization = header(scope, b"authorization").decode("latin-1")
        if not authorization and public:
            return PUBLIC
        scheme, _, key = authorization.partition(" ")  # names of schemes are case-insensitive
        return await self.authenticate(key if scheme.lower() == "bearer" else authorization, role)

    async def allows(self, scope: Scope, role: Role) -> bool:
        """Return whether the request is allowed to act in this role."""
        try:
            await self.actor(scope, role)
        except (Problem, ServiceError):
            return False
        return True

    async def authenticate(self, key: str, role: Role) -> str:
        """Return the id of a key that has this role; raises a 401 or 403 as ``actor`` does."""
        if not key:
            raise Problem(401, "send a key: Authorization: Bearer bw_...", headers=CHALLENGE)
        key_id = self._match(key)
        if key_id is None and time.monotonic() - self._loaded_at > RETRY_SECONDS:
            await self.load()
            key_id = self._match(key)
        if key_id is None:
            raise Problem(401, "this key is not known, or was revoked", headers=CHALLENGE)
        self.check_role(key_id, role)
        return key_id

    def check_role(self, key_id: str, role: Role) -> None:
        """Raise a 401 if the key was revoked, a 403 if it does not have this role."""
        known = self._keys.get(key_id)
        if known is None:
            raise Problem(401, "the key of this session was revoked", headers=CHALLENGE)
        if not known.roles & {role, "admin"}:
            raise Problem(403, f"this key does not have the role {role!r}")

    async def check_key(self, key_id: str, role: Role) -> None:
        """As ``actor``, for a key whose secret was checked before: raises a 401 or 403."""
        await self.refresh()
        self.check_role(key_id, role)
        if role == "admin":
            await self._load_or_keep()
            self.check_role(key_id, role)

    def is_admin(self, actor: str) -> bool:
        """Return whether an actor has the role admin, as far as the cached keys tell."""
        known = self._keys.get(actor)
        return not self._needed if known is None else "admin" in known.roles

    def _match(self, key: str) -> str | None:
        """Return the id of a key if its secret is right; takes as long for an unknown id as for a known one."""
        _, key_id, secret = [*key.split("_", 2), "", "", ""][:3]
        known = self._keys.get(key_id)
        right = hmac.compare_digest(_digest(secret), known.digest if known else NO_DIGEST)
        return key_id if known and right and key.startswith("bw_") else None

    async def load(self) -> None:
        """Read the keys from the store; raises Unavailable if it cannot be read."""
        self._last_started = number = self._last_started + 1
        try:
            stored = await asyncio.to_thread(self._store.keys)
        except StoreError as error:
            raise Unavailable(f"the keys cannot be read: {error}") from error
        if number < self._last_finished:  # a later load was faster, and may have seen a newer or a revoked key
            return
        self._last_finished = number
        self._keys = {
            key["id"]: _Key(bytes.fromhex(key["hash"]), frozenset(key["roles"]))
            for key in stored
            if not key["revoked_at"]
        }
        self._needed = self._required or bool(stored)
        self._loaded_at = time.monotonic()

    async def refresh(self) -> None:
        """Load the keys if they are older than ``REFRESH_SECONDS``.

        The first load is awaited. Later ones run in the background, and the cached keys are used meanwhile.
        """
        if time.monotonic() - self._loaded_at <= REFRESH_SECONDS:
            return
        if self._loaded_at < 0:
            await self.load()
        elif self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._load_or_keep())

    async def _load_or_keep(self) -> None:
        """Load the keys; keep the cached ones if the store is unavailable, which /readyz reports."""
        try:
            await self.load()
        except Unavailable:
            self._loaded_at = time.monotonic() - REFRESH_SECONDS + RETRY_SECONDS


# Origins and hosts


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address in a text; raises ValueError if it is none.

    >>> address_of("::ffff:10.0.0.1")
    IPv4Address('10.0.0.1')
    """
    address = ipaddress.ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def with_cors(app: ASGIApp, allowed: Iterable[str]) -> CORSMiddleware:
    """Return an application that pages of the allowed origins may call; ``*`` allows all."""
    origins = [origin.rstrip("/") for origin in allowed]
    headers = ["authorization", "content-type"]
    return CORSMiddleware(app, origins, allow_methods=["POST"], allow_headers=headers, max_age=7200)


def check_origin(scope: Scope, cors: CORSMiddleware | None = None) -> None:
    """Raise a 403 for a change that a page of another origin makes the browser request, unless ``cors`` allows it.

    A browser sends a plain POST to any address without a preflight. Keys stop that, since the page does not know them;
    without keys, this check must.
    """
    if scope["method"] not in SAFE_METHODS and is_cross_origin(scope):
        origin = header(scope, b"origin").decode("latin-1")
        if cors is None or not cors.is_allowed_origin(origin):
            raise Problem(403, REFUSAL)


def check_host(scope: Scope, hosts: frozenset[bytes]) -> None:
    """Raise a 403 for another ``Host`` than these, which the page of a foreign host name has (DNS rebinding)."""
    host = header(scope, b"host")
    name = host if host.endswith(b"]") else host.rpartition(b":")[0] or host
    if name.lower() not in hosts:
        raise Problem(403, "without keys, the service answers under its loopback address only")


def is_cross_origin(scope: Scope) -> bool:
    """Return whether a browser sends this request for a page of another origin; programs send no ``Origin``.

    The service's own origin is the scheme of the request and its ``Host``. The scheme is that of the connection, which
    is http, or the value of ``X-Forwarded-Proto`` from a trusted proxy. Origins differ if scheme, host or port differ.
    """
    origin = header(scope, b"origin")
    if origin:
        own = b"%s://%s" % (scope["scheme"].encode(), header(scope, b"host"))
        if _normalised(origin) != _normalised(own):
            return True
    return header(scope, b"sec-fetch-site").lower() in CROSS_ORIGIN_FETCH


def _normalised(origin: bytes) -> tuple[bytes, bytes]:
    """Return scheme and host of an origin, without the port if it is the default.

    >>> _normalised(b"http://Shop.example:80") == _normalised(b"http://shop.example")
    True
    >>> _normalised(b"http://shop.example") == _normalised(b"https://shop.example")
    False
    """
    scheme, _, host = origin.lower().partition(b"://")
    return scheme, host.removesuffix(DEFAULT_PORTS.get(scheme, b""))


# Management of keys


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def create_key(store: Store, roles: Sequence[str], note: str, now: int, actor: str = COMMAND_LINE) -> str:
    """Create a key and return it; the store holds its hash only, so that it cannot be shown again.

    The key is durable on return, and recorded in the audit log. Raises ValueError for an unknown role or none, and
    StoreError. Blocks.
    """
    unknown = sorted(set(roles) - set(ROLES))
    if unknown or not roles:
        raise ValueError(f"{', '.join(unknown) or 'nothing'} is no role; roles are {', '.join(ROLES)}")
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    entry = {"id": key_id, "hash": _digest(secret).hex(), "roles": sorted(set(roles)), "note": note}
    store.save_key({**entry, "created_at": now, "revoked_at": None})
    store.write_audit([{"at": now, "actor": actor, "action": "create key", "detail": f"{key_id} {','.join(roles)}"}])
    return f"bw_{key_id}_{secret}"


def list_keys(store: Store) -> list[dict[str, Any]]:
    """Return all keys, revoked ones too, without their hashes. Blocks; raises StoreError."""
    stored = store.keys()
    return [{name: value for name, value in key.items() if name != "hash"} for key in stored]


def revoke_key(store: Store, key_id: str, now: int, actor: str = COMMAND_LINE) -> None:
    """Revoke a key; running services refuse it within seconds. Blocks; raises ValueError for an unknown id."""
    stored = store.keys()
    key = next((key for key in stored if key["id"] == key_id), None)
    if key is None:
        raise ValueError(f"there is no key {key_id!r}; 'bothworlds keys list' lists them")
    store.save_key({**key, "revoked_at": key["revoked_at"] or now})
    store.write_audit([{"at": now, "actor": actor, "action": "revoke key", "detail": key_id}])


class KeyEndpoints:
    """Handlers for administrators; the store is called in threads. Changes are durable and in force on return.

    They exist beside the command line because a running service owns its SQLite file: no other process can write to it.
    """

    def __init__(self, store: Store, keyring: Keyring, limits: Limits) -> None:
        self._store, self._keyring, self._limits = store, keyring, limits

    async def list_keys(self, request: Request, actor: str) -> Response:
        return json_response({"keys": await asyncio.to_thread(list_keys, self._store)})

    async def create_key(self, request: Request, actor: str) -> Response:
        check_media_type(request.scope, [b"application/json"])
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
