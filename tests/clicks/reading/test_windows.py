"""Counts and pages per window of time, per value of a column, with propensities, and since a date."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import read
from tests.clicks.naive import same
from tests.clicks.written import write

# Two weeks of pages; the last hour of a Sunday, and the Monday after.
TABLE = {
    "event": [1, 1, 2, 2, 3, 3, 4, 4],
    "position": [1, 2] * 4,
    "item": ["tea", "milk", "tea", "milk", "tea", "milk", "milk", "tea"],
    "click": [1, 0, 1, 0, 1, 0, 0, 0],
    "propensity": [0.5, 0.5, 0.5, 0.5, 0.25, 0.5, 0.5, None],
    "timestamp": ["2024-01-06"] * 2 + ["2024-01-07T23:30:00Z"] * 2 + ["2024-01-08 00:00:00"] * 4,
    "Device": ["phone", "phone", "desk", "desk", "desk", "desk", "desk", "desk"],
}
NUMBERS = ("query", "starts", "item", "position", "click", "count")


def test_counts_of_windows_add_up_to_all_counts():
    log = read(TABLE)
    days, weeks = ("2024-01-06", "2024-01-07", "2024-01-08"), ("2024-01-01", "2024-01-08")
    for windows, labels in (("day", days), ("week", weeks)):
        counts = log.counts(windows)
        assert counts.windows == labels
        shown = np.zeros((2, 2), int)
        np.add.at(shown, (counts.item, counts.position), counts.shown)
        assert shown.tolist() == [[1, 3], [3, 1]]
        assert same(log.pages(windows).counts(), counts)
        assert log.pages(windows).counts().window.tolist() == counts.window.tolist()
    assert log.counts().window is None


def test_pages_differ_by_what_is_asked_for():
    log = read(TABLE)
    assert log.pages().count.tolist() == [1, 3]
    assert log.pages("week").count.tolist() == [2, 1, 1]
    assert log.pages(by=["device"]).count.tolist() == [1, 2, 1]
    assert log.pages(by=["Device"]).by["Device"].tolist() == ["desk", "desk", "phone"]
    weighed = log.pages(propensities=True)
    assert weighed.count.tolist() == [1, 1, 2]
    np.testing.assert_array_equal(weighed.propensity, [0.5, np.nan, 0.25, 0.5, 0.5, 0.5])
    half = weighed.with_counts(np.array([1, 0, 2]))
    np.testing.assert_array_equal(half.propensity, [0.5, np.nan, 0.5, 0.5])


def test_rows_since_a_date_are_kept():
    log = read(TABLE)
    later = log.since("2024-01-08")
    assert (log.n_pages, later.n_pages, later.counts().shown.sum()) == (4, 2, 4)
    assert later.pages().count.tolist() == [1, 1]
    assert later.since("2024-01-08T00:00:00Z").n_pages == 2
    with pytest.raises(ValueError, match="nothing is left of the table: it has no rows since 2025-01-01"):
        log.since("2025-01-01")
    with pytest.raises(ValueError, match="since must be a date, such as 2026-01-31; got 'Monday'"):
        log.since("Monday")


def test_a_log_without_times_has_no_windows():
    untimed = {name: column for name, column in TABLE.items() if name != "timestamp"}
    for table in (untimed, {**TABLE, "timestamp": ["2024-01-06"] * 7 + ["soon"]}):
        log = read(table)
        assert not log.has_times
        for ask, given in ((log.counts, "day"), (log.pages, "week"), (log.since, "2024-01-01")):
            with pytest.raises(ValueError, match="the table has no times; a column timestamp must have a date"):
                ask(given)
    with pytest.raises(ValueError, match="windows must be None, 'day' or 'week'; got 'month'"):
        read(TABLE).counts("month")
    with pytest.raises(ValueError, match="has no column 'country'; it has event, position"):
        read(TABLE).pages(by=["country"])


@pytest.mark.parametrize("layout", ["obd", "counts"])
def test_a_log_without_pages_has_pages_of_one_result(tmp_path, layout):
    log = read(write(tmp_path / "log.csv", pages=100, layout=layout))
    pages = log.pages()
    assert same_counts(pages.counts(), log.counts())
    assert (np.diff(pages.starts) == 1).all()
    assert (log.n_pages, pages.pages) == (None, 500)


def same_counts(one, other):
    return all((getattr(one, name) == getattr(other, name)).all() for name in ("item", "position", "shown", "clicked"))


def test_a_column_keeps_its_name_beside_a_role_of_that_name(tmp_path):
    (tmp_path / "log").write_text("event,position,item,product,click,number\n1,1,x,tea,1,7\n")
    pages = read(tmp_path / "log", columns={"item": "product"}).pages(by=["item", "number", "product"])
    assert (pages.items, {name: values.tolist() for name, values in pages.by.items()}) == (
        ("tea",),
        {"item": ["x"], "number": ["7"], "product": ["tea"]},
    )
