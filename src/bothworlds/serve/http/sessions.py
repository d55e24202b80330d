"""Looking at the dashboard when keys are needed: a form that takes a key, and a cookie that remembers it.

The cookie holds the id of the key and a deadline, signed; never the key. It is sent with same-site requests only and
cannot be read by scripts. It opens nothing but pages that only show, so a forged request could change nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from ..config import Limits
from ..dashboard.routes import SESSION, page
from ..stores.base import Store
from .auth import LOCAL, Keyring
from .limits import header, media_type, read_body
from .problems import Problem

__all__ = ["Sessions"]

LIFETIME_SECONDS = 12 * 3600


class Sessions:
    """Who is signed in to the dashboard."""

    def __init__(self, store: Store, keyring: Keyring, limits: Limits) -> None:
        self._store, self._keyring, self._limits = store, keyring, limits
        self._secret: bytes | None = None

    async def viewer(self, scope: Scope) -> str:
        """Who looks at a page: the id of a key with the role read, from the header or from the cookie."""
        if header(scope, b"authorization") or not self._keyring.needed:
            return await self._keyring.actor(scope, "read")
        await self._keyring.refresh()
        key_id = await self._signed_in(_cookie(scope))
        self._keyring.check_role(key_id, "read")
        return key_id

    async def show(self, request: Request) -> Response:
        """The form."""
        return page(request, "sign-in.html", message="")

    async def sign_in(self, request: Request) -> Response:
        """Take a key, and answer with a cookie."""
        media_type(request.scope, [b"application/x-www-form-urlencoded"])
        body = await read_body(request.scope, request.receive, self._limits)
        sent = parse_qs(body.decode("latin-1")).get("key", [""])[0].strip()
        try:
            key_id = await self._keyring.owner(sent, "read") if self._keyring.needed else LOCAL
        except Problem as problem:
            return page(request, "sign-in.html", problem.status, message=problem.detail)
        response = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        value = await self._sign(key_id, int(time.time()) + LIFETIME_SECONDS)
        response.set_cookie(SESSION, value, LIFETIME_SECONDS, httponly=True, samesite="strict", secure=secure)
        return response

    async def sign_out(self, request: Request) -> Response:
        """Forget the cookie."""
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(SESSION, httponly=True, samesite="strict")
        return response

    async def _sign(self, key_id: str, deadline: int) -> str:
        said = f"{key_id}.{deadline}"
        return f"{said}.{hmac.digest(await self._key(), said.encode(), 'sha256').hex()}"

    async def _signed_in(self, cookie: str) -> str:
        key_id, _, rest = cookie.partition(".")
        deadline = rest.partition(".")[0]
        if not deadline.isdecimal() or len(deadline) > 12 or int(deadline) < time.time():
            raise Problem(401, "sign in first")
        if not hmac.compare_digest((await self._sign(key_id, int(deadline))).encode(), cookie.encode()):
            raise Problem(401, "sign in first")
        return key_id

    async def _key(self) -> bytes:
        if self._secret is None:
            fresh = secrets.token_bytes(32)
            self._secret = await asyncio.to_thread(self._store.put, "session-secret", fresh, only_if_absent=True)
        return self._secret


def _cookie(scope: Scope) -> str:
    try:
        found = SimpleCookie(header(scope, b"cookie").decode("latin-1")).get(SESSION)
    except CookieError:
        return ""
    return found.value if found is not None else ""
