"""Simulations: play policies in worlds, and save, load, tabulate and draw the results."""

from .figures import draw_gap_closed, draw_results
from .play import compete, play
from .result import Result, UnchangedWorldWarning
from .storage import load, load_results, save_results
from .tables import save_table, standings

__all__ = [
    "Result",
    "UnchangedWorldWarning",
    "compete",
    "draw_gap_closed",
    "draw_results",
    "load",
    "load_results",
    "play",
    "save_results",
    "save_table",
    "standings",
]
