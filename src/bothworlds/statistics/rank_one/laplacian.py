"""Solution of Laplacian systems by elimination of nodes, with additions only.

As in a network of resistors, the elimination of a node adds edges between its neighbours. There are no subtractions, so
the solution has full relative accuracy for arbitrarily uneven edges, and no potential has to be fixed beforehand.
"""

from __future__ import annotations

from ...kernels import Floats, inner_kernel


@inner_kernel
def eliminate_nodes(edges: Floats, nodes: int) -> None:
    """Eliminate the nodes, the last one first; a row then holds the edges of its node at that time, and their sum."""
    for step in range(nodes):
        k = nodes - 1 - step
        total = 0.0
        for other in range(k):
            total += edges[k, other]
        edges[k, k] = total
        if total > 0.0:
            for other in range(k):
                share = edges[k, other] / total
                for third in range(other):
                    edges[other, third] += share * edges[k, third]


@inner_kernel
def substitute(edges: Floats, drive: Floats, nodes: int) -> None:
    """Solve Laplacian x = drive in place, after elimination; nodes without edges to earlier ones get 0."""
    for step in range(nodes):
        k = nodes - 1 - step
        if edges[k, k] > 0.0:
            for other in range(k):
                drive[other] += edges[k, other] / edges[k, k] * drive[k]
    for k in range(nodes):
        if edges[k, k] > 0.0:
            for other in range(k):
                drive[k] += edges[k, other] * drive[other]
            drive[k] /= edges[k, k]
        else:
            drive[k] = 0.0
