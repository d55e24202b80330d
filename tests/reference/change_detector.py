"""Change detection from the list of all rounds: every block is counted again from the history."""

from __future__ import annotations

from math import log

import numpy as np


def log_likelihood(n, c):
    """The largest log likelihood of c clicks in n impressions."""
    return sum(k * log(k / n) for k in (c, n - c) if k)


def log_likelihood_ratio(n1, c1, n2, c2):
    """Of two click probabilities against one."""
    return log_likelihood(n1, c1) + log_likelihood(n2, c2) - log_likelihood(n1 + n2, c1 + c2)


class HistoryDetector:
    """Remembers rounds as (ranking, clicks); ``add`` returns whether a change was detected."""

    def __init__(self, n, m, bucket=32, levels=20):
        self.shape, self.bucket, self.levels = (n, m), bucket, levels
        self.rounds, self.since, self.t = [], 0, 0

    def counts(self, rounds):
        shown, clicked = np.zeros(self.shape), np.zeros(self.shape)
        for ranking, clicks in rounds:
            for j, (i, click) in enumerate(zip(ranking, clicks)):
                shown[i, j] += 1.0
                clicked[i, j] += click
        return shown, clicked

    def statistic(self, length):
        (n1, c1), (n2, c2) = self.counts(self.rounds[:-length]), self.counts(self.rounds[-length:])
        pairs = [(i, j) for i, j in np.ndindex(self.shape) if n1[i, j] and n2[i, j]]
        return max((log_likelihood_ratio(n1[k], c1[k], n2[k], c2[k]) for k in pairs), default=0.0)

    def add(self, ranking, clicks):
        self.rounds.append((tuple(ranking), tuple(clicks)))
        self.since += 1
        self.t += 1
        k, rest = divmod(self.since, self.bucket)
        if rest:
            return False
        lengths = [
            self.bucket * (k % 2**level or 2**level)
            for level in range(self.levels)
            if 2**level < 2 * k and k % max(1, 2**level // 8) == 0
        ]
        statistics = [self.statistic(length) for length in lengths]
        n, m = self.shape
        if max(statistics) <= log(n * m) + log(self.t) + 4.0:
            return False
        self.rounds = self.rounds[-lengths[statistics.index(max(statistics))] :]
        self.since = 0
        return True
