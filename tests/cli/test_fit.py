"""``bothworlds fit``: what it prints, draws and writes, and worlds from its files."""

from __future__ import annotations

import csv
import json

import pytest

from bothworlds.clicks import Counts, fit
from bothworlds.clicks.fitting.fit import fit_each_query
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the logs as tables of counts."""
    path = tmp_path_factory.mktemp("logs")
    for name, counts in LOGS.items():
        with (path / f"{name}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["query", "item", "position", "impressions", "clicks"])
            for q, i, j, *numbers in zip(counts.query, counts.item, counts.position, counts.shown, counts.clicked):
                table.writerow([counts.queries[q], counts.items[i], counts.positions[j], *numbers])
    return path


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def test_it_prints_counts_curve_and_items(folder):
    text = answer("fit", folder / "good.csv")
    counts, model = LOGS["good"], fit(LOGS["good"])
    assert f"{counts.shown.sum():,} impressions, {counts.clicked.sum():,} clicks" in text
    assert f"log-likelihood {model.log_likelihood:,.2f}" in text
    for row in model.shared_table()[1:]:
        assert f"{row['value']:.4f}" in text
        assert f"{row['low']:.4f} to {row['high']:.4f}" in text
    assert all(item in text for item in counts.items)
    assert "warning" not in text


@pytest.mark.slow
def test_options_of_reading_are_passed_on(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("where,was shown,clicks,impressions,query\n1,a,1,2,x\n2,a,1,2,x\n1,b,3,2,x\n1,c,0,1,x\n1,d,1,1,y\n")
    columns = ("--columns", "position=where, item = was shown", "--format", "counts")
    assert "clip=True" not in refused("fit", log, *columns)
    text = answer("fit", log, *columns, "--clip", "--query", "x", "--positions", "1", "--top-items", "2")
    assert "4 impressions, 3 clicks: 2 items at 1 position" in text
    assert "1 row was skipped" in answer("fit", log, *columns, "--skip-bad")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("few", (), "This curve is noise"),
        ("list", (), "Not identified: there are 2 groups"),
        ("good", ("--method", "em", "--iterations", "3"), "EM was stopped after 3 passes"),
    ],
)
def test_it_warns_where_warned_is_due(folder, name, options, message):
    assert f"warning: {message}" in answer("fit", folder / f"{name}.csv", *options)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_every_fit_can_be_drawn_and_written(folder, tmp_path, name):
    text = answer("fit", folder / f"{name}.csv", "--plot", tmp_path / "f.svg", "--out", tmp_path / "m.json")
    assert "figure:" in text
    assert "examination" in (tmp_path / "f.svg").read_text()
    assert json.loads((tmp_path / "m.json").read_text())["version"] == 1


@pytest.mark.slow
def test_the_same_fit_is_the_same_picture(folder, tmp_path):
    for name in ("a", "b"):
        answer("fit", folder / "good.csv", "--plot", tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "b.svg").read_text()


def test_only_so_many_items_are_printed(folder):
    text = answer("fit", folder / "queries.csv", "--top", "3", "--per-query")
    assert "3 of 48 items" in text
    assert text.count("item") < 10


@pytest.mark.slow
def test_columns_are_written_as_pairs(folder):
    for text in ("item", "item=", "=product", "item=product,"):
        assert "--columns is written like item=product" in refused("fit", folder / "good.csv", "--columns", text)


@pytest.mark.slow
def test_every_query_has_its_curve_where_each_is_fitted_alone(folder, tmp_path):
    text = answer("fit", folder / "queries.csv", "--per-query")
    assert "6 of 6 are identified" in text
    for query, model in zip(LOGS["queries"].queries, fit_each_query(LOGS["queries"]).values()):
        row = next(line for line in text.splitlines() if f"{query} " in line)
        assert all(f"{beta:.2f}" in row for beta in model.examination)
    assert "0 of 1 are identified" in answer("fit", folder / "list.csv", "--per-query")
    assert "a figure shows one model" in refused(
        "fit", folder / "list.csv", "--per-query", "--plot", tmp_path / "f.svg"
    )


@pytest.mark.slow
def test_curves_of_queries_that_are_noise_are_warned_of_where_they_are_fitted_and_played_in(folder, tmp_path):
    text = answer("fit", folder / "few.csv", "--per-query", "--out", tmp_path / "m.json")
    assert "warning: 1 of 1 queries have warnings, such as " in text
    assert ": This curve is noise" in text
    assert "warning" not in answer("fit", folder / "good.csv", "--per-query")
    played = answer("play", "-p", "uniform", "-w", tmp_path / "m.json", "--rounds", "50", "--replications", "1")
    assert "m.json: This curve is noise" in played
    tried = refused("reproduce", "--only", "nothing", "--world", tmp_path / "m.json")
    assert "m.json: This curve is noise" in tried


@pytest.mark.slow
def test_a_fitted_model_is_a_world_to_play_in(folder, tmp_path):
    answer("fit", folder / "queries.csv", "--out", tmp_path / "m.json")
    place = f"{tmp_path / 'm.json'}:query='query3'"
    assert "fitted m" in answer("play", "-p", "uniform", "-w", place, "--rounds", "50", "--replications", "1")
    assert "n = 8 items, m = 4 positions" in answer("bounds", "--world", place)
    assert "6 queries; name one" in refused("play", "-p", "uniform", "-w", tmp_path / "m.json", "--rounds", "50")


@pytest.mark.slow
def test_invalid_options_are_refused_in_one_line(folder, tmp_path):
    log = folder / "good.csv"
    assert "there is no file" in refused("fit", folder / "nowhere.csv")
    assert "must end in .svg" in refused("fit", log, "--plot", "fit.txt")
    assert "must end in .json" in refused("fit", log, "--out", "model.txt")
    assert "method must be newton or em" in refused("fit", log, "--method", "svd")
    assert "iterations is only for method 'em'" in refused("fit", log, "--iterations", "5")
    assert "there is no file" in refused("play", "-w", tmp_path / "nowhere.json")


@pytest.mark.slow
def test_the_paper_is_not_put_to_the_test_in_worlds_of_another_shape(folder, tmp_path):
    answer("fit", folder / "list.csv", "--out", tmp_path / "list.json")
    assert "not identified" in refused("reproduce", "--world", tmp_path / "list.json")
    fit(generated(1, 5, 2, 500)).save(tmp_path / "small.json")
    assert "at least 6 items" in refused("reproduce", "--world", tmp_path / "small.json")
    assert "no fixed attraction" in refused("reproduce", "--world", "paper/periodic-both")


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--per-query",), ("--method", "em")])
def test_a_log_without_clicks_is_answered_and_not_refused(folder, tmp_path, options):
    plot = () if "--per-query" in options else ("--plot", tmp_path / "f.svg")
    text = answer("fit", folder / "silent.csv", *options, *plot, "--out", tmp_path / "m.json")
    assert "warning: " in text


def test_names_are_printed_as_they_are(folder):
    text = answer("fit", folder / "names.csv")
    assert all(name in text for name in ("x[/foo]", "tv[oled]", ":tea:", "[red]q"))


@pytest.mark.slow
def test_a_pattern_and_several_files_are_one_log(folder):
    assert "fitted:" in answer("fit", folder / "go*.csv")
    assert "fitted:" in answer("fit", folder / "good.csv", folder / "list.csv")
    assert "there is no file" in refused("fit", folder / "none-*.csv")
