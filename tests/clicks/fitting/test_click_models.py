"""Fits of all click models: maxima, nested models, recovery of the truth, and what a log does not determine."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import Counts, Pages, fit, read, score
from bothworlds.clicks.fitting import log_linear
from bothworlds.clicks.fitting.box import maximise
from bothworlds.clicks.fitting.chain import chain_likelihood
from bothworlds.clicks.fitting.design import design_of_pages, last_clicks_of, positions_of
from bothworlds.clicks.model.model import MODELS
from bothworlds.statistics.click_users import make_users, simulate
from tests.clicks.page_logs import simulated, truth
from tests.clicks.real import real_file
from tests.reference.position_based import maximum

OTHERS = [name for name in MODELS if name != "pbm"]
ITERATED = ("dcm", "sdbn", "dbn", "ccm")
NESTED = (
    ("pbm", "ubm"),
    ("pbm", "trust"),
    ("sdbn", "dbn"),
    ("rank-ctr", "pbm"),
    ("item-ctr", "pbm"),
)


@pytest.fixture(scope="module", params=["ubm", "dbn", "trust"])
def log(request):
    return simulated(request.param, 1_500, n=6, m=4, queries=2, seed=3)


def likelihoods(pages, names):
    return {name: fit(pages, name).log_likelihood for name in names}


def test_training_likelihoods_of_nested_models_are_ordered(log):
    found = likelihoods(log, {name for pair in NESTED for name in pair})
    for smaller, larger in NESTED:
        assert found[smaller] <= found[larger] + 1e-6, (smaller, larger)


@pytest.mark.parametrize("name", ["dcm", "sdbn"])
def test_the_cascade_model_is_nested_where_pages_have_one_click(name):
    pages = simulated("cascade", 1_500, seed=4)
    assert fit(pages, "cascade").log_likelihood <= fit(pages, name).log_likelihood + 1e-6


@pytest.mark.parametrize("name", MODELS)
def test_the_likelihood_is_that_of_the_predictions(log, name):
    model = fit(log, name)
    predicted = score(model, log)
    assert predicted.log_likelihood * log.pages == pytest.approx(model.log_likelihood, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ubm", "cascade", "trust", *ITERATED])
def test_the_truth_is_recovered(name):
    """Standard scores of all parameters with intervals: none above 4.5, and their mean square near 1."""
    pages = simulated(name, 40_000, n=8, m=4, seed=6)
    model = fit(pages, name)
    assert model.converged
    assert model.identified
    items, shared = truth(name, 8, 4, 6)
    order = [int(item.split("-")[1]) for item in model.items]
    estimated = [*model.item_parameters.values(), *model.shared_parameters.values()]
    true = [part[order] for part in items]
    if name == "trust":
        high, low = shared
        true = [items[0][order] * high[0] + (1.0 - items[0][order]) * low[0]]
        slopes = (high - low) / (high[0] - low[0])
        shared = np.concatenate([slopes, low - slopes * low[0]])
    values = np.concatenate([one.value for one in estimated])
    errors = np.concatenate([one.error for one in estimated])
    scores = (values - np.concatenate([*true, shared]))[errors > 0.0] / errors[errors > 0.0]
    assert scores.size >= 8
    assert np.abs(scores).max() < 4.5
    assert 0.3 < np.mean(scores**2) < 2.5


@pytest.mark.parametrize("name", ITERATED)
def test_starts_agree_and_the_fit_says_so(name):
    model = fit(simulated("dbn", 2_000, seed=7), name)
    assert len(model.starts) == 2
    assert model.starts[0] == pytest.approx(model.starts[1], abs=1e-5)
    assert 0.0 <= model.gain < 1e-5


@pytest.mark.parametrize("name", ITERATED)
def test_no_neighbour_of_the_maximum_is_higher(name):
    pages = simulated("dbn", 2_000, n=6, seed=8)
    model = fit(pages, name, intervals=False)
    plain = chain_likelihood(pages, design_of_pages(pages, [positions_of(pages)]), name)
    parts = [*model.item_parameters.values(), *model.shared_parameters.values()]
    best, rng = np.nan_to_num(np.concatenate([one.value for one in parts]), nan=0.5), np.random.default_rng(7)
    value = plain.expect(best).value
    assert value == pytest.approx(model.log_likelihood, abs=1e-9)
    for _ in range(50):
        assert plain.expect(np.clip(best + rng.normal(0.0, 1e-3, best.size), 1e-9, 1.0 - 1e-9)).value < value


@pytest.mark.parametrize("name", OTHERS)
def test_names_do_not_matter(name):
    pages = simulated("ubm", 800, n=5, m=3, seed=9)
    renamed = Pages(
        tuple(f"{99 - k}" for k in range(5)), *(getattr(pages, part) for part in (
            "queries", "positions", "query", "starts", "item", "position", "click", "count"
        ))
    )  # fmt: skip
    one, other = fit(pages, name), fit(renamed, name)
    assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-5)
    for parameter, estimates in one.item_parameters.items():
        np.testing.assert_allclose(estimates.value, other.item_parameters[parameter].value, atol=1e-4)


# What a log does not determine


def test_the_last_rank_says_nothing_of_going_on():
    model = fit(simulated("dcm", 2_000, seed=1), "dcm")
    assert np.isnan(model.shared("continuation")[-1])
    assert not np.isnan(model.shared("continuation")[:-1]).any()


def test_an_item_without_clicks_has_attraction_zero_and_no_satisfaction():
    lists = [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]] * 20
    clicks = [[1, 0, 0], [0, 0, 1], [0, 1, 0]] * 10 + [[0, 0, 0]] * 30
    clicks[0], clicks[1] = [1, 1, 0], [1, 0, 1]
    pages = Pages.from_arrays(lists, clicks)
    for name in ("sdbn", "dbn"):
        model = fit(pages, name)
        never = model.items.index("c")
        assert model.attraction[never] == 0.0
        assert np.isnan(model.satisfaction[never])
        row = model.table()[never]
        assert row["low"] == 0.0 < row["high"] <= 1.0
        # With a prior there is still nothing known of its satisfaction.
        assert np.isnan(fit(pages, name, prior=1.0).satisfaction[never])


def test_an_item_below_first_clicks_has_no_cascade_estimate():
    pages = Pages.from_arrays([["a", "b"]] * 5, [[1, 0]] * 5)
    model = fit(pages, "cascade")
    assert model.attraction[0] == 1.0
    assert np.isnan(model.attraction[1])


def test_one_fixed_list_does_not_identify_what_it_cannot():
    pages = Pages.from_arrays([["a", "b"]] * 60, [[1, 0]] * 30 + [[0, 1]] * 20 + [[0, 0]] * 10)
    assert not fit(pages, "ubm").identified
    assert not fit(pages, "trust").identified
    with pytest.raises(ValueError, match="not identified"):
        fit(pages, "trust").world()


def attraction_in_logs(count):
    """Errors of attraction, and whether intervals have the truth, in logs with four equal columns of the ubm."""
    errors, covered = [], []
    for seed in range(count):
        model = fit(simulated("ubm", 1_000, n=5, m=4, seed=seed), "ubm")
        alpha, found = truth("ubm", 5, 4, seed)[0][0], model.item_parameters["attraction"]
        errors.append(found.value - alpha)
        covered.append((found.low <= alpha) & (alpha <= found.high))
    return np.mean(errors), np.mean(covered)


def check_attraction_of_the_ubm():
    """Limits of four standard errors, with the correlation of the attraction of one log."""
    bias, coverage = attraction_in_logs(60)
    assert abs(bias) < 0.012
    assert coverage > 0.92


@pytest.mark.slow
def test_attraction_of_the_ubm_is_unbiased_where_columns_are_equal():
    check_attraction_of_the_ubm()
    first = fit(simulated("ubm", 1_000, n=5, m=4), "ubm").shared_parameters["examination"]
    assert (first.value[0], first.error[0]) == (1.0, 0.0)


@pytest.mark.slow
def test_attraction_for_the_largest_examination_is_caught(monkeypatch):
    """The broken twin: the largest of several estimates is above the largest examination."""
    anchors = log_linear._anchors
    monkeypatch.setattr(log_linear, "_anchors", lambda component, effect, first: anchors(component, effect, False))
    with pytest.raises(AssertionError):
        check_attraction_of_the_ubm()


def test_a_ubm_with_examination_above_that_of_the_first_position_has_probabilities_and_a_world():
    """Users who examine what follows a click more often than the first position."""
    rng, gamma = np.random.default_rng(0), np.array([0.5, 0.5, 0.9])
    lists = np.argsort(rng.random((20_000, 3)), axis=1)[:, :2]
    clicks = np.zeros(lists.size, np.uint8)
    alpha = np.array([0.95, 0.6, 0.3])
    starts = np.arange(20_001) * 2
    users = make_users(alpha, 2, examination=gamma)
    simulate(users, rng, starts, lists.ravel(), np.tile([0, 1], 20_000), clicks)
    pages = Pages.from_arrays(lists, clicks.reshape(-1, 2))
    model = fit(pages, "ubm")
    assert model.shared("examination")[2] == pytest.approx(1.8, rel=0.1)
    assert model.attraction == pytest.approx(0.5 * alpha, rel=0.1)
    assert score(model, pages).log_likelihood * pages.pages == pytest.approx(model.log_likelihood)
    world = model.world()
    best = world.expected_reward(0, np.array([0, 1]))
    assert best == pytest.approx(0.95 * 0.5 + 0.6 * (0.95 * 0.5 * 0.9 + (1 - 0.95 * 0.5) * 0.5), rel=0.05)


def test_unseen_columns_have_no_examination():
    pages = Pages.from_arrays([["a", "b", "c"], ["b", "c", "a"]] * 30, [[1, 0, 0], [0, 0, 1]] * 20 + [[0, 0, 0]] * 20)
    model = fit(pages, "ubm")
    unseen = model.labels["examination"].index("3 after 2")
    assert np.isnan(model.shared("examination")[unseen])
    assert any("never seen" in warning for warning in model.warnings)


# Special cases


def test_with_satisfaction_one_sdbn_is_the_cascade_model():
    pages = simulated("cascade", 3_000, seed=2)
    model, cascade = fit(pages, "sdbn"), fit(pages, "cascade")
    known = ~np.isnan(model.satisfaction)
    assert known.any()
    np.testing.assert_allclose(model.satisfaction[known], 1.0)
    np.testing.assert_allclose(model.attraction, cascade.attraction, atol=1e-6)


def test_where_every_item_is_examined_going_on_is_certain():
    """Clicks at rates of items: continuation is near 1."""
    rng = np.random.default_rng(0)
    lists = np.argsort(rng.random((4_000, 6)), axis=1)[:, :4]
    clicks = rng.random(lists.shape) < np.linspace(0.1, 0.6, 6)[lists]
    pages = Pages.from_arrays(lists, clicks)
    assert fit(pages, "dcm").shared("continuation")[:-1].min() > 0.9


@pytest.mark.slow
def test_a_chain_cut_short_has_the_same_parameters():
    pages = simulated("dbn", 40_000, n=8, m=4, seed=6)
    short = pages.position < 3
    lengths = np.bincount(pages.of_page()[short], minlength=len(pages))
    cut = Pages(
        pages.items, pages.queries, pages.positions[:3], pages.query, np.concatenate([[0], np.cumsum(lengths)]),
        pages.item[short], pages.position[short], pages.click[short], pages.count,
    )  # fmt: skip
    whole, part = fit(pages, "dbn"), fit(cut, "dbn")
    error = np.hypot(*(model.shared_parameters["gamma"].error for model in (whole, part)))
    assert abs(whole.shared("gamma") - part.shared("gamma")) < 4.0 * error


@pytest.mark.slow
def test_shuffled_clicks_leave_no_trace_of_the_last_click():
    """Clicks that are exchanged between pages of one list: examination no longer depends on the last click."""
    rng = np.random.default_rng(1)
    clicks = rng.random((20_000, 3)) < [0.5, 0.4, 0.3]
    lists = np.array([["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]])[rng.integers(3, size=20_000)]
    independent, position_based = (
        fit(Pages.from_arrays(lists, clicks), "ubm"),
        fit(Pages.from_arrays(lists, clicks).counts()),
    )
    # Twice the difference is chi-square with 6 - 3 degrees of freedom; 21 is its quantile of one in ten thousand.
    assert 0.0 <= 2.0 * (independent.log_likelihood - position_based.log_likelihood) < 21.0
    dependent = clicks.copy()
    dependent[:, 1] &= ~clicks[:, 0]
    pages = Pages.from_arrays(lists, dependent)
    assert 2.0 * (fit(pages, "ubm").log_likelihood - fit(pages.counts()).log_likelihood) > 100.0


@pytest.mark.parametrize("name", OTHERS)
def test_a_strong_prior_pulls_to_the_mean_rate(name):
    pages = simulated("ubm", 300, n=5, m=3, seed=2)
    model = fit(pages, name, prior=1e7)
    rate = pages.counts().clicked.sum() / pages.counts().shown.sum()
    predicted = score(model, pages)
    weak = score(fit(pages, name), pages)
    assert predicted.log_likelihood <= weak.log_likelihood + 1e-9
    if name in ("cascade", *ITERATED):
        np.testing.assert_allclose(model.attraction, rate, atol=1e-3)
    elif name in ("rank-ctr", "item-ctr"):
        parameters = {**model.item_parameters, **model.shared_parameters}
        np.testing.assert_allclose(parameters["rate"].value, rate, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.9, 1.0])
def test_logs_with_hardly_any_clicks_or_skips_are_fitted(rate):
    """Maxima at the bounds: no warnings of NumPy, likelihood as predicted."""
    for m in (1, 2, 3):
        rng = np.random.default_rng(m)
        lists = np.array([rng.permutation(3)[:m] for _ in range(12)])
        pages = Pages.from_arrays(lists, rng.random(lists.shape) < rate)
        for name in OTHERS:
            for prior in (0.0, 0.5):
                model = fit(pages, name, prior=prior)
                assert model.converged, (name, m, prior)
                predicted = score(model, pages).log_likelihood * pages.pages
                expected = pytest.approx(model.log_likelihood, rel=1e-3, abs=1e-4)
                assert predicted == expected, (name, m, prior)


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "click"}, "there is no click model 'click'"),
        ({"model": "ubm", "method": "em"}, "method must be newton for the model ubm"),
        ({"model": "dcm", "method": "counts"}, "method must be newton for the model dcm"),
        ({"model": "ccm", "ordered": True}, "ordered examination is only for the model pbm"),
        ({"model": "ccm", "iterations": 3}, "iterations is only for method 'em'"),
        ({"model": "ccm", "prior": -1.0}, "prior must be a number"),
    ],
)
def test_options_of_other_models_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fit(simulated("ubm", 50), **options)


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.dependent])
def test_models_of_dependent_clicks_need_pages(name):
    with pytest.raises(ValueError, match="needs whole pages; these are counts"):
        fit(Counts.from_tables([[9, 9], [9, 9]], [[3, 1], [2, 1]]), name)
    with pytest.raises(ValueError, match="has no column event"):
        fit({"item": ["a"], "position": [1], "click": [1]}, name)


def test_without_intervals_there_are_none():
    model = fit(simulated("dbn", 300), "dbn", intervals=False)
    assert np.isnan(model.item_parameters["attraction"].low).all()


# Real pages


@pytest.mark.slow
def test_on_real_pages_no_other_optimiser_finds_more():
    pages = read(real_file("yandex/trainSample"), query="9_0", positions=5).pages()
    found = likelihoods(pages, MODELS)
    for smaller, larger in NESTED:
        assert found[smaller] <= found[larger] + 1e-6
    tables = np.zeros((2, len(pages.items), 15))
    design = design_of_pages(pages, [last_clicks_of(pages)])
    tables[:, design.row, design.columns[:, 0]] = design.shown, design.clicked
    assert found["ubm"] == pytest.approx(maximum(*tables, restarts=1)[2], abs=1e-3)
    for name in ITERATED:
        plain = chain_likelihood(pages, design_of_pages(pages, [positions_of(pages)]), name)
        start, free = np.full(plain.parameters, 0.3), np.zeros(plain.parameters, bool)
        other = maximise(plain.gradient, start, np.full(plain.parameters, 100.0), free)
        assert other.value - 1e-4 < found[name] < other.value + 1e-2
