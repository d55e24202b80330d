"""Fitting counts: the maximum, normalised parameters, and a model per query."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothworlds.clicks import Counts, fit
from bothworlds.clicks.fitting.fit import fit_each_query
from bothworlds.statistics.rank_one.fit import fit_newton
from tests.clicks.logs import generated
from tests.reference.position_based import maximum

SMALL = 1e-4  # nats: what the fit may lose to its distance from the edge


def tables(counts):
    shown, clicked = np.zeros((2, len(counts.items), len(counts.positions)))
    shown[counts.item, counts.position], clicked[counts.item, counts.position] = counts.shown, counts.clicked
    return shown, clicked


def products(model):
    return np.outer(model.attraction, model.examination)


def test_a_pair_of_tables_is_fitted():
    model = fit(Counts.from_tables([[1000, 1000], [1000, 0]], [[800, 400], [200, 0]]))
    np.testing.assert_allclose(products(model), [[0.8, 0.4], [0.2, 0.1]], rtol=1e-6)
    assert (model.items, model.queries, model.positions) == (("0", "1"), ("", ""), (1, 2))
    assert model.converged
    assert model.identified
    assert model.warnings == ()


def test_the_largest_examination_is_one_wherever_it_is():
    model = fit(generated(examination=[0.3, 0.9, 0.5, 0.1]))
    assert model.examination.argmax() == 1
    assert model.examination.max() == 1.0


@pytest.mark.slow
@given(st.integers(0, 10**6), st.sampled_from([1.0, 0.6]))
@settings(max_examples=25)
def test_no_other_optimiser_finds_more(seed, share):
    counts = generated(1, 5, 3, 8, seed=seed, share=share)
    if len(counts):
        model = fit(counts)
        assert model.log_likelihood >= maximum(*tables(counts))[2] - SMALL
        assert model.converged


def test_a_worse_curve_has_a_lower_likelihood():
    """The comparison with another optimiser can fail: three passes of EM are not enough for it."""
    counts = generated(1, 6, 4, 3000, examination=[1.0, 0.255, 0.0873, 0.0462])
    best = maximum(*tables(counts))[2]
    assert fit(counts, method="em", iterations=3).log_likelihood < best - 10 * SMALL


def test_one_query_is_fitted_like_its_table():
    counts = generated(seed=3)
    model, other = fit(counts), fit_newton(*tables(counts))
    np.testing.assert_allclose(products(model), products(other), rtol=1e-8)
    assert model.log_likelihood == pytest.approx(other.log_likelihood)


def test_em_and_newton_agree():
    counts = generated(4, seed=5)
    newton, em = fit(counts), fit(counts, method="em")
    assert em.converged
    assert em.iterations > 10 * newton.iterations
    np.testing.assert_allclose(em.attraction, newton.attraction, rtol=1e-5)
    assert np.isnan(em.item_parameters["attraction"].low).all()


def test_every_pass_of_em_increases_the_likelihood():
    counts = generated(examination=[1.0, 0.255, 0.0873, 0.0462])
    values = [fit(counts, method="em", iterations=k).log_likelihood for k in range(1, 60)]
    assert (np.diff(values) > -1e-9 * abs(values[0])).all()
    assert values[-1] - values[0] > 1.0
    assert fit(counts).log_likelihood > values[-1]


def test_em_makes_exactly_the_passes_it_is_asked_for():
    model = fit(generated(), method="em", iterations=7)
    assert (model.iterations, model.converged) == (7, False)
    assert "stopped after 7 passes" in model.warnings[0]


def test_a_prior_keeps_items_without_clicks_off_zero():
    counts = Counts.from_tables([[50, 50], [50, 50]], [[20, 10], [0, 0]])
    assert fit(counts).attraction[1] == 0.0
    model = fit(counts, prior=2.0)
    shown, clicked = tables(counts)
    np.testing.assert_allclose(products(model), products(fit_newton(shown + 2.0, clicked + 2.0 * 30 / 200)), rtol=1e-7)
    assert model.attraction[1] > 0.0


@pytest.mark.parametrize("options", [{}, {"method": "em"}, {"ordered": True}])
def test_a_strong_prior_pulls_to_the_mean_rate_of_the_log(options):
    counts = generated(3, 5, 4, 100)
    mean = counts.clicked.sum() / counts.shown.sum()
    assert fit(counts, prior=1e7, **options).attraction == pytest.approx(mean, rel=1e-3)


def test_a_prior_improves_predictions_for_rare_pairs(rng):
    rates = np.outer(rng.beta(1.0, 9.0, 200), [1.0, 0.6, 0.3])
    shown = rng.poisson(4.0, rates.shape) + 1
    clicked = rng.binomial(shown, rates)
    without, with_prior = (
        np.square(products(fit(Counts.from_tables(shown, clicked), prior=p)) - rates).mean() for p in (0.0, 1.0)
    )
    assert with_prior < 0.8 * without


# Counts that are many orders of magnitude apart. The first once ended 53,000 nats below its maximum.
STEEP = (
    ([[0, 10**7, 10, 1000, 1000], [1, 10**4, 1, 0, 1], [10**8, 10**5, 10**6, 0, 0]],
     [[0, 0, 0, 998, 1000], [1, 10**4, 1, 0, 0], [0, 99889, 0, 0, 0]]),
    ([[10**6, 10**7]], [[1, 0]]),
    ([[10**7], [1], [10**6]], [[10**7], [0], [1]]),
    ([[10, 10**8, 1, 10, 10], [1000, 10**6, 1, 0, 0]], [[10, 0, 0, 10, 10], [0, 2, 1, 0, 0]]),
)  # fmt: skip


@pytest.mark.parametrize("steep", STEEP)
def test_counts_of_all_sizes_have_a_maximum_and_it_is_found(steep):
    counts = Counts.from_tables(*steep)
    model, em = fit(counts), fit(counts, method="em", iterations=5000)
    assert model.converged
    assert model.log_likelihood >= em.log_likelihood - 1e-3


def test_em_sets_items_without_clicks_to_zero_as_newton_does():
    tables = Counts.from_tables([[50, 50, 50], [50, 50, 50], [0, 50, 50]], [[20, 10, 0], [0, 0, 0], [0, 5, 0]])
    em = fit(tables, method="em")
    assert em.attraction[1] == em.examination[2] == 0.0
    assert fit(tables, method="em", iterations=3).attraction[1] > 0.0
    assert fit(tables, method="em", prior=0.1).attraction[1] > 0.0


def test_ordered_examination_does_not_rise():
    counts = generated(examination=[0.3, 0.9, 0.5, 0.1])
    model = fit(counts, ordered=True)
    assert model.examination[:2].tolist() == [1.0, 1.0]
    np.testing.assert_allclose(products(model), products(fit_newton(*tables(counts), ordered=True)), rtol=1e-7)
    assert model.log_likelihood < fit(counts).log_likelihood


# Many queries


def test_a_shared_curve_weighs_all_queries():
    counts = generated(30, 5, 4, 100, seed=1)
    model = fit(counts)
    assert len(model.items) == len(model.queries) == 150
    assert model.queries[:6] == ("query0",) * 5 + ("query1",)
    np.testing.assert_allclose(model.examination, 1.0 / np.arange(1, 5), atol=0.03)
    wide = np.zeros((2, 150, 4))
    row = counts.query * 5 + counts.item
    wide[:, row, counts.position] = counts.shown, counts.clicked
    assert model.log_likelihood == pytest.approx(fit_newton(*wide).log_likelihood)


@pytest.mark.parametrize("method", ["newton", "em"])
def test_a_model_per_query_is_fitted_to_its_counts_alone(method):
    counts = generated(6, 4, 3, 60, seed=2, share=0.8)
    models = fit_each_query(counts, method=method)
    assert list(models) == list(counts.queries)
    for q in (0, 5):
        mine = counts.query == q
        part = [getattr(counts, name)[mine] for name in ("item", "position", "shown", "clicked")]
        names = counts.items, (counts.queries[q],), counts.positions
        alone = fit(Counts(*names, np.zeros(mine.sum(), int), *part), method=method)
        model = models[counts.queries[q]]
        order = [alone.items.index(item) for item in model.items]
        np.testing.assert_allclose(model.attraction, alone.attraction[order], rtol=1e-9)
        np.testing.assert_allclose(model.examination, alone.examination, rtol=1e-9)
    total = sum(model.log_likelihood for model in models.values())
    assert total > fit(counts, method=method).log_likelihood


@pytest.mark.parametrize("impressions", [1, 30])
def test_pairs_that_were_never_shown_change_nothing(impressions):
    counts = generated(1, 400, 20, impressions, seed=6, share=0.15)
    model, other = fit(counts), fit_newton(*tables(counts))
    assert model.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-5)
    np.testing.assert_allclose(products(model), products(other), atol=1e-5)
    assert model.identified
    assert model.converged


# Invalid options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "svd"}, "method must be"),
        ({"iterations": 5}, "only for method 'em'"),
        ({"method": "em", "iterations": 0}, "at least 1"),
        ({"method": "em", "ordered": True}, "the method 'newton'"),
        ({"prior": -1.0}, "prior must be"),
        ({"prior": None}, "prior must be"),
        ({"method": "em", "iterations": True}, "iterations must be a whole number of at least 1"),
        ({"seed": "x"}, "seed must be a whole number of at least 0"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fit(generated(), **options)


ONE = {"item": ["a"], "position": [1], "click": [1]}


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="priors"):
        fit(ONE, priors=0.1)


def test_a_log_in_memory_is_fitted_like_its_counts():
    pages = {"event": [1, 1, 2, 2], "item": ["10", "9", "10", "9"], "position": [1, 2, 2, 1], "query": ["q"] * 4}
    model = fit({**pages, "click": [1, 0, 0, 1]})
    assert (model.items, model.queries, model.positions) == (("9", "10"), ("q", "q"), (1, 2))
    assert model.item_counts.tolist() == [[2, 2], [1, 1]]


def test_a_pair_of_files_is_a_log_and_not_a_pair_of_tables(tmp_path):
    (tmp_path / "a.csv").write_text("event,position,item,click\n1,1,tea,1\n")
    (tmp_path / "b.csv").write_text("event,position,item,click\n2,1,milk,0\n")
    model = fit((tmp_path / "a.csv", str(tmp_path / "b.csv")))
    assert model.items == ("milk", "tea")


def test_nothing_to_fit_is_refused():
    with pytest.raises(ValueError, match="nothing to fit"):
        fit(Counts.from_tables([[0, 0]], [[0, 0]]))
    with pytest.raises(ValueError, match="6 clicks in 5"):
        fit(Counts.from_tables([[5]], [[6]]))
