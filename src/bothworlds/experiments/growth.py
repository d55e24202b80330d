"""Growth of regret with the rounds, with steady and with hostile users, compared with the bounds of the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arena import Result
from ..arena.game import Game
from ..line_styles import PALETTE
from ..theory import adversarial_bound, lower_bound, stochastic_bound
from ..worlds import Stochastic, World, stochastic
from ..worlds import world as named_world
from .panels import world_for
from .question import Figure, Question, Size, draw_figure, game
from .result_lookup import Results
from .verdict import Claim, Estimate, Measured, estimate

STEADY = ("paper/stochastic", "yandex/stochastic")
HOSTILE = ("adversarial/growing-phases", "adversarial/corruption", "adversarial/fraud")
NAME = "ftrl-pbm"
ON_HARD_INSTANCE = {NAME: "-", "toprank": "--", "uniform": ":"}
LARGEST_EXPONENT = 0.55  # still counts as one half
IN_LONG_GAMES = {NAME: "-", "tsallis-rv": "--", "gibbs-ts": ":"}
# Under a logarithm, the last two factors of ten cost the same; under a square root, the last costs 3.2 times as much.
LARGEST_RATIO = 1.5
EASY = stochastic([0.9, 0.6, 0.3, 0.1], [1.0, 0.5])  # gaps of 0.3 and more: the logarithm shows after 10,000 rounds
EASY.name = "four items"


class Growth(Question):
    """Measure whether regret grows like log T with steady users, and like sqrt T with hostile ones."""

    name = "growth"
    title = "How regret grows"
    about = (
        "The regret of FTRL-PBM against the best fixed list on logarithmic axes, with the paper's bounds. The slope of "
        "a curve is the exponent of T; it is measured over the last factor of ten."
    )

    def games(self, size: Size) -> list[Game]:
        long = [game(NAME, _world(name, size), size.long_rounds, size.replications) for name in STEADY + HOSTILE]
        hard = [game(name, _hard_instance(size), size.rounds, size.replications) for name in ON_HARD_INSTANCE]
        return [*long, *hard, *longest_games(size)]

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        long = _long(results, size)

        def draw(panels: Any) -> None:
            for panel, names, title in zip(panels, (STEADY, HOSTILE), ("steady users", "hostile users")):
                _draw(panel, {_label(name, size): long[NAME, _world(name, size)] for name in names})
                panel.set_title(title)
            _draw_hard_instance(panels[2], results.of_length(size.rounds), size)
            panels[0].set_ylabel("regret against the best fixed list")

        caption = (
            f"FTRL-PBM, {size.long_rounds:,} rounds, mean of {size.replications} replications. Dashed: the bounds of "
            "Theorem 1 (any users; for the items and positions of each world) and Theorem 2 (steady users, synthetic "
            "world). On the hard instance three policies, with the lower bound of Theorem 3 and the most that can be "
            "lost there."
        )
        growth = draw_figure(folder, Figure("growth", self.title, caption), 3, draw)
        return growth + draw_logarithm(results, size, folder)

    def claims(self, size: Size) -> Sequence[Claim]:
        claim = partial(Claim, figure="growth")
        return (
            claim(
                statement="With steady users, by the end of the run, regret grows slower than the square root of T.",
                source="ours, from Theorem 2",
                measure=partial(_by_world, exponents, STEADY),
                said="exponent of T over the last factor of ten",
                below=0.5,
                rule="the exponent is below one half, so that growth is slower than the square root of Theorem 1",
                remark="Theorem 2 is about large T, so no run can refute it; this tests whether a run of this length "
                "shows it.",
            ),
            claim(
                statement="With hostile users, by the end of the run, regret grows no faster than the square root "
                "of T.",
                source="ours, from Theorem 1",
                measure=partial(_by_world, exponents, HOSTILE),
                said="exponent of T over the last factor of ten",
                below=LARGEST_EXPONENT,
                rule=f"the exponent is below {LARGEST_EXPONENT} in every hostile world",
                remark="Theorem 1 bounds the regret and not its slope, for the worst of all worlds, which these are "
                "not.",
            ),
            claim(
                statement="Regret stays below the bound of Theorem 1, with its constants repaired.",
                source="Theorem 1",
                measure=partial(_by_world, _share_of_bound, STEADY + HOSTILE),
                said="largest share of the bound",
                below=1.0,
                rule="the share is below 1 at every checkpoint",
                remark=lambda results, size: (
                    f"The bound is so wide that uniformly random lists reach {_uniform_share(results, size):.2f} of it "
                    "here."
                ),
            ),
            claim(
                statement="No policy can lose less than m sqrt((n - m + 1) T) / 16 on the hard instance.",
                source="Theorem 3",
                measure=_multiples_of_the_lower_bound,
                said=f"regret as a multiple of the bound ({_lower_bound(size):,.0f})",
                above=1.0,
                rule="every policy tried loses more than the bound",
                remark="On that instance no policy can lose more than twice the bound either, so it does not separate "
                "policies.",
            ),
            *logarithm_claims(size),
        )


def _world(name: str, size: Size) -> World:
    # Corruption ends long before the last factor of ten, in which growth is measured.
    return named_world(name, early=size.long_rounds // 50) if name.endswith("corruption") else world_for(name, size)


def _hard_instance(size: Size) -> World:
    return named_world("adversarial/hard-instance", rounds=size.rounds)


def _long(results: Results, size: Size) -> Results:
    """The results from which growth is measured; other questions may have played more replications of some."""
    return results.of_length(size.long_rounds).first_replications(size.replications)


def exponents(result: Result) -> NDArray[np.float64]:
    """Return the slope of log regret against log rounds over the last factor of ten, (replications,)."""
    late = result.rounds >= result.rounds[-1] / 10
    regret = np.maximum(result.regret()[:, late], 1.0)
    return np.asarray(np.polyfit(np.log(result.rounds[late]), np.log(regret).T, 1)[0])


def _by_world(
    quantity: Callable[[Result], NDArray[np.float64]], names: Sequence[str], results: Results, size: Size
) -> Measured:
    long = _long(results, size)
    return {world_for(name, size).name: estimate(quantity(long[NAME, _world(name, size)])) for name in names}


def _share_of_bound(result: Result) -> NDArray[np.float64]:
    """Return the largest share of the bound of Theorem 1 that regret reaches at a checkpoint, (replications,)."""
    world = result.build_world()
    shares: NDArray[np.float64] = (result.regret() / _theorem_1(world.n_items, world.n_positions, result)).max(axis=1)
    return shares


def _uniform_share(results: Results, size: Size) -> float:
    """The share of Theorem 1's bound that uniformly random lists reach in the steady synthetic world."""
    world = _world(STEADY[0], size)
    best = _long(results, size)[NAME, world].best_fixed[-1] / size.long_rounds
    lost = best - world.click_probabilities(0).mean(axis=0).sum()
    return float(lost * size.long_rounds / adversarial_bound(world.n_items, world.n_positions, size.long_rounds))


def _lower_bound(size: Size) -> float:
    """The bound of Theorem 3 on the hard instance."""
    world = _hard_instance(size)
    return lower_bound(world.n_items, world.n_positions, size.rounds)


def _multiples_of_the_lower_bound(results: Results, size: Size) -> Measured:
    world, played, bound = _hard_instance(size), results.of_length(size.rounds), _lower_bound(size)
    return {name: estimate(played[name, world].regret()[:, -1] / bound) for name in ON_HARD_INSTANCE}


def _label(name: str, size: Size) -> str:
    """The label of a world's curve."""
    if name.startswith("yandex/"):
        return "Yandex" if size.fitted is None else "fitted log"
    return name.partition("/")[2]


def _theorem_1(n_items: int, n_positions: int, result: Result) -> NDArray[np.float64]:
    """The bound of Theorem 1 at every checkpoint of a result."""
    return np.array([adversarial_bound(n_items, n_positions, int(t)) for t in result.rounds])


def _draw(panel: Any, results: dict[str, Result]) -> None:
    """Draw the regret of every result, by label, and the bounds for the worlds in which they were played."""
    for (label, result), colour in zip(results.items(), PALETTE):
        mean = result.regret().mean(axis=0)
        shown = np.where(mean > 1.0, mean, np.nan)  # early on it can be negative where the best list changes
        panel.loglog(result.rounds, shown, color=colour, label=f"{label}: {exponents(result).mean():.2f}")
    first = next(iter(results.values()))
    worlds = [result.build_world() for result in results.values()]
    shapes = dict.fromkeys((world.n_items, world.n_positions) for world in worlds)
    for n, m in shapes:
        label = "Theorem 1" if len(shapes) == 1 else f"Theorem 1, {n} items, {m} positions"
        panel.loglog(first.rounds, _theorem_1(n, m, first), "--", color="0.6", linewidth=1, label=label)
    if isinstance(worlds[0], Stochastic):
        steady = [stochastic_bound(worlds[0].attraction, worlds[0].examination, int(t)) for t in first.rounds]
        panel.loglog(first.rounds, steady, ":", color="0.6", linewidth=1, label="Theorem 2")
    panel.set_xlabel("rounds")
    panel.legend(frameon=False, fontsize=6.5)


def _draw_hard_instance(panel: Any, results: Results, size: Size) -> None:
    world = _hard_instance(size)
    most = results[NAME, world].best_fixed[-1] - 0.5 * world.n_positions * size.rounds
    for (name, line), colour in zip(ON_HARD_INSTANCE.items(), PALETTE):
        result = results[name, world]
        panel.plot(result.rounds, result.regret().mean(axis=0), line, color=colour, label=name)
    panel.axhline(_lower_bound(size), color="0.6", linewidth=1, linestyle="--", label="Theorem 3")
    panel.axhline(most, color="0.6", linewidth=1, label="the most there is to lose")
    panel.legend(frameon=False, fontsize=6.5)
    panel.set_title("hard instance")
    panel.set_xlabel("rounds")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")


# The logarithm of Theorem 2, in the longest games


def _longest(size: Size) -> dict[str, tuple[World, int]]:
    """The worlds of the longest games of a size and their rounds, by the label of their panel; some sizes have none."""
    worlds = {
        "four items, two positions": (EASY, size.easy_rounds),
        "the paper's steady world": (named_world("paper/stochastic"), size.steady_rounds),
    }
    return {label: (world, rounds) for label, (world, rounds) in worlds.items() if rounds}


def longest_games(size: Size) -> list[Game]:
    """Return FTRL-PBM and two other policies in the longest games of the size; none in a size without them."""
    return [
        game(name, world, rounds, size.few_replications)
        for world, rounds in _longest(size).values()
        for name in IN_LONG_GAMES
    ]


def _results_of(world: World, rounds: int, results: Results, size: Size) -> dict[str, Result]:
    played = results.of_length(rounds).first_replications(size.few_replications)
    return {name: played[name, world] for name in IN_LONG_GAMES}


def increments(result: Result) -> NDArray[np.float64]:
    """Return by how much regret grows over the last factor of ten and over the one before, (replications, 2)."""
    ends = result.rounds[-1] / np.array([1.0, 10.0, 100.0])
    places = [int(np.abs(result.rounds - end).argmin()) for end in ends]
    regret = result.regret()[:, places]
    return regret[:, :2] - regret[:, 1:]


def fitted_line(result: Result) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a and b of regret = a + b log T over the last two factors of ten, each (replications,)."""
    late = result.rounds >= result.rounds[-1] / 100
    slope, start = np.polyfit(np.log(result.rounds[late]), result.regret()[:, late].T, 1)
    return start, slope


def draw_logarithm(results: Results, size: Size, folder: str) -> list[Figure]:
    """Draw regret against log T with the fitted lines; nothing in a size without the longest games."""
    worlds = _longest(size)
    if not worlds:
        return []

    def draw(panels: Any) -> None:
        for panel, (label, (world, rounds)) in zip(panels, worlds.items()):
            for (name, result), colour in zip(_results_of(world, rounds, results, size).items(), PALETTE):
                start, slope = (values.mean() for values in fitted_line(result))
                late = result.rounds[result.rounds >= result.rounds[-1] / 100]
                text = f"{name}: {start:,.0f} + {slope:,.1f} log T"
                mean = result.regret().mean(axis=0)
                panel.semilogx(result.rounds, mean, IN_LONG_GAMES[name], color=colour, label=text)
                panel.semilogx(late, start + slope * np.log(late), color="0.6", linewidth=0.8)
            panel.set_title(label)
            panel.set_xlabel("rounds")
            panel.legend(frameon=False, fontsize=6.5)
        panels[0].set_ylabel("regret against the best fixed list")

    caption = (
        f"Steady users, mean of {size.few_replications} replications. A logarithm is a straight line here. Grey: the "
        "line that was fitted to the last two factors of ten."
    )
    return draw_figure(folder, Figure("logarithm", "The logarithm of Theorem 2", caption), len(worlds), draw)


def logarithm_claims(size: Size) -> list[Claim]:
    """Return that regret grows like the logarithm of T in the longest games of the size."""
    return [
        Claim(
            statement=f"In {label}, the regret of FTRL-PBM grows like log T up to {rounds:,} rounds.",
            source="ours, from Theorem 2",
            measure=partial(_ratios, world, rounds),
            said=partial(_with_lines, world, rounds),
            only=NAME,
            below=LARGEST_RATIO,
            rule=f"the ratio is below {LARGEST_RATIO}; it is 1 for a logarithm and 3.2 for a square root",
            figure="logarithm",
            remark="The ratio is that to the mean of the factor of ten before.",
        )
        for label, (world, rounds) in _longest(size).items()
    ]


def _ratios(world: World, rounds: int, results: Results, size: Size) -> Measured:
    grown = {name: increments(result).T for name, result in _results_of(world, rounds, results, size).items()}
    return {name: estimate(last / before.mean()) for name, (last, before) in grown.items()}


def _with_lines(world: World, rounds: int, ratios: Mapping[str, Estimate], results: Results, size: Size) -> str:
    said = []
    for name, result in _results_of(world, rounds, results, size).items():
        start, slope = (estimate(values) for values in fitted_line(result))
        said.append(f"{name}: {ratios[name]}, regret {start} + {slope} log T")
    return f"growth over the last factor of ten, divided by that over the one before: {'; '.join(said)}"
