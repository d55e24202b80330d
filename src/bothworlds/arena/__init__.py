"""Where policies meet worlds: the loop, its results, tables and figures."""

from .compete import compete
from .figures import draw_results
from .loop import play
from .result import Result, UnchangedWorldWarning
from .storage import load_results, save_results
from .tables import save_table, standings

__all__ = [
    "Result",
    "UnchangedWorldWarning",
    "compete",
    "draw_results",
    "load_results",
    "play",
    "save_results",
    "save_table",
    "standings",
]
