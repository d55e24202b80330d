"""The layout ``yandex``: the native format of the Yandex sample, one record per result page with its clicks."""

from __future__ import annotations

import re

from ...text_writers import write_pages
from ..text_kernels import scan_pages
from .base import TextLayout

START = re.compile(r"\s*\d+_\d+\t\s*\d+(\s*,\s*\d+)*\s*:")


def last_record(text: bytes) -> int:
    """Return the offset of the last record, which may be incomplete: after the last semicolon or newline."""
    return max(text.rfind(b";"), text.rfind(b"\n")) + 1


YANDEX = TextLayout(
    "yandex",
    "QUERY_REGION, a tab, url,...,url : clicked url , ... ;",
    matches=lambda line: START.match(line) is not None,
    scan=scan_pages,
    last_boundary=last_record,
    write=write_pages,
)
