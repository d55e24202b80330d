"""Comparing models: the split, the winner on logs of known users, intervals, and what is said."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bothworlds.arena.figures import drawing
from bothworlds.clicks import Counts, Pages, compare
from bothworlds.clicks.comparison import split_pages
from bothworlds.clicks.figures import draw_differences, draw_perplexities
from tests.clicks.page_logs import simulated

QUICK = {"priors": (0.0, 1.0), "progress": False}


@pytest.fixture(scope="module")
def comparison():
    return compare(simulated("ubm", 3_000, n=6, m=4, queries=3, seed=1), **QUICK)


@pytest.mark.parametrize("count", [6, 100, 999])
def test_a_few_pages_are_too_few_to_say_which_model_is_best(count):
    few = compare(simulated("pbm", count, n=6, m=4, seed=5), **QUICK)
    assert few.sentence() == (
        f"{count} pages are too few to say which model describes these users; it takes about 1,000."
    )


def test_one_test_page_has_no_interval():
    found = compare(simulated("pbm", 6, n=6, m=4, seed=5), **QUICK)
    assert found.sizes[2] == 1
    for gap in found.differences.values():
        assert np.isnan(gap.pages).all()
    assert np.isfinite(
        compare(simulated("pbm", 10, n=6, m=4, seed=5), **QUICK).differences[found.best.model].pages
    ).all()


def test_the_split_is_by_pages_within_queries():
    pages = simulated("pbm", 1_000, queries=3, seed=2)
    split = split_pages(pages, seed=0)
    of_query = np.array([np.bincount(part.query, part.count, 3) for part in split])
    whole = np.bincount(pages.query, pages.count, 3)
    np.testing.assert_array_equal(of_query.sum(axis=0), whole)
    np.testing.assert_array_equal(of_query[1:], np.floor(0.2 * whole + 1e-9)[None].repeat(2, axis=0))
    shown = sum(part.counts().shown.sum() for part in split)
    assert shown == pages.counts().shown.sum()


def test_a_seed_fixes_the_split_and_another_changes_it():
    pages = simulated("pbm", 500, seed=2)
    one, again, other = (split_pages(pages, seed)[2] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.count, again.count)
    assert not np.array_equal(one.item, other.item)


def test_the_parts_of_a_split_have_the_distribution_of_the_whole():
    """Every page is in the test part with the same probability: counts are hypergeometric."""
    pages = Pages.from_arrays([["a"], ["a"]], [[0], [1]], count=[700, 300])
    drawn = [clicks(pages, seed) for seed in range(200)]
    spread = np.sqrt(200 * 0.3 * 0.7 * (1000 - 200) / 999)
    assert abs(np.mean(drawn) - 60.0) < 5.0 * spread / np.sqrt(200)
    assert np.std(drawn) == pytest.approx(spread, rel=0.3)


def clicks(pages, seed):
    test = split_pages(pages, seed)[2]
    return test.click @ test.count


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ubm", "dbn", "pbm", "cascade"])
def test_the_true_model_is_first_or_cannot_be_told_from_the_first(name):
    result = compare(simulated(name, 6_000, n=6, m=4, seed=3), reference=name, **QUICK)
    best = result.differences[result.best.model]
    assert result.best.model == name or best.pages[0] < 0.0
    # A model that is wrong for these users is beyond chance.
    wrong = "pbm" if name != "pbm" else "dcm"
    assert result.differences[wrong].pages[1] < 0.0


@pytest.mark.slow
def test_intervals_are_paired_and_cover_the_difference(comparison):
    for entry in comparison.entries:
        gap = comparison.differences[entry.model]
        assert gap.pages[0] <= gap.mean <= gap.pages[1]
        assert gap.mean == pytest.approx(entry.score.log_likelihood - comparison["pbm"].score.log_likelihood)
    # The twin that forgets the pairing has a wider interval.
    ubm, pbm = comparison["ubm"].score, comparison["pbm"].score
    total = ubm.count.sum()
    errors = [np.sqrt(np.cov(one.log_likelihoods, fweights=one.count) / total) for one in (ubm, pbm)]
    paired = comparison.differences["ubm"].pages
    assert paired[1] - paired[0] < 0.9 * 2.0 * 1.96 * np.hypot(*errors)


def test_it_says_which_model_is_best_and_how_it_was_found(comparison):
    assert comparison.best.model == "ubm"
    assert "user browsing model (ubm) describes these users best" in comparison.sentence()
    assert "What pbm misses" in comparison.sentence()
    assert "seed 0" in comparison.rules()
    assert f"{comparison.sizes[2]:,} for the test" in comparison.rules()
    assert "ubm" in repr(comparison).splitlines()[1]


@pytest.mark.slow
def test_models_that_chance_may_have_put_first_are_not_called_better():
    pages = simulated("pbm", 2_000, n=6, m=4, seed=5)
    result = compare(pages, ["pbm", "trust"], **QUICK)
    assert abs(result.differences["trust"].mean) < 0.01
    if result.best.model == "trust":
        assert "No model describes these users better than pbm" in result.sentence()
    else:
        assert "trust cannot be distinguished from it" in result.sentence()
    assert compare(pages, ["pbm", "rank-ctr"], **QUICK).sentence().startswith("The position-based model (pbm)")
    assert "no other model was compared" in compare(pages, "pbm", **QUICK).sentence()


def test_the_prior_is_chosen_on_validation_pages():
    pages = simulated("pbm", 400, n=30, m=4, seed=6)
    each = {
        prior: compare(pages, ["item-ctr"], priors=(prior,), progress=False).best.validation
        for prior in (0.0, 1.0, 1000.0)
    }
    chosen = compare(pages, ["item-ctr"], priors=(0.0, 1.0, 1000.0), progress=False).best
    assert chosen.prior == max(each, key=each.get)
    assert chosen.validation == max(each.values())


@pytest.mark.slow
def test_results_are_saved_and_drawn(comparison, tmp_path):
    document = json.loads(comparison.save(tmp_path / "out.json").read_text())
    assert [row["model"] for row in document["models"]] == [entry.model for entry in comparison.entries]
    assert [len(row["perplexities"]) for row in document["models"]] == [4] * len(comparison.entries)
    with drawing(tmp_path / "out.svg", across=2) as panels:
        draw_differences(panels[0, 0], comparison)
        draw_perplexities(panels[0, 1], comparison)
    assert "ubm" in (tmp_path / "out.svg").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ["nothing"]}, "there is no click model 'nothing'"),
        ({"reference": "nothing"}, "there is no click model 'nothing'"),
        ({"models": []}, "models is empty"),
        ({"priors": ()}, "priors must be numbers"),
        ({"priors": (-1.0,)}, "priors must be numbers"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        compare(simulated("pbm", 50), **options)


def test_too_few_pages_are_refused():
    with pytest.raises(ValueError, match="3 pages are too few"):
        compare(Pages.from_arrays([["a", "b"]] * 3, [[1, 0]] * 3))


def test_a_log_without_pages_is_refused():
    with pytest.raises(ValueError, match="needs whole pages"):
        compare(Counts.from_tables([[9, 9]], [[3, 2]]))
