"""Sending an answer, and turning whatever goes wrong into a problem."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import Message, Send

from ..observability.logs import logger, warn_throttled
from .cors import Headers
from .problems import MEDIA_TYPE, Problem, problem_of

__all__ = ["Observed", "closing_response", "said_problem", "send_answer", "send_problem"]

JSON = b"application/json"


class Observed:
    """Sends, and remembers with which status the answer began."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


async def send_answer(send: Send, status: int, body: bytes, kind: bytes, headers: Headers) -> None:
    """One answer in one piece."""
    size = str(len(body)).encode()
    head = [(b"content-type", kind), (b"content-length", size), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def send_problem(send: Send, problem: Problem, headers: Headers) -> int:
    """A problem, with the headers that belong to it; gives its status."""
    own = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in problem.headers.items()]
    await send_answer(send, problem.status, problem.body(), MEDIA_TYPE.encode(), own + headers)
    return problem.status


def said_problem(error: Exception, route: str) -> Problem:
    """How an error is told; a fault of the service goes to the log as well."""
    if isinstance(error, HTTPException):
        return Problem(error.status_code, _DETAIL.get(error.status_code, error.detail), headers=error.headers)
    problem = problem_of(error)
    if problem.status == 500:
        logger.error("fault", route=route, exc_info=error)
    elif problem.status == 503 and problem is not error:
        warn_throttled("unavailable", route=route, detail=str(error))
    return problem


def closing_response(problem: Problem) -> bytes:
    """A whole HTTP response for a connection that is refused before there is a request for the application.

    >>> closing_response(Problem(431, "too long")).split(b"\\r\\n")[0]
    b'HTTP/1.1 431 Request Header Fields Too Large'
    """
    body = problem.body()
    headers = {**problem.headers, "content-type": MEDIA_TYPE, "content-length": str(len(body)), "connection": "close"}
    lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


_DETAIL = {404: "there is nothing at this path", 405: "this path does not take this method"}
