"""Simulated users: worlds by name, the builders they are made with, and their descriptions.

A world from another package is registered through the entry point group ``bothworlds.worlds``, or is passed as an
object wherever a name is accepted.
"""

from .base import Matrix, Periodic, Relabelled, Stochastic, World, examination_of, matrix, periodic, stochastic
from .named import describe, from_description, names, resolve, world
from .schedule import Changing

__all__ = [
    "Changing",
    "Matrix",
    "Periodic",
    "Relabelled",
    "Stochastic",
    "World",
    "describe",
    "examination_of",
    "from_description",
    "matrix",
    "names",
    "periodic",
    "resolve",
    "stochastic",
    "world",
]
