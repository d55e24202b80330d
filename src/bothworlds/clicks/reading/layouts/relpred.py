"""The layout ``relpred``: the Yandex Relevance Prediction Challenge, lines of queries and clicks, by session."""

from __future__ import annotations

import re

from ...text_writers import write_sessions
from ..text_kernels import scan_sessions
from .base import TextLayout

START = re.compile(rb"(\d{1,18})\t\d{1,18}\t")  # a line with a session, as the scanner reads it
LINE = re.compile(r"\d+\t\d+\t(Q\t\d+\t\d+(\t\d+)+|C\t\d+)\s*")


def last_session(text: bytes) -> int:
    """Return the offset of the last session; all sessions before it are complete.

    Empty and bad lines belong to the session around them, as they do in the scanner.

    >>> last_session(b"7\\t0\\tC\\t1\\n8\\t0\\tQ\\t5\\t0\\t1\\n8\\t1\\tC\\t1\\n8\\t")
    8
    """
    session, end = None, text.rfind(b"\n") + 1  # after the last complete line
    while end > 0:
        start = text.rfind(b"\n", 0, end - 1) + 1
        if (line := START.match(text, start, end)) is not None:
            if session not in (None, int(line[1])):
                return end
            session = int(line[1])
        end = start
    return 0


RELPRED = TextLayout(
    "relpred",
    "SessionID TimePassed Q QueryID RegionID URL... or SessionID TimePassed C URL, between tabs",
    matches=lambda line: LINE.fullmatch(line) is not None,
    scan=scan_sessions,
    last_boundary=last_session,
    write=write_sessions,
)
