"""Who may do what: API keys with roles, and the session of somebody who looks at the dashboard.

A key is ``bw_<id>_<secret>``. The store keeps only the SHA-256 of the secret. That is enough, and a slow hash would not
be better: slow hashes protect passwords that people choose, while this secret is 256 random bits that nobody can guess
however quick the hash is; and every request pays for the hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

from starlette.types import Scope

from ..model import ServiceError, Unavailable
from ..schemas import Role
from ..stores.base import Store, StoreError
from .limits import header
from .problems import Problem

__all__ = ["ROLES", "Keyring", "create_key", "list_keys", "revoke_key"]

ROLES: tuple[Role, ...] = get_args(Role)
REFRESH_SECONDS = 1.0  # how soon a key that was revoked elsewhere is refused here
RETRY_SECONDS = 0.5  # how soon the store is asked again about a key that is not known
LOCAL, PUBLIC, COMMAND_LINE = "local", "public", "command line"  # who acts, where no key says it


class _Key(NamedTuple):
    digest: bytes
    roles: frozenset[str]


class Keyring:
    """The keys of a store, read again every few seconds.

    Without any key everybody may do everything, unless ``required``: then nobody may. A key that was revoked still
    counts as a key, so that revoking the last one does not open the door.
    """

    def __init__(self, store: Store, *, required: bool = False) -> None:
        self._store = store
        self._keys: dict[str, _Key] = {}
        self._closed = required
        self._required = required
        self._loaded = -1e9
        self._asked = self._answered = 0  # the numbers of looks into the store
        self._loading: asyncio.Task[None] | None = None

    @property
    def needed(self) -> bool:
        """Whether requests need a key."""
        return self._closed

    async def actor(self, scope: Scope, role: Role, *, public: bool = False) -> str:
        """The id of the key that the request carries and that allows this role; refuses it otherwise."""
        await self.refresh()
        found = await self._known(scope, role, public)
        if role == "admin":
            # Another process may have made the first key, or revoked this one, a moment ago.
            await self._load_quietly()
            found = await self._known(scope, role, public)
        return found

    async def _known(self, scope: Scope, role: Role, public: bool) -> str:
        if not self._closed:
            return LOCAL
        text = header(scope, b"authorization").decode("latin-1")
        if not text and public:
            return PUBLIC
        return await self.owner(text.removeprefix("Bearer "), role)

    async def allows(self, scope: Scope, role: Role) -> bool:
        """Whether the request may see what this role may see."""
        try:
            await self.actor(scope, role)
        except (Problem, ServiceError):
            return False
        return True

    async def owner(self, key: str, role: Role) -> str:
        """The id of a key that allows this role."""
        if not key:
            raise Problem(401, "send a key: Authorization: Bearer bw_...", headers=_CHALLENGE)
        found = self._match(key)
        if found is None and time.monotonic() - self._loaded > RETRY_SECONDS:
            await self.load()
            found = self._match(key)
        if found is None:
            raise Problem(401, "this key is not known, or was revoked", headers=_CHALLENGE)
        self.check_role(found, role)
        return found

    def check_role(self, key_id: str, role: Role) -> None:
        """Refuse a key that is gone or does not allow this role."""
        known = self._keys.get(key_id)
        if known is None:
            raise Problem(401, "the key of this session was revoked", headers=_CHALLENGE)
        if not known.roles & {role, "admin"}:
            raise Problem(403, f"this key does not have the role {role!r}")

    def _match(self, key: str) -> str | None:
        """The id of a key, if its secret is right; as slow for an id that does not exist as for one that does."""
        _, key_id, secret = [*key.split("_", 2), "", "", ""][:3]
        known = self._keys.get(key_id)
        right = hmac.compare_digest(_digest(secret), known.digest if known else _NOTHING)
        return key_id if known and right and key.startswith("bw_") else None

    async def load(self) -> None:
        """Read the keys from the store."""
        self._asked = asked = self._asked + 1
        try:
            kept = await asyncio.to_thread(self._store.keys)
        except StoreError as error:
            raise Unavailable(f"the keys cannot be read: {error}") from error
        if asked < self._answered:  # by now more is known: a key that was made or revoked since
            return
        self._answered = asked
        self._keys = {
            key["id"]: _Key(bytes.fromhex(key["hash"]), frozenset(key["roles"]))
            for key in kept
            if not key["revoked_at"]
        }
        self._closed = self._required or bool(kept)
        self._loaded = time.monotonic()

    async def refresh(self) -> None:
        """Read the keys again if it is time: at once at first, in the background later, while those known count."""
        if time.monotonic() - self._loaded <= REFRESH_SECONDS:
            return
        if self._loaded < 0:
            await self.load()
        elif self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._load_quietly())

    async def _load_quietly(self) -> None:
        try:
            await self.load()
        except Unavailable:  # the keys known so far still count; /readyz tells that the store is away
            self._loaded = time.monotonic() - REFRESH_SECONDS + RETRY_SECONDS


_CHALLENGE = {"www-authenticate": 'Bearer realm="bothworlds"'}
_NOTHING = bytes(32)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def create_key(store: Store, roles: Sequence[str], note: str, now: int, actor: str = COMMAND_LINE) -> str:
    """Make a key and keep its hash; the key itself is told once and never again."""
    unknown = sorted(set(roles) - set(ROLES))
    if unknown or not roles:
        raise ValueError(f"{', '.join(unknown) or 'nothing'} is no role; roles are {', '.join(ROLES)}")
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    entry = {"id": key_id, "hash": _digest(secret).hex(), "roles": sorted(set(roles)), "note": note}
    store.save_key({**entry, "created_at": now, "revoked_at": None})
    store.write_audit([{"at": now, "actor": actor, "action": "create key", "detail": f"{key_id} {','.join(roles)}"}])
    return f"bw_{key_id}_{secret}"


def list_keys(store: Store) -> list[dict[str, Any]]:
    """All keys, without what could be used as one."""
    kept = store.keys()
    return [{name: value for name, value in key.items() if name != "hash"} for key in kept]


def revoke_key(store: Store, key_id: str, now: int, actor: str = COMMAND_LINE) -> None:
    """Make a key useless; running services notice within seconds."""
    kept = store.keys()
    found = next((key for key in kept if key["id"] == key_id), None)
    if found is None:
        raise ValueError(f"there is no key {key_id!r}; 'bothworlds keys list' shows them")
    store.save_key({**found, "revoked_at": found["revoked_at"] or now})
    store.write_audit([{"at": now, "actor": actor, "action": "revoke key", "detail": key_id}])
