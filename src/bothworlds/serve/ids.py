"""Ids and names: the same request has the same event id, and with it the same draw."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from hashlib import blake2b

from .engine_types import Invalid

__all__ = ["as_time", "checked_name", "event_id_of", "imported_id", "now_ms", "parse_event_id", "seed_of"]

NAME_LENGTH, REQUEST_LENGTH = 128, 256
HEX = re.compile(r"[0-9a-f]{32}")


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def as_time(at: int) -> str:
    """A time as RFC 3339 in UTC.

    >>> as_time(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    moment = datetime.fromtimestamp(at // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at % 1000:03d}Z"


def event_id_of(surface_id: int, request_id: str, key: bytes) -> bytes:
    """The 16 bytes that stand for a request to a surface, whenever and wherever it is asked.

    >>> event_id_of(1, "r1", b"key") == event_id_of(1, "r1", b"key") != event_id_of(2, "r1", b"key")
    True
    """
    return blake2b(b"%d\x00%b" % (surface_id, request_id.encode()), digest_size=16, key=key).digest()


def imported_id(surface_id: int, name: str) -> bytes:
    """The id under which a surface keeps an event that has a name elsewhere."""
    return blake2b(f"{surface_id}\x00{name}".encode(), digest_size=16, person=b"import").digest()


def seed_of(event_id: bytes, key: bytes) -> bytes:
    """24 random bytes that belong to an event: 16 for the draw, 8 that choose its arm."""
    return blake2b(event_id, digest_size=24, key=key, person=b"draw").digest()


def parse_event_id(text: str) -> bytes | None:
    """The bytes of an event id, None if the text is none."""
    return bytes.fromhex(text) if HEX.fullmatch(text) else None


def checked_name(name: object, what: str, pointer: str, *, longest: int = NAME_LENGTH, empty: bool = False) -> str:
    """A name of 1 to 128 printable characters, or Invalid.

    >>> checked_name("home page", "surface", "/name")
    'home page'
    >>> checked_name("a\\nb", "item", "/items/0")
    Traceback (most recent call last):
    ...
    bothworlds.serve.engine_types.Invalid: item must be 1 to 128 printable characters; got 'a\\nb'
    """
    if isinstance(name, str) and len(name) <= longest and name.isprintable() and (name or empty):
        return name
    got = repr(name)
    raise Invalid(
        f"{what} must be {0 if empty else 1} to {longest} printable characters; got {got if len(got) < 60 else '...'}",
        pointer,
    )
