"""The regularised leader the slow and obvious way, three times over. None shares a line with the compiled solver.

* ``by_slsqp`` hands the problem to SciPy as it stands; for a dozen unknowns.
* ``by_interior_point`` is Newton on the primal with all unknowns in one dense system; for some hundred unknowns.
* ``by_sweeps`` is block-coordinate ascent on the dual, every root by bisection; for any size, but slow to converge.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from .regularizers import conjugate, curvature, marginal, phi, slope


def objective(x, loss, rate, regularizer):
    """What the leader minimises. Extended precision, where the machine has it, to tell small gaps from rounding."""
    x, loss, rate = (np.asarray(a, np.longdouble) for a in (x, loss, rate))
    return np.sum(loss * x + phi(regularizer, x) / rate)


def dual_value(lam, mu, loss, rate, regularizer):
    """The Lagrangian's minimum over x for given multipliers: never above the optimum, if mu >= 0."""
    lam, mu, loss, rate = (np.asarray(a, np.longdouble) for a in (lam, mu, loss, rate))
    z = loss + lam + mu[:, None]
    return np.sum(conjugate(regularizer, -rate * z) / rate) - lam.sum() - mu.sum()


def by_slsqp(loss, rate, regularizer):
    """Minimise with SciPy's general solver, in units in which the objective is of the order of one."""
    n, m = loss.shape
    if n == 1:
        return np.ones((1, 1))
    unit = 1 / (np.ptp(loss) + np.max(1 / np.asarray(rate)))
    columns = np.kron(np.ones((1, n)), np.eye(m))
    rows = np.kron(np.eye(n), np.ones((1, m)))
    constraints = [{"type": "eq", "fun": lambda x: columns @ x - 1, "jac": lambda x: columns}]
    if n > m:
        constraints.append({"type": "ineq", "fun": lambda x: 1 - rows @ x, "jac": lambda x: -rows})
    else:  # one row follows from the others
        constraints.append({"type": "eq", "fun": lambda x: rows[1:] @ x - 1, "jac": lambda x: rows[1:]})

    def value(x):
        return unit * float(objective(x.reshape(n, m), loss, rate, regularizer))

    def gradient(x):
        x = x.reshape(n, m)
        return unit * (loss + slope(regularizer, x) / rate).ravel()

    # Just inside, where all derivatives are finite.
    bounds = [(1e-9, 1 - 1e-9)] * (n * m)
    found = minimize(
        value, np.full(n * m, 1 / n), jac=gradient, bounds=bounds, constraints=constraints, method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    )  # fmt: skip
    return found.x.reshape(n, m)


def by_interior_point(loss, rate, regularizer, tol=1e-8, max_steps=300):
    """Newton on the optimality conditions, all at once: x, the multipliers, and mu_i * slack_i = t with t -> 0.

    With n = m every row is full for all x: the rows are then equations, all but the last of them independent.
    """
    n, m = loss.shape
    if n == 1:
        return np.ones((1, 1))
    eta = np.broadcast_to(np.asarray(rate, float), (n, m)).ravel()
    cost = (loss - loss.min(axis=0)).ravel()  # a column's constant changes nothing, but costs digits
    unit = eta.max()
    cost, weight = cost * unit, unit / eta
    columns = np.kron(np.ones((1, n)), np.eye(m))
    rows = np.kron(np.eye(n), np.ones((1, m)))
    equations = columns if n > m else np.vstack([columns, rows[:-1]])
    walls = rows if n > m else rows[:0]
    x, lam, mu = np.full(n * m, 1 / n), np.zeros(len(equations)), np.ones(len(walls))
    for _ in range(max_steps):
        slack = 1 - walls @ x
        t = 0.1 * np.mean(mu * slack) if len(walls) else 0.0
        dual = cost + weight * slope(regularizer, x) + equations.T @ lam + walls.T @ mu
        primal = equations @ x - 1
        # Relative to the curvature, so that it is x that is accurate.
        steepness = weight * curvature(regularizer, x)
        # A row that is only just full feels t as its square root.
        if max(np.abs(dual / steepness).max(), np.abs(primal).max()) < tol and t < 1e-14:
            return x.reshape(n, m)
        hessian = np.diag(steepness) + walls.T @ np.diag(mu / slack) @ walls
        k = len(equations)
        system = np.block([[hessian, equations.T], [equations, np.zeros((k, k))]])
        target = -dual - walls.T @ (t / slack - mu)
        solution = np.linalg.solve(system, np.concatenate([target, -primal]))
        dx, dlam = solution[: n * m], solution[n * m :]
        dmu = t / slack - mu + mu / slack * (walls @ dx)
        steps = [_reach(x, dx), _reach(slack, -walls @ dx), _reach(mu, dmu)]
        if regularizer.startswith("hybrid"):
            steps.append(_reach(1 - x, -dx))
        s = min(1.0, 0.9 * min(steps))
        x, lam, mu = x + s * dx, lam + s * dlam, mu + s * dmu
    raise RuntimeError("the reference did not converge: choose an easier problem")


def _reach(value, direction):
    """How far one can go until an entry of ``value`` becomes zero."""
    shrinking = direction < 0
    return np.min(-value[shrinking] / direction[shrinking], initial=np.inf)


def by_sweeps(loss, rate, regularizer, tol=1e-10, max_sweeps=5000):
    """Every column's multiplier given the rest, then every row's, each to the last digit, until all conditions hold.

    ``loss`` may be a stack of problems (..., n, m): they are swept side by side.
    """
    rate = np.broadcast_to(np.asarray(rate, float), loss.shape)
    loss = loss - loss.min(axis=-2, keepdims=True)
    lam, mu = np.zeros_like(loss[..., :1, :]), np.zeros_like(loss[..., :, :1])
    for _ in range(max_sweeps):
        lam = _root(loss + mu, rate, regularizer, axis=-2)
        x = marginal(regularizer, -rate * (loss + lam + mu))
        overfull = x.sum(axis=-1, keepdims=True) - 1
        # All columns are exact at this point: what is left is the rows.
        if np.max(np.where(overfull > 0, overfull, np.minimum(mu, -overfull))) < tol:
            return x
        mu = np.maximum(0, _root(loss + lam, rate, regularizer, axis=-1))
    raise RuntimeError("the reference did not converge: choose an easier problem")


def _root(z, rate, regularizer, axis):
    """The shift of z with which x sums to 1 along ``axis``: at one end an entry is 1, at the other none above 1/k."""
    k = z.shape[axis]
    first = -slope(regularizer, 1.0 if not regularizer.startswith("hybrid") else 1 - 1e-16) / rate - z
    last = -slope(regularizer, 1 / k if k > 1 or not regularizer.startswith("hybrid") else 1 - 1e-16) / rate - z
    low, high = first.max(axis=axis, keepdims=True), last.max(axis=axis, keepdims=True)
    for _ in range(64):
        middle = (low + high) / 2
        above = marginal(regularizer, -rate * (z + middle)).sum(axis=axis, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return (low + high) / 2
