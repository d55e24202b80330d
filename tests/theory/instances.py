"""Random instances, and the paper's definition of gaps as a reference."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

ALPHA = 0.95 - 0.03 * np.arange(10)
BETA = 1.0 / np.arange(1.0, 6.0)


@st.composite
def instances(draw, most_items=5):
    """Attraction and examination in any order, sometimes with ties."""
    n = draw(st.integers(1, most_items))
    m = draw(st.integers(1, n))
    chance = st.integers(0, 20).map(lambda k: k / 20) | st.floats(0.0, 1.0)
    return np.array(draw(st.lists(chance, min_size=n, max_size=n))), np.array(
        draw(st.lists(chance, min_size=m, max_size=m))
    )


def definition(alpha, beta):
    """The paper's Definition 1, case by case, for what is sorted; counting from 1, as there."""
    n, m = len(alpha), len(beta)
    a = dict(enumerate(alpha, 1))
    b = {**dict(enumerate(beta, 1)), m + 1: 0.0}
    found = np.zeros((n, m))
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            if j < i:
                found[i - 1, j - 1] = (b[j] - b[j + 1]) * (a[j] - a[i])
            elif j > i:
                found[i - 1, j - 1] = (b[j - 1] - b[j]) * (a[i] - a[j])
    return found
