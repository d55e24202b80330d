"""The paper put to the test: one file per question, and a report that leads with the verdicts."""

from .base import Estimate, Figure, Game, Question, Results, Size, Verdict, estimate, judge
from .reproduce import QUESTIONS, SIZES, reproduce

__all__ = [
    "QUESTIONS",
    "SIZES",
    "Estimate",
    "Figure",
    "Game",
    "Question",
    "Results",
    "Size",
    "Verdict",
    "estimate",
    "judge",
    "reproduce",
]
