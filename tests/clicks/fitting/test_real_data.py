"""Real logs: the maximum of the likelihood on every one of them, and the four traps they are known for."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import fit
from bothworlds.clicks.fitting.design import design_of_counts
from bothworlds.clicks.fitting.fit import fit_each_query
from bothworlds.statistics.rank_one.fit import fit_newton
from tests.clicks.logs import ALL, WITH_QUERIES, fit_tables, real
from tests.reference.position_based import maximum

EDGE = 1e-6  # nats that every item at the edge may cost


def tables(counts):
    design = design_of_counts(counts)
    result = np.zeros((2, len(design.items), len(counts.positions)))
    result[:, design.row, design.columns[:, 0]] = design.shown, design.clicked
    return result


def groups(counts, per_query):
    shown, clicked = tables(counts)
    queries = np.array(design_of_counts(counts).queries)
    for query in dict.fromkeys(queries.tolist()) if per_query else [None]:
        own = queries == query if per_query else slice(None)
        yield query, shown[own], clicked[own]


# One fit for each of thousands of queries; the smallest log with queries is enough in the gate.
MANY_QUERIES = ("yandex_counts/counts.csv", "yandex/trainSample")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "per_query"),
    [
        *((name, False) for name in ALL),
        *(
            pytest.param(name, True, marks=[pytest.mark.nightly] if name in MANY_QUERIES else [])
            for name in WITH_QUERIES
        ),
    ],
)
def test_the_fit_is_the_maximum_of_the_likelihood(name, per_query):
    counts = real(name)
    found = fit_each_query(counts) if per_query else fit(counts)
    for query, shown, clicked in groups(counts, per_query):
        model = found[query] if per_query else found
        assert model.converged
        slack = EDGE * (10 + len(shown))
        assert model.log_likelihood > maximum(shown, clicked, restarts=1)[2] - slack
        # Nor does the other optimiser get any further from where ours has ended.
        best = maximum(shown, clicked, start=model.examination, restarts=1)[2]
        assert model.log_likelihood == pytest.approx(best, abs=slack + 1e-11 * abs(best))


# The four traps


@pytest.mark.slow
def test_first_trap_one_maximum_from_many_starts():
    shown, clicked = tables(real("yandex/trainSample", query="9982_0", positions=5))
    model, rng = fit_tables(shown, clicked), np.random.default_rng(0)
    seen = shown > 0
    for _ in range(20):
        again = fit_newton(shown, clicked, start=(rng.uniform(0.01, 1, len(shown)), rng.uniform(0.01, 1, 5)))
        assert again.log_likelihood == pytest.approx(model.log_likelihood, abs=1e-4)
        products = np.outer(again.attraction, again.examination), np.outer(model.attraction, model.examination)
        np.testing.assert_allclose(*(table[seen] for table in products), atol=1e-5)


@pytest.mark.slow
def test_second_trap_em_that_absorbs_at_one():
    shown, clicked = tables(real("yandex/trainSample"))
    best = fit_tables(shown, clicked).log_likelihood
    stalled = uncapped_em(shown, clicked, 3000)
    assert best - 30.0 < stalled < best - 5.0
    capped = fit_tables(shown, clicked, method="em", iterations=20_000)
    assert capped.log_likelihood == pytest.approx(best, abs=0.5)


def uncapped_em(shown, clicked, passes):
    """EM that starts with every value at one half and may reach 1, which it then never leaves."""
    alpha, beta = np.full(len(shown), 0.5), np.full(shown.shape[1], 0.5)
    missed = shown - clicked
    for _ in range(passes):
        left = 1.0 - np.outer(alpha, beta)
        weight = np.divide(missed, left, out=np.zeros_like(missed), where=missed > 0)
        new = (clicked + weight * np.outer(alpha, 1.0 - beta)).sum(1) / shown.sum(1)
        beta = (clicked + weight * np.outer(1.0 - alpha, beta)).sum(0) / shown.sum(0)
        alpha = new
    p = np.outer(alpha, beta)[shown > 0]
    s, f = clicked[shown > 0], missed[shown > 0]
    return float(s[s > 0] @ np.log(p[s > 0]) + f[f > 0] @ np.log1p(-p[f > 0]))


@pytest.mark.slow
def test_third_trap_fifty_passes_turn_the_first_two_positions_round():
    counts = real("yandex/trainSample", query="9982_0", positions=5)
    short, done = fit(counts, method="em", iterations=50), fit(counts)
    assert short.examination.argmax() == 1
    assert short.examination[0] < 0.8
    assert "short of the maximum" in short.warnings[0]
    assert done.examination.argmax() == 0
    assert done.examination[1] == pytest.approx(0.72, abs=0.02)
    assert done.log_likelihood > short.log_likelihood + 50.0


def test_fourth_trap_disconnected_positions_are_reported():
    model = fit(real("yandex/oneQueryTrain"))
    assert not model.identified
    assert "Not identified: there are 2 groups" in model.warnings[0]
    assert "'232429' at position 1" in model.warnings[0]
    with pytest.raises(ValueError, match="not identified"):
        model.world()


def test_a_curve_from_38_clicks_is_called_noise():
    assert any("This curve is noise: with 38 clicks" in message for message in fit(real("obd/random_all.csv")).warnings)
