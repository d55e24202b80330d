"""Forms that a browser sends: fields and files, urlencoded or as multipart/form-data (RFC 7578)."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import Request

from ..config import Limits
from .problems import Problem
from .request_body import header, media_type, read_body

__all__ = ["Form", "multipart_form", "read_form"]

URLENCODED, MULTIPART = b"application/x-www-form-urlencoded", b"multipart/form-data"
MAX_FIELDS = 200
BOUNDARY = re.compile(rb'boundary="?([^";,\s]{1,200})')
NAME = re.compile(rb'(?:^|[;\s])name="([^"\r\n]*)"')
FILE = re.compile(rb"(?:^|[;\s])filename[*]?=")
MALFORMED = "the form is malformed"


class Form(NamedTuple):
    """The fields of a form as text, and its files as bytes; the last one of a name counts."""

    texts: dict[str, str]
    files: dict[str, bytes]


async def read_form(request: Request, limits: Limits) -> Form:
    """Return the form in the body of a request.

    Raises a 415 for other media types, a 400 for a malformed form, and as ``read_body`` for its size.
    """
    kind = media_type(request.scope, [URLENCODED, MULTIPART])
    body = await read_body(request.scope, request.receive, limits)
    if kind == MULTIPART:
        boundary = BOUNDARY.search(header(request.scope, b"content-type"))
        if boundary is None:
            raise Problem(400, MALFORMED, title="Not a form")
        return multipart_form(body, boundary[1])
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:  # not UTF-8, or too many fields
        raise Problem(400, MALFORMED, title="Not a form") from None
    return Form(dict(pairs), {})


def multipart_form(body: bytes, boundary: bytes) -> Form:
    """Parse multipart/form-data; raises a 400 if it is malformed or a field is not UTF-8.

    >>> part = b'--x\\r\\nContent-Disposition: form-data; name="a"\\r\\n\\r\\n1\\r\\n'
    >>> multipart_form(part + b"--x--\\r\\n", b"x")
    Form(texts={'a': '1'}, files={})
    """
    preamble, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary, MAX_FIELDS + 1)
    if preamble.strip() or not parts or not parts[-1].startswith(b"--"):
        raise Problem(400, MALFORMED, title="Not a form")
    form = Form({}, {})
    for part in parts[:-1]:
        head, found, content = part.partition(b"\r\n\r\n")
        name = NAME.search(head)
        if not found or name is None:
            raise Problem(400, MALFORMED, title="Not a form")
        if FILE.search(head):
            form.files[_utf8(name[1])] = content
        else:
            form.texts[_utf8(name[1])] = _utf8(content)
    return form


def _utf8(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Problem(400, "the form must be in UTF-8", title="Not a form") from None
