"""Compiled writers of text logs: they write generated pages as bytes into a buffer, and return their number."""

from __future__ import annotations

from typing import Any

from ..kernels import inner_kernel, kernel

TAB, NEWLINE, SPACE, COMMA, COLON, SEMICOLON, ZERO, UNDERSCORE = 9, 10, 32, 44, 58, 59, 48, 95


def max_bytes(pages: int, m: int) -> int:
    """Return an upper bound on the bytes of that many pages of m results, in any text layout."""
    return pages * (100 + 80 * m)


@inner_kernel
def _number(value: int, out: Any, at: int) -> int:
    """Write a whole number at an offset, and return the offset after it."""
    digits, rest = 1, value
    while rest >= 10:
        rest //= 10
        digits += 1
    for k in range(at + digits - 1, at - 1, -1):
        out[k] = ZERO + value % 10
        value //= 10
    return at + digits


@inner_kernel
def _byte(value: int, out: Any, at: int) -> int:
    out[at] = value
    return at + 1


@inner_kernel
def _start_of_line(session: int, passed: int, kind: int, out: Any, at: int) -> int:
    at = _byte(TAB, out, _number(session, out, at))
    at = _byte(TAB, out, _number(passed, out, at))
    return _byte(kind, out, at)


@kernel
def write_sessions(first: int, query: Any, item: Any, click: Any, out: Any) -> int:
    """Write pages as sessions of the Relevance Prediction Challenge, one page each; return the number of bytes."""
    at, (pages, m) = 0, item.shape
    for p in range(pages):
        at = _byte(TAB, out, _start_of_line(first + p, 0, ord("Q"), out, at))
        at = _byte(TAB, out, _number(query[p], out, at))
        at = _byte(ZERO, out, at)
        for j in range(m):
            at = _number(item[p, j], out, _byte(TAB, out, at))
        at = _byte(NEWLINE, out, at)
        for j in range(m):
            if click[p, j]:
                at = _byte(TAB, out, _start_of_line(first + p, j + 1, ord("C"), out, at))
                at = _byte(NEWLINE, out, _number(item[p, j], out, at))
    return at


@kernel
def write_pages(first: int, query: Any, item: Any, click: Any, out: Any) -> int:
    """Write pages as records of the native Yandex format, one per line; return the number of bytes."""
    at, (pages, m) = 0, item.shape
    for p in range(pages):
        at = _byte(UNDERSCORE, out, _number(query[p], out, at))
        at = _byte(TAB, out, _byte(ZERO, out, at))
        for j in range(m):
            at = _byte(COMMA, out, _number(item[p, j], out, at))
        at = _byte(COLON, out, _byte(SPACE, out, at - 1))
        clicked = False
        for j in range(m):
            if click[p, j]:
                at = _byte(SPACE, out, at)
                if clicked:
                    at = _byte(SPACE, out, _byte(COMMA, out, at))
                at = _number(item[p, j], out, at)
                clicked = True
        at = _byte(NEWLINE, out, _byte(SEMICOLON, out, at))
    return at
