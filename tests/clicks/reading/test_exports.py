"""An export of the service is a log: its first line describes the surface and is not a row."""

from __future__ import annotations

import gzip
import json

import pytest

from bothworlds.clicks import read
from bothworlds.export_format import EXPORT_FORMAT
from tests.clicks.written import count_pages, counts

COMMON = {
    "timestamp": "2026-01-01T00:00:00.000Z", "surface": "home", "segment": "", "arm": "learner", "n": 3,
    "policy_id": "uniform:1", "propensity": 1 / 3, "pinned": False, "learn": True,
}  # fmt: skip
ROWS = [
    COMMON
    | {
        "event": f"e{k}",
        "number": k + 1,
        "position": slot + 1,
        "item": "abc"[(k + slot) % 3],
        "click": int(slot == k % 2),
    }
    for k in range(30)
    for slot in range(2)
]


def header(items=3):
    named = [{"name": f"item {k}", "state": "active"} for k in range(items)]
    return {"format": EXPORT_FORMAT, "surface": {"name": "home", "slots": 2, "items": named}}


def export(path, rows, head=None, compress=False):
    lines = [json.dumps(line, separators=(",", ":")) for line in ([head] if head else []) + rows]
    text = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if compress else text)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("items", [3, 20_000])  # of many items, the first line is longer than what is inspected
def test_an_export_is_read_without_its_first_line(tmp_path, items, compress):
    plain, log = export(tmp_path / "plain", ROWS), export(tmp_path / "log", ROWS, header(items), compress)
    one, other = counts(plain), counts(log)
    assert (other.shown == one.shown).all()
    assert (other.clicked == one.clicked).all()
    assert (one.items, one.positions) == (other.items, other.positions)
    assert count_pages(log).pages == count_pages(plain).pages == 30
    assert read(log).layout == read(plain).layout == "service"


def test_exports_with_and_without_the_first_line_are_read_together(tmp_path):
    export(tmp_path / "a", ROWS[:30])
    export(tmp_path / "b", ROWS[30:], header())
    assert counts(tmp_path).shown.sum() == counts(export(tmp_path.with_suffix(".all"), ROWS)).shown.sum()


def test_errors_name_the_line_of_the_file(tmp_path):
    rows = [*ROWS[:3], {**ROWS[3], "click": 7}, *ROWS[4:]]
    with pytest.raises(ValueError, match="line 5: click must be 0 or 1; got '7'"):
        counts(export(tmp_path / "log", rows, header()))
    with pytest.raises(ValueError, match="line 4: click must be 0 or 1; got '7'"):
        counts(export(tmp_path / "plain", rows))


def test_an_export_without_events_has_no_rows(tmp_path):
    with pytest.raises(ValueError, match="has no rows"):
        counts(export(tmp_path / "log", [], header()))
