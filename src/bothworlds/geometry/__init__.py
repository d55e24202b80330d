"""The ranking polytope: the regularised leader, exact sampling, assignment, and the paper's own procedures.

The distribution of clicks on a random ranking of n items at m positions depends only on its *marginals*: the n x m
matrix of probabilities that item i is shown at position j. These matrices are the points of

.. math:: \\{ x \\ge 0,\\ \\text{columns sum to } 1,\\ \\text{rows sum to at most } 1 \\}.
"""

from .assignment import best_ranking
from .leader import ConvergenceError, Leader, Leaders, leader, leaders
from .reference import birkhoff, frank_wolfe
from .sampling import sample_ranking

__all__ = [
    "ConvergenceError",
    "Leader",
    "Leaders",
    "best_ranking",
    "birkhoff",
    "frank_wolfe",
    "leader",
    "leaders",
    "sample_ranking",
]
