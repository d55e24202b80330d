"""The least exploration that distinguishes all alternatives, by general-purpose solvers: slow and simple."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog, minimize


def divergences(p, log_p):
    """kl(p, exp(log_p)), elementwise."""
    rest = np.maximum(-np.expm1(np.minimum(log_p, -1e-12)), 1e-300)
    return p * (np.log(p) - log_p) + (1.0 - p) * (np.log1p(-p) - np.log(rest))


def closest(theta, kappa, q, k):
    """The least divergence of alternative k, its log theta' and log kappa', by SLSQP.

    The variables are by how much log kappa' falls from position to position, and log theta' of the items that are not
    on the best list.
    """
    n, m = len(theta), len(kappa)
    p, shared = np.outer(theta, kappa), np.log(theta[:m] * kappa)
    weights = np.where(np.eye(n, m, dtype=bool), 0.0, q)

    def model(x):
        b = -np.concatenate([[0.0], np.cumsum(x[: m - 1])])
        a = np.concatenate([shared - b, x[m - 1 :]])
        if k + 1 >= m:
            a[k + 1] = a[m - 1]
        return a, b

    def value(x):
        a, b = model(x)
        return float((weights * divergences(p, a[:, None] + b)).sum())

    falls = -0.5 * np.diff(shared)
    bounds = [(0.0, None)] * (m - 1) + [(-30.0, -1e-9)] * (n - m)
    if k + 1 < m:
        falls[k] *= 2.0
        bounds[k] = (falls[k], falls[k])
    found = minimize(
        value,
        np.concatenate([falls, np.log(theta[m:])]),
        method="SLSQP",
        bounds=bounds,
        constraints={"type": "ineq", "fun": lambda x: -model(x)[0][:m]},
        options={"maxiter": 1000, "ftol": 1e-14, "eps": 1e-9},
    )
    return found.fun, *model(found.x)


def allocation(theta, kappa, cuts):
    """The programme as published: n x n, positions from m on are dummies, all row and all column sums alike."""
    n, m = len(theta), len(kappa)
    cost, alike = np.zeros((n, n)), []
    cost[:, :m] = (theta[:m] - theta[:, None]) * kappa
    for i in range(1, n):
        rows, columns = np.zeros((n, n)), np.zeros((n, n))
        rows[0], rows[i] = 1.0, -1.0
        columns[:, 0], columns[:, i] = 1.0, -1.0
        alike += [rows.ravel(), columns.ravel()]
    rows, columns = np.zeros((n, n)), np.zeros((n, n))
    rows[0], columns[:, 0] = 1.0, 1.0
    alike.append((rows - columns).ravel())
    above = [np.pad(cut, ((0, 0), (0, n - m))).ravel() for cut in cuts]
    found = linprog(cost.ravel(), -np.array(above), -np.ones(len(above)), np.array(alike), np.zeros(len(alike)))
    assert found.status == 0
    return found.fun, found.x.reshape(n, n)


def least_exploration(theta, kappa, tolerance=1e-4, rounds=200):
    """Cost and q (n, m) of the least exploration, by cutting planes."""
    n, m = len(theta), len(kappa)
    p, q, cuts = np.outer(theta, kappa), np.ones((n, m)), []
    for _ in range(rounds):
        worst = np.inf
        for k in range(n - 1):
            value, a, b = closest(theta, kappa, q, k)
            if value < 1.0 - tolerance or not cuts:
                cut = np.maximum(divergences(p, a[:, None] + b), 0.0)
                cuts.append(np.where(np.eye(n, m, dtype=bool), 0.0, cut))
            worst = min(worst, value)
        if worst >= 1.0 - tolerance and len(cuts) > n:
            break
        cost, full = allocation(theta, kappa, cuts)
        q = full[:, :m]
    return cost, q
