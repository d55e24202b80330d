"""Sessions of the dashboard, for services with keys: a sign-in form that takes a key, and a signed cookie.

The cookie holds the id of the key and its expiry time with an HMAC, never the key. It is sent with same-site requests
only and scripts cannot read it. It authorises pages only, which change nothing, so CSRF could not change anything.
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
from .problems import Problem
from .request_body import header, media_type, read_body

__all__ = ["Sessions"]

LIFETIME_SECONDS = 12 * 3600
MAX_EXPIRY_DIGITS = 12


class Sessions:
    """Issues and checks session cookies; the signing secret is kept in the store."""

    def __init__(self, store: Store, keyring: Keyring, limits: Limits) -> None:
        self._store, self._keyring, self._limits = store, keyring, limits
        self._secret: bytes | None = None

    async def viewer(self, scope: Scope) -> str:
        """Return the id of the key, from the header or the cookie, that may see pages; raises a 401 or 403."""
        if header(scope, b"authorization") or not self._keyring.needed:
            return await self._keyring.actor(scope, "read")
        await self._keyring.refresh()
        key_id = await self._verify(_cookie(scope))
        self._keyring.check_role(key_id, "read")
        return key_id

    async def show_form(self, request: Request) -> Response:
        """GET /sign-in."""
        return page(request, "sign-in.html", message="")

    async def sign_in(self, request: Request) -> Response:
        """POST /sign-in: set the cookie for a valid key and redirect to the first page, or show the form again."""
        media_type(request.scope, [b"application/x-www-form-urlencoded"])
        body = await read_body(request.scope, request.receive, self._limits)
        key = parse_qs(body.decode("latin-1")).get("key", [""])[0].strip()
        try:
            key_id = await self._keyring.authenticate(key, "read") if self._keyring.needed else LOCAL
        except Problem as problem:
            return page(request, "sign-in.html", problem.status, message=problem.detail)
        response = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        value = await self._sign(key_id, int(time.time()) + LIFETIME_SECONDS)
        response.set_cookie(SESSION, value, LIFETIME_SECONDS, httponly=True, samesite="strict", secure=secure)
        return response

    async def sign_out(self, request: Request) -> Response:
        """POST /sign-out: delete the cookie."""
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(SESSION, httponly=True, samesite="strict")
        return response

    async def _sign(self, key_id: str, expires_at: int) -> str:
        payload = f"{key_id}.{expires_at}"
        return f"{payload}.{hmac.digest(await self._load_secret(), payload.encode(), 'sha256').hex()}"

    async def _verify(self, cookie: str) -> str:
        """Return the key id of a cookie; raises a 401 if it is expired or its signature is wrong."""
        key_id, _, rest = cookie.partition(".")
        expires_at = rest.partition(".")[0]
        if not expires_at.isdecimal() or len(expires_at) > MAX_EXPIRY_DIGITS or int(expires_at) < time.time():
            raise Problem(401, "sign in first")
        if not hmac.compare_digest((await self._sign(key_id, int(expires_at))).encode(), cookie.encode()):
            raise Problem(401, "sign in first")
        return key_id

    async def _load_secret(self) -> bytes:
        if self._secret is None:
            candidate = secrets.token_bytes(32)
            self._secret = await asyncio.to_thread(self._store.put, "session-secret", candidate, only_if_absent=True)
        return self._secret


def _cookie(scope: Scope) -> str:
    try:
        morsel = SimpleCookie(header(scope, b"cookie").decode("latin-1")).get(SESSION)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""
