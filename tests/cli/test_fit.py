"""``bothworlds fit``: what it prints, draws and writes, and worlds from its files. Counting is replaced by a fake."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from bothworlds import clicks
from bothworlds.clicks import Counts, fit
from bothworlds.clicks.fitting.fit import fit_each_query
from bothworlds.clicks.reading.sources import find_files
from tests.clicks.logs import generated
from tests.commands import answer, run

LOGS = {
    "good": generated(1, 8, 4, 2000, seed=1),
    "queries": generated(6, 8, 4, 200, seed=1),
    "few": generated(1, 20, 3, 40, seed=2, low=0.005, high=0.02, examination=[1.0, 1.0, 1.0]),
    "silent": Counts.from_tables([[90, 90], [90, 90]], [[0, 0], [0, 0]]),
    "names": Counts.from_tables([[90, 90]] * 3, [[40, 20]] * 3, items=["x[/foo]", "tv[oled]", ":tea:"], query="[red]q"),
    "list": Counts.from_tables([[900, 0], [0, 900]], [[400, 0], [0, 90]], items=["a", "b"]),
}


@pytest.fixture
def read(monkeypatch, tmp_path):
    """A folder with logs, and the options they were counted with."""
    requested = {}

    def counted(path, **options):
        requested.update(options)
        return SimpleNamespace(counts=lambda: LOGS[find_files(path)[-1].stem])

    monkeypatch.setattr(clicks, "read", counted, raising=False)
    for name in LOGS:
        (tmp_path / f"{name}.csv").touch()
    return requested


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def test_it_prints_counts_curve_and_items(read, tmp_path):
    text = answer("fit", tmp_path / "good.csv")
    counts, model = LOGS["good"], fit(LOGS["good"])
    assert f"{counts.shown.sum():,} impressions, {counts.clicked.sum():,} clicks" in text
    assert f"log-likelihood {model.log_likelihood:,.2f}" in text
    for row in model.shared_table()[1:]:
        assert f"{row['value']:.4f}" in text
        assert f"{row['low']:.4f} to {row['high']:.4f}" in text
    assert all(item in text for item in counts.items)
    assert "warning" not in text


def test_options_of_reading_are_passed_on(read, tmp_path):
    filters = (
        "--top-items",
        "10",
        "--positions",
        "5",
        "--query",
        "q",
        "--columns",
        "item=product, click = was clicked",
    )
    answer("fit", tmp_path / "good.csv", "--format", "tidy", *filters)
    assert read == {
        "engine": "duckdb",
        "format": "tidy",
        "top_items": 10,
        "positions": 5,
        "query": "q",
        "columns": {"item": "product", "click": "was clicked"},
        "skip_bad": False,
        "clip": False,
    }


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("few", (), "This curve is noise"),
        ("list", (), "Not identified: there are 2 groups"),
        ("good", ("--method", "em", "--iterations", "3"), "EM was stopped after 3 passes"),
    ],
)
def test_it_warns_where_warned_is_due(read, tmp_path, name, options, message):
    assert f"warning: {message}" in answer("fit", tmp_path / f"{name}.csv", *options)


def test_the_components_of_a_fixed_list_are_shown(read, tmp_path):
    assert "group" in answer("fit", tmp_path / "list.csv")


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--per-query",)])
@pytest.mark.parametrize("name", LOGS)
def test_every_fit_can_be_drawn_and_written(read, tmp_path, name, options):
    text = answer("fit", tmp_path / f"{name}.csv", *options, "--plot", tmp_path / "f.svg", "--out", tmp_path / "m.json")
    assert "figure:" in text
    assert "examination" in (tmp_path / "f.svg").read_text()
    assert json.loads((tmp_path / "m.json").read_text())["version"] == 1


@pytest.mark.slow
def test_the_same_fit_is_the_same_picture(read, tmp_path):
    for name in ("a", "b"):
        answer("fit", tmp_path / "good.csv", "--plot", tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "b.svg").read_text()


def test_only_so_many_items_are_printed(read, tmp_path):
    text = answer("fit", tmp_path / "queries.csv", "--top", "3", "--per-query")
    assert "3 of 48 items" in text
    assert text.count("item") < 10


@pytest.mark.slow
def test_columns_are_written_as_pairs(read, tmp_path):
    for text in ("item", "item=", "=product", "item=product,"):
        assert "--columns is written like item=product" in refused("fit", tmp_path / "good.csv", "--columns", text)


@pytest.mark.slow
def test_every_query_has_its_curve_where_each_is_fitted_alone(read, tmp_path):
    text = answer("fit", tmp_path / "queries.csv", "--per-query")
    assert "6 of 6 are identified" in text
    for query, model in zip(LOGS["queries"].queries, fit_each_query(LOGS["queries"]).values()):
        row = next(line for line in text.splitlines() if f"{query} " in line)
        assert all(f"{beta:.2f}" in row for beta in model.examination)
    assert "0 of 1 are identified" in answer("fit", tmp_path / "list.csv", "--per-query", "--plot", tmp_path / "f.svg")
    assert "no query has a complete curve" in (tmp_path / "f.svg").read_text()


@pytest.mark.slow
def test_curves_of_queries_that_are_noise_are_warned_of_where_they_are_fitted_and_played_in(read, tmp_path):
    noise = "1 of 1 queries have a curve that is noise, with examination typically known only up to a factor above 1.6"
    assert noise in answer("fit", tmp_path / "few.csv", "--per-query", "--out", tmp_path / "m.json")
    assert noise not in answer("fit", tmp_path / "good.csv", "--per-query")
    played = answer("play", "-p", "uniform", "-w", tmp_path / "m.json", "--rounds", "50", "--replications", "1")
    assert "m.json: This curve is noise" in played
    tried = refused("reproduce", "--only", "nothing", "--world", tmp_path / "m.json")
    assert "m.json: This curve is noise" in tried


@pytest.mark.slow
def test_a_fitted_model_is_a_world_to_play_in(read, tmp_path):
    answer("fit", tmp_path / "queries.csv", "--out", tmp_path / "m.json")
    place = f"{tmp_path / 'm.json'}:query='query3'"
    assert "fitted m" in answer("play", "-p", "uniform", "-w", place, "--rounds", "50", "--replications", "1")
    assert "n = 8 items, m = 4 positions" in answer("bounds", "--world", place)
    assert "6 queries; name one" in refused("play", "-p", "uniform", "-w", tmp_path / "m.json", "--rounds", "50")


@pytest.mark.slow
def test_invalid_options_are_refused_in_one_line(read, tmp_path):
    log = tmp_path / "good.csv"
    assert "there is no file" in refused("fit", tmp_path / "nowhere.csv")
    assert "must end in .svg" in refused("fit", log, "--plot", "fit.txt")
    assert "must end in .json" in refused("fit", log, "--out", "model.txt")
    assert "method must be newton or em" in refused("fit", log, "--method", "svd")
    assert "iterations is only for method 'em'" in refused("fit", log, "--iterations", "5")
    assert "there is no file" in refused("play", "-w", tmp_path / "nowhere.json")


@pytest.mark.slow
def test_the_paper_is_not_put_to_the_test_in_worlds_of_another_shape(read, tmp_path):
    answer("fit", tmp_path / "list.csv", "--out", tmp_path / "list.json")
    assert "not identified" in refused("reproduce", "--world", tmp_path / "list.json")
    fit(generated(1, 5, 2, 500)).save(tmp_path / "small.json")
    assert "at least 6 items" in refused("reproduce", "--world", tmp_path / "small.json")
    assert "no fixed attraction" in refused("reproduce", "--world", "paper/periodic-both")


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--per-query",), ("--method", "em")])
def test_a_log_without_clicks_is_answered_and_not_refused(read, tmp_path, options):
    text = answer("fit", tmp_path / "silent.csv", *options, "--plot", tmp_path / "f.svg", "--out", tmp_path / "m.json")
    assert "warning: " in text


def test_names_are_printed_as_they_are(read, tmp_path):
    text = answer("fit", tmp_path / "names.csv")
    assert all(name in text for name in ("x[/foo]", "tv[oled]", ":tea:", "[red]q"))


@pytest.mark.slow
def test_a_pattern_and_several_files_are_one_log(read, tmp_path):
    assert "fitted:" in answer("fit", tmp_path / "go*.csv")
    assert "fitted:" in answer("fit", tmp_path / "good.csv", tmp_path / "list.csv")
    assert "there is no file" in refused("fit", tmp_path / "none-*.csv")
