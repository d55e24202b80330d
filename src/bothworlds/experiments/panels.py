"""The nine panels of the paper's Figures 1 and 2, and who plays in them."""

from __future__ import annotations

from ..arena.figures import PALETTE
from ..policies import policy
from ..worlds import World, world
from .base import Game, Size

__all__ = ["COLOURS", "PAPER", "TITLES", "games", "panel", "title"]

# The paper's six. Its PBM-PIE estimates examination along the way, which is pbm-pie-mle here.
PAPER = ("ftrl-pbm", "toprank", "pmed", "pbm-pie-mle", "mw", "ranked-exp3")
COLOURS = dict(zip((*PAPER, "uniform"), PALETTE))

_PANELS: dict[str, tuple[str, dict[str, float]]] = {
    "1a": ("paper/stochastic", {}),
    "1b": ("paper/periodic-items", {}),
    "1c": ("paper/periodic-both", {}),
    "1d": ("paper/stochastic", {"gap": 0.01}),
    "1e": ("paper/periodic-items", {"gap": 0.01}),
    "1f": ("paper/periodic-both", {"gap": 0.01}),
    "2a": ("yandex/stochastic", {}),
    "2b": ("yandex/periodic-items", {}),
    "2c": ("yandex/periodic-both", {}),
}
TITLES = {
    "1a": "(a) steady, gap 0.03",
    "1b": "(b) items exchanged, gap 0.03",
    "1c": "(c) all reversed, gap 0.03",
    "1d": "(d) steady, gap 0.01",
    "1e": "(e) items exchanged, gap 0.01",
    "1f": "(f) all reversed, gap 0.01",
    "2a": "(a) steady, Yandex",
    "2b": "(b) items exchanged, Yandex",
    "2c": "(c) all reversed, Yandex",
}


def panel(key: str, size: Size) -> World:
    """The world of a panel, with phases of the length that goes with the size."""
    name, settings = _PANELS[key]
    changing = {} if name.endswith("/stochastic") else {"phase": size.phase}
    return world(name, **settings, **changing)


def title(key: str, size: Size) -> tuple[str, str]:
    """The name of a panel's world, and what is written above it."""
    return panel(key, size).name, TITLES[key]


def games(keys: str, names: tuple[str, ...], size: Size, seeds: int) -> list[Game]:
    """Some policies in some panels (``"1a 1b"``)."""
    return [Game(policy(name), panel(key, size), size.rounds, seeds) for key in keys.split() for name in names]
