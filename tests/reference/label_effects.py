"""Effects of labels in plain NumPy: one array of all effects, one kind after the other, and no windows kept online."""

from __future__ import annotations

import math

import numpy as np

WINDOWS = (300, 1500, 6000)


class LabelEffectsTwin:
    """Learns pages; keeps every score with its age, so that windows are sums over the past."""

    def __init__(self, sizes, item_labels, slots):
        n = item_labels.shape[1]
        self.sizes, self.m = [1, *sizes], slots
        self.items = np.vstack([np.zeros((1, n), int), item_labels, np.arange(n)[None]])
        item_sizes = [*(self.items[:-1].max(axis=1) + 1), n]
        labellings, last = len(self.sizes), len(item_sizes) - 1
        self.kinds = [(k, g) for k in range(labellings) for g in range(last + 1)]
        self.kinds += [(k, "slot") for k in range(labellings)] + ["pair"]
        self.start, self.shape = {}, {}
        for kind in self.kinds:
            if kind == "pair":
                self.start[kind], self.shape[kind] = 0.01, (slots, n)
            elif kind[1] == "slot":
                self.start[kind], self.shape[kind] = 4.0 if kind[0] == 0 else 0.02, (self.sizes[kind[0]], slots)
            else:
                k, g = kind
                first = 4.0 if k == g == 0 else 1.0 if (k, g) == (0, last) else 0.1 if k == 0 or g == 0 else 0.01
                self.start[kind], self.shape[kind] = first, (self.sizes[k], item_sizes[g])
        self.fixed = {(0, 0), (0, "slot")}
        self.forget()
        self.pages, self.last_alarm, self.alarms = 0, 0, []

    def forget(self):
        self.tau = dict(self.start)
        self.mean = {kind: np.zeros(self.shape[kind]) for kind in self.kinds}
        self.information = {kind: np.zeros(self.shape[kind]) for kind in self.kinds}
        self.past, self.since, self.due = [], 0, 10

    def active(self, context, i, j):
        """The effects in the sum of attraction, and those in the sum of examination."""
        x = [0, *context]
        last = len(self.items) - 1
        a = [((k, g), (x[k], self.items[g, i])) for k in range(len(x)) for g in range(last + 1)] + [("pair", (j, i))]
        return a, [((k, "slot"), (x[k], j)) for k in range(len(x))]

    def variance(self, kind, cell):
        return 1.0 / (self.information[kind][cell] + 1.0 / self.tau[kind])

    def learn(self, context, ranking, clicks):
        for j, (i, y) in enumerate(zip(ranking, clicks)):
            of_a, of_b = self.active(context, i, j)
            a, b = (
                1.0 / (1.0 + math.exp(-min(6.0, max(-8.0, base + sum(self.mean[q][cell] for q, cell in active)))))
                for base, active in ((-1.0, of_a), (0.5, of_b))
            )
            p = a * b
            steps = [(q, cell, p * (1.0 - a)) for q, cell in of_a] + [(q, cell, p * (1.0 - b)) for q, cell in of_b]
            v = {(q, cell): self.variance(q, cell) for q, cell, _ in steps}
            spread = p * (1.0 - p) + sum(h * h * v[q, cell] for q, cell, h in steps)
            for q, cell, h in steps:
                self.mean[q][cell] += v[q, cell] * h * (y - p) / spread
                self.information[q][cell] += h * h / (p * (1.0 - p))
                self.past.append((self.pages, q, cell, (y - p) * h / (p * (1.0 - p)), h * h / (p * (1.0 - p))))
        self.pages += 1
        self.since += 1
        self.due -= 1
        if self.due == 0:
            self.refresh()

    def refresh(self):
        self.test()
        for kind in self.kinds:
            if kind not in self.fixed:
                self.fit(kind)
        self.due = min(500, max(10, self.since // 50))

    def fit(self, kind):
        """Fit a variance; h stays."""
        information, start = self.information[kind], self.start[kind]
        h, seen = self.mean[kind] * (information + 1.0 / self.tau[kind]), information > 0.0
        for _ in range(4):
            precision = information + 1.0 / self.tau[kind]
            squares = ((h / precision) ** 2 + 1.0 / precision)[seen].sum()
            self.tau[kind] = min(4.0, max(1e-4, (2.0 * start + squares) / (2.0 + seen.sum())))
        self.mean[kind] = h / (information + 1.0 / self.tau[kind])

    def deviations(self):
        """The largest Z of every effect over the windows with enough information."""
        found = {}
        for width in WINDOWS:
            sums = {}
            for page, q, cell, u, gain in self.past:
                weight = (1.0 - 1.0 / width) ** (self.pages - page)
                total = sums.setdefault((q, cell), np.zeros(3))
                total += weight * u, weight * gain, weight * weight * gain
            for (q, cell), (u, gain, squared) in sums.items():
                if gain > 5.0:
                    earlier = max(0.0, self.information[q][cell] - gain) + 1.0 / self.tau[q]
                    z = u * u / (2.0 * (squared + gain * gain / earlier))
                    found[q, cell] = max(z, found.get((q, cell), 0.0))
        return found

    def test(self):
        if self.pages < 1000 or (self.last_alarm and self.pages - self.last_alarm < self.pages // 8):
            return
        found = self.deviations()
        effects = sum(mean.size for mean in self.mean.values())
        if max(found.values(), default=0.0) <= math.log(3 * effects) + math.log(self.pages) + 3.0:
            return
        self.last_alarm = self.pages
        whole = sum(z > 3.0 for z in found.values()) > len(found) / 7.0
        self.alarms.append((self.pages, whole))
        if whole:
            self.forget()
            self.since = 0
            return
        for (q, cell), z in found.items():
            if z > 10.0:
                self.information[q][cell] = 0.0
        self.past = []

    def table(self, values):
        """Arrays by kind as the table of the package: rows of labels, then positions; 0 where there is no kind."""
        labellings, last = len(self.sizes), len(self.items) - 1
        rows = [np.hstack([values[k, g] for g in [*range(last + 1), "slot"]]) for k in range(labellings)]
        width = rows[0].shape[1]
        pairs = np.zeros((self.m, width))
        n = self.items.shape[1]
        pairs[:, width - self.m - n : width - self.m] = values["pair"]
        return np.vstack([*rows, pairs])

    def variances(self):
        labellings, last = len(self.sizes), len(self.items) - 1
        table = np.zeros((labellings + 1, last + 2))
        for k in range(labellings):
            table[k] = [self.tau[k, g] for g in [*range(last + 1), "slot"]]
        table[-1, -2] = self.tau["pair"]
        return table

    def list_of(self, drawn, context):
        """The list of a draw of all effects, given as a table, for a context."""
        sizes = [1, *(self.items[1:-1].max(axis=1) + 1), self.items.shape[1]]
        first = np.cumsum([0, *sizes])
        rows = np.add(np.cumsum([0, *self.sizes])[:-1], [0, *context])
        score = sum(drawn[rows][:, first[g] + self.items[g]].sum(axis=0) for g in range(len(self.items)))
        examination = drawn[rows][:, first[-1] :].sum(axis=0)
        ranking = np.zeros(self.m, int)
        ranking[np.argsort(-examination, kind="stable")] = np.argsort(-score, kind="stable")[: self.m]
        return ranking
