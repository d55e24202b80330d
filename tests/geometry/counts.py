"""Counts of the draws of a sampler, and a test whether they fit the marginals."""

from __future__ import annotations

import numba
import numpy as np
from scipy.stats import binom

from bothworlds.geometry.sampling import draw, make_urn, prepare
from bothworlds.kernels import kernel

# The tests of coverage run without compilation, a hundred times slower.
DRAWS = 2_000 if numba.config.DISABLE_JIT else 200_000
LEVEL = 1e-6  # that a correct sampler is blamed, over all entries of one matrix; seeds are fixed, so once for all


@kernel
def tally(x, rng, urn, ranking, counts, draws):
    """Count pairs over many draws; return how many draws showed an item twice, or none at a position."""
    wrong = 0
    n, m = x.shape
    for _ in range(draws):
        for j in range(m):
            ranking[j] = -1
        draw(x, rng, urn, ranking)
        valid = True
        for j in range(m):
            i = ranking[j]
            if i < 0 or i >= n:
                valid = False
                continue
            counts[i, j] += 1
            for k in range(j):
                if ranking[k] == i:
                    valid = False
        if not valid:
            wrong += 1
    return wrong


def count_draws(x, rng, draws=DRAWS):
    """How often each item was drawn at each position; every draw must be a ranking."""
    n, m = x.shape
    urn, counts = make_urn(n, m), np.zeros((n, m), np.int64)
    prepare(x, urn)
    wrong = tally(x, rng, urn, np.empty(m, np.int64), counts, draws)
    assert wrong == 0, f"{wrong} of {draws} draws are no rankings"
    return counts


def count_with(sampler, x, rng, draws):
    """The same for any function of marginals and a generator, in plain Python."""
    counts = np.zeros(x.shape, np.int64)
    for _ in range(draws):
        counts[sampler(x, rng), np.arange(x.shape[1])] += 1
    return counts


def check_counts(counts, x, draws=DRAWS):
    """A two-sided binomial test of every entry, at a level shared out among the entries."""
    assert (counts.sum(axis=0) == draws).all(), "a position was left empty"
    impossible = (x <= 0.0) & (counts > 0)
    assert not impossible.any(), "something of probability 0 was drawn"
    p = np.clip(x, 0.0, 1.0)
    tail = 2.0 * np.minimum(binom.cdf(counts, draws, p), binom.sf(counts - 1, draws, p))
    worst = np.unravel_index(tail.argmin(), tail.shape)
    assert tail[worst] > LEVEL / x.size, (
        f"entry {tuple(int(w) for w in worst)} has probability {x[worst]:.6g} "
        f"but was drawn {counts[worst]} times in {draws} (p = {tail[worst]:.2g})"
    )
