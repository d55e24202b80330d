"""The Yandex Relevance Prediction Challenge: lines of queries and clicks, tab separated, session after session."""

from __future__ import annotations

import re

from ..scanning import scan_sessions
from ..writing import write_sessions
from .base import TextLayout

__all__ = ["RELPRED"]

LINE = re.compile(r"\d+\t\d+\t(Q\t\d+\t\d+(\t\d+)+|C\t\d+)\s*")


def last_session(text: bytes) -> int:
    """Where the last session starts: what comes before is complete, whatever follows.

    >>> last_session(b"7\\t0\\tC\\t1\\n8\\t0\\tQ\\t5\\t0\\t1\\n8\\t1\\tC\\t1\\n8\\t")
    8
    """
    start = text.rfind(b"\n", 0, max(text.rfind(b"\n"), 0)) + 1  # of the last whole line
    session = text[start : text.find(b"\t", start) + 1]
    while start > 0:
        before = text.rfind(b"\n", 0, start - 1) + 1
        if not text.startswith(session, before):
            return start
        start = before
    return 0


RELPRED = TextLayout(
    "relpred",
    "SessionID TimePassed Q QueryID RegionID URL... or SessionID TimePassed C URL, between tabs",
    matches=lambda line: LINE.fullmatch(line) is not None,
    scan=scan_sessions,
    last_boundary=last_session,
    write=write_sessions,
)
