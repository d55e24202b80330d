"""Simulated users: worlds by name, the builders they are made with, and their descriptions.

A world from another package is registered through the entry point group ``bothworlds.worlds``, or is passed as an
object wherever a name is accepted.
"""

from .attacks import Adversary, Attack, Attacked
from .base import Matrix, Periodic, Relabelled, Stochastic, World, examination_of, matrix, periodic, stochastic
from .best_list import BestList
from .click_world import ClickWorld, browsing, cascade, click_chain, dependent_clicks, dynamic_bayesian
from .contextual import ContextualWorld
from .list_world import CompiledListWorld, ListWorld
from .named import describe, from_description, names, resolve, world
from .schedule import Changing

__all__ = [
    "Adversary",
    "Attack",
    "Attacked",
    "BestList",
    "Changing",
    "ClickWorld",
    "CompiledListWorld",
    "ContextualWorld",
    "ListWorld",
    "Matrix",
    "Periodic",
    "Relabelled",
    "Stochastic",
    "World",
    "browsing",
    "cascade",
    "click_chain",
    "dependent_clicks",
    "describe",
    "dynamic_bayesian",
    "examination_of",
    "from_description",
    "matrix",
    "names",
    "periodic",
    "resolve",
    "stochastic",
    "world",
]
