"""Clicks of product form: attraction of the item times examination of the position; and rates of pairs that are not."""

from __future__ import annotations

import math

from ...kernels import Floats, inner_kernel
from ...statistics.kl import kl
from .counts import Counts
from .random_stream import Stream
from .samplers import beta

LEAST_ROUNDS = 1000.0  # the product form is tested if so many rounds are remembered
LEAST_SHOWN = 10.0  # pairs shown less often are left out of that test
EDGE = 0.001  # click probabilities of the product form are kept this far from 0 and 1
PAIR_PRIOR = 8.0  # impressions that the product form counts for, where clicks are not of that form


@inner_kernel
def is_not_a_product(counts: Counts, attraction: Floats, examination: Floats) -> bool:
    """Whether the clicks differ from a product of attraction and examination by more than chance explains."""
    n, m = counts.shown.shape
    distance, pairs = 0.0, 0.0
    for i in range(n):
        for j in range(m):
            shown = counts.shown[i, j]
            if shown >= LEAST_SHOWN:
                distance += shown * kl(counts.clicked[i, j] / shown, product_rate(attraction[i], examination[j]))
                pairs += 1.0
    free = pairs + n + m
    chance = 0.5 * free + 1.5 * math.sqrt(free) + math.log(float(counts.learned[0]))
    return counts.rounds[0] >= LEAST_ROUNDS and distance > chance


@inner_kernel
def draw_rates(counts: Counts, attraction: Floats, examination: Floats, stream: Stream, rates: Floats) -> None:
    """Draw the click probability of every pair, given its own clicks and the product form as its prior mean."""
    n, m = counts.shown.shape
    for i in range(n):
        for j in range(m):
            clicked, missed = counts.clicked[i, j], counts.shown[i, j] - counts.clicked[i, j]
            mean = product_rate(attraction[i], examination[j])
            rates[i, j] = beta(stream, clicked + PAIR_PRIOR * mean, missed + PAIR_PRIOR * (1.0 - mean))


@inner_kernel
def product_rate(attraction: float, examination: float) -> float:
    """Return the click probability of a pair in product form."""
    return min(max(attraction * examination, EDGE), 1.0 - EDGE)
