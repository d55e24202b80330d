r"""Chain click models: a user walks down the list, and goes on after a skip or a click with some probability.

An examined item is clicked with probability :math:`\alpha`; after a skip the user goes on with probability g, after a
click with :math:`\kappa`:

=======  ==============  ===========================================================  ============================
model    g after a skip  kappa after a click                                          parameters
=======  ==============  ===========================================================  ============================
cascade  1               0                                                            attraction
dcm      1               :math:`\lambda_k`                                            attraction; continuation
sdbn     1               :math:`1 - \sigma_d`                                         attraction, satisfaction
dbn      gamma           :math:`\gamma (1 - \sigma_d)`                                attraction, satisfaction; gamma
ccm      tau 1           :math:`\tau_2 (1 - \alpha_d) + \tau_3 \alpha_d`              attraction; tau 1, 2, 3
=======  ==============  ===========================================================  ============================

All that a page does not show is where the user stopped, at the last click or below it. Given the clicks, the
probabilities of these stops give the expected successes and failures of :math:`\alpha`, :math:`\kappa` and g (the
E-step). By Fisher's identity, successes over :math:`\theta` minus failures over :math:`1 - \theta` is the derivative of
the log-likelihood.

Given the clicks above it, a result is clicked with probability :math:`p = e \alpha`, where e is the probability that it
is examined. The information is :math:`\sum \nabla p \nabla p^\top / (p (1 - p))` over results: that of independent
binomial variables, as the derivatives of their log-likelihoods are a martingale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from ..kernels import Floats, Ints, inner_kernel, kernel

CHUNK = 10_000  # pages whose derivatives are held at a time
PROBE = 0.4142  # any probability at which the derivatives of different pages do not happen to vanish
NOTHING = 1e-20  # information that is rounding error
TINY = 1e-30  # an imaginary step, whose square is lost beside any number


class Core(NamedTuple):
    """The probabilities of the chain."""

    alpha: Any  # (R,)
    kappa: Any  # (R,), or (m,) if it belongs to ranks
    g: Any


class Family(NamedTuple):
    """A chain model with parameters of every item, the first of them attraction, and shared ones."""

    items: tuple[str, ...]
    shared: tuple[str, ...]
    core: Callable[[Any, Any], Core]  # a polynomial of parameters (p, R) and (s,)
    by_rank: bool = False  # whether kappa belongs to ranks, and is itself the only shared parameter


FAMILIES = {
    "cascade": Family(("attraction",), (), lambda i, s: Core(i[0], np.zeros(i.shape[1]), 1.0)),
    "dcm": Family(("attraction",), ("continuation",), lambda i, s: Core(i[0], s, 1.0), by_rank=True),
    "sdbn": Family(("attraction", "satisfaction"), (), lambda i, s: Core(i[0], 1.0 - i[1], 1.0)),
    "dbn": Family(("attraction", "satisfaction"), ("gamma",), lambda i, s: Core(i[0], s[0] * (1.0 - i[1]), s[0])),
    "ccm": Family(
        ("attraction",),
        ("tau 1", "tau 2", "tau 3"),
        lambda i, s: Core(i[0], s[1] * (1.0 - i[0]) + s[2] * i[0], s[0]),
    ),
}


class Expected(NamedTuple):
    """The log-likelihood, and expected successes and failures of alpha, kappa and g, one after the other."""

    value: float
    successes: Floats
    failures: Floats


class ChainLikelihood:
    """The log-likelihood of pages as a function of the parameters of items, (p, R) row by row, and the shared ones.

    Page p occurred ``count[p]`` times; its results are in the order of ranks, and ``ranks`` is the number of ranks.
    """

    def __init__(
        self, family: Family, starts: Ints, row: Any, rank: Any, click: Any, count: Ints, rows: int, ranks: int
    ) -> None:
        self.family, self.rows = family, rows
        size = ranks if family.by_rank else rows
        own, key = np.asarray(row, np.int64), np.asarray(rank if family.by_rank else row, np.int64)
        hit = np.asarray(click, np.uint8)
        # What decides whether the user goes on below a result: kappa after a click, and g after a skip.
        after = np.where(hit == 1, rows + key, rows + size)
        self.pages = np.asarray(starts, np.int64), own, after, hit, np.asarray(count, np.int64)
        shared = len(family.items) * rows + np.arange(ranks if family.by_rank else len(family.shared))
        self.parameters = int(shared.size) + len(family.items) * rows
        longest = int(np.diff(starts).max(initial=0)) + 2
        self._work = np.empty(longest), np.empty(longest, np.int64)
        # Rows and columns of the derivatives of alpha, kappa and g with respect to the parameters.
        every, kappa = np.arange(rows), rows + np.arange(size)
        ends = [(every, every)]
        if family.by_rank:
            ends.append((kappa, shared))
        else:
            ends += [(kappa, k * rows + every) for k in range(len(family.items))]
            ends += [(kappa, np.full(rows, place)) for place in shared.tolist()]
            ends.append((np.full(shared.size, rows + size), shared))
        self._row, self._column = (np.concatenate(part) for part in zip(*ends))

    def core(self, x: Floats) -> Floats:
        """Return alpha, kappa and g, one after the other."""
        alpha, kappa, g = self.family.core(*self._split(x))
        return np.concatenate([alpha, kappa, [g]])

    def expect(self, x: Floats) -> Expected:
        """Return the E-step."""
        theta = self.core(x)
        successes, failures = np.zeros((2, theta.size))
        value = expected_counts(*self.pages, theta, self._work[0], successes, failures)
        return Expected(float(value), successes, failures)

    def gradient(self, x: Floats) -> tuple[float, Floats]:
        """Return the log-likelihood and its derivatives."""
        theta, (value, successes, failures) = self.core(x), self.expect(x)
        slope = _ratio(successes, theta) - _ratio(failures, 1.0 - theta)
        each = self._slopes(x) * slope[self._row]
        return value, np.bincount(self._column, each, self.parameters).astype(np.float64)

    def information(self, x: Floats) -> csr_array:
        """Return the information on the parameters (size, size)."""
        theta, starts = self.core(x), self.pages[0]
        jacobian = csr_array(coo_array((self._slopes(x), (self._row, self._column)), (theta.size, self.parameters)))
        result = csr_array((self.parameters, self.parameters))
        for first in range(0, starts.size - 1, CHUNK):
            stop = min(first + CHUNK, starts.size - 1)
            sizes = np.diff(starts[first : stop + 1])
            results, room = int(sizes.sum()), int((sizes * (sizes + 5)).sum()) // 2
            place, index, slope = np.zeros(results + 1, np.int64), np.empty(room, np.int64), np.empty(room)
            p, weight = np.empty(results), np.repeat(self.pages[4][first:stop], sizes)
            click_slopes(first, stop, *self.pages[:4], theta, *self._work, p, place, index, slope)
            entries = csr_array((slope[: place[-1]], index[: place[-1]], place), (results, theta.size))
            spread = p * (1.0 - p)
            moves = csr_array(entries @ jacobian)
            moves.data *= np.repeat(np.sqrt(_ratio(weight * (spread > 0.0), spread)), np.diff(moves.indptr))
            result = result + moves.T @ moves
        return csr_array(result)

    def informative(self, x: Floats) -> NDArray[np.bool_]:
        """Return which parameters the pages say something about.

        That an item was examined says something about its attraction. Whether a user goes on says nothing if all items
        below have attraction 0: then no probability changes with it.
        """
        probe = x.copy()
        probe[self.rows :] = PROBE
        known = self.information(probe).diagonal() > NOTHING
        e = self.expect(x)
        known[: self.rows] = (e.successes + e.failures)[: self.rows] > 0.0
        return np.asarray(known)

    def _split(self, x: Floats) -> tuple[Floats, Floats]:
        """The parameters of items (p, R) and the shared ones (s,)."""
        cut = len(self.family.items) * self.rows
        return x[:cut].reshape(-1, self.rows), x[cut:]

    def _slopes(self, x: Floats) -> Floats:
        """The derivatives of alpha, kappa and g: imaginary steps in polynomials are exact."""
        items, shared = self._split(x)
        if self.family.by_rank:
            return np.ones(self._row.size)
        kappas, gs = [], []
        for part, k in [(items, k) for k in range(len(items))] + [(shared, k) for k in range(shared.size)]:
            moved = part.astype(complex)
            moved[k] += TINY * 1j
            _, kappa, g = self.family.core(*((moved, shared) if part is items else (items, moved)))
            kappas.append(np.imag(kappa) / TINY)
            gs.append(np.imag(g) / TINY)
        return np.concatenate([np.ones(self.rows), *kappas, gs[len(items) :]])


def _ratio(count: Any, theta: Any) -> Floats:
    return np.divide(count, theta, out=np.zeros(np.shape(count)), where=np.asarray(count) > 0.0)


@inner_kernel
def _last_click(click: Any, start: int, end: int) -> int:
    last = start - 1
    for k in range(start, end):
        if click[k] == 1:
            last = k
    return last


@kernel
def expected_counts(
    starts: Ints, row: Ints, after: Ints, click: Any, count: Ints, theta: Floats, stops: Floats, successes: Floats,
    failures: Floats,
) -> float:  # fmt: skip
    """Add expected successes and failures of ``theta``, which has alpha, kappa and g; return the log-likelihood.

    ``after`` is the index of what decides whether the user goes on below a result.
    """
    total, g = 0.0, theta[-1]
    for p in range(count.size):
        start, end, n = starts[p], starts[p + 1], count[p]
        last = _last_click(click, start, end)
        for k in range(start, last + 1):
            alpha = theta[row[k]]
            if click[k] == 1:
                successes[row[k]] += n
                total += n * np.log(alpha)
            else:
                failures[row[k]] += n
                total += n * np.log1p(-alpha)
            if k < last:
                successes[after[k]] += n
                total += n * np.log(theta[after[k]])
        if last + 1 == end:
            continue
        # The user stops at the last click, or after one of the results below.
        on = theta[after[last]] if last >= start else 1.0
        stops[0], silent = 1.0 - on, 1.0 - on
        for k in range(last + 1, end):
            on *= 1.0 - theta[row[k]]
            stops[k - last] = on * (1.0 - g) if k + 1 < end else on
            silent += stops[k - last]
            on *= g
        total += n * np.log(silent)
        scale, reached = n / silent if silent > 0.0 else 0.0, 0.0
        for k in range(end - 1, last, -1):
            if k + 1 < end:
                successes[after[k]] += reached
                failures[after[k]] += scale * stops[k - last]
            reached += scale * stops[k - last]
            failures[row[k]] += reached
        if last >= start:
            successes[after[last]] += reached
            failures[after[last]] += scale * stops[0]
    return total


@kernel
def click_slopes(
    first: int, stop: int, starts: Ints, row: Ints, after: Ints, click: Any, theta: Floats, move: Floats,
    moved: Ints, p: Floats, place: Ints, index: Ints, slope: Floats,
) -> None:  # fmt: skip
    r"""Fill in the probability of a click of every result given the clicks above, and its derivatives.

    Those of result k are entries ``place[k]`` to ``place[k + 1]`` of ``slope``, with respect to ``index`` of ``theta``.
    Examination below a click is :math:`\kappa`, and below a skip :math:`e' = g e (1 - \alpha) / (1 - e \alpha)`. Its
    derivatives are ``move``, with respect to ``moved``, which begins with g.
    """
    at, g = 0, theta[-1]
    moved[0] = theta.size - 1
    for page in range(first, stop):
        e, size, move[0] = 1.0, 1, 0.0
        for k in range(starts[page], starts[page + 1]):
            alpha = theta[row[k]]
            p[k - starts[first]] = e * alpha
            for j in range(size):
                index[at + j], slope[at + j] = moved[j], alpha * move[j]
            at += size
            index[at], slope[at] = row[k], e
            at += 1
            place[k - starts[first] + 1] = at
            if click[k] == 1:
                e, size, move[0] = theta[after[k]], 2, 0.0
                moved[1], move[1] = after[k], 1.0
            else:
                left = max(1.0 - e * alpha, 1e-300)
                for j in range(size):
                    move[j] *= g * (1.0 - alpha) / left / left
                move[0] += e * (1.0 - alpha) / left
                moved[size], move[size] = row[k], -g * e * (1.0 - e) / left / left
                e, size = g * e * (1.0 - alpha) / left, size + 1
