"""Pages on which administrators create and edit surfaces.

A form is translated into the API call of the same meaning, which ``SurfaceEndpoints`` answers: validation, limits,
versions and the audit log are those of the API, and its errors are shown beside the fields. The forms work without
scripts. ``sessions`` says what protects them against CSRF.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message

from ..config import Limits
from ..dashboard import surface_form
from ..dashboard.routes import page, service_address
from ..dashboard.surface_form import FormErrors, form_errors, texts_of, values_of
from ..model import LISTED_ITEMS, ServiceError, Surface
from ..stores import StoreError
from ..surface_input import item_lines
from .body import read_form
from .operations import Handler
from .problems import Problem, logged_problem
from .sessions import Editor, Sessions, sign_in_path
from .surfaces import SurfaceEndpoints

if TYPE_CHECKING:
    from ..engine.engine import Engine

ROUTE = "pages"  # in log and metrics
ERRORS = (Problem, ServiceError, StoreError)
ITEMS = "items"
MUST_NOT_EXIST = (b"if-none-match", b"*")
STALE = (
    "somebody else has changed this surface since you opened the page, and nothing was saved. Your entries are kept; "
    "where they differ from the surface, its value is shown. Saving again overwrites it"
)

NOT_CONFIRMED = "the surface was not deleted: to confirm, type its name into the field beside the button"

Respond = Callable[[Request, Editor], Awaitable[Response]]
Lines = list[tuple[int, str]]  # number of a line, item


class SurfaceForms:
    """The pages ``/new-surface`` and ``/edit/{surface}``. All methods are called on the event loop."""

    def __init__(self, engine: Engine, endpoints: SurfaceEndpoints, sessions: Sessions, limits: Limits) -> None:
        self._engine, self._endpoints, self._sessions, self._limits = engine, endpoints, sessions, limits
        self._item_actions: dict[str, Handler] = {  # by the name of the button, whose value is the item
            "pause": endpoints.pause_item,
            "resume": endpoints.resume_item,
            "remove": endpoints.delete_item,
            "restore": endpoints.put_item,
        }

    def routes(self) -> list[BaseRoute]:
        """Return the routes of all forms."""
        return [
            Route("/new-surface", self._for_editors(self._show_new), methods=["GET"]),
            Route("/new-surface", self._for_editors(self._create), methods=["POST"]),
            Route("/edit/{surface:path}", self._for_editors(self._show_edit), methods=["GET"]),
            Route("/edit/{surface:path}", self._for_editors(self._edit), methods=["POST"]),
        ]

    async def _show_new(self, request: Request, editor: Editor) -> Response:
        return _new_page(request, editor, texts_of(), FormErrors())

    async def _create(self, request: Request, editor: Editor) -> Response:
        form = await self._form(request, editor)
        lines: Lines = []
        name = form.get("name", "").strip()
        try:
            values, lines = values_of(form), item_lines(form.get(ITEMS, ""))
            body = {**values, ITEMS: [item for _, item in lines]}
            await self._endpoints.put_surface(_api_request(MUST_NOT_EXIST, body, surface=name), editor.actor)
        except ERRORS as error:
            problem, texts = logged_problem(error, ROUTE), {**texts_of(), **form}
            exists = [{"pointer": "/name", "detail": problem.detail}] if problem.status == 412 else []
            names = ["name", ITEMS, *surface_form.FIELDS]
            found = form_errors(problem.detail, exists or problem.errors, names, [number for number, _ in lines])
            return _new_page(request, editor, texts, found, problem.status)
        return _redirect(request, f"/edit/{quote(name, safe='')}?saved")

    async def _show_edit(self, request: Request, editor: Editor) -> Response:
        surface = self._engine.registry.surface(request.path_params["surface"])
        return await self._edit_page(request, editor, surface, texts_of(surface.settings), FormErrors())

    async def _edit(self, request: Request, editor: Editor) -> Response:
        """Make the change of the button that was pressed; redirect to the page, or show it with the errors."""
        form = await self._form(request, editor)
        lines: Lines = []
        surface = self._engine.registry.surface(request.path_params["surface"])
        expected, texts = _expected_version(form), {**texts_of(surface.settings), **form}
        names: list[str] = []  # of the fields in this form
        anchor = ""

        async def call(handler: Handler, body: Any = None, **params: str) -> None:
            precondition = (b"if-match", b'"%d"' % expected)
            await handler(_api_request(precondition, body, surface=surface.name, **params), editor.actor)

        try:
            match form.get("action"):
                case "settings":
                    names = [*surface_form.FIELDS]
                    await call(self._endpoints.patch_surface, _changes(surface, values_of(form)))
                case "add":
                    names, anchor, lines = [ITEMS], "#items", item_lines(form.get(ITEMS, ""))
                    await call(self._endpoints.put_surface, {ITEMS: [item for _, item in lines]})
                case "restart":
                    await call(self._endpoints.restart_comparison)
                case "delete":
                    if form.get("confirmation", "").strip() != surface.name:
                        raise Problem(422, NOT_CONFIRMED)
                    await call(self._endpoints.delete_surface)
                    return _redirect(request, "/")
                case _ if "promote" in form:
                    await call(self._endpoints.promote, {"arm": form["promote"]})
                case _:
                    anchor = "#items"
                    action = next((name for name in self._item_actions if name in form), None)
                    if action is None:
                        raise Problem(422, "the form does not say what to change")
                    await call(self._item_actions[action], item=form[action])
        except ERRORS as error:
            problem, now = logged_problem(error, ROUTE), self._engine.registry.surface(surface.name)
            if problem.status == 412:
                return await self._edit_page(request, editor, now, texts, FormErrors({}, STALE), 412)
            found = form_errors(problem.detail, problem.errors, names, [number for number, _ in lines])
            return await self._edit_page(request, editor, now, texts, found, problem.status, expected)
        return _redirect(request, f"/edit/{quote(surface.name, safe='')}?saved{anchor}")

    async def _edit_page(
        self,
        request: Request,
        editor: Editor,
        surface: Surface,
        texts: Mapping[str, str],
        errors: FormErrors,
        status: int = 200,
        version: int | None = None,
    ) -> Response:
        """Return the page of a surface. ``version`` is the one that its forms were made for, if not the current one.

        Of the items with the text ``find`` of the query in their names, it lists up to ``LISTED_ITEMS``: a page of more
        takes seconds to make, for which ranking waits.
        """
        now, find = texts_of(surface.settings), request.query_params.get("find", "")
        found = sorted((item.state, item.index) for item in surface.items if find.lower() in item.name.lower())
        return page(
            request,
            "edit-surface.html",
            status,
            surface=surface,
            find=find,
            items=[surface.items[index] for _, index in found[:LISTED_ITEMS]],
            n_found=len(found),
            version=surface.version if version is None else version,
            now={name: text for name, text in now.items() if text.split() != texts.get(name, "").split()},
            settled=(await self._engine.log.retention_of(surface.name))["events"],
            address=service_address(request),
            saved="saved" in request.query_params,
            **_form_context(editor, texts, errors),
        )

    async def _form(self, request: Request, editor: Editor) -> dict[str, str]:
        """Return the form of a request; raises a 403 if it is not from a page of the editor's session."""
        form = await read_form(request, self._limits)
        editor.check(request.scope, form.get("token", ""))
        return form

    def _for_editors(self, respond: Respond) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a handler: administrators only, with changes of other processes."""

        async def authorised(request: Request) -> Response:
            editor = await self._sessions.editor(request.scope)
            await self._engine.registry.catch_up()
            return await respond(request, editor)

        return authorised


def error_page(request: Request, error: Exception) -> Response:
    """Return the page that says why a request failed; without a key, the way to the sign-in page."""
    if getattr(error, "status", 0) == 401:
        return _redirect(request, sign_in_path(request.scope))
    problem = logged_problem(error, ROUTE)
    shown = page(request, "problem.html", problem.status, title=problem.title, detail=problem.detail)
    shown.headers.update(problem.headers)
    return shown


def _api_request(precondition: tuple[bytes, bytes], body: Any = None, **params: str) -> Request:
    """Return the request of the API that a form means: ``params`` are the parameters of its path."""
    content = b"" if body is None else json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), precondition]
    message: Message = {"type": "http.request", "body": content, "more_body": False}

    async def receive() -> Message:
        return message

    return Request({"type": "http", "headers": headers, "path_params": params, "query_string": b""}, receive)


def _expected_version(form: Mapping[str, str]) -> int:
    """Return the version that the form was made for; 0, which no surface has, if it does not say."""
    text = form.get("version", "")
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0


def _changes(surface: Surface, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that differ from the settings of a surface."""
    now = json.loads(json.dumps(msgspec.to_builtins(surface.settings)))  # with lists instead of tuples
    return {name: value for name, value in values.items() if value != now[name]}


def _new_page(
    request: Request, editor: Editor, texts: Mapping[str, str], errors: FormErrors, status: int = 200
) -> Response:
    return page(request, "new-surface.html", status, now={}, **_form_context(editor, texts, errors))


def _form_context(editor: Editor, texts: Mapping[str, str], errors: FormErrors) -> dict[str, Any]:
    policy = texts.get("policy", "")
    return {
        "token": editor.form_token,
        "texts": texts,
        "errors": errors.fields,
        "problem": errors.whole,
        "groups": surface_form.groups(texts, errors.fields),
        "policies": {policy: (), **_served_policies()},
    }


@cache
def _served_policies() -> dict[str, tuple[str, ...]]:
    """Return the policies that can be served, with the names of their settings."""
    from ... import policies  # here, so that a supervisor loads no Numba
    from ..engine.surface_rules import served_names

    return {name: tuple(policies.describe(name).settings) for name in served_names()}


def _redirect(request: Request, path: str) -> Response:
    return RedirectResponse(request.scope.get("root_path", "") + path, 303)
