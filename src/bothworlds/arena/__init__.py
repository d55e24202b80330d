"""Where policies meet worlds: the loop, its results, tables and figures."""

from .compete import compete
from .figures import draw_results
from .loop import play
from .result import Result
from .storage import save_results
from .tables import save_table, standings

__all__ = ["Result", "compete", "draw_results", "play", "save_results", "save_table", "standings"]
