"""Samples the list of an event: exactly with the probabilities of the policy, and reproducible from its seed.

The rows of the marginals x are packed into at most 2m + 1 bins with sums of at most 1, as in ``geometry.sampling``. A
list of different bins is drawn, whose marginals are the sums B of the rows in each bin. Then an item of each bin is
drawn, in proportion to x at the slot: item i of bin b is at slot j with probability B[b, j] (x[i, j] / B[b, j]).
Cumulative sums within the bins are computed in advance, so that a draw takes a binary search for each slot, and its
time does not grow with the number of items. Few items are drawn without bins of this kind: each has one of its own.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from ...geometry.sampling import Urn, draw, make_urn, prepare
from ...kernels import Floats, Ints, kernel, locked_kernel
from ...policies.parts.random_stream import Stream

__all__ = ["ListSampler", "draw_list", "make_list_sampler"]

FEW_ITEMS = 200

_words = struct.Struct("<qq").unpack_from


class ListSampler(NamedTuple):
    """Marginals prepared for sampling. Drawing uses its work arrays: only one thread at a time."""

    bins: Floats  # (k, m) sums of the rows in each bin
    urn: Urn  # of the bins
    start: Ints  # (k + 1,) where the members of each bin begin
    members: Ints  # (n,) rows, by bin
    cumulative: Floats  # (m, n) sums of the marginals of the members of a bin up to and including each
    stream: Stream
    ranking: Ints  # (m,)


def make_list_sampler(marginals: Floats) -> ListSampler:
    """Prepares sampling with these marginals, which must be feasible."""
    n, m = marginals.shape
    if n <= FEW_ITEMS:
        start, members, cumulative = np.arange(n + 1), np.arange(n), np.ascontiguousarray(marginals.T)
    else:
        start, members, cumulative = _packed(marginals)
    bins = np.ascontiguousarray(cumulative[:, start[1:] - 1].T)
    urn = make_urn(len(bins), m)
    prepare(bins, urn)
    stream, ranking = Stream(np.zeros(2, np.uint64)), np.zeros(m, np.int64)
    return ListSampler(bins, urn, start, members, cumulative, stream, ranking)


def _packed(marginals: Floats) -> tuple[Ints, Ints, Floats]:
    """Returns ``start``, ``members`` and ``cumulative`` of a sampler with at most 2m + 1 bins."""
    n, m = marginals.shape
    rows = make_urn(n, m)
    prepare(marginals, rows)
    start, members, cumulative = np.zeros(rows.bins[0] + 1, np.int64), np.zeros(n, np.int64), np.zeros((m, n))
    _accumulate(marginals, rows, start, members, cumulative)
    return start, members, cumulative


def draw_list(sampler: ListSampler, seed: bytes) -> list[int]:
    """Returns the row of the item at every slot, for a seed of 16 bytes.

    >>> sampler = make_list_sampler(np.full((5, 3), 0.2))
    >>> draw_list(sampler, bytes(range(16))) == draw_list(sampler, bytes(range(16)))
    True
    """
    first, second = _words(seed)
    _seed_and_draw(sampler, first, second)
    drawn: list[int] = sampler.ranking.tolist()
    return drawn


@kernel
def _accumulate(x: Floats, rows: Urn, start: Ints, members: Ints, cumulative: Floats) -> None:
    m = x.shape[1]
    place = 0
    for b in range(rows.bins[0]):
        start[b] = place
        i = rows.head[b]
        while i >= 0:
            members[place] = i
            for j in range(m):
                before = cumulative[j, place - 1] if place > start[b] else 0.0
                cumulative[j, place] = before + x[i, j]
            place += 1
            i = rows.following[i]
    start[rows.bins[0]] = place


@locked_kernel
def _seed_and_draw(sampler: ListSampler, first: int, second: int) -> None:
    stream, ranking, start = sampler.stream, sampler.ranking, sampler.start
    stream.words[0] = np.uint64(first)
    stream.words[1] = np.uint64(second) | np.uint64(1)  # a state of all zeros would never change
    draw(sampler.bins, stream, sampler.urn, ranking)
    for j in range(ranking.size):
        b = ranking[j]
        low, high = start[b], start[b + 1] - 1
        left = stream.random() * sampler.cumulative[j, high] if low < high else 0.0
        while low < high:  # the first member whose cumulative sum is greater than ``left``
            middle = (low + high) // 2
            if sampler.cumulative[j, middle] > left:
                high = middle
            else:
                low = middle + 1
        ranking[j] = sampler.members[low]
