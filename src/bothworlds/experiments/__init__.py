"""Experiments that test the statements of the paper: one file per question, verdicts, figures and a report."""

from .question import Figure, Game, Question, Size
from .report import findings
from .reproduce import QUESTIONS, SIZES, reproduce
from .result_lookup import Results
from .verdict import Estimate, Verdict, estimate, judge

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
    "findings",
    "judge",
    "reproduce",
]
