"""Counting whole pages: every layout against pages counted by hand, filters, and formats without pages."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bothworlds.clicks import Pages, generate, read
from bothworlds.clicks.log import as_pages
from bothworlds.clicks.pages import different_keys
from tests.clicks.naive import same
from tests.clicks.real import real_file
from tests.clicks.written import count_pages, counts, write

LAYOUTS = {
    "log.csv": "tidy",
    "log.parquet": "tidy",
    "log.tsv": "relpred",
    "log.yandex": "yandex",
    "log.ndjson": "service",
}


def as_counter(pages):
    found = Counter()
    for p in range(len(pages)):
        results = slice(*pages.starts[p : p + 2])
        shown = tuple(
            (pages.positions[j], pages.items[i], int(c))
            for j, i, c in zip(pages.position[results], pages.item[results], pages.click[results])
        )
        assert (pages.queries[pages.query[p]], shown) not in found
        found[pages.queries[pages.query[p]], shown] = int(pages.count[p])
    return found


def by_hand(table):
    """Pages of a table of columns event, query, position, item, click."""
    pages = {}
    for event, query, *result in zip(*(table[name] for name in ("event", "query", "position", "item", "click"))):
        pages.setdefault((event, query), []).append((result[0], str(result[1]), result[2]))
    return Counter((str(query), tuple(sorted(page))) for (_, query), page in pages.items())


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    columns = {name: [] for name in ("event", "query", "position", "item", "click")}
    for event in range(300):
        query = int(rng.integers(1, 3))
        for position, item in enumerate(rng.permutation(4)[: rng.integers(1, 4)], start=1):
            for name, value in zip(columns, (event, query, position, int(item), int(rng.random() < 0.4))):
                columns[name].append(value)
    order = rng.permutation(len(columns["event"]))  # rows of a page need not follow each other
    return {name: [values[k] for k in order] for name, values in columns.items()}


@pytest.mark.slow
def test_a_table_has_the_pages_counted_by_hand(table):
    pages = count_pages(table)
    assert as_counter(pages) == by_hand(table)
    assert pages.pages == 300
    assert same(pages.counts(), counts(table))


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_the_same_pages(tmp_path, name):
    path = write(tmp_path / name, pages=400, layout=LAYOUTS[name], queries=2)
    pages = count_pages(path)
    assert same(pages.counts(), counts(path))
    tidy = count_pages(write(tmp_path / "other.parquet", pages=400, queries=2))
    region = {query: query.partition("_")[0] for query in pages.queries}
    shift = 1 - min(pages.positions)
    found = {
        (region[query], tuple((position + shift, item, click) for position, item, click in page)): count
        for (query, page), count in as_counter(pages).items()
    }
    assert found == as_counter(tidy)


@pytest.mark.slow
@pytest.mark.parametrize(
    "filters", [{"positions": 2}, {"top_items": 3}, {"query": "2"}, {"positions": 2, "top_items": 2}]
)
def test_filters_keep_the_pages_that_are_counted(table, filters):
    pages = count_pages(table, **filters)
    assert same(pages.counts(), counts(table, **filters))
    if "positions" in filters:
        assert max(pages.positions) <= 2


@pytest.mark.slow
def test_pages_and_counts_of_a_text_log_are_those_of_one_filter():
    log = read(real_file("yandex/trainSample"), positions=3, top_items=400)
    assert same(log.pages().counts(), log.counts())
    assert log.n_pages > 1_000


@pytest.mark.slow
def test_two_layouts_of_real_pages_are_one_log():
    native, challenge = (count_pages(real_file(f"yandex/{name}")) for name in ("trainSample", "relpred_train.tsv"))
    for name in ("items", "queries", "positions"):
        assert getattr(native, name) == getattr(challenge, name)
    for name in ("query", "starts", "item", "position", "click", "count"):
        np.testing.assert_array_equal(getattr(native, name), getattr(challenge, name))


@pytest.mark.slow
def test_the_order_of_pages_does_not_depend_on_the_order_of_rows(table):
    backwards = {name: values[::-1] for name, values in table.items()}
    one, other = count_pages(table), count_pages(backwards)
    for name in ("query", "starts", "item", "click", "count"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.slow
def test_pages_and_counts_are_the_same_bits_for_any_number_of_threads(tmp_path):
    log, found = read(generate(tmp_path / "log.parquet", "paper/stochastic", 30_000, queries=3)), []
    for threads in (1, 2, 5):
        log.database.connection.execute(f"SET threads = {threads}")
        pages, counts_of_pages = log.pages(propensities=True), log.pages().counts()
        found.append([getattr(pages, name).tobytes() for name in ("query", "starts", "item", "click", "count")])
        found[-1] += [pages.propensity.tobytes(), counts_of_pages.clicked.tobytes()]
    assert found[0] == found[1] == found[2]


@pytest.fixture(scope="module")
def long_table():
    """Pages with up to 40 of 90 positions, which begin at 0 and have gaps, of 3,000 items."""
    rng = np.random.default_rng(2)
    columns = {name: [] for name in ("event", "query", "position", "item", "click")}
    for event in range(60):
        size, query = int(rng.integers(1, 40)), str(rng.integers(3))
        places, shown = np.sort(rng.choice(90, size, replace=False)), rng.choice(3_000, size, replace=False)
        for position, item in zip(places.tolist(), shown.tolist()):
            for copy in range(2):  # every page occurs twice
                row = (f"{event}-{copy}", query, position, f"item {item}", (item + event) % 2)
                for name, value in zip(columns, row):
                    columns[name].append(value)
    return columns


@pytest.mark.slow
def test_long_pages_have_the_counts_by_hand(long_table, table):
    for given, number in ((long_table, 120), (table, 300)):
        pages = count_pages(given)
        assert as_counter(pages) == by_hand(given)
        assert pages.pages == number


@pytest.mark.slow
@pytest.mark.parametrize("role", ["position", "item"])
def test_what_a_page_has_twice_is_noticed(long_table, role):
    other = {"position": "item", "item": "position"}[role]
    twice = {name: [*values, values[0]] for name, values in long_table.items()}
    twice[other][-1] = "another" if other == "item" else 90
    with pytest.raises(ValueError, match=f"{role} .*twice"):
        count_pages(twice)
    assert count_pages(twice, skip_bad=True).pages == 119


@pytest.mark.slow
def test_pages_that_are_cut_are_checked_as_a_whole(table):
    columns = {name: list(values) for name, values in table.items()}
    for name, value in {"event": 0, "query": 9, "position": 1, "item": 7, "click": 0}.items():
        columns[name].append(value)
    for position in (3, 3):
        for name, value in {"event": 0, "query": 9, "position": position, "item": position + 1, "click": 0}.items():
            columns[name].append(value)
    with pytest.raises(ValueError, match="twice"):
        count_pages(columns, positions=2)
    assert same(count_pages(columns, positions=2, skip_bad=True).counts(), counts(columns, positions=2, skip_bad=True))


def test_pages_that_never_occurred_are_left_out(table):
    pages = count_pages(table)
    half = pages.with_counts(np.where(np.arange(len(pages)) % 2, pages.count, 0))
    assert as_counter(half) == {page: count for k, (page, count) in enumerate(as_counter(pages).items()) if k % 2}


def test_formats_without_pages_are_refused():
    with pytest.raises(ValueError, match=r"needs whole pages, and .* is in the format obd"):
        count_pages(real_file("obd/random_men.csv"))
    with pytest.raises(ValueError, match=r"needs whole pages, and .* is in the format counts"):
        count_pages({"item": ["a"], "position": [1], "impressions": [3], "clicks": [1]})
    with pytest.raises(ValueError, match="needs whole pages; these are counts"):
        as_pages(read({"item": ["a"], "position": [1], "impressions": [3], "clicks": [1]}).counts())


def test_arrays_are_checked():
    with pytest.raises(ValueError, match="tables of one shape"):
        Pages.from_arrays([["a", "b"]], [[1]])
    with pytest.raises(ValueError, match="0 or 1"):
        Pages.from_arrays([["a", "b"]], [[1, 2]])


def test_keys_are_coded_alike_whether_they_are_sorted_or_not():
    keys = np.random.default_rng(0).integers(0, 50, 200)
    for bound in (50, 10**9):
        found, place = different_keys(keys, bound)
        np.testing.assert_array_equal(found, np.unique(keys))
        np.testing.assert_array_equal(found[place], keys)
