"""Paths: those that pages call, and names in paths."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from ..observability.metrics import RANK
from .problems import Problem

__all__ = ["FEEDBACK", "page_route", "percent_decoded", "ranked_surface"]

FEEDBACK = "/v1/feedback"
RANK_PREFIX, RANK_SUFFIX = "/v1/surfaces/", "/rank"


def page_route(path: str) -> str:
    """Return the route of a path that pages call, which is rank or feedback; empty for any other path.

    >>> page_route("/v1/surfaces/home/rank")
    '/v1/surfaces/{surface}/rank'
    >>> page_route("/v1/surfaces/home/report")
    ''
    """
    if path == FEEDBACK:
        return FEEDBACK
    return RANK if path.endswith(RANK_SUFFIX) and path.startswith(RANK_PREFIX) and path.count("/") == 4 else ""


def ranked_surface(path: str) -> str:
    """Return the surface that a path of the route of rank names."""
    return percent_decoded(path[len(RANK_PREFIX) : -len(RANK_SUFFIX)])


def percent_decoded(part: str | bytes) -> str:
    """Decode a segment of a path; an encoded slash is part of the name.

    >>> percent_decoded("menu%2Fleft")
    'menu/left'
    """
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise Problem(404, "names in a path are percent-encoded UTF-8") from None
