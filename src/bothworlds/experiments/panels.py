"""The nine panels of the paper's Figures 1 and 2, and who plays in them."""

from __future__ import annotations

from typing import Any

from ..arena.figures import PALETTE
from ..policies import policy
from ..worlds import Stochastic, World, stochastic, world
from ..worlds.paper import exchange_items, reverse_both
from .base import Game, Size

__all__ = ["COLOURS", "PAPER", "TITLES", "games", "in_place_of_the_log", "named", "panel", "title"]

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
    return named(name, size, **settings, **changing)


def named(name: str, size: Size, **settings: Any) -> World:
    """A world by name; where other users take the place of those of the search log, it is theirs."""
    if size.fitted is None or not name.startswith("yandex/"):
        return world(name, **settings)
    alpha, beta, kind = size.fitted.attraction, size.fitted.examination, name.partition("/")[2]
    if kind == "stochastic":
        place: World = stochastic(alpha, beta)
    else:
        place = {"periodic-items": exchange_items, "periodic-both": reverse_both}[kind](alpha, beta, **settings)
    said = ", ".join(f"{key}={value}" for key, value in settings.items())
    place.name = f"{size.fitted.name}/{kind}" + (f"({said})" if said else "")
    return place


def in_place_of_the_log(place: World) -> Stochastic:
    """Users fit to take the place of those of the search log; items are ordered by attraction, as the paper's are."""
    if not isinstance(place, Stochastic):
        raise ValueError(f"{place!r} has no fixed attraction and examination; give a fitted model, such as model.json")
    if place.n_items < 6 or not 2 <= place.n_positions < place.n_items:
        raise ValueError(
            f"{place.name} has {place.n_items} items at {place.n_positions} positions; the panels need at least 6 "
            "items, and from 2 positions to fewer than there are items: fit with --top-items and --positions"
        )
    ordered = stochastic(sorted(place.attraction.tolist(), reverse=True), place.examination)
    ordered.name = place.name
    return ordered


def title(key: str, size: Size) -> tuple[str, str]:
    """The name of a panel's world, and what is written above it."""
    other = TITLES[key] if size.fitted is None else TITLES[key].replace("Yandex", "fitted log")
    return panel(key, size).name, other


def games(keys: str, names: tuple[str, ...], size: Size, seeds: int) -> list[Game]:
    """Some policies in some panels (``"1a 1b"``)."""
    return [Game(policy(name), panel(key, size), size.rounds, seeds) for key in keys.split() for name in names]
