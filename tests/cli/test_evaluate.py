"""The command evaluate."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from bothworlds import clicks
from tests import commands
from tests.clicks.evaluation_logs import as_log, logging_policy, pages

run, answer = partial(commands.run, "evaluate"), partial(commands.answer, "evaluate")
RATES = np.outer([0.5, 0.4, 0.3, 0.2], [1.0, 0.5])


@pytest.fixture(autouse=True)
def a_log(monkeypatch, rng):
    """Whatever file is read, it is this log; how it was asked for is returned."""
    logging = logging_policy(4, 2)
    log, asked = as_log(*pages(rng, logging, RATES, 2000), logging.marginals), {}

    def read(path, format=None, **options):
        asked.update(path=path, format=format, **options)
        return log

    monkeypatch.setattr(clicks, "read", read, raising=False)
    return asked


@pytest.mark.slow
def test_a_ranking_is_evaluated_in_one_command():
    message = answer("log.csv", "--ranking", "a,b")
    for words in (
        "a > b",
        "inverse propensity",
        "doubly robust (chosen)",
        "95% interval",
        "change",
        "shown as such",
    ):
        assert words in message
    assert "Warning" not in message


@pytest.mark.slow
def test_several_targets_are_compared():
    message = answer("log.csv", "-r", "a,b", "-r", "d, c", "-p", "uniform")
    assert all(title in message for title in ("a > b", "d > c", "uniform"))
    assert "one half of the log" in message


@pytest.fixture
def named(monkeypatch, rng):
    """A log of items with commas, quotes and brackets in their names."""
    names = {"a": "salt, fine", "b": 'the "best" tea', "c": "[sale] milk", "d": "7"}
    logging = logging_policy(4, 2)
    log = as_log(*pages(rng, logging, RATES, 2000), logging.marginals)
    log["item"] = [names[str(item)] for item in log["item"]]
    monkeypatch.setattr(clicks, "read", lambda *_, **__: log, raising=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranking", "title"),
    [
        ('"salt, fine",7', "salt, fine > 7"),
        ('7, "salt, fine"', "7 > salt, fine"),
        ('"the ""best"" tea",7', 'the "best" tea > 7'),
        ("[sale] milk,7", "[sale] milk > 7"),
    ],
)
def test_names_with_commas_are_quoted_as_in_csv(named, ranking, title):
    assert title in answer("log.csv", "--ranking", ranking)


@pytest.mark.parametrize("ranking", ['"salt, fine', '"a"b,c'])
def test_a_ranking_that_is_no_line_of_csv_is_refused(named, ranking):
    result = run("log.csv", "--ranking", ranking)
    assert result.exit_code == 2
    assert "quote names with commas: '\"a,b\",c'" in result.output


@pytest.mark.slow
def test_filters_are_handed_on(a_log):
    filters = ("--query", "shoes", "--positions", "2", "--top-items", "4", "--columns", "item=product")
    answer("log.csv", "-r", "a,b", "--format", "tidy", *filters)
    assert a_log == {
        "path": "log.csv",
        "format": "tidy",
        "query": "shoes",
        "positions": 2,
        "top_items": 4,
        "columns": {"item": "product"},
        "skip_bad": False,
        "clip": False,
    }


@pytest.mark.slow
def test_several_files_are_one_log(a_log):
    answer("log.csv", "more.csv", "-r", "a,b")
    assert a_log["path"] == ["log.csv", "more.csv"]


@pytest.mark.slow
def test_results_and_figure_are_written(tmp_path):
    message = answer("log.csv", "-r", "a,b", "-r", "d,c", "--out", tmp_path / "r.json", "--plot", tmp_path / "f.svg")
    found = json.loads((tmp_path / "r.json").read_text())["evaluations"]
    assert [part["target"] for part in found] == ["a > b", "d > c"]
    assert "<svg" in (tmp_path / "f.svg").read_text()
    assert "results:" in message
    assert "figure:" in message


@pytest.mark.parametrize(
    ("arguments", "error_of"),
    [
        ((), "nothing to evaluate"),
        (("-r", "a,b,c"), "3 items and the log 2 positions"),
        (("-r", "nobody,nothing"), "never shows an item of nobody, nothing"),
        (("-t", "new.csv"), "new.csv: there is no such file"),
        (("-r", "a,b", "--windows", "month"), "windows must be"),
        (("-r", "a,b", "--examination", "x"), "--examination must be"),
        (("-r", "a,b", "--placements", "p.csv"), "must end in .parquet"),
        (("-p", "nonsense"), "nonsense"),
        (("-r", "a,b", "--columns", "item=a,item=b"), "--columns has item twice"),
        (("-r", "a,b", "--plot", "f.txt"), "must end in .svg or .png or .pdf"),
        (("-r", "a,b", "--out", "r.txt"), "must end in .json"),
        (("-r", "a,b", "--clip-weights", "-1"), "clip_weights must be above 0"),
    ],
)
def test_invalid_targets_are_refused_in_one_line(arguments, error_of):
    result = run("log.csv", *arguments)
    assert result.exit_code == 2
    assert error_of in result.output
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_a_file_of_rankings_is_evaluated_with_warnings_and_placements(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("position,item\n1,a\n2,nobody\n")
    message = " ".join(answer("log.csv", "-t", path, "--placements", tmp_path / "p.parquet").split())
    assert "not from this log: it does not determine" in message
    assert "The log never shows item 'nobody'" in message
    table = pq.read_table(tmp_path / "p.parquet").to_pylist()
    assert [(row["item"], row["how_determined"]) for row in table] == [("a", "shown"), ("nobody", "open")]
