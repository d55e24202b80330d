"""Tables in memory are logs, and columns may have names of their own."""

from __future__ import annotations

import numpy as np
import pyarrow
import pytest

from bothworlds.clicks import evaluate, fit, read
from tests.clicks.written import counts

PAGES = {
    "event": [1, 1, 2, 2],
    "position": [1, 2, 1, 2],
    "item": ["tea", "milk", "milk", "tea"],
    "click": [1, 0, 1, 0],
}
N_TOTALS = {"item": ["a", "a", "b"], "position": [1, 2, 1], "impressions": [9, 8, 7], "clicks": [3, 2, 1]}


def records(columns):
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def structured(columns):
    kinds = [(name, np.asarray(column).dtype) for name, column in columns.items()]
    return np.array(list(zip(*columns.values())), dtype=kinds)


def frame(columns):
    return pytest.importorskip("pandas").DataFrame(columns)


def indexed(columns):
    return frame(columns).set_index(["item", "position"])


@pytest.mark.slow
@pytest.mark.parametrize("made", [dict, records, structured, pyarrow.table, frame, indexed])
def test_every_type_with_named_columns_is_a_log(made):
    counted = counts(made(PAGES))
    assert (counted.items, counted.pages, counted.shown.tolist()) == (("milk", "tea"), 2, [1, 1, 1, 1])
    counted = counts(made(N_TOTALS))
    assert (counted.shown.tolist(), counted.clicked.tolist()) == ([9, 8, 7], [3, 2, 1])
    assert fit(made(N_TOTALS)).items == ("a", "b")


@pytest.mark.slow
def test_filters_and_evaluation_work_for_tables_as_for_files():
    assert counts(PAGES, positions=1).shown.tolist() == [1, 1]
    many = {name: np.tile(column, 200) for name, column in PAGES.items()} | {"propensity": np.full(800, 0.5)}
    many["event"] = np.repeat(np.arange(400), 2)
    assert evaluate(many, ["tea", "milk"]).estimate("snips").value == 1.0


def test_a_bad_row_of_a_table_is_named():
    with pytest.raises(ValueError, match="the table, row 3: click must be 0 or 1; got '7'"):
        counts(PAGES | {"click": [1, 0, 7, 0]})
    assert counts(PAGES | {"click": [1, 0, 7, 0]}, skip_bad=True).notes == ("1 row was skipped: click must be 0 or 1",)


def test_a_key_that_the_first_record_lacks_is_kept():
    late = [{"item": "a", "position": 1, "click": 1}, {"item": "a", "position": 1, "click": 0, "query": "x"}]
    assert counts(late).queries == ("", "x")


@pytest.mark.slow
@pytest.mark.parametrize("made", [dict, structured])
def test_not_a_number_is_missing(made):
    columns = {"item": ["a", "b"] * 50, "position": [1] * 100, "click": [0, 1] * 50, "propensity": [np.nan, 0.5] * 50}
    assert any("50 of 100 impressions have no propensity" in note for note in evaluate(made(columns), ["b"]).notes)
    columns = {"item": [1, 2], "position": [1, 1], "click": [0, 1], "query": np.array(["x", np.nan], object)}
    assert counts(columns).queries == ("", "x")


@pytest.mark.parametrize(
    "given", [None, 3, [1, 2], [1, 2, 3], [pyarrow.table(PAGES)], [read(PAGES)] * 2, (one for one in records(PAGES))]
)
def test_other_types_are_refused(given):
    with pytest.raises(ValueError, match="a log is a path, several paths, or a table with named columns; got"):
        counts(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "the table has no columns"),
        ({"item": [1]}, "the table has the columns item, which match no format"),
        ({**N_TOTALS, "item": [2**70, 1, 2]}, "the table cannot be read"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        counts(given)


@pytest.mark.slow
def test_numbers_of_other_libraries_are_numbers():
    assert counts(PAGES, positions=np.int64(1)).positions == (1,)
    assert counts({**PAGES, "query": [5.0] * 4}, query=5.0).queries == ("5",)
    unnamed = {0: PAGES["position"], 1: PAGES["item"], 2: PAGES["click"]}
    assert counts(frame(unnamed), columns={"position": 0, "item": 1, "click": 2}).items == ("milk", "tea")


OWN = "session,rank,product,clicked\n1,1,tea,1\n1,2,milk,0\n2,1,milk,1\n2,2,tea,0\n"
NAMES = {"event": "session", "position": "rank", "item": "product", "click": "clicked"}


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(OWN)
    return path


def test_columns_may_have_names_of_their_own(own):
    counted = counts(own, columns=NAMES)
    assert (counted.items, counted.pages, counted.clicked.tolist()) == (("milk", "tea"), 2, [1, 0, 1, 0])
    own.write_text(OWN.replace("2,2,tea,0", "2,2,tea,maybe"))
    with pytest.raises(ValueError, match="line 5: clicked must be 0 or 1; got 'maybe'"):
        counts(own, columns=NAMES)


def test_a_name_that_is_given_goes_before_a_column_of_that_name(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("position,item,product,click\n1,x,tea,1\n")
    for name in ("item", "action"):
        assert counts(path, columns={name: "product"}).items == ("tea",)


def test_columns_of_lines_of_json_may_have_names_of_their_own(tmp_path):
    path = tmp_path / "log.ndjson"
    path.write_text('{"position": 1, "product": "tea", "click": 1}\n{"position": 1, "product": "milk", "click": 0}\n')
    assert counts(path, columns={"item": "product"}).items == ("milk", "tea")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "has the columns session, rank, product, clicked, which match no format; name them"),
        ({"thing": "product"}, "columns may name event, position, item, .*; got 'thing'"),
        ({**NAMES, "action": "session"}, "match no format"),
        ({"item": "produkt"}, "has no column 'produkt'; it has session, rank, product, clicked"),
    ],
)
def test_columns_that_do_not_fit_are_refused(own, columns, message):
    with pytest.raises(ValueError, match=message):
        read(own, columns=columns)


def test_no_query_is_not_every_query():
    with pytest.raises(ValueError, match="query is empty"):
        read(PAGES, query=[])


def test_the_repr_of_a_log_is_one_line(own):
    assert repr(read(own, columns=NAMES)) == "<Log 'own.csv': tidy>"
