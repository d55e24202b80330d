"""The nine panels of the paper's Figures 1 and 2, and the policies that play in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..arena import draw_results
from ..arena.game import Game
from ..line_styles import PALETTE
from ..policies import Policy, policy
from ..worlds import Stochastic, World, stochastic
from ..worlds import world as named_world
from ..worlds.paper import exchange_items, reverse_both
from .question import Figure, Size, figure_files, game
from .result_lookup import Results
from .verdict import Contrast, Measured

Measure = Callable[[Results, Size], Measured]

# The paper's six policies. Its PBM-PIE estimates examination while it learns: that is pbm-pie-mle here.
PAPER = ("ftrl-pbm", "toprank", "pmed", "pbm-pie-mle", "mw", "ranked-exp3")
# Policies that the paper leaves out and that are strong in some panel; none needs the examination or the horizon.
STRONG = ("tsallis-rv", "lbinfv", "gibbs-ts", "pbm-ucb-mle")
# Policies that take long, or decide no statement, play fewer replications; one with very skewed rewards plays more.
FEW = ("comb-ucb", "gibbs-ts", "lbinfv", "mw", "pmed", "tsallis-rv")
MANY = ("pbm-pie-mle",)
ALL_PANELS = "1a 1b 1c 1d 1e 1f 2a 2b 2c"
STEADY_PANELS, CHANGING_PANELS = "1a 1d 2a", "1b 1c 1e 1f 2b 2c"
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
    "1a": "steady, gap 0.03",
    "1b": "items exchanged, gap 0.03",
    "1c": "all reversed, gap 0.03",
    "1d": "steady, gap 0.01",
    "1e": "items exchanged, gap 0.01",
    "1f": "all reversed, gap 0.01",
    "2a": "steady, Yandex",
    "2b": "items exchanged, Yandex",
    "2c": "all reversed, Yandex",
}


def panel_world(key: str, size: Size) -> World:
    """Return the world of a panel (``"1a"``), with phases of the length that belongs to the size."""
    name, settings = _PANELS[key]
    changing = {} if name.endswith("/stochastic") else {"phase": size.phase}
    return world_for(name, size, **settings, **changing)


def world_for(name: str, size: Size, **settings: Any) -> World:
    """Build a world by name; the fitted world of the size, if there is one, replaces the users of the search log."""
    if size.fitted is None or not name.startswith("yandex/"):
        return named_world(name, **settings)
    alpha, beta, kind = size.fitted.attraction, size.fitted.examination, name.partition("/")[2]
    if kind == "stochastic":
        world: World = stochastic(alpha, beta)
    else:
        world = {"periodic-items": exchange_items, "periodic-both": reverse_both}[kind](alpha, beta, **settings)
    shown = ", ".join(f"{key}={value}" for key, value in settings.items())
    world.name = f"{size.fitted.name}/{kind}" + (f"({shown})" if shown else "")
    return world


def as_search_log(world: World) -> Stochastic:
    """Return a fitted world that can replace the search log: its items in the order of attraction, as the paper's are.

    Raises ValueError if the world has no fixed attraction and examination, or too few items or positions.
    """
    if not isinstance(world, Stochastic):
        raise ValueError(f"{world!r} has no fixed attraction and examination; give a fitted model, such as model.json")
    if world.n_items < 6 or not 2 <= world.n_positions < world.n_items:
        raise ValueError(
            f"{world.name} has {world.n_items} items at {world.n_positions} positions; the panels need at least 6 "
            "items, at least 2 positions, and fewer positions than items: fit with --top-items and --positions"
        )
    ordered = stochastic(sorted(world.attraction.tolist(), reverse=True), world.examination)
    ordered.name = world.name
    return ordered


def panel_title(key: str, size: Size, *, numbered: bool = False) -> str:
    """Return the title of a panel; ``numbered`` is for drawings with panels of both figures."""
    title = TITLES[key] if size.fitted is None else TITLES[key].replace("Yandex", "fitted log")
    return f"{panel_number(key) if numbered else panel_letter(key)} {title}"


def panel_letter(key: str) -> str:
    """Return how the paper refers to a panel of one of its figures.

    >>> panel_letter("1a")
    '(a)'
    """
    return f"({key[1]})"


def panel_number(key: str) -> str:
    """Return the number of the figure and the letter of a panel.

    >>> panel_number("1a")
    '1(a)'
    """
    return f"{key[0]}{panel_letter(key)}"


def panel_games(keys: str, players: Sequence[str | Policy], size: Size) -> list[Game]:
    """Return the games of some policies in some panels (``"1a 1b"``), with as many replications as they need."""
    chosen = [policy(player) if isinstance(player, str) else player for player in players]
    return [
        game(player, panel_world(key, size), size.rounds, replications(player, size))
        for key in keys.split()
        for player in chosen
    ]


def replications(player: Policy, size: Size) -> int:
    """Return how many replications a policy plays in the panels."""
    if player.name in MANY:
        return size.many_replications
    return size.few_replications if player.name in FEW else size.replications


def replications_in_words(size: Size) -> str:
    """Return how many replications the policies play in the panels."""
    return (
        f"{size.replications} replications ({size.few_replications} of {', '.join(FEW)}; {size.many_replications} of "
        f"{', '.join(MANY)}, which fails in a few)"
    )


def lead(
    player: str | Policy,
    others: Sequence[str | Policy],
    keys: str,
    *,
    of_range: bool = False,
    label: Callable[[str], str] = panel_letter,
) -> Measure:
    """Measure by how much a policy earns more per round than each of the others, by panel and other policy.

    With ``of_range`` it is a share of the range between uniform lists and the best list of each round.
    """

    def measure(results: Results, size: Size) -> Measured:
        return {
            label(key): {
                other if isinstance(other, str) else other.label: _ahead(results, player, other, key, size, of_range)
                for other in others
                if other != player
            }
            for key in keys.split()
        }

    return measure


def difference(
    player: str, other: str, keys: str, *, of_range: bool = False, label: Callable[[str], str] = panel_letter
) -> Measure:
    """Measure by how much a policy earns more per round than another, by panel; otherwise as ``lead``."""
    return lambda results, size: {
        label(key): _ahead(results, player, other, key, size, of_range) for key in keys.split()
    }


def loss_to_change(players: Sequence[str], other: str, keys: str) -> Measure:
    """Measure how much more than another policy each player loses to change, as a share of the range."""

    def lost(results: Results, name: str, key: str, size: Size) -> Contrast:
        steady, played = "1a" if key < "1d" else "1d", results.of_length(size.rounds)
        before, after = (Contrast.of(played.earned(name, panel_world(one, size))) for one in (steady, key))
        return (before - after) / span(results, steady, size)

    return lambda results, size: {
        f"{name} " * (len(players) > 1) + panel_letter(key): lost(results, name, key, size)
        - lost(results, other, key, size)
        for key in keys.split()
        for name in players
    }


def span(results: Results, key: str, size: Size) -> float:
    """Return the range between uniform lists and the best list of each round."""
    world, played = panel_world(key, size), results.of_length(size.rounds)
    return played.span(world, float(played.earned("uniform", world).mean()))


def _ahead(
    results: Results, player: str | Policy, other: str | Policy, key: str, size: Size, of_range: bool
) -> Contrast:
    ahead = results.of_length(size.rounds).ahead(player, other, panel_world(key, size))
    return ahead / span(results, key, size) if of_range else ahead


def panel_figure(
    results: Results,
    size: Size,
    folder: str,
    figure: Figure,
    keys: str,
    players: Sequence[str | Policy],
    colours: Mapping[str, str],
    *,
    numbered: bool = False,
    emphasised: str | None = None,
) -> Figure:
    """Draw the average rewards of some policies in some panels, and return the figure."""
    worlds = {key: panel_world(key, size) for key in keys.split()}
    titles = {world.name: panel_title(key, size, numbered=numbered) for key, world in worlds.items()}
    shown = results.of_length(size.rounds).of(players, list(worlds.values()))
    for path, narrow in figure_files(folder, figure.stem).items():
        draw_results(shown, path, columns=3, titles=titles, colours=colours, emphasised=emphasised, narrow=narrow)
    return figure
