"""Sessions of the dashboard, for services with keys: a sign-in form that takes a key, and a signed cookie.

The cookie holds the id of the key, its expiry time and the id of the session with an HMAC, never the key. It is sent
with same-site requests only and scripts cannot read it. It authorises pages, not the API. Signing out revokes the
session, so that a copy of the cookie is worth nothing.

Pages that change something require the role admin and, against CSRF, three things: the strict cookie, a request that no
page of another origin has sent (``cors.is_cross_origin``), and a token in the form that belongs to the session. A
service without keys has no sessions; its token can be read by its own pages only.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from ..config import Limits
from ..dashboard.routes import SESSION, page
from ..schemas import Role
from ..stores.base import Store
from .auth import LOCAL, Keyring
from .cors import is_cross_origin
from .problems import Problem
from .request_body import header, media_type, read_body
from .revoked_sessions import RevokedSessions

__all__ = ["Editor", "Sessions", "sign_in_path"]

LIFETIME_SECONDS = 12 * 3600
MAX_EXPIRY_DIGITS = 12
# A path of this service. A browser would take "//host" and "/\\host" for another host, and ignores control characters.
LOCAL_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")
FORM_TOKEN = "form token of"
WRONG_TOKEN = "this form is not from your session, or the session has ended; open the page again and fill it in there"
WRONG_ORIGIN = (
    "this form was sent by a page of another origin; behind a proxy with TLS, the proxy must be among trusted_proxies "
    "and send X-Forwarded-Proto"
)


class Editor(NamedTuple):
    """Who may change surfaces: the actor for the audit log, and the token that their forms must have."""

    actor: str
    form_token: str

    def check(self, scope: Scope, token: str) -> None:
        """Raise a 403 unless a form with this token was sent by a page of this service, in the editor's session."""
        if is_cross_origin(scope):
            raise Problem(403, WRONG_ORIGIN)
        if not hmac.compare_digest(self.form_token.encode(), token.encode()):
            raise Problem(403, WRONG_TOKEN)


class _Session(NamedTuple):
    key_id: str
    expires_at: int
    id: str

    @property
    def payload(self) -> str:
        return f"{self.key_id}.{self.expires_at}.{self.id}"


class Sessions:
    """Issues, checks and revokes session cookies; the signing secret is kept in the store."""

    def __init__(self, store: Store, keyring: Keyring, limits: Limits) -> None:
        self._store, self._keyring, self._limits = store, keyring, limits
        self._revoked = RevokedSessions(store)
        self._secret: bytes | None = None

    async def viewer(self, scope: Scope) -> str:
        """Return the id of the key, from the header or the cookie, that may see pages; raises a 401 or 403."""
        actor, _ = await self._identify(scope, "read")
        return actor

    async def editor(self, scope: Scope) -> Editor:
        """Return who may change surfaces by this request; raises a 401, or a 403 without the role admin.

        Keys and sessions that were revoked just now, in any process, are refused. Raises Unavailable if the store
        cannot be read.
        """
        actor, subject = await self._identify(scope, "admin")
        return Editor(actor, await self._digest(f"{FORM_TOKEN} {subject}"))

    async def show_form(self, request: Request) -> Response:
        """GET /sign-in; the form leads to the local path ``next``."""
        return page(request, "sign-in.html", message="", next=_local_path(request.query_params.get("next", "")))

    async def sign_in(self, request: Request) -> Response:
        """POST /sign-in: set the cookie for a valid key and redirect to the local path ``next``, or show the form."""
        media_type(request.scope, [b"application/x-www-form-urlencoded"])
        body = await read_body(request.scope, request.receive, self._limits)
        form = parse_qs(body.decode("latin-1"))
        key, following = form.get("key", [""])[0].strip(), _local_path(form.get("next", [""])[0])
        try:
            key_id = await self._keyring.authenticate(key, "read") if self._keyring.needed else LOCAL
        except Problem as problem:
            return page(request, "sign-in.html", problem.status, message=problem.detail, next=following)
        response = RedirectResponse(following, 303)
        secure = request.url.scheme == "https"
        session = _Session(key_id, int(time.time()) + LIFETIME_SECONDS, secrets.token_hex(8))
        value = await self._sign(session)
        response.set_cookie(SESSION, value, LIFETIME_SECONDS, httponly=True, samesite="strict", secure=secure)
        return response

    async def sign_out(self, request: Request) -> Response:
        """POST /sign-out: revoke the session and delete the cookie."""
        session = await self._verify(_cookie(request.scope))
        if session is not None:
            await self._revoked.add(session.id, session.expires_at)
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(SESSION, httponly=True, samesite="strict")
        return response

    async def _identify(self, scope: Scope, role: Role) -> tuple[str, str]:
        """Return the actor of a request, and what its form token is bound to: the session, or the key."""
        if header(scope, b"authorization") or not self._keyring.needed:
            actor = await self._keyring.actor(scope, role)
            return actor, f"key {actor}"
        session = await self._verify(_cookie(scope))
        if session is None or await self._revoked.contains(session.id, fresh=role == "admin"):
            raise Problem(401, "sign in first")
        await self._keyring.check_key(session.key_id, role)
        return session.key_id, f"session {session.payload}"

    async def _sign(self, session: _Session) -> str:
        return f"{session.payload}.{await self._digest(session.payload)}"

    async def _verify(self, cookie: str) -> _Session | None:
        """Return the session of a cookie; None if it is malformed or expired, or its signature is wrong."""
        key_id, expires_at, session_id, _ = [*cookie.split(".", 3), "", "", ""][:4]
        if not expires_at.isdecimal() or len(expires_at) > MAX_EXPIRY_DIGITS or int(expires_at) < time.time():
            return None
        session = _Session(key_id, int(expires_at), session_id)
        return session if hmac.compare_digest((await self._sign(session)).encode(), cookie.encode()) else None

    async def _digest(self, text: str) -> str:
        if self._secret is None:
            candidate = secrets.token_bytes(32)
            self._secret = await asyncio.to_thread(self._store.put, "session-secret", candidate, only_if_absent=True)
        return hmac.digest(self._secret, text.encode(), "sha256").hex()


def sign_in_path(scope: Scope) -> str:
    """Return the path of the sign-in page that leads back to the page that was requested."""
    path = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else quote(scope["path"])
    query = scope["query_string"].decode("latin-1")
    if scope["method"] != "GET" or path == "/":
        return "/sign-in"
    return "/sign-in?" + urlencode({"next": f"{path}?{query}" if query else path})


def _local_path(text: str) -> str:
    """Return a path of this service as it is, and the path of the first page instead of anything else.

    >>> _local_path("/event?id=7"), _local_path("//example.org"), _local_path("https://example.org")
    ('/event?id=7', '/', '/')
    """
    return text if LOCAL_PATH.fullmatch(text) else "/"


def _cookie(scope: Scope) -> str:
    try:
        morsel = SimpleCookie(header(scope, b"cookie").decode("latin-1")).get(SESSION)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""
