"""Sending responses, and converting exceptions to problem responses."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Message, Send

from ..observability.logs import logger, warn_throttled
from .cors import Headers
from .problems import MEDIA_TYPE, Problem, problem_of

__all__ = ["ResponseRecorder", "closing_response", "json_response", "logged_problem", "send_problem", "send_response"]

JSON = b"application/json"
STARLETTE_DETAIL = {404: "there is nothing at this path", 405: "this path does not take this method"}


class ResponseRecorder:
    """An ASGI ``send`` that records the status of the response and whether all of it was sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0  # until the response has started
        self.complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.complete = not message.get("more_body", False)
        await self._send(message)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response; structs and NumPy numbers and arrays are serialised too."""
    body = msgspec.json.encode(content, enc_hook=_serialisable)
    return Response(body, status, headers, media_type="application/json")


def _serialisable(value: Any) -> Any:
    if hasattr(value, "tolist"):  # NumPy
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} cannot be written as JSON")


async def send_response(send: Send, status: int, body: bytes, media_type: bytes, headers: Headers) -> None:
    """Send a whole response; ``Content-Type`` and ``Content-Length`` are added to the headers."""
    size = str(len(body)).encode()
    head = [(b"content-type", media_type), (b"content-length", size), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def send_problem(send: Send, problem: Problem, headers: Headers) -> int:
    """Send a problem with its own headers and those given; return its status."""
    own = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in problem.headers.items()]
    await send_response(send, problem.status, problem.body(), MEDIA_TYPE.encode(), own + headers)
    return problem.status


def logged_problem(error: Exception, route: str) -> Problem:
    """Convert an exception to a problem.

    An unexpected one (500) is logged with its traceback. An unavailable store (503) is logged too, at most once a
    second: the response does not contain the reason, which may name the host of the store.
    """
    if isinstance(error, HTTPException):
        return Problem(error.status_code, STARLETTE_DETAIL.get(error.status_code, error.detail), headers=error.headers)
    problem = problem_of(error)
    if problem.status == 500:
        logger.error("fault", route=route, exc_info=error)
    elif problem.status == 503 and problem is not error:
        warn_throttled("unavailable", route=route, detail=str(error))
    return problem


def closing_response(problem: Problem) -> bytes:
    """Return a whole HTTP response with ``Connection: close``, for connections refused before they have a request.

    >>> closing_response(Problem(431, "too long")).split(b"\\r\\n")[0]
    b'HTTP/1.1 431 Request Header Fields Too Large'
    """
    body = problem.body()
    headers = {**problem.headers, "content-type": MEDIA_TYPE, "content-length": str(len(body)), "connection": "close"}
    lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
