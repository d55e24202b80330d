"""Samples the list of an event: exactly with the probabilities of the policy, and reproducible from its seed."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from ...geometry.sampling import Urn, draw, make_urn, prepare
from ...kernels import Floats, Ints, kernel
from ...policies.parts.random_stream import Stream

__all__ = ["ListSampler", "draw_list", "make_list_sampler"]

_words = struct.Struct("<qq").unpack_from


class ListSampler(NamedTuple):
    """Marginals prepared for sampling. Drawing uses its work arrays: only one thread at a time."""

    marginals: Floats  # (n, m)
    urn: Urn
    stream: Stream
    ranking: Ints  # (m,)


def make_list_sampler(marginals: Floats) -> ListSampler:
    """Prepares sampling with these marginals, which must be feasible."""
    n, m = marginals.shape
    urn = make_urn(n, m)
    prepare(marginals, urn)
    return ListSampler(marginals, urn, Stream(np.zeros(2, np.uint64)), np.zeros(m, np.int64))


def draw_list(sampler: ListSampler, seed: bytes) -> list[int]:
    """Returns the row of the item at every slot, for a seed of 16 bytes.

    >>> sampler = make_list_sampler(np.full((5, 3), 0.2))
    >>> draw_list(sampler, bytes(range(16))) == draw_list(sampler, bytes(range(16)))
    True
    """
    first, second = _words(seed)
    _seed_and_draw(sampler.marginals, sampler.urn, sampler.stream, first, second, sampler.ranking)
    drawn: list[int] = sampler.ranking.tolist()
    return drawn


@kernel
def _seed_and_draw(x: Floats, urn: Urn, stream: Stream, first: int, second: int, ranking: Ints) -> None:
    stream.words[0] = np.uint64(first)
    stream.words[1] = np.uint64(second) | np.uint64(1)  # a state of all zeros would never change
    draw(x, stream, urn, ranking)
