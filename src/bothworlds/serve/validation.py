"""Validation errors of request bodies: the detail and the JSON pointer of what msgspec rejects."""

from __future__ import annotations

import re

import msgspec


def decoding_fault(error: msgspec.ValidationError) -> tuple[str, str]:
    """Returns the detail and the JSON pointer of a validation error; points to unknown and missing fields as well.

    >>> decoding_fault(msgspec.ValidationError("Object contains unknown field `name`"))
    ('object contains unknown field `name`', '/name')
    >>> decoding_fault(msgspec.ValidationError("Object contains unknown field `a/b`"))[1]
    '/a~1b'
    """
    sentence, _, path = str(error).partition(" - at ")
    field = re.search(r"(?:unknown|required) field `([^`]+)`", sentence)
    name = field[1].replace("~", "~0").replace("/", "~1") if field else ""
    return lowered(sentence), _pointer(path) + (f"/{name}" if field else "")


def _pointer(path: str) -> str:
    """Converts a path of msgspec to a JSON pointer: ``$.pins[0].slot`` becomes ``/pins/0/slot``."""
    return "".join(f"/{part}" for part in re.findall(r"[^\.\[\]`$]+", path.replace("[...]", "")))


def lowered(sentence: str) -> str:
    """Lowers the first letter, so that the text can continue a sentence; acronyms stay as they are.

    >>> lowered("Expected `int`"), lowered("JSON is malformed")
    ('expected `int`', 'JSON is malformed')
    """
    return sentence if sentence[:2].isupper() else sentence[:1].lower() + sentence[1:]
