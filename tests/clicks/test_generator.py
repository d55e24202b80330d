"""Generated logs: clicked as in their world, exact in their propensities, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import compare, fit, generate, read
from bothworlds.clicks.generator import draw
from bothworlds.worlds import Attack, Attacked, cascade, dependent_clicks, periodic, stochastic
from tests.clicks.written import count_pages, counts
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


@pytest.mark.slow
def test_items_are_at_positions_as_often_as_their_propensity(tmp_path):
    log = read(generate(tmp_path / "log.parquet", WORLD, 40_000))
    assert np.abs(log.counts().shown - 10_000).max() < 5 * np.sqrt(40_000 * 0.25 * 0.75)
    assert log.database.connection.sql("SELECT DISTINCT propensity FROM rows").fetchall() == [(0.25,)]


def test_a_world_that_changes_is_followed(tmp_path):
    without_clicks, with_clicks = stochastic([0.0, 0.0], [1.0]), stochastic([1.0, 1.0], [1.0])
    path = generate(tmp_path / "log.csv", periodic([without_clicks, with_clicks], 30), 120)
    clicked = read(path).database.connection.sql("SELECT click FROM rows ORDER BY event::INTEGER").fetchall()
    assert [click for (click,) in clicked] == ([0] * 30 + [1] * 30) * 2


ATTRACTION = np.array([0.7, 0.55, 0.4, 0.3, 0.2, 0.1])
DEPENDENT = dependent_clicks(ATTRACTION, [0.7, 0.4, 0.2])


class InPlainPython:
    """The same users in plain Python."""

    n_items, n_positions = 6, 3

    def expected_reward(self, t, ranking):
        return DEPENDENT.expected_reward(t, ranking)

    def click(self, t, ranking, rng):
        return DEPENDENT.click(t, ranking, rng)


class Independent(InPlainPython):
    """Users who click at every position as often as those of the cascade, and forget it at the next one."""

    def click(self, t, ranking, rng):
        examined, clicks = 1.0, np.zeros(3)
        for k, (alpha, goes_on) in enumerate(zip(ATTRACTION[ranking], [0.7, 0.4, 0.2])):
            clicks[k] = rng.random() < examined * alpha
            examined *= 1.0 - alpha + goes_on * alpha
        return clicks


@pytest.mark.slow
@pytest.mark.parametrize(("world", "chosen"), [(DEPENDENT, True), (Independent(), False)])
def test_the_model_of_a_world_whose_clicks_depend_on_each_other_is_chosen(tmp_path, world, chosen):
    log = generate(tmp_path / "log.parquet", world, 6_000, queries=2)
    result = compare(log, ["pbm", "cascade", "dcm", "item-ctr"], priors=(0.0, 1.0))
    assert (result.best.model == "dcm") is chosen


@pytest.mark.slow
def test_a_model_of_dependent_clicks_is_found_again_in_a_log_of_its_world(tmp_path):
    first = fit(generate(tmp_path / "log.csv", DEPENDENT, 20_000), "dcm")
    assert np.abs(first.attraction - ATTRACTION).max() < 0.05
    first.save(tmp_path / "dcm.json")
    second = fit(generate(tmp_path / "again.csv", str(tmp_path / "dcm.json"), 20_000, seed=1), "dcm")
    assert np.abs(second.attraction - first.attraction).max() < 0.05
    assert np.abs(second.attraction - first.attraction[::-1]).max() > 0.3


def test_users_in_plain_python_and_compiled_ones_make_one_log(tmp_path):
    compiled, plain = (generate(tmp_path / f"{k}.csv", w, 300) for k, w in enumerate([DEPENDENT, InPlainPython()]))
    assert compiled.read_bytes() == plain.read_bytes()


def test_a_world_of_lists_that_changes_is_followed(tmp_path):
    nobody, everybody = cascade([0.0, 0.0], 1), cascade([1.0, 1.0], 1)
    path = generate(tmp_path / "log.csv", periodic([nobody, everybody], 30), 120)
    clicked = read(path).database.connection.sql("SELECT click FROM rows ORDER BY event::INTEGER").fetchall()
    assert [click for (click,) in clicked] == ([0] * 30 + [1] * 30) * 2


def test_the_log_of_an_attacked_world_has_the_clicks_of_its_users(tmp_path):
    for k, world in enumerate([WORLD, DEPENDENT]):
        attacked = Attacked(world, Attack("promote", target=1))
        one, other = generate(tmp_path / f"{k}.csv", world, 100), generate(tmp_path / f"{k}a.csv", attacked, 100)
        assert one.read_bytes() == other.read_bytes()


def test_every_query_has_items_of_its_own_in_its_own_order(tmp_path):
    counted = counts(generate(tmp_path / "log.parquet", WORLD, 40_000, queries=3))
    assert counted.queries == ("1", "2", "3")
    assert len(counted.items) == 12
    first = counted.position == 0
    by_query = [(counted.clicked / counted.shown)[first & (counted.query == q)] for q in range(3)]
    assert all(np.abs(np.sort(rates) - [0.1, 0.3, 0.5, 0.9]).max() < 0.05 for rates in by_query)


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.ndjson"])
def test_a_seed_fixes_every_byte(tmp_path, name):
    one = generate(tmp_path / name, WORLD, 50, seed=3).read_bytes()
    assert generate(tmp_path / name, WORLD, 50, seed=3).read_bytes() == one
    assert generate(tmp_path / name, WORLD, 50, seed=4).read_bytes() != one


@pytest.mark.parametrize("world", [WORLD, DEPENDENT])
def test_the_size_of_batches_does_not_change_the_log(tmp_path, monkeypatch, world):
    one = generate(tmp_path / "one.csv", world, 1000, queries=2).read_bytes()
    monkeypatch.setattr("bothworlds.clicks.generator.BATCH", 77)
    assert generate(tmp_path / "two.csv", world, 1000, queries=2).read_bytes() == one


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
    path = tmp_path / "log.csv"
    message = answer("generate", path, "--world", "paper/stochastic:gap=0.01", "--pages", "200", "--queries", "2")
    assert "200 pages" in message
    assert counts(path).pages == 200


def test_the_command_writes_logs_of_worlds_whose_clicks_depend_on_each_other(tmp_path):
    path = tmp_path / "log.csv"
    assert "50 pages" in answer("generate", path, "--world", "cascade/yandex", "--pages", "50")
    pages = count_pages(path)
    assert pages.pages == 50
    assert np.add.reduceat(pages.click, pages.starts[:-1]).max() == 1  # users leave with their first click


def test_the_command_refuses_in_one_line(tmp_path):
    result = run("generate", tmp_path / "log.doc")
    assert result.exit_code == 2
    assert result.output.startswith("bothworlds: log.doc must end in one of")
