"""Growth of regret with the rounds, with steady and with hostile users, compared with the bounds of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..arena import Result
from ..arena.figures import drawing
from ..arena.game import Game
from ..line_styles import PALETTE
from ..theory import adversarial_bound, lower_bound, stochastic_bound
from ..worlds import Stochastic, World
from ..worlds import world as named_world
from .logarithm import logarithm_claims, logarithm_figure, logarithm_games
from .panels import world_for
from .question import Figure, Question, Size, figure_files, game
from .result_lookup import Results
from .verdict import Claim, Measured, estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEADY = ("paper/stochastic", "yandex/stochastic")
HOSTILE = ("adversarial/growing-phases", "adversarial/corruption", "adversarial/fraud")
NAME = "ftrl-pbm"
HARD_INSTANCE_POLICIES = (NAME, "toprank", "uniform")
LARGEST_EXPONENT = 0.55  # still counts as one half


def _world(name: str, size: Size) -> World:
    # Corruption ends long before the last factor of ten, in which growth is measured.
    return named_world(name, early=size.long_rounds // 50) if name.endswith("corruption") else world_for(name, size)


def _hard_instance(size: Size) -> World:
    return named_world("adversarial/hard-instance", rounds=size.rounds)


def _long_games(results: Results, size: Size) -> Results:
    """The results from which growth is measured; other questions may have played more replications of some."""
    return results.of_length(size.long_rounds).first_replications(size.replications)


class Growth(Question):
    """Measure whether regret grows like log T with steady users, and like sqrt T with hostile ones."""

    name = "growth"
    title = "How regret grows"
    about = (
        "The regret of FTRL-PBM against the best fixed list on logarithmic axes, with the paper's bounds. The slope of "
        "a curve is the exponent of T; it is measured over the last factor of ten."
    )

    def games(self, size: Size) -> list[Game]:
        """Return FTRL-PBM in steady and hostile worlds, three policies on the hard instance, and long games."""
        long = [game(NAME, _world(name, size), size.long_rounds, size.replications) for name in STEADY + HOSTILE]
        hard = [game(name, _hard_instance(size), size.rounds, size.replications) for name in HARD_INSTANCE_POLICIES]
        return long + hard + logarithm_games(size)

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        """Draw regret on logarithmic axes with the bounds, and the hard instance."""
        long = _long_games(results, size)
        for path, narrow in figure_files(folder, "growth").items():
            with drawing(path, across=3, narrow=narrow) as panels:
                for panel, names, title in zip(panels[0], (STEADY, HOSTILE), ("steady users", "hostile users")):
                    _draw(panel, {_label(name, size): long[NAME, _world(name, size)] for name in names})
                    panel.set_title(title)
                _draw_hard_instance(panels[0, 2], results.of_length(size.rounds), size)
                panels[0, 0].set_ylabel("regret against the best fixed list")
        caption = (
            f"FTRL-PBM, {size.long_rounds:,} rounds, mean of {size.replications} replications. Dashed: the bounds of "
            "Theorem 1 (any users; for the items and positions of each world) and Theorem 2 (steady users, synthetic "
            "world). On the hard instance three policies, with the lower bound of Theorem 3 and the most that can be "
            "lost there."
        )
        return [Figure("growth", self.title, caption), *logarithm_figure(results, size, folder)]

    def claims(self, size: Size) -> Sequence[Claim]:
        """Return the claims about exponents of T, both bounds, and the logarithm."""
        bound = _lower_bound(size)
        return (
            Claim(
                statement="With steady users, by the end of the run, regret grows slower than the square root of T.",
                source="ours, from Theorem 2",
                measure=lambda results, size: _by_world(exponents, STEADY, results, size),
                said="exponent of T over the last factor of ten",
                below=0.5,
                rule="the exponent is below one half, so that growth is slower than the square root of Theorem 1",
                figure="growth",
                remark="Theorem 2 is about large T, so no run can refute it; this tests whether a run of this length "
                "shows it.",
            ),
            Claim(
                statement="With hostile users, by the end of the run, regret grows no faster than the square root "
                "of T.",
                source="ours, from Theorem 1",
                measure=lambda results, size: _by_world(exponents, HOSTILE, results, size),
                said="exponent of T over the last factor of ten",
                below=LARGEST_EXPONENT,
                rule=f"the exponent is below {LARGEST_EXPONENT} in every hostile world",
                figure="growth",
                remark="Theorem 1 bounds the regret and not its slope, for the worst of all worlds, which these are "
                "not.",
            ),
            Claim(
                statement="Regret stays below the bound of Theorem 1, with its constants repaired.",
                source="Theorem 1",
                measure=lambda results, size: _by_world(_share_of_bound, STEADY + HOSTILE, results, size),
                said="largest share of the bound",
                below=1.0,
                rule="the share is below 1 at every checkpoint",
                figure="growth",
                remark=lambda results, size: (
                    "The bound is so wide that uniformly random lists reach "
                    f"{_uniform_share(_long_games(results, size), size):.2f} of it here."
                ),
            ),
            Claim(
                statement="No policy can lose less than m sqrt((n - m + 1) T) / 16 on the hard instance.",
                source="Theorem 3",
                measure=_multiples_of_the_lower_bound,
                said=f"regret as a multiple of the bound ({bound:,.0f})",
                above=1.0,
                rule="every policy tried loses more than the bound",
                figure="growth",
                remark="On that instance no policy can lose more than twice the bound either, so it does not separate "
                "policies.",
            ),
            *logarithm_claims(size),
        )


def exponents(result: Result) -> NDArray[np.float64]:
    """Return the slope of log regret against log rounds over the last factor of ten, (replications,)."""
    late = result.rounds >= result.rounds[-1] / 10
    regret = np.maximum(result.regret()[:, late], 1.0)
    slopes = np.polyfit(np.log(result.rounds[late]), np.log(regret).T, 1)[0]
    return np.asarray(slopes)


def _by_world(
    quantity: Callable[[Result], NDArray[np.float64]], names: Sequence[str], results: Results, size: Size
) -> Measured:
    long = _long_games(results, size)
    return {world_for(name, size).name: estimate(quantity(long[NAME, _world(name, size)])) for name in names}


def _share_of_bound(result: Result) -> NDArray[np.float64]:
    """Return the largest share of the bound of Theorem 1 that regret reaches at a checkpoint, (replications,)."""
    world = result.build_world()
    shares: NDArray[np.float64] = (result.regret() / _theorem_1(world.n_items, world.n_positions, result)).max(axis=1)
    return shares


def _uniform_share(results: Results, size: Size) -> float:
    """The share of Theorem 1's bound that uniformly random lists reach in the steady synthetic world."""
    world = _world(STEADY[0], size)
    best = results[NAME, world].best_fixed[-1] / size.long_rounds
    lost = best - world.click_probabilities(0).mean(axis=0).sum()
    return float(lost * size.long_rounds / adversarial_bound(world.n_items, world.n_positions, size.long_rounds))


def _lower_bound(size: Size) -> float:
    """The bound of Theorem 3 on the hard instance."""
    world = _hard_instance(size)
    return lower_bound(world.n_items, world.n_positions, size.rounds)


def _multiples_of_the_lower_bound(results: Results, size: Size) -> Measured:
    world, played, bound = _hard_instance(size), results.of_length(size.rounds), _lower_bound(size)
    return {name: estimate(played[name, world].regret()[:, -1] / bound) for name in HARD_INSTANCE_POLICIES}


def _label(name: str, size: Size) -> str:
    """The label of a world's curve."""
    if name.startswith("yandex/"):
        return "Yandex" if size.fitted is None else "fitted log"
    return name.partition("/")[2]


def _theorem_1(n_items: int, n_positions: int, result: Result) -> NDArray[np.float64]:
    """The bound of Theorem 1 at every checkpoint of a result."""
    return np.array([adversarial_bound(n_items, n_positions, int(t)) for t in result.rounds])


def _draw(panel: Axes, results: dict[str, Result]) -> None:
    """Draw the regret of every result, by label, and the bounds for the worlds in which they were played."""
    for (label, result), colour in zip(results.items(), PALETTE):
        regret = result.regret()
        slope = exponents(result).mean()
        mean = regret.mean(axis=0)
        shown = np.where(mean > 1.0, mean, np.nan)  # early on it can be negative where the best list changes
        panel.loglog(result.rounds, shown, color=colour, label=f"{label}: {slope:.2f}")
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


def _draw_hard_instance(panel: Axes, results: Results, size: Size) -> None:
    world = _hard_instance(size)
    bound = _lower_bound(size)
    most = results[NAME, world].best_fixed[-1] - 0.5 * world.n_positions * size.rounds
    for name, colour, line in zip(HARD_INSTANCE_POLICIES, PALETTE, ("-", "--", ":")):
        result = results[name, world]
        panel.plot(result.rounds, result.regret().mean(axis=0), line, color=colour, label=name)
    panel.axhline(bound, color="0.6", linewidth=1, linestyle="--", label="Theorem 3")
    panel.axhline(most, color="0.6", linewidth=1, label="the most there is to lose")
    panel.legend(frameon=False, fontsize=6.5)
    panel.set_title("hard instance")
    panel.set_xlabel("rounds")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
