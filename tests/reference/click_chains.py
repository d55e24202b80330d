"""Chain click models by enumeration of what a user may do: the slow twin of the recursions, exact with fractions.

A page is a list of (alpha, kappa) from the top, with one probability g of going on after a skip.
"""

from __future__ import annotations

from itertools import product


def histories(page, g):
    """Yield (clicks, number of examined ranks, probability) of everything that a user may do on a page."""
    m = len(page)
    for last in range(1, m + 1):  # the last examined rank
        for clicks in product((0, 1), repeat=last):
            p = 1
            for k, c in enumerate(clicks):
                alpha, kappa = page[k]
                p *= alpha if c else 1 - alpha
                goes_on = kappa if c else g
                if k + 1 < last:
                    p *= goes_on
                elif last < m:
                    p *= 1 - goes_on
            yield (*clicks, *(0,) * (m - last)), last, p


def patterns(page, g):
    """Probabilities of all click patterns of a page."""
    law = {}
    for clicks, _, p in histories(page, g):
        law[clicks] = law.get(clicks, 0) + p
    return law


def expected_counts(page, g, clicks):
    """Successes and failures of every alpha, kappa and of g, given the clicks: the E-step by enumeration.

    Returns (attracted, not attracted), (gone on, stopped) after a click at each rank, and (gone on, stopped) after a
    skip. A stop after the last rank is not an event.
    """
    m = len(page)
    of_alpha = [[0, 0] for _ in page]
    of_kappa = [[0, 0] for _ in page]
    of_g = [0, 0]
    total = 0
    for seen, last, p in histories(page, g):
        if seen != clicks:
            continue
        total += p
        for k in range(last):
            of_alpha[k][0 if clicks[k] else 1] += p
            if k + 1 < m:
                counter = of_kappa[k] if clicks[k] else of_g
                counter[0 if k + 1 < last else 1] += p
    return (
        [[x / total for x in pair] for pair in of_alpha],
        [[x / total for x in pair] for pair in of_kappa],
        [x / total for x in of_g],
    )


def browsing_patterns(alpha, gamma):
    """Probabilities of all click patterns of the user browsing model; ``gamma[k][last]`` with last 0 for no click."""
    law = {}
    for clicks in product((0, 1), repeat=len(alpha)):
        p, last = 1, 0
        for k, c in enumerate(clicks):
            hit = alpha[k] * gamma[k][last]
            p *= hit if c else 1 - hit
            if c:
                last = k + 1
        law[clicks] = p
    return law
