"""Theory: gaps, upper and lower bounds on regret, each with its theorem.

All logarithms are natural. Regret is relative to the best fixed list. "The paper" is Chen, Zhao, Li: Simultaneously
Learning Stochastic and Adversarial Bandits under the Position-Based Model, AAAI 2022.
"""

from __future__ import annotations

from ..worlds.adversarial import hard_instance
from .bounds import adversarial_bound, lower_bound, stochastic_bound
from .comparison import Row, table
from .instance import delta, delta_beta, gaps, largest_regret, optimal_ranking
from .mixture import all_weather_bound, comparison_bound, ftrl_va_bound, least_share, mixture_leader_bound
from .selfbounding import Sides, self_bounding, self_bounding_constant

__all__ = [
    "Row",
    "Sides",
    "adversarial_bound",
    "all_weather_bound",
    "comparison_bound",
    "delta",
    "delta_beta",
    "ftrl_va_bound",
    "gaps",
    "hard_instance",
    "largest_regret",
    "least_share",
    "lower_bound",
    "mixture_leader_bound",
    "optimal_ranking",
    "self_bounding",
    "self_bounding_constant",
    "stochastic_bound",
    "table",
]
