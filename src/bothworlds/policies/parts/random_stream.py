"""Randomness: uniform numbers from a generator that is handed in, or from one that a state carries along.

Deciding gets its randomness from the caller, and must leave the state as it is. A policy whose *learning* is random (a
Markov chain that goes on from round to round, probabilities estimated by drawing again) carries a ``Stream`` in its
state: it is saved with it, and the same feedback gives the same future.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload, overload_method
from numpy.typing import NDArray

from ...kernels import inner_kernel

__all__ = ["Stream", "absorb", "make_stream", "uniform"]

SHIFT_A, SHIFT_B, SHIFT_C, TO_53_BITS = np.uint64(23), np.uint64(17), np.uint64(26), np.uint64(11)
UP, TO_TOP = np.uint64(30), np.uint64(60)
UNIT = 2.0**-53


class Stream(NamedTuple):
    """A random stream in two words: xorshift128, of which the upper 53 bits are used."""

    words: NDArray[np.uint64]  # (2,)

    def random(self) -> float:
        """A uniform number from [0, 1), so that a stream can stand in wherever kernels are handed a Generator."""
        return uniform(self)


def make_stream(*key: int) -> Stream:
    """A stream of its own for every key.

    >>> bool(uniform(make_stream(1)) == uniform(make_stream(1)) != uniform(make_stream(2)))
    True
    """
    return Stream(np.random.SeedSequence(key).generate_state(2, np.uint64).astype(np.uint64))


def uniform(source: Any) -> float:
    """A uniform number from [0, 1), from a ``numpy.random.Generator`` or from a stream."""
    return source.random() if isinstance(source, np.random.Generator) else getattr(_step, "py_func", _step)(source)


@overload(uniform, strict=False)
def _uniform(source: Any) -> Any:
    if isinstance(source, types.NumPyRandomGeneratorType):
        return lambda source: source.random()
    return lambda source: _step(source)


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
    """Make what follows depend on what was shown, so that no two histories share their randomness."""
    for j in range(ranking.size):
        item = np.uint64(ranking[j] + 1)
        # Low bits take many steps to reach the top ones, which are what a uniform number is made of.
        stream.words[0] ^= item ^ (item << UP) ^ (item << TO_TOP)
        _step(stream)
    for _ in range(4):
        _step(stream)
