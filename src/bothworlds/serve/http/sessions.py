"""Sessions of the dashboard, for services with keys: a sign-in form that takes a key, and a signed cookie.

The cookie holds the id of the key and of the session, never the key, and expires after ``LIFETIME_SECONDS``. It is sent
with same-site requests only and scripts cannot read it. It authorises pages, not the API. Signing out deletes it from
the browser; a copy stays valid until it expires or its key is revoked.

Pages that change something require the role admin and, against CSRF, three things: the strict cookie, a request that no
page of another origin has sent (``auth.is_cross_origin``), and a token in the form that belongs to the session. A
service without keys has no sessions; its token can be read by its own pages only.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from ..config import Limits
from ..dashboard.routes import SESSION, page
from ..schemas import Role
from ..stores import Store
from .auth import LOCAL, Keyring, is_cross_origin
from .body import header, read_form
from .problems import Problem

LIFETIME_SECONDS = 12 * 3600
# A path of this service. A browser would take "//host" and "/\\host" for another host, and ignores control characters.
LOCAL_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")
SIGNATURES: dict[str, Any] = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
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


class Sessions:
    """Issues and checks session cookies; the signing secret is kept in the store."""

    def __init__(self, store: Store, keyring: Keyring, limits: Limits) -> None:
        self._store, self._keyring, self._limits = store, keyring, limits
        self._stored_secret: bytes | None = None

    def routes(self) -> list[BaseRoute]:
        """Return the routes of signing in and out."""
        return [
            Route("/sign-in", self._show_form, methods=["GET"]),
            Route("/sign-in", self._sign_in, methods=["POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
        ]

    async def viewer(self, scope: Scope) -> str:
        """Return the id of the key, from the header or the cookie, that may see pages; raises a 401 or 403."""
        actor, _ = await self._identify(scope, "read")
        return actor

    async def editor(self, scope: Scope) -> Editor:
        """Return who may change surfaces by this request; raises a 401, or a 403 without the role admin.

        Keys that were revoked just now, in any process, are refused.
        """
        actor, subject = await self._identify(scope, "admin")
        return Editor(actor, hmac.digest(await self._secret(), f"form of {subject}".encode(), "sha256").hex())

    async def _show_form(self, request: Request) -> Response:
        """GET /sign-in; the form leads to the local path ``next``."""
        return page(request, "sign-in.html", message="", next=_local_path(request.query_params.get("next", "")))

    async def _sign_in(self, request: Request) -> Response:
        """POST /sign-in: set the cookie for a valid key and redirect to the local path ``next``, or show the form."""
        texts = await read_form(request, self._limits)
        key, following = texts.get("key", "").strip(), _local_path(texts.get("next", ""))
        try:
            key_id = await self._keyring.authenticate(key, "read") if self._keyring.needed else LOCAL
        except Problem as problem:
            return page(request, "sign-in.html", problem.status, message=problem.detail, next=following)
        response = RedirectResponse(following, 303)
        secure = request.url.scheme == "https"
        value = (await self._serializer()).dumps([key_id, secrets.token_hex(8)])
        response.set_cookie(SESSION, str(value), LIFETIME_SECONDS, httponly=True, samesite="strict", secure=secure)
        return response

    async def _sign_out(self, request: Request) -> Response:
        """POST /sign-out: delete the cookie."""
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(SESSION, httponly=True, samesite="strict")
        return response

    async def _identify(self, scope: Scope, role: Role) -> tuple[str, str]:
        """Return the actor of a request, and what its form token is bound to: the session, or the key."""
        if header(scope, b"authorization") or not self._keyring.needed:
            actor = await self._keyring.actor(scope, role)
            return actor, f"key {actor}"
        try:
            cookie = Request(scope).cookies.get(SESSION, "")
            key_id, session_id = (await self._serializer()).loads(cookie, max_age=LIFETIME_SECONDS)
        except BadData:
            raise Problem(401, "sign in first") from None
        await self._keyring.check_key(key_id, role)
        return key_id, f"session {session_id}"

    async def _serializer(self) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(await self._secret(), salt="session", signer_kwargs=SIGNATURES)

    async def _secret(self) -> bytes:
        if self._stored_secret is None:
            candidate = secrets.token_bytes(32)
            put = self._store.put
            self._stored_secret = await asyncio.to_thread(put, "session-secret", candidate, only_if_absent=True)
        return self._stored_secret


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
