"""Generated logs: clicked as in their world, exact in their propensities, the same for the same seed."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from bothworlds.clicks import counts, generate, read
from bothworlds.clicks.generator import draw
from bothworlds.worlds import periodic, stochastic
from tests.commands import answer, run

WORLD = stochastic([0.9, 0.5, 0.3, 0.1], [1.0, 0.6])


def rates(counted):
    """(n_items, n_positions) click rates, of one query."""
    table = np.zeros((len(counted.items), len(counted.positions)))
    table[counted.item, counted.position] = counted.clicked / counted.shown
    return table


def close(found, truth, shown):
    """Whether click rates are within five standard errors of the truth."""
    return bool((np.abs(found - truth) < 5 * np.sqrt(truth * (1 - truth) / shown) + 1e-9).all())


def test_click_rates_are_those_of_the_world(tmp_path):
    counted = counts(generate(tmp_path / "log.parquet", WORLD, 40_000))
    assert close(rates(counted), WORLD.click_probabilities(0), counted.shown.min())
    assert not close(rates(counted), WORLD.click_probabilities(0) * 0.9, counted.shown.min())


def test_items_are_at_positions_as_often_as_their_propensity(tmp_path):
    log = read(generate(tmp_path / "log.parquet", WORLD, 40_000))
    assert np.abs(counts(log).shown - 10_000).max() < 5 * np.sqrt(40_000 * 0.25 * 0.75)
    with duckdb.connect() as connection:
        assert log.rows(connection).project("propensity").distinct().fetchall() == [(0.25,)]


def test_a_world_that_changes_is_followed(tmp_path):
    without_clicks, with_clicks = stochastic([0.0, 0.0], [1.0]), stochastic([1.0, 1.0], [1.0])
    path = generate(tmp_path / "log.csv", periodic([without_clicks, with_clicks], 30), 120)
    with duckdb.connect() as connection:
        clicked = read(path).rows(connection).order("event::INTEGER").project("click").fetchall()
    assert [click for (click,) in clicked] == ([0] * 30 + [1] * 30) * 2


def test_every_query_has_items_of_its_own_in_its_own_order(tmp_path):
    counted = counts(generate(tmp_path / "log.parquet", WORLD, 40_000, queries=3))
    assert counted.queries == ("1", "2", "3")
    assert len(counted.items) == 12
    first = counted.position == 0
    by_query = [(counted.clicked / counted.shown)[first & (counted.query == q)] for q in range(3)]
    assert all(np.abs(np.sort(rates) - [0.1, 0.3, 0.5, 0.9]).max() < 0.05 for rates in by_query)


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.tsv", "log.ndjson"])
def test_a_seed_fixes_every_byte(tmp_path, name):
    one = generate(tmp_path / name, WORLD, 50, seed=3).read_bytes()
    assert generate(tmp_path / name, WORLD, 50, seed=3).read_bytes() == one
    assert generate(tmp_path / name, WORLD, 50, seed=4).read_bytes() != one


def test_the_size_of_batches_does_not_change_the_log(tmp_path, monkeypatch):
    one = generate(tmp_path / "one.tsv", WORLD, 1000).read_bytes()
    monkeypatch.setattr("bothworlds.clicks.generator.BATCH", 77)
    assert generate(tmp_path / "two.tsv", WORLD, 1000).read_bytes() == one


def test_an_error_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    path = generate(tmp_path / "log.csv", WORLD, 10)
    before = path.read_bytes()

    def interrupted(*arguments):
        yield next(draw(*arguments))
        raise ZeroDivisionError

    monkeypatch.setattr("bothworlds.clicks.generator.draw", interrupted)
    with pytest.raises(ZeroDivisionError):
        generate(path, WORLD, 99)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("log.xls", {}, "must end in one of .csv"),
        ("log.parquet.gz", {}, "compressed already"),
        ("log.csv", {"format": "relpred"}, "the format relpred is text"),
        ("log.csv", {"format": "nonsense"}, "there is no format 'nonsense'"),
        ("log.csv", {"pages": 0}, "pages must be a whole number of at least 1"),
        ("log.csv", {"queries": 0}, "queries must be a whole number of at least 1"),
        ("log.csv", {"pages": 2.5}, "pages must be a whole number of at least 1"),
        ("log.csv", {"seed": "x"}, "seed must be a whole number of at least 0"),
    ],
)
def test_invalid_endings_and_options_are_refused(tmp_path, name, options, message):
    with pytest.raises(ValueError, match=message):
        generate(tmp_path / name, WORLD, **{"pages": 10, **options})
    assert not list(tmp_path.iterdir())


def test_the_command_writes_a_log_that_can_be_counted(tmp_path):
    path = tmp_path / "log.csv.zst"
    message = answer("generate", path, "--world", "paper/stochastic:gap=0.01", "--pages", "200", "--queries", "2")
    assert "200 pages" in message
    assert counts(path).pages == 200


def test_the_command_refuses_in_one_line(tmp_path):
    result = run("generate", tmp_path / "log.doc")
    assert result.exit_code == 2
    assert result.output.startswith("bothworlds: log.doc must end in one of")
