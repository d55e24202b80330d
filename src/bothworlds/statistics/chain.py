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

All that a page does not show is where the user stopped: right after the last click, or after one of the results below,
its *tail*. Given the clicks, the probabilities of these stops give the expected successes and failures of
:math:`\alpha`, :math:`\kappa` and g (the E-step). By Fisher's identity, successes over :math:`\theta` minus failures
over :math:`1 - \theta` is the derivative of the log-likelihood; by Louis's, its second derivative is that of the
expected log-likelihood of clicks and stops, plus the covariance of the derivatives over the stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array, diags_array

from ..kernels import Floats, Ints, inner_kernel, kernel

CHUNK = 10_000  # pages whose covariances are held at a time
PROBE = 0.4142  # any probability at which successes and failures do not happen to balance
NOTHING = 1e-9  # derivative per trial that is rounding error


class Core(NamedTuple):
    """The probabilities of the chain."""

    alpha: Floats  # (R,)
    kappa: Floats  # (R,), or (m,) if it belongs to ranks
    g: float


class Slopes(NamedTuple):
    """Derivatives of kappa (R,) with respect to the item's parameters and to the shared ones, and of g."""

    items: Floats  # (p, R)
    shared: Floats  # (s, R)
    g: Floats  # (s,)


class Family(NamedTuple):
    """A chain model with p parameters of every item, the first of them attraction, and s shared ones."""

    items: tuple[str, ...]
    shared: tuple[str, ...]
    core: Callable[[Floats, Floats], Core]  # of parameters (p, R) and (s,)
    slopes: Callable[[Floats, Floats], Slopes]
    mixed: tuple[tuple[int, int, float], ...] = ()  # second derivatives of kappa: of item, shared parameter, value
    by_rank: bool = False  # whether kappa belongs to ranks, and is itself the only shared parameter


def _nothing(i: Floats, s: Floats) -> Slopes:
    return Slopes(np.zeros_like(i), np.zeros((0, i.shape[1])), np.zeros(0))


def _satisfied(i: Floats, gamma: float, shared: Floats, g: Floats) -> Slopes:
    return Slopes(np.array([np.zeros(i.shape[1]), np.full(i.shape[1], -gamma)]), shared, g)


FAMILIES = {
    "cascade": Family(("attraction",), (), lambda i, s: Core(i[0], np.zeros(i.shape[1]), 1.0), _nothing),
    "dcm": Family(("attraction",), ("continuation",), lambda i, s: Core(i[0], s, 1.0), _nothing, by_rank=True),
    "sdbn": Family(
        ("attraction", "satisfaction"),
        (),
        lambda i, s: Core(i[0], 1.0 - i[1], 1.0),
        lambda i, s: _satisfied(i, 1.0, np.zeros((0, i.shape[1])), np.zeros(0)),
    ),
    "dbn": Family(
        ("attraction", "satisfaction"),
        ("gamma",),
        lambda i, s: Core(i[0], s[0] * (1.0 - i[1]), float(s[0])),
        lambda i, s: _satisfied(i, s[0], 1.0 - i[1:], np.ones(1)),
        ((1, 0, -1.0),),
    ),
    "ccm": Family(
        ("attraction",),
        ("tau 1", "tau 2", "tau 3"),
        lambda i, s: Core(i[0], s[1] * (1.0 - i[0]) + s[2] * i[0], float(s[0])),
        lambda i, s: Slopes(
            np.full_like(i, s[2] - s[1]), np.array([np.zeros(i.shape[1]), 1.0 - i[0], i[0]]), np.eye(3)[0]
        ),
        ((0, 1, -1.0), (0, 2, 1.0)),
    ),
}


class Expected(NamedTuple):
    """The log-likelihood, and expected successes and failures given the clicks."""

    value: float
    alpha: Floats  # (2, R)
    kappa: Floats  # (2, R) or (2, m)
    g: Floats  # (2,)


class ChainLikelihood:
    """The log-likelihood of pages as a function of the parameters of items, (p, R) row by row, and the shared ones.

    Page p occurred ``count[p]`` times; its results are in the order of ranks, and ``ranks`` is the number of ranks.
    """

    def __init__(
        self, family: Family, starts: Ints, row: Any, rank: Any, click: Any, count: Ints, rows: int, ranks: int
    ) -> None:
        self.family, self.rows, self.size = family, rows, ranks if family.by_rank else rows
        key = np.asarray(rank if family.by_rank else row, np.int64)
        self.pages = starts, np.asarray(row, np.int64), key, np.asarray(click, np.uint8), np.asarray(count, np.int64)
        self.stops = np.empty(int(np.diff(starts).max(initial=0)) + 1)
        self.parameters = len(family.items) * rows + (ranks if family.by_rank else len(family.shared))

    def split(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the parameters of items (p, R) and the shared ones (s,)."""
        cut = len(self.family.items) * self.rows
        return x[:cut].reshape(-1, self.rows), x[cut:]

    def expect(self, x: Floats) -> Expected:
        """Return the E-step."""
        alpha, kappa, g = self.family.core(*self.split(x))
        sums = np.zeros((2, self.rows)), np.zeros((2, self.size)), np.zeros(2)
        return Expected(float(expected_counts(*self.pages, alpha, kappa, g, self.stops, *sums)), *sums)

    def gradient(self, x: Floats) -> tuple[float, Floats]:
        """Return the log-likelihood and its derivatives."""
        items, shared = self.split(x)
        alpha, kappa, g = self.family.core(items, shared)
        e = self.expect(x)
        of_alpha, of_kappa, of_g = (
            _ratio(n[0], theta) - _ratio(n[1], 1.0 - theta)
            for n, theta in ((e.alpha, alpha), (e.kappa, kappa), (e.g, np.float64(g)))
        )
        if self.family.by_rank:
            return e.value, np.concatenate([of_alpha, of_kappa])
        slopes = self.family.slopes(items, shared)
        of_items = slopes.items * of_kappa
        of_items[0] += of_alpha
        return e.value, np.concatenate([of_items.ravel(), slopes.shared @ of_kappa + slopes.g * of_g])

    def informative(self, x: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which parameters the pages say something about.

        That an item was examined says something about its attraction. Whether a user goes on says nothing if all items
        below have attraction 0: then the likelihood does not change with it.
        """
        other = x.copy()
        other[self.rows :] = PROBE
        known = self._tried(x) > 0.0
        known &= np.abs(self.gradient(other)[1]) > NOTHING * self._tried(other)
        known[: self.rows] = self._tried(x)[: self.rows] > 0.0
        return known

    def _tried(self, x: Floats) -> Floats:
        """Expected trials of the probabilities that each parameter moves."""
        e = self.expect(x)
        tried = np.concatenate([e.alpha.sum(axis=0), e.kappa.sum(axis=0), [e.g.sum()]])
        return np.asarray(abs(self._jacobian(x)).T @ tried)

    def information(self, x: Floats) -> csr_array:
        """Return minus the second derivatives of the log-likelihood."""
        alpha, kappa, g = self.family.core(*self.split(x))
        e = self.expect(x)
        each = [
            _ratio(n[0], theta**2) + _ratio(n[1], (1.0 - theta) ** 2)
            for n, theta in ((e.alpha, alpha), (e.kappa, kappa), (e.g[:, None], np.array([g])))
        ]
        core = csr_array(diags_array(np.concatenate(each)))
        starts = self.pages[0]
        for first in range(0, starts.size - 1, CHUNK):
            stop = min(first + CHUNK, starts.size - 1)
            room = int(((np.diff(starts[first : stop + 1]) + 2) ** 2).sum())
            place, value = np.zeros((2, room), np.int64), np.zeros(room)
            work = np.empty((self.stops.size, self.stops.size + 1)), np.empty(self.stops.size + 1, np.int64)
            covariances(first, stop, *self.pages, alpha, kappa, g, self.stops, *work, place, value)
            core = core - coo_array((value, (place[0], place[1])), shape=core.shape).tocsr()
        jacobian = self._jacobian(x)
        result = csr_array(jacobian.T @ core @ jacobian)
        of_kappa = _ratio(e.kappa[0], kappa) - _ratio(e.kappa[1], 1.0 - kappa)
        for item, shared, number in self.family.mixed:
            i = item * self.rows + np.arange(self.rows)
            j = np.full(self.rows, len(self.family.items) * self.rows + shared)
            corner = coo_array((number * of_kappa, (i, j)), shape=result.shape).tocsr()
            result = result - corner - corner.T
        return csr_array(result)

    def _jacobian(self, x: Floats) -> csr_array:
        """Derivatives of alpha, kappa and g with respect to the parameters."""
        items, shared = self.split(x)
        p, n = items.shape
        row, column, value = [np.arange(n)], [np.arange(n)], [np.ones(n)]
        if self.family.by_rank:
            of_shared = p * n + np.arange(self.size)
            row, column, value = [*row, n + np.arange(self.size)], [*column, of_shared], [*value, np.ones(self.size)]
        else:
            slopes = self.family.slopes(items, shared)
            for k, part in enumerate(slopes.items):
                row, column, value = [*row, n + np.arange(n)], [*column, k * n + np.arange(n)], [*value, part]
            for k, part in enumerate(slopes.shared):
                row, column, value = [*row, n + np.arange(n)], [*column, np.full(n, p * n + k)], [*value, part]
            row, column = [*row, np.full(shared.size, 2 * n)], [*column, p * n + np.arange(shared.size)]
            value = [*value, slopes.g]
        ends = np.concatenate(row), np.concatenate(column)
        return csr_array(coo_array((np.concatenate(value), ends), shape=(n + self.size + 1, x.size)))


def _ratio(count: Any, theta: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(count > 0.0, count / theta, 0.0)


@inner_kernel
def _stop_probabilities(row: Ints, last: int, end: int, alpha: Floats, kappa: float, g: float, w: Floats) -> float:
    """Fill in the probabilities of stops at the last click and at the results below, given the clicks.

    Returns the probability of no click below the last one. The user stops after the last result in any case.
    """
    w[0], on, total = 1.0 - kappa, kappa, 1.0 - kappa
    for k in range(last + 1, end):
        on *= 1.0 - alpha[row[k]]
        w[k - last] = on * (1.0 - g) if k + 1 < end else on
        total += w[k - last]
        on *= g
    for t in range(end - last):
        w[t] = w[t] / total if total > 0.0 else 0.0
    return total


@inner_kernel
def _last_click(click: Any, start: int, end: int) -> int:
    last = start - 1
    for k in range(start, end):
        if click[k] == 1:
            last = k
    return last


@kernel
def expected_counts(
    starts: Ints, row: Ints, key: Ints, click: Any, count: Ints, alpha: Floats, kappa: Floats, g: float, w: Floats,
    of_alpha: Floats, of_kappa: Floats, of_g: Floats,
) -> float:  # fmt: skip
    """Add expected successes and failures; return the log-likelihood. ``key`` is the index of kappa of every result."""
    total = 0.0
    for p in range(count.size):
        start, end, n = starts[p], starts[p + 1], count[p]
        last = _last_click(click, start, end)
        for k in range(start, last + 1):
            if click[k] == 1:
                of_alpha[0, row[k]] += n
                total += n * np.log(alpha[row[k]])
                if k < last:
                    of_kappa[0, key[k]] += n
                    total += n * np.log(kappa[key[k]])
            else:
                of_alpha[1, row[k]] += n
                of_g[0] += n
                total += n * (np.log1p(-alpha[row[k]]) + np.log(g))
        if last + 1 < end:
            total += n * np.log(
                _stop_probabilities(row, last, end, alpha, kappa[key[last]] if last >= start else 1.0, g, w)
            )
            reached = 0.0
            for k in range(end - 1, last, -1):
                if k + 1 < end:
                    of_g[0] += n * reached
                    of_g[1] += n * w[k - last]
                reached += w[k - last]
                of_alpha[1, row[k]] += n * reached
            if last >= start:
                of_kappa[0, key[last]] += n * reached
                of_kappa[1, key[last]] += n * w[0]
    return total


@kernel
def covariances(
    first: int, stop: int, starts: Ints, row: Ints, key: Ints, click: Any, count: Ints, alpha: Floats, kappa: Floats,
    g: float, w: Floats, slope: Floats, index: Ints, place: Ints, value: Floats,
) -> None:  # fmt: skip
    """Fill in the covariances of derivatives over the stops of pages, as entries of a matrix over alpha, kappa and g.

    ``slope`` has, for every stop of a page, the derivatives with respect to kappa, alpha of every result below, and g,
    whose numbers are in ``index``.
    """
    at = 0
    for p in range(first, stop):
        start, end, n = starts[p], starts[p + 1], count[p]
        last = _last_click(click, start, end)
        if last + 1 == end:
            continue
        k0 = kappa[key[last]] if last >= start else 1.0
        _stop_probabilities(row, last, end, alpha, k0, g, w)
        stops = end - last
        index[0], index[stops] = alpha.size + (key[last] if last >= start else 0), alpha.size + kappa.size
        for j in range(1, stops):
            index[j] = row[last + j]
        for t in range(stops):
            # A stop of probability 0 contributes nothing, whatever its derivatives.
            slope[t, 0] = 0.0 if last < start or w[t] == 0.0 else (1.0 / k0 if t > 0 else -1.0 / (1.0 - k0))
            for j in range(1, stops):
                slope[t, j] = -1.0 / (1.0 - alpha[row[last + j]]) if j <= t and w[t] > 0.0 else 0.0
            slope[t, stops] = 0.0
            if w[t] > 0.0 and t > 0:
                slope[t, stops] = (t - 1) / g - (1.0 / (1.0 - g) if t + 1 < stops else 0.0)
        for i in range(stops + 1):
            for j in range(stops + 1):
                both, one, other = 0.0, 0.0, 0.0
                for t in range(stops):
                    both += w[t] * slope[t, i] * slope[t, j]
                    one += w[t] * slope[t, i]
                    other += w[t] * slope[t, j]
                place[0, at], place[1, at], value[at] = index[i], index[j], n * (both - one * other)
                at += 1
