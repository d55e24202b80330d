"""All-weather in plain NumPy, step by step as it is published; only the Gibbs sampler is that of the package."""

from __future__ import annotations

from math import ceil, inf, log, sqrt

import numpy as np

from bothworlds.geometry import leader
from bothworlds.kernels import kernel
from bothworlds.policies.parts.counts import make_counts
from bothworlds.policies.parts.gibbs_chain import sweep
from bothworlds.policies.parts.placement import make_placement_work, place_best, place_in_order
from bothworlds.policies.parts.random_stream import absorb, make_stream
from bothworlds.policies.parts.samplers import beta
from tests.reference.change_detector import HistoryDetector, log_likelihood, log_likelihood_ratio


@kernel
def sample_list(counts, items, sweeps, stream, attraction, examination, sums, ranking, placement):
    for _ in range(sweeps):
        sweep(counts, items, 1.0, stream, attraction, examination, sums)
    place_in_order(attraction, examination, stream, ranking, placement)


@kernel
def sample_list_of_pairs(counts, items, sweeps, stream, attraction, examination, sums, ranking, placement, rates):
    for _ in range(sweeps):
        sweep(counts, items, 1.0, stream, attraction, examination, sums)
    for i in range(rates.shape[0]):
        for j in range(rates.shape[1]):
            prior = 8.0 * min(max(attraction[i] * examination[j], 0.001), 0.999)
            clicked, shown = counts.clicked[i, j], counts.shown[i, j]
            rates[i, j] = beta(stream, clicked + prior, shown - clicked + 8.0 - prior)
    place_best(rates, stream, ranking, placement)


@kernel
def mix_in(stream, ranking):
    absorb(stream, ranking)


class AllWeatherTwin:
    """Learns from the decisions of the policy itself; ``w``, ``x``, ``s`` and ``p`` are those of the next decision."""

    def __init__(self, n, m, q=0.02, c=2.0, sampler_width=1.5, grace=5000.0, pool=16, sweeps=2, recall=4):
        q *= min(1.0, (50.0 / (n * m)) ** 0.75)
        self.n, self.m, self.q, self.c, self.grace, self.pool, self.sweeps = n, m, q, c, grace, pool, sweeps
        self.sampler_width = sampler_width
        self.memory = HistoryDetector(n, m)
        self.regimes, self.present, self.next_slot, self.recalls = [[] for _ in range(recall)], None, 0, 0
        self.N, self.C = np.zeros((n, m)), np.zeros((n, m))
        self.alpha, self.beta, self.stream = np.full(n, 0.5), np.full(m, 0.5), make_stream(n, m)
        self.lists, self.due = [], 0
        self.L, self.R, self.x = np.zeros((n, m)), 1.0, np.full((n, m), 1.0 / n)
        self.D, self.V, self.began, self.asleep_until = 0.0, grace, 0, 1
        self.not_product, self.w, self.t = False, 1.0, 0
        self.alarms = self.rejections = self.sleeps = 0

    @property
    def s(self):
        s = np.zeros((self.n, self.m))
        for ranking in self.lists:
            s[ranking, np.arange(self.m)] += 1.0 / self.pool
        return s

    @property
    def p(self):
        return self.w * self.x + (1.0 - self.w) * self.s

    def learn(self, ranking, propensity, clicks):
        self.t += 1
        cells, lost = (ranking, np.arange(self.m)), 1.0 - clicks
        b = 1.0 - (self.C + 0.5) / (self.N + 1.0)
        limited = np.minimum(b, self.p * sqrt(self.R) / (4.0 * np.sqrt(self.x)))
        self.L += limited
        self.L[cells] += (lost - limited[cells]) / propensity
        self.R += max(0.1, 4.0 / self.m * ((lost - b[cells]) ** 2).sum()) / self.w
        if self.w < 1.0:
            g = np.clip((self.s - self.x)[cells] / propensity, -1.0 / self.q, 1.0 / self.q)
            alpha = (1.0 - self.w) / (1.0 - self.ruled())
            steps = alpha * np.array([((self.s - self.x) * b).sum(), *(g * (lost - b[cells]))])
            self.D += steps.sum()
            self.V += (steps**2).sum()
        self.N[cells] += 1.0
        self.C[cells] += clicks
        mix_in(self.stream, ranking)
        history = self.memory.rounds
        if self.memory.add(ranking.tolist(), clicks.tolist()):
            self.alarms += 1
            self.recall(history[: len(history) - len(self.memory.rounds)])
            self.N, self.C = self.memory.counts(self.memory.rounds)
            self.due = 0
            if self.t - self.began >= self.t / 8.0:
                self.begin()
        self.share()
        self.x = leader(self.L, 1.0 / sqrt(self.R), tol=1e-10).marginals

    def recall(self, ended):
        """Keep the rounds before a change as a regime; remember those of an earlier one that fits the rounds since."""
        misfits = {k: self.misfit(r) for k, r in enumerate(self.regimes) if r and k != self.present}
        best = min(misfits, key=lambda k: (misfits[k], -k), default=None)
        chosen = best if best is not None and misfits[best] <= 0.7 else None
        if len(ended) >= 64 and self.regimes:
            slot = self.present
            if slot is None:
                slot = self.next_slot if self.next_slot != chosen else (chosen + 1) % len(self.regimes)
                self.next_slot = (slot + 1) % len(self.regimes)
            if slot != chosen:
                self.regimes[slot] = ended
        self.present = chosen
        if chosen is not None:
            self.recalls += 1
            self.memory.rounds = self.regimes[chosen] + self.memory.rounds

    def misfit(self, regime):
        (n1, c1), (n2, c2) = self.memory.counts(regime), self.memory.counts(self.memory.rounds)
        pairs = [k for k in np.ndindex(n1.shape) if n1[k] and n2[k]]
        if sum(n2[k] for k in pairs) < max(1.0, 0.5 * n2.sum()):
            return inf
        distance = sum(log_likelihood_ratio(n1[k], c1[k], n2[k], c2[k]) for k in pairs)
        return distance / (0.5 * len(pairs) + 1.5 * sqrt(len(pairs)) + 2.0)

    def ruled(self):
        ratio = self.D / sqrt(self.V)
        w = 0.5 + ratio / (2.0 * (self.c if ratio > 0 else self.sampler_width))
        return min(1.0 - self.q, max(self.q, w))

    def begin(self):
        self.D, self.V, self.began = 0.0, self.grace, self.t

    def is_not_a_product(self):
        n, m, distance, pairs = self.n, self.m, 0.0, 0
        for i, j in np.ndindex(n, m):
            shown, clicked = self.N[i, j], self.C[i, j]
            if shown >= 10:
                rate = min(max(self.alpha[i] * self.beta[j], 0.001), 0.999)
                distance += log_likelihood(shown, clicked) - clicked * log(rate) - (shown - clicked) * log(1.0 - rate)
                pairs += 1
        least = pairs / 2 + (n + m) / 2 + 1.5 * sqrt(pairs + n + m) + log(self.t)
        return len(self.memory.rounds) >= 1000 and distance > least

    def share(self):
        if self.t < self.asleep_until:
            return
        if self.t == self.asleep_until:
            self.begin()
            for _ in range(self.pool):
                self.new_list()
        if self.t == self.asleep_until or self.t % 512 == 0:
            self.not_product = self.is_not_a_product()
            self.rejections += self.not_product
        ratio = self.D / sqrt(self.V)
        if ratio >= self.c:
            self.w, self.asleep_until = 1.0, ceil(1.5 * self.t)
            self.sleeps += 1
            return
        least = max(0.5 if self.not_product else self.q, 200.0 * self.q / sqrt(self.t))
        self.w = min(1.0 - self.q, max(least, self.ruled()))
        self.due -= 1
        if self.due <= 0:
            self.new_list()

    def new_list(self):
        counts, ranking = make_counts(self.n, self.m), np.zeros(self.m, np.int64)
        counts.shown[:], counts.clicked[:] = self.N, self.C
        work = np.zeros((3, self.m)), ranking, make_placement_work(self.n, self.m)
        if self.not_product:
            work = *work, np.zeros((self.n, self.m))
        sample = sample_list_of_pairs if self.not_product else sample_list
        sample(counts, np.arange(self.n), self.sweeps, self.stream, self.alpha, self.beta, *work)
        self.lists = [*self.lists, ranking][-self.pool :]
        self.due = max(1 + self.n // 25, min(max(4, self.n * self.m // 16), len(self.memory.rounds) // 64))
