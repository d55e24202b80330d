"""The nine panels of the paper's Figures 1 and 2, and the policies that play in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..arena.figures import PALETTE
from ..policies import Policy, policy
from ..worlds import Stochastic, World, stochastic
from ..worlds import world as named_world
from ..worlds.paper import exchange_items, reverse_both
from .question import Game, Size
from .result_lookup import Results
from .verdict import Verdict, judge_samples

__all__ = [
    "ALL_PANELS",
    "CHANGING_PANELS",
    "COLOURS",
    "PAPER",
    "STEADY_PANELS",
    "STRONG",
    "TITLES",
    "as_search_log",
    "panel_games",
    "panel_letter",
    "panel_number",
    "panel_title",
    "panel_world",
    "replications_in_words",
    "verdict_on_lead",
    "who_is_ahead",
    "world_for",
]

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
        Game(player, panel_world(key, size), size.rounds, replications(player, size))
        for key in keys.split()
        for player in chosen
    ]


def replications(player: Policy, size: Size) -> int:
    """Return how many replications a policy plays in the panels."""
    if player.name in MANY:
        return size.many_seeds
    return size.few_seeds if player.name in FEW else size.seeds


def replications_in_words(size: Size) -> str:
    """Return how many replications the policies play in the panels."""
    return (
        f"{size.seeds} replications ({size.few_seeds} of {', '.join(FEW)}; {size.many_seeds} of {', '.join(MANY)}, "
        "which fails in a few)"
    )


def verdict_on_lead(
    statement: str,
    rule: str,
    player: str | Policy,
    others: Sequence[str | Policy],
    keys: str,
    results: Results,
    size: Size,
    *,
    figure: str,
    above: float = 0.0,
    source: str = "ours",
) -> Verdict:
    """Judge whether a policy earns more than each of the others, by more than ``above``, in all of some panels."""
    samples, leads, ahead = [], [], dict[str, list[str]]()
    for key in keys.split():
        world = panel_world(key, size)
        samples += [results.ahead(player, other, world) for other in others]
        best = max(others, key=lambda other: results.earned(other, world).mean())
        name = best if isinstance(best, str) else best.label
        lead = results.lead(player, best, world)
        leads.append(f"{panel_number(key)}: {lead} over {name}")
        if lead.high < above:
            ahead.setdefault(name, []).append(panel_number(key))
    return Verdict(
        statement,
        source,
        judge_samples(samples, above),
        f"lead over the best other policy: {'; '.join(leads)}",
        rule,
        figure,
        because=who_is_ahead(ahead),
    )


def who_is_ahead(panels: Mapping[str, Sequence[str]]) -> str:
    """Return a sentence on which policies are ahead in which panels.

    >>> who_is_ahead({"pmed": ["(a)", "(d)"], "mw": ["(b)"]})
    'pmed is ahead in (a), (d); mw is ahead in (b).'
    """
    said = "; ".join(f"{name} is ahead in {', '.join(where)}" for name, where in panels.items())
    return f"{said}." if said else ""
