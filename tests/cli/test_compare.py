"""``bothworlds compare``, and ``bothworlds fit --model``: what they print, draw and write."""

from __future__ import annotations

import json

import pytest

from bothworlds.clicks import fit, generate, load_model
from bothworlds.clicks.model.model import MODELS
from tests.commands import answer, run

QUICK = ("--priors", "0,1")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("logs") / "log.parquet", "paper/stochastic", 1_500)


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


@pytest.mark.slow
def test_it_prints_a_table_a_sentence_and_the_rules(log, tmp_path):
    text = answer("compare", log, *QUICK, "--plot", tmp_path / "models.svg", "--out", tmp_path / "models.json")
    rows = [line for line in text.splitlines() if any(f" {name} " in line.replace("│", " ") for name in MODELS)]
    assert len(rows) >= len(MODELS)
    assert "describes these users" in text
    assert "Split: the pages of every query at random, seed 0" in text
    assert len(json.loads((tmp_path / "models.json").read_text())["models"]) == len(MODELS)
    assert (tmp_path / "models.svg").stat().st_size > 1_000


@pytest.mark.slow
def test_models_and_reference_are_chosen(log):
    text = answer("compare", log, *QUICK, "--models", "item-ctr, rank-ctr", "--reference", "rank-ctr")
    assert "rank-ctr" in text
    assert "more" in text
    assert "pbm" not in text.split("Split")[0]


@pytest.mark.slow
def test_bad_options_are_one_line(log, tmp_path):
    assert "there is no click model 'x'" in refused("compare", log, "--models", "x")
    assert "--priors is written like" in refused("compare", log, "--priors", "a")
    assert "must end in .json" in refused("compare", log, "--out", tmp_path / "out.txt")
    table = tmp_path / "counts.csv"
    table.write_text("item,position,impressions,clicks\na,1,9,3\n")
    assert "needs whole pages" in refused("compare", table)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_fitted_printed_drawn_and_saved(log, tmp_path, name):
    out, plot = tmp_path / "model.json", tmp_path / "model.svg"
    text = answer("fit", log, "--model", name, "--out", out, "--plot", plot, "--top", 3)
    model = fit(log, name)
    assert model.title in text
    assert f"log-likelihood {model.log_likelihood:,.2f}" in text
    assert load_model(out).log_likelihood == model.log_likelihood
    assert plot.stat().st_size > 1_000


@pytest.mark.slow
def test_options_that_a_model_lacks_are_refused(log):
    assert "there is no click model 'abc'" in refused("fit", log, "--model", "abc")
    assert "method must be newton" in refused("fit", log, "--model", "ubm", "--method", "em")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["trust", "dbn"])
def test_a_fitted_model_is_a_world(log, tmp_path, model):
    path = tmp_path / f"{model}.json"
    answer("fit", log, "--model", model, "--out", path)
    assert f"fitted {model}" in answer("play", "--world", path, "--policy", "uniform", "--rounds", 100)
