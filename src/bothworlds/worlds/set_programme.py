"""A dynamic programme over sets of items, for users who go on after a click depending on its position."""

from __future__ import annotations

from ..kernels import Floats, Ints, kernel


@kernel
def best_of_subsets(alpha: Floats, continuation: Floats, table: Floats, choice: Ints, ranking: Ints) -> float:
    """Fill in the best list; ``table[s]`` is the value of the last positions, filled with the items of the set s."""
    n, m = alpha.size, continuation.size
    table[0] = 0.0
    best, best_set = -1.0, 0
    for s in range(1, 1 << n):
        size, rest = 0, s
        while rest > 0:
            size += rest & 1
            rest >>= 1
        if size > m:
            continue
        k = m - size
        for i in range(n):
            if (s >> i) & 1:
                a = alpha[i]
                v = a + (1.0 - a * (1.0 - continuation[k])) * table[s & ~(1 << i)]
                if v > table[s]:
                    table[s] = v
                    choice[s] = i
        if size == m and table[s] > best:
            best, best_set = table[s], s
    s = best_set
    for k in range(m):
        ranking[k] = choice[s]
        s = s & ~(1 << choice[s])
    return best
