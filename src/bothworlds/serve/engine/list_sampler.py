"""Drawing a list for an event: exactly with the probabilities of the policy, and always the same for the same event."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from ...geometry.sampling import Urn, draw, make_urn, prepare
from ...kernels import Floats, Ints, kernel
from ...policies.parts.random_stream import Stream

__all__ = ["Wheel", "make_wheel", "spin"]

_words = struct.Struct("<qq").unpack_from


class Wheel(NamedTuple):
    """Marginals, ready to draw from. Drawing uses the room in it: one thread at a time."""

    marginals: Floats  # (n, m)
    urn: Urn
    stream: Stream
    ranking: Ints  # (m,)


def make_wheel(marginals: Floats) -> Wheel:
    """Get ready to draw with these marginals, which must be feasible."""
    n, m = marginals.shape
    urn = make_urn(n, m)
    prepare(marginals, urn)
    return Wheel(marginals, urn, Stream(np.zeros(2, np.uint64)), np.zeros(m, np.int64))


def spin(wheel: Wheel, seed: bytes) -> list[int]:
    """The row of the item at every slot, for 16 bytes of seed.

    >>> wheel = make_wheel(np.full((5, 3), 0.2))
    >>> spin(wheel, bytes(range(16))) == spin(wheel, bytes(range(16)))
    True
    """
    first, second = _words(seed)
    _seed_and_draw(wheel.marginals, wheel.urn, wheel.stream, first, second, wheel.ranking)
    drawn: list[int] = wheel.ranking.tolist()
    return drawn


@kernel
def _seed_and_draw(x: Floats, urn: Urn, stream: Stream, first: int, second: int, ranking: Ints) -> None:
    stream.words[0] = np.uint64(first)
    stream.words[1] = np.uint64(second) | np.uint64(1)  # all zeros would stay so
    draw(x, stream, urn, ranking)
