"""The nine panels of the Figures 1 and 2 of the paper: their worlds, games, measures, and how they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..arena import draw_results
from ..arena.game import Game
from ..line_styles import PALETTE
from ..policies import Policy, policy
from ..worlds import Stochastic, World, stochastic
from ..worlds import world as named_world
from ..worlds.paper import exchange_items, reverse_both
from .question import Figure, Question, Size, figure_files, game
from .result_lookup import Results
from .verdict import Claim, Contrast, Measure, Measured

# The paper's six policies. Its PBM-PIE estimates examination while it learns: that is pbm-pie-mle here.
PAPER = ("ftrl-pbm", "toprank", "pmed", "pbm-pie-mle", "mw", "ranked-exp3")
# Policies that the paper leaves out and that are strong in some panel; none needs the examination or the horizon.
STRONG = ("tsallis-rv", "lbinfv", "gibbs-ts", "pbm-ucb-mle")
# Policies that take long, or decide no statement, play fewer replications; one with very skewed rewards plays more.
FEW = ("comb-ucb", "gibbs-ts", "lbinfv", "mw", "pmed", "tsallis-rv")
MANY = ("pbm-pie-mle",)
COLOURS: dict[str | Policy, str] = dict(zip((*PAPER, "uniform"), PALETTE))

STEADY, ITEMS, BOTH = "steady", "items exchanged", "all reversed"
_KINDS = {STEADY: "stochastic", ITEMS: "periodic-items", BOTH: "periodic-both"}
# What users do in a panel, and the gap between the items; None: the values that were fitted to a search log.
_PANELS: dict[str, tuple[str, float | None]] = {
    "1a": (STEADY, 0.03),
    "1b": (ITEMS, 0.03),
    "1c": (BOTH, 0.03),
    "1d": (STEADY, 0.01),
    "1e": (ITEMS, 0.01),
    "1f": (BOTH, 0.01),
    "2a": (STEADY, None),
    "2b": (ITEMS, None),
    "2c": (BOTH, None),
}
ALL_PANELS = " ".join(_PANELS)
STEADY_PANELS, CHANGING_PANELS = "1a 1d 2a", "1b 1c 1e 1f 2b 2c"


def panel_world(key: str, size: Size) -> World:
    """Return the world of a panel (``"1a"``), with phases of the length that belongs to the size."""
    users, gap = _PANELS[key]
    settings = {"gap": gap} if gap == 0.01 else {}  # the other gap is the default of the world
    changing = {} if users == STEADY else {"phase": size.phase}
    return world_for(f"{'yandex' if gap is None else 'paper'}/{_KINDS[users]}", size, **settings, **changing)


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


def panel_title(key: str, size: Size, letter: Callable[[str], str] | None = None) -> str:
    """Return the title of a panel, with its letter or, by ``panel_number``, its figure and letter."""
    users, gap = _PANELS[key]
    where = f"gap {gap}" if gap else "Yandex" if size.fitted is None else "fitted log"
    return f"{(letter or panel_letter)(key)} {users}, {where}"


def panel_letter(key: str) -> str:
    """Return how the paper refers to a panel of one of its figures."""
    return f"({key[1]})"


def panel_number(key: str) -> str:
    """Return the number of the figure and the letter of a panel."""
    return f"{key[0]}{panel_letter(key)}"


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
        before, after = (Contrast.of(played.earned(name, panel_world(panel, size))) for panel in (steady, key))
        return (before - after) / span(results, steady, size)

    return lambda results, size: {
        f"{name} " * (len(players) > 1) + panel_letter(key): lost(results, name, key, size)
        - lost(results, other, key, size)
        for key in keys.split()
        for name in players
    }


def span(results: Results, key: str, size: Size) -> float:
    """Return the range between uniform lists and the best list of each round."""
    uniform = results.of_length(size.rounds)["uniform", panel_world(key, size)]
    return float(uniform.best_dynamic[-1] / uniform.rounds[-1]) - float(uniform.average_reward()[:, -1].mean())


def _ahead(
    results: Results, player: str | Policy, other: str | Policy, key: str, size: Size, of_range: bool
) -> Contrast:
    ahead = results.of_length(size.rounds).ahead(player, other, panel_world(key, size))
    return ahead / span(results, key, size) if of_range else ahead


@dataclass(frozen=True)
class Panels(Question):
    """Policies in some of the nine panels."""

    name: str
    title: str
    about: str
    keys: str  # the panels, as in "1a 1b"
    players: Callable[[Size], Mapping[str | Policy, str]]  # the policies that are drawn, with their colours
    caption: Callable[[Size], str]
    claimed: Callable[[Size], Sequence[Claim]]
    others: tuple[str, ...] = ()  # policies that play and are not drawn
    label: Callable[[str], str] = panel_letter  # how panels are called in the figure
    emphasised: str | None = None  # the policy whose curve is thicker

    def games(self, size: Size) -> list[Game]:
        named = dict.fromkeys([*self.players(size), *self.others])
        players = [policy(player) if isinstance(player, str) else player for player in named]
        return [
            game(player, panel_world(key, size), size.rounds, replications(player, size))
            for key in self.keys.split()
            for player in players
        ]

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        worlds = {key: panel_world(key, size) for key in self.keys.split()}
        titles = {world.name: panel_title(key, size, self.label) for key, world in worlds.items()}
        players = self.players(size)
        shown = results.of_length(size.rounds).of(list(players), list(worlds.values()))
        colours = {player if isinstance(player, str) else player.label: colour for player, colour in players.items()}
        how: dict[str, Any] = {"columns": 3, "titles": titles, "colours": colours, "emphasised": self.emphasised}
        for path, narrow in figure_files(folder, self.name).items():
            draw_results(shown, path, narrow=narrow, **how)
        return [Figure(self.name, self.title, self.caption(size))]

    def claims(self, size: Size) -> Sequence[Claim]:
        return self.claimed(size)
