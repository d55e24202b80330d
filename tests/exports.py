"""Exports of a surface, written from pages of a log, as ``bothworlds.export_format`` describes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bothworlds.export_format import EXPORT_FORMAT, METADATA_KEY
from bothworlds.policies.logged_pages import LoggedPage


def surface_of(n: int, slots: int, policy: str = "all-weather", **fields: Any) -> dict[str, Any]:
    """Return the header's description of a surface with items i0, i1, ..."""
    return {
        "name": "home",
        "objective": "rewards",
        "slots": slots,
        "floor": 0.005,
        "policy": policy,
        "policy_settings": {},
        "learner": 0,
        "arms": [],
        "items": [{"name": f"i{k}", "state": "active"} for k in range(n)],
        "reset": [],
    } | fields


def rows_of(page: LoggedPage, **fields: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a page."""
    names = [f"i{k}" for k in range(page.n_items)]
    away = [names[item] for item in page.absent]
    first: dict[str, Any] = {"note": [*page.note]} if page.note else {}
    if away:
        few = 2 * len(away) <= page.n_items
        first["absent" if few else "eligible"] = away if few else [name for name in names if name not in away]
    for slot, (item, p, reward) in enumerate(zip(page.items, page.propensity, page.rewards)):
        learn = bool(page.learned >> slot & 1)
        yield {
            "event": f"{page.number:032x}",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "surface": "home",
            "segment": "",
            "arm": "learner",
            "own": True,
            "learner": 0,
            "policy_id": f"{page.policy}:1f",
            "number": page.number,
            "n": page.n_items,
            "settled": "final",
            "position": slot + 1,
            "item": names[item],
            "click": int(reward > 0),
            "reward": reward,
            "propensity": p,
            "pinned": not learn,
            "learn": learn,
            **(first if slot == 0 else {}),
            **fields,
        }


def write_export(path: Path, surface: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write an export: Parquet if the path ends so, else NDJSON."""
    header = {"format": EXPORT_FORMAT, "surface": surface}
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = dict.fromkeys(name for row in rows for name in row)
        table = pa.table({name: [row.get(name) for row in rows] for name in columns})
        pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(header)}), path)
    else:
        path.write_text("".join(json.dumps(line) + "\n" for line in (header, *rows)))
    return path
