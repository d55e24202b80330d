"""Newton's method for a maximum in a box, with second derivatives in the form of an arrow.

The maximum may be at the bounds: a variable at a bound whose derivative points outwards is held there, and released as
soon as the derivative points inwards (the Karush-Kuhn-Tucker conditions). The objective need not be concave: a multiple
of the diagonal is added to the second derivatives until they are definite and the step gains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..kernels import Floats, Ints, kernel

MAX_STEPS = 300
TOLERANCE = 1e-11  # of the gain that a full Newton step predicts
ROUNDING = 4e-15  # rounding error of the objective, relative to it
INWARD = 0.9  # share of the distance to a bound at which the objective is infinite that a step may take
LEAST_DAMPING, MOST_DAMPING = 1e-14, 1e14

Mask = NDArray[np.bool_]


class Arrow(NamedTuple):
    """A symmetric matrix of dense blocks, which have no entries between them, and a border of shared variables.

    ``own[b]`` has the variables of block b, ``blocks[b]`` its entries, and ``border[b]`` those with the shared
    variables, which come last. If all blocks have size 1, ``own`` is empty and ``blocks[0]`` and ``border[0]`` hold
    all of them.
    """

    own: Sequence[Ints]
    blocks: Sequence[Floats]
    border: Sequence[Floats]
    corner: Floats

    def solve(self, right: Floats, free: Mask, added: Floats) -> Floats | None:
        """Solve (matrix + diag(added)) x = right for the free variables; None if it is not positive definite.

        ``right`` (n,) or (n, columns). Variables that are not free are 0.
        """
        n = len(right) - len(self.corner)
        b = right.reshape(len(right), -1)
        columns, x = b.shape[1], np.zeros_like(b)
        shared = np.flatnonzero(free[n:])
        schur = (self.corner + np.diag(added[n:]))[np.ix_(shared, shared)]
        rest, kept = b[n:][shared].copy(), []
        for own, block, border in self._parts(n):
            inside = np.flatnonzero(free[own])
            rows, sides = own[inside], border[np.ix_(inside, shared)]
            solved = np.column_stack([b[rows], sides])
            if not _divide(block, inside, added[rows], solved):
                return None
            schur -= sides.T @ solved[:, columns:]
            rest -= sides.T @ solved[:, :columns]
            kept.append((rows, solved))
        if not solve_definite(schur, rest):
            return None
        x[n + shared] = rest
        for rows, solved in kept:
            x[rows] = solved[:, :columns] - solved[:, columns:] @ rest
        return x.reshape(right.shape) if np.isfinite(x).all() else None

    def variances(self, free: Mask, added: Floats) -> Floats | None:
        """Return the diagonal of the inverse of matrix + diag(added), for the free variables; 0 for the others.

        None if the matrix is not positive definite.
        """
        n = free.size - len(self.corner)
        unit = np.zeros((free.size, len(self.corner)))
        unit[n:] = np.eye(len(self.corner))
        cover = self.solve(unit, free, added)
        if cover is None:
            return None
        variance = np.zeros(free.size)
        variance[n:] = np.diag(cover[n:])
        # The inverse of a block plus what the shared variables add: X C X', with X = block^-1 border.
        for own, block, border in self._parts(n):
            inside = np.flatnonzero(free[own])
            rows = own[inside]
            if block.ndim == 1:
                pivot = block[inside] + added[rows]
                variance[rows] = 1.0 / pivot
                solved = border[inside] / pivot[:, None]
            else:
                inverse = np.eye(inside.size)
                _divide(block, inside, added[rows], inverse)
                variance[rows] = np.diag(inverse)
                solved = inverse @ border[inside]
            variance[rows] += ((solved @ cover[n:]) * solved).sum(axis=1)
        return variance

    def diagonal(self) -> Floats:
        """Return the diagonal."""
        shared = len(self.corner)
        n = (len(self.blocks[0]) if not self.own else sum(len(own) for own in self.own)) if self.blocks else 0
        result = np.zeros(n + shared)
        result[n:] = np.diag(self.corner)
        for own, block, _ in self._parts(n):
            result[own] = block if block.ndim == 1 else np.diag(block)
        return result

    def _parts(self, n: int) -> list[tuple[Ints, Floats, Floats]]:
        own = self.own if self.own else [np.arange(n)]
        return list(zip(own, self.blocks, self.border))


def _divide(block: Floats, inside: Ints, added: Floats, right: Floats) -> bool:
    """Solve (block + diag(added)) x = right in place, for some of its variables; False if it is not definite."""
    if block.ndim == 1:
        pivot = block[inside] + added
        right /= np.where(pivot > 0.0, pivot, 1.0)[:, None]
        return bool((pivot > 0.0).all())
    return bool(solve_definite(block[np.ix_(inside, inside)] + np.diag(added), right))


@kernel
def solve_definite(a: Floats, b: Floats) -> bool:
    """Solve a x = b in place for a symmetric matrix, which is overwritten; False if it is not positive definite.

    Compiled, since a library that uses several threads for small matrices is slow on a busy machine.
    """
    n, columns = b.shape
    for k in range(n):
        if not a[k, k] > 0.0:
            return False
        for i in range(k + 1, n):
            f = a[k, i] / a[k, k]
            if f != 0.0:
                for j in range(i, n):
                    a[i, j] -= f * a[k, j]
                for c in range(columns):
                    b[i, c] -= f * b[k, c]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            for c in range(columns):
                b[i, c] -= a[i, j] * b[j, c]
        for c in range(columns):
            b[i, c] /= a[i, i]
    return True


class Objective(Protocol):
    """What is maximised. Variables of the blocks come first, the shared ones last; all are from 0 to 1."""

    def value(self, x: Floats) -> float:
        """Return the objective; it may be minus infinity at bounds."""

    def gradient(self, x: Floats) -> tuple[float, Floats]:
        """Return the objective and its derivatives."""

    def curvature(self, x: Floats) -> Arrow:
        """Return minus its second derivatives."""


class Maximum(NamedTuple):
    """The result of :func:`maximise`, with its certificate.

    ``gain`` is what the last full Newton step predicted to gain, and ``converged`` whether it is negligible and the
    signs of all derivatives at bounds are right.
    """

    x: Floats
    value: float
    gradient: Floats
    steps: int
    converged: bool
    gain: float


def maximise(objective: Objective, start: Floats, fixed: Mask, steps: int = MAX_STEPS) -> Maximum:
    """Return a local maximum for variables from 0 to 1; ``fixed`` ones keep their values."""
    x, damping, gain = start.copy(), 0.0, np.inf
    value, slope = objective.gradient(x)
    for step in range(steps):
        held = fixed | ((x <= 0.0) & (slope <= 0.0)) | ((x >= 1.0) & (slope >= 0.0))
        free = ~held
        if not free.any():
            return Maximum(x, value, slope, step, True, 0.0)
        arrow, right = objective.curvature(x), np.where(free, slope, 0.0)
        # Where curvature vanishes, derivatives have the size of the entries beside the diagonal.
        scale = np.abs(arrow.diagonal()) + np.abs(right) + 1e-10
        gain = _newton_gain(arrow, right, free, scale)
        if gain <= TOLERANCE + ROUNDING * abs(value):
            return Maximum(x, value, slope, step, True, gain)
        while damping <= MOST_DAMPING:
            move = arrow.solve(right, free, (damping + LEAST_DAMPING) * scale)
            if move is not None:
                trial = _inside(x, move)
                reached = objective.value(trial)
                expected = float(slope @ (trial - x))
                if expected > 0.0 and reached >= value + 1e-4 * expected - ROUNDING * abs(value):
                    break
            damping = max(10.0 * damping, 1e-8)
        else:
            return Maximum(x, value, slope, step, False, gain)
        x = trial
        damping = damping / 10.0 if damping > 1e-8 else 0.0
        value, slope = objective.gradient(x)
    return Maximum(x, value, slope, steps, False, gain)


def _newton_gain(arrow: Arrow, right: Floats, free: Mask, scale: Floats) -> float:
    """What a full Newton step predicts to gain; infinite if the second derivatives are not definite."""
    for damping in (LEAST_DAMPING, 1e-9):
        move = arrow.solve(right, free, damping * scale)
        if move is not None:
            return float(right @ move)
    return float("inf")


def _inside(x: Floats, move: Floats) -> Floats:
    """The end of a step; a variable inside the box goes at most a share of the way to a bound, unless it is near it."""
    low, high = x * (1.0 - INWARD), 1.0 - (1.0 - x) * (1.0 - INWARD)
    near = 1e-9
    low, high = np.where(x < near, 0.0, low), np.where(x > 1.0 - near, 1.0, high)
    return np.clip(x + move, low, high)
