"""What the documents say about settings is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from bothworlds.serve.records import SurfaceSettings

DOCS = Path(__file__).parents[3] / "docs"


def test_the_table_of_settings_has_every_setting_with_its_default():
    text = (DOCS / "service.md").read_text()
    table = text.partition("| setting | default |")[2].partition("\n\n")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| *`?([^|`]*?)`? *\|", table, re.MULTILINE))
    assert documented == {field.name: _written(field.default) for field in msgspec.structs.fields(SurfaceSettings)}


def _written(default):
    """As in the table: nothing where there is no default or it is empty."""
    if isinstance(default, str):
        return default
    return f"{default:g}" if isinstance(default, int | float) else ""
