"""The documented settings are those of the code, with the same defaults."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec

from bothworlds.serve.config import Config, Limits
from bothworlds.serve.model import SurfaceSettings

DOCS = Path(__file__).parents[2] / "docs"


def test_the_settings_of_a_surface_are_documented_with_their_defaults():
    text = (DOCS / "service.md").read_text()
    table = text.partition("| setting | default |")[2].partition("\n\n")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| *`?([^|`]*?)`? *\|", table, re.MULTILINE))
    assert documented == {field.name: _written(field.default) for field in msgspec.structs.fields(SurfaceSettings)}


def _written(default):
    """As in the table: nothing where there is no default or it is empty."""
    if isinstance(default, str):
        return default
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, int | float) else ""


def test_the_settings_of_the_service_are_documented_with_their_defaults():
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    said = tomllib.loads(text.split("```toml")[1].split("```")[0])
    for kind, given in ((Config, said), (Limits, said["limits"])):
        defaults = {field.name: _as_toml(field.default) for field in msgspec.structs.fields(kind)}
        assert set(given) == set(defaults)
        examples = {"store", "host", "allowed_origins", "limits"}
        assert {name: given[name] for name in given if name not in examples} == {
            name: default for name, default in defaults.items() if name not in examples
        }


def _as_toml(default):
    return list(default) if isinstance(default, tuple) else default
