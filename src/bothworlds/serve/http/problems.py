"""Responses: JSON, and errors as problem details for HTTP (RFC 9457)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Send

from ..model import Conflict, Invalid, ServiceError, TooMany, Unavailable, Unknown, rfc3339
from ..observability.logs import logger, warn_throttled
from ..stores import StoreError
from ..validation import decoding_fault, lowered

JSON, MEDIA_TYPE = "application/json", "application/problem+json"
TIME_FIELDS = ("at", "since", "until", "late_until")  # in milliseconds, and all that end with _at or _since
RETRY_SECONDS = "1"
# Without the reason, which may name the host of the store: it is in the log.
STORE_UNAVAILABLE = "the store cannot be read or written to now; send it again"

STATUS_OF: dict[type[Exception], int] = {
    Unknown: 404,
    Invalid: 422,
    Conflict: 409,
    TooMany: 422,
    Unavailable: 503,
    StoreError: 503,
}
TITLES = {
    400: "Not valid JSON",
    401: "A key is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    409: "Changed by somebody else",
    412: "Changed by somebody else",
    413: "Too large",
    415: "Wrong media type",
    422: "Not possible",
    429: "Too many",
    500: "A fault in the service",
    503: "Not available now",
}
STARLETTE_DETAIL = {404: "there is nothing at this path", 405: "this path does not take this method"}


class Problem(Exception):
    """An error response: a status, a sentence, and JSON pointers to the wrong parts of the request.

    ``title`` defaults to that of the status. It determines the ``type``: changing a title changes the API. A 429 or 503
    gets a ``Retry-After`` header.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        title: str | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title or TITLES.get(status) or HTTPStatus(status).phrase
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})
        if status in (429, 503):
            self.headers.setdefault("retry-after", RETRY_SECONDS)

    def body(self) -> bytes:
        """Return the problem as JSON."""
        fields = {"type": self.type, "title": self.title, "status": self.status, "detail": self.detail}
        return msgspec.json.encode({**fields, "errors": self.errors} if self.errors else fields)

    @property
    def type(self) -> str:
        """The URN of this kind of problem, which programs can compare.

        >>> Problem(404, "there is no surface 'home'").type
        'urn:bothworlds:problem:not-found'
        """
        return "urn:bothworlds:problem:" + re.sub(r"[^a-z]+", "-", self.title.lower())


def problem_of(error: Exception) -> Problem:
    """Convert an exception to a problem; an unexpected one becomes a 500 without details."""
    if isinstance(error, Problem):
        return error
    for kind, status in STATUS_OF.items():
        if isinstance(error, kind):
            title, errors = getattr(error, "title", None), getattr(error, "errors", ())
            detail = STORE_UNAVAILABLE if status == 503 and title is None else str(error) or TITLES[status]
            return Problem(status, detail, title=title, errors=errors)
    if isinstance(error, ServiceError):
        return Problem(422, error.detail, title=error.title, errors=error.errors)
    return Problem(500, "the service failed; its log has the details")


def decoding_problem(error: Exception) -> Problem:
    """Return the problem of a body that cannot be decoded: 400 if it is not JSON, 422 if it does not match the schema.

    >>> decoding_problem(msgspec.ValidationError("Expected `int`, got `str` - at `$.pins[0].slot`")).errors
    [{'pointer': '/pins/0/slot', 'detail': 'expected `int`, got `str`'}]
    """
    if not isinstance(error, msgspec.ValidationError):
        return Problem(400, f"the body cannot be read as JSON: {lowered(str(error))}")
    detail, pointer = decoding_fault(error)
    return Problem(422, f"the body is not as expected: {detail}", errors=[{"pointer": pointer, "detail": detail}])


def logged_problem(error: Exception, route: str) -> Problem:
    """Convert an exception to a problem.

    An unexpected one (500) is logged with its traceback. An unavailable store (503) is logged too, at most once a
    second: the response does not contain the reason, which may name the host of the store.
    """
    if isinstance(error, HTTPException):
        return Problem(error.status_code, STARLETTE_DETAIL.get(error.status_code, error.detail), headers=error.headers)
    problem = problem_of(error)
    if problem.status == 500:
        logger.error("fault", extra={"fields": {"route": route}}, exc_info=error)
    elif problem.status == 503 and problem is not error:
        warn_throttled("unavailable", route=route, detail=str(error))
    return problem


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response with times in RFC 3339; structs and NumPy numbers and arrays are serialised too."""
    body = msgspec.json.encode(with_rfc3339_times(content), enc_hook=_serialisable)
    return Response(body, status, headers, media_type=JSON)


def _serialisable(value: Any) -> Any:
    if hasattr(value, "tolist"):  # NumPy
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} cannot be written as JSON")


def with_rfc3339_times(value: Any) -> Any:
    """Return a copy in which the times of the engine, in milliseconds, are RFC 3339; fields are recognised by name.

    >>> with_rfc3339_times({"created_at": 0, "series": [{"at": 1000, "pages": 3}]})
    {'created_at': '1970-01-01T00:00:00.000Z', 'series': [{'at': '1970-01-01T00:00:01.000Z', 'pages': 3}]}
    """
    if isinstance(value, dict):
        return {
            name: rfc3339(field)
            if type(field) is int and (name in TIME_FIELDS or str(name).endswith(("_at", "_since")))
            else with_rfc3339_times(field)
            for name, field in value.items()
        }
    return [with_rfc3339_times(element) for element in value] if isinstance(value, list | tuple) else value


async def send_problem(send: Send, problem: Problem) -> None:
    """Send a problem with its headers."""
    body = problem.body()
    headers = {**problem.headers, "content-type": MEDIA_TYPE, "content-length": str(len(body))}
    head = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": head})
    await send({"type": "http.response.body", "body": body})
