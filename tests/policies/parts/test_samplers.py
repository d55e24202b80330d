"""Samplers against the distributions of SciPy, from a generator and from a stream, with extreme parameters too."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bothworlds.kernels import kernel
from bothworlds.policies.parts import samplers
from bothworlds.policies.parts.random_stream import make_stream
from tests.cases import case

DRAWS = 20_000
LEAST = 1e-4  # of a p-value, with fixed seeds


@kernel
def normals(source, out):
    for k in range(out.size):
        out[k] = samplers.normal(source)


@kernel
def gammas(source, out, shape):
    for k in range(out.size):
        out[k] = samplers.gamma(source, shape)


@kernel
def betas(source, out, a, b):
    for k in range(out.size):
        out[k] = samplers.beta(source, a, b)


@kernel
def binomials(source, out, n, p):
    for k in range(out.size):
        out[k] = samplers.binomial(source, n, p)


@kernel
def steps(source, out, start, sigma):
    for k in range(out.size):
        out[k] = samplers.step_within_unit(source, start, sigma)


@kernel
def rounded(source, out, x):
    for k in range(out.size):
        out[k] = samplers.round_at_random(source, x)


@kernel
def shuffled(source, out):
    for k in range(out.shape[0]):
        samplers.shuffle(source, out[k])


@pytest.fixture(params=["generator", "stream"])
def source(request):
    """Makes a generator or a stream, always the same one."""
    return (lambda: np.random.default_rng(3)) if request.param == "generator" else (lambda: make_stream(3))


def drawn(fill, source, *parameters, draws=DRAWS):
    out = np.empty(draws)
    fill(source(), out, *parameters)
    return out


def fits(sample, law):
    return stats.kstest(sample, law.cdf).pvalue > LEAST


def counts_fit(sample, law):
    """Chi-square over the values that are expected often enough, the rest taken together."""
    values = np.arange(int(law.ppf(1e-6)), int(law.ppf(1.0 - 1e-6)) + 1)
    groups = np.array_split(values, min(len(values), 60))
    edges = np.array([group[0] for group in groups[1:]])
    expected = np.diff(np.concatenate([[0.0], law.cdf(edges - 1), [1.0]])) * len(sample)
    seen = np.bincount(np.searchsorted(edges, sample, side="right"), minlength=len(groups))
    rare = expected < 5.0
    expected = np.append(expected[~rare], expected[rare].sum())
    seen = np.append(seen[~rare], seen[rare].sum())
    kept = expected > 0.0
    assert seen[~kept].sum() == 0
    return stats.chisquare(seen[kept], expected[kept] * seen[kept].sum() / expected[kept].sum()).pvalue > LEAST


def test_normal_numbers_are_normal(source):
    assert fits(drawn(normals, source), stats.norm())


@pytest.mark.slow
def test_gamma_numbers_have_their_shape(source):
    for shape in (0.05, 0.5, 1.0, 1.5, 30.0, 1e7):
        with case(shape=shape):
            assert fits(drawn(gammas, source, shape), stats.gamma(shape))


@pytest.mark.slow
def test_beta_numbers_have_the_beta_distribution(source):
    extreme = (1.0, 1.0), (0.5, 0.5), (1e6, 3.0), (3.0, 1e6), (1.0, 50.0), (400.0, 700.0), (0.1, 9.0), (1e9, 1e9)
    for a, b in extreme:
        with case(a=a, b=b):
            sample = drawn(betas, source, a, b)
            assert sample.min() >= 0.0
            assert sample.max() <= 1.0
            assert fits(sample, stats.beta(a, b))


def test_a_beta_distribution_with_tiny_parameters_gives_zero_or_one(source):
    sample = drawn(betas, source, 1e-6, 3e-6)
    assert set(sample.tolist()) == {0.0, 1.0}
    assert abs(sample.mean() - 0.25) < 5.0 * np.sqrt(0.25 * 0.75 / DRAWS)


BINOMIALS = [
    *((n, p) for n in (1.0, 2.0, 25.0, 60.0, 1000.0) for p in (0.01, 0.3, 0.5, 0.83, 0.999)),
    *((1e9, p) for p in (1e-9, 5e-9, 1e-7, 0.2, 0.5, 1.0 - 1e-8)),
    *((20.0, p) for p in (0.4999999, 0.5, 0.5000001)),  # where the two methods meet
]


@pytest.mark.slow
def test_binomial_counts_have_the_binomial_distribution(source):
    for n, p in BINOMIALS:
        with case(n=n, p=p):
            sample = drawn(binomials, source, n, p)
            assert (sample == np.floor(sample)).all()
            assert sample.min() >= 0.0
            assert sample.max() <= n
            assert counts_fit(sample, stats.binom(int(n), p))


def test_certain_binomials_are_certain(source):
    for n, p, certain in ((0.0, 0.3, 0.0), (7.0, 0.0, 0.0), (7.0, 1.0, 7.0), (1e15, 1.0, 1e15)):
        with case(n=n, p=p):
            assert (drawn(binomials, source, n, p, draws=100) == certain).all()


def test_the_largest_binomials_have_the_right_mean_and_spread(source):
    for n in (1e12, 1e15):
        with case(n=n):
            sample = (drawn(binomials, source, n, 0.3) - 0.3 * n) / np.sqrt(0.21 * n)
            assert fits(sample, stats.norm())


@pytest.mark.slow
def test_a_step_stays_within_the_interval_and_is_normal_there(source):
    for start in (0.0, 1e-6, 0.3, 0.5, 0.999, 1.0):
        for sigma in (1e-3, 0.1, 0.49, 0.5, 2.0, 1e3):
            with case(start=start, sigma=sigma):
                sample = drawn(steps, source, start, sigma, draws=5000)
                assert sample.min() > 0.0
                assert sample.max() < 1.0
                assert fits(sample, stats.truncnorm(-start / sigma, (1.0 - start) / sigma, loc=start, scale=sigma))


def test_rounding_at_random_keeps_the_mean(source):
    for x in (0.0, 3.0, 0.25, 7.9, 1e9 + 0.5):
        with case(x=x):
            sample, share = drawn(rounded, source, x), x - np.floor(x)
            assert set((sample - np.floor(x)).tolist()) <= ({0.0, 1.0} if share else {0.0})
            assert abs((sample - np.floor(x)).mean() - share) <= 5.0 * np.sqrt(share * (1.0 - share) / DRAWS)


def test_every_order_is_equally_likely(source):
    out = np.empty((24_000, 4), np.int64)
    shuffled(source(), out)
    _, seen = np.unique(out, axis=0, return_counts=True)
    assert len(seen) == 24
    assert stats.chisquare(seen).pvalue > LEAST
