"""Results, fitted models and evaluations as data frames and as HTML."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from html.parser import HTMLParser

import numpy as np
import pytest

from bothworlds import play
from bothworlds.arena.result import ATTACK_COLUMNS, COLUMNS
from bothworlds.clicks import evaluate, fit
from bothworlds.data_frames import LIBRARIES, html_table, to_frame
from bothworlds.worlds import Attack, Attacked, stochastic
from tests.clicks.evaluation_logs import as_log, logging_policy, pages
from tests.clicks.logs import generated
from tests.clicks.page_logs import simulated

EASY = stochastic([0.9, 0.7, 0.4, 0.2], [0.9, 0.3])


def records(frame):
    """The rows of any frame, with None where a value is missing."""
    if hasattr(frame, "to_pylist"):
        return frame.to_pylist()
    if hasattr(frame, "to_dicts"):
        return frame.to_dicts()
    columns = {
        name: frame[name].astype(object).where(frame[name].notna(), None)
        if frame[name].dtype == "Int64"
        else frame[name]
        for name in frame.columns
    }
    return [dict(zip(columns, row)) for row in zip(*(column.tolist() for column in columns.values()))]


def same(one, other):
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@pytest.fixture(scope="module")
def result():
    return play("uniform", EASY, 50, replications=3, checkpoints=5)


@pytest.fixture(scope="module")
def model():
    return fit(generated(seed=2))


@pytest.fixture(scope="module")
def evaluation():
    rng = np.random.default_rng(5)
    logging = logging_policy(3, 2)
    rates = np.outer([0.6, 0.4, 0.2], [1.0, 0.5])
    return evaluate(as_log(*pages(rng, logging, rates, 300), logging.marginals), ["b", "a"], label="<b> & a")


@pytest.fixture(params=LIBRARIES)
def library(request):
    pytest.importorskip(LIBRARIES[request.param])
    return request.param


def test_a_result_has_a_row_for_every_replication_and_checkpoint(result, library):
    rows = records(result.to_frame(library))
    assert [tuple(row) for row in rows] == [COLUMNS] * 15
    assert [tuple(row.values()) for row in rows] == list(zip(*result.columns().values()))


def test_the_scores_of_an_attack_are_columns():
    world = Attacked(EASY, Attack("promote", target=2, budget=10))
    result = play("uniform", world, 40, replications=2, checkpoints=2)
    table = result.to_frame("arrow")
    assert table.column_names == [*COLUMNS, *ATTACK_COLUMNS]
    assert table["flips"].to_pylist() == result.attack.flips.ravel().tolist()


@pytest.mark.parametrize("name", ["pbm", "sdbn"])
def test_a_click_model_has_a_row_for_every_item(name, library):
    model = fit(simulated("dbn", 300, n=5, m=3, seed=1), name)
    rows, expected = records(model.to_frame(library)), model.table()
    assert [list(row) for row in rows] == [list(row) for row in expected]
    assert all(same(row[name], other[name]) for row, other in zip(rows, expected, strict=True) for name in other)


def test_an_evaluation_has_a_row_for_every_estimator_and_position(evaluation, library):
    rows = records(evaluation.to_frame(library))
    assert {row["position"] for row in rows} == {None, 1, 2}
    for row, estimate in zip(rows, evaluation.estimates, strict=True):
        expected = {"target": evaluation.target, **asdict(estimate)}
        assert list(row) == list(expected)
        assert all(same(row[name], expected[name]) for name in expected)


def hide(monkeypatch, *modules):
    """Make imports of these modules fail, as if they were not installed."""
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch, result, name):
    module = LIBRARIES[name]
    hide(monkeypatch, module)
    with pytest.raises(ImportError, match=f"this needs {module}: pip install {module}"):
        result.to_frame(name)


def test_the_first_installed_library_is_the_default(monkeypatch, result):
    pytest.importorskip("pandas")
    assert type(result.to_frame()).__module__.startswith("pandas")
    hide(monkeypatch, "pandas", "polars")
    assert type(result.to_frame()).__module__.startswith("pyarrow")
    hide(monkeypatch, "pyarrow")
    with pytest.raises(ImportError, match="needs one of pandas, polars, arrow: pip install pandas"):
        result.to_frame()


def test_an_unknown_library_is_refused(result):
    with pytest.raises(ValueError, match="library must be one of pandas, polars, arrow; got 'spark'"):
        result.to_frame("spark")


class Tags(HTMLParser):
    """Collects tags and text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_html_is_well_formed_and_escaped(result, model, evaluation):
    for one in (result, model, evaluation):
        tags = Tags(one._repr_html_())
        assert set(tags.tags) <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    assert any("'<b> & a' on 300 pages" in text for text in Tags(evaluation._repr_html_()).text)
    assert "uniform in stochastic: mean of 3 replications" in Tags(result._repr_html_()).text
    assert "b" not in Tags(evaluation._repr_html_()).tags
    assert "b" in Tags("<p><b>x</b></p>").tags  # what the check above would see without escaping


def test_a_long_table_is_cut():
    tags = Tags(html_table("long", {"n": list(range(25))}))
    assert tags.tags.count("tr") == 11
    assert tags.text[-1] == "and 15 more rows"


def test_missing_whole_numbers_stay_whole_in_pandas():
    pytest.importorskip("pandas")
    frame = to_frame({"position": [None, 3], "value": [0.5, float("nan")]}, "pandas")
    assert str(frame["position"].dtype) == "Int64"
    assert frame["position"].isna().tolist() == [True, False]
