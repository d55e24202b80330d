"""Experiments that test the statements of the paper: one file per question, verdicts, figures and a report."""

from .question import Figure, Question, Size, game
from .report import findings
from .reproduce import QUESTIONS, SIZES, reproduce
from .result_lookup import Results
from .verdict import Estimate, Verdict, estimate, judge

__all__ = [
    "QUESTIONS",
    "SIZES",
    "Estimate",
    "Figure",
    "Question",
    "Results",
    "Size",
    "Verdict",
    "estimate",
    "findings",
    "game",
    "judge",
    "reproduce",
]
