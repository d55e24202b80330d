"""Uniform random numbers, from a Generator of the caller or from a random stream that is part of a state.

``decide`` gets its random generator from the caller and must not change the state. A policy whose *learning* is random
(a Markov chain that continues from round to round, probabilities estimated by redrawing) has a ``Stream`` in its state:
it is saved with the state, and the same feedback gives the same future.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload_method
from numpy.typing import NDArray

from ...kernels import inner_kernel

SHIFT_A, SHIFT_B, SHIFT_C, TO_53_BITS = np.uint64(23), np.uint64(17), np.uint64(26), np.uint64(11)
UP, TO_TOP = np.uint64(30), np.uint64(60)
UNIT = 2.0**-53


class Stream(NamedTuple):
    """The state of a random stream: xorshift128, of which the upper 53 bits are used."""

    words: NDArray[np.uint64]  # (2,)

    def random(self) -> float:
        """Return a uniform number from [0, 1), so that kernels accept a stream in place of a Generator."""
        return getattr(_step, "py_func", _step)(self)


def make_stream(*key: int) -> Stream:
    """Return the stream of a key; different keys have different streams."""
    return Stream(np.random.SeedSequence(key).generate_state(2, np.uint64).astype(np.uint64))


@overload_method(types.NamedUniTuple, "random", strict=False)
def _random(source: Any) -> Any:
    return (lambda source: _step(source)) if source.instance_class is Stream else None


@inner_kernel
def _step(stream: Stream) -> float:
    words = stream.words
    s, t = words[0], words[1]
    words[0] = t
    s ^= s << SHIFT_A
    s ^= s >> SHIFT_B
    s ^= t ^ (t >> SHIFT_C)
    words[1] = s
    return (s >> TO_53_BITS) * UNIT


@inner_kernel
def absorb(stream: Stream, ranking: Any) -> None:
    """Mix a ranking into the stream, so that different histories have different random numbers."""
    for j in range(ranking.size):
        item = np.uint64(ranking[j] + 1)
        # Uniform numbers use the high bits, which the low bits reach only after many steps.
        stream.words[0] ^= item ^ (item << UP) ^ (item << TO_TOP)
        _step(stream)
    for _ in range(4):
        _step(stream)
