"""How regret grows with the rounds, where users are steady and where they are not, and how it compares with theory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..arena import Result
from ..arena.figures import PALETTE, drawing
from ..policies import policy
from ..theory import adversarial_bound, lower_bound, stochastic_bound
from ..worlds import Stochastic, World, world
from .base import Estimate, Figure, Game, Question, Results, Size, Verdict, estimate, figure_files, judge
from .panels import named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Growth"]

STEADY = ("paper/stochastic", "yandex/stochastic")
HOSTILE = ("adversarial/growing-phases", "adversarial/corruption", "adversarial/fraud")
NAME = "ftrl-pbm"
ON_THE_HARD_INSTANCE = (NAME, "toprank", "uniform")
NOT_ABOVE = 0.55  # an exponent that counts as one half


def _long(name: str, size: Size) -> World:
    # Corruption is over long before the last factor of ten, in which growth is measured.
    place = world(name, early=size.long_rounds // 50) if name.endswith("corruption") else named(name, size)
    # A name of its own: the panels play the same worlds for another number of rounds.
    place.name = f"{place.name}, long"
    return place


def _hard(size: Size) -> World:
    return world("adversarial/hard-instance", rounds=size.rounds)


class Growth(Question):
    """O(log T) and O(sqrt T), measured."""

    name = "growth"
    title = "How regret grows"
    about = (
        "The regret of FTRL-PBM against the best fixed list on logarithmic axes, with the paper's bounds. The slope of "
        "a curve is the exponent of T; it is measured over the last factor of ten."
    )

    def games(self, size: Size) -> list[Game]:
        long = [Game(policy(NAME), _long(name, size), size.long_rounds, size.few_seeds) for name in STEADY + HOSTILE]
        hard = [Game(policy(name), _hard(size), size.rounds, size.seeds) for name in ON_THE_HARD_INSTANCE]
        return long + hard

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        for path, narrow in figure_files(folder, "growth").items():
            with drawing(path, across=3, narrow=narrow) as panels:
                for panel, names, title in zip(panels[0], (STEADY, HOSTILE), ("steady users", "hostile users")):
                    _draw(panel, [results[NAME, _long(name, size).name] for name in names])
                    panel.set_title(title)
                _draw_hard_instance(panels[0, 2], results, size)
                panels[0, 0].set_ylabel("regret against the best fixed list")
        caption = (
            f"FTRL-PBM, {size.long_rounds:,} rounds, mean of {size.few_seeds} replications. Dashed: the bounds of "
            "Theorem 1 (any users; ten items, five positions) and Theorem 2 (steady users, synthetic world). On the "
            "hard instance three policies, with the lower bound of Theorem 3 and the most that can be lost there."
        )
        return [Figure("growth", self.title, caption)]

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        return [judged(results, size) for judged in (_logarithmic, _square_root, _below_the_bounds, _lower_bound)]


def exponents(result: Result) -> NDArray[np.float64]:
    """(seeds,) the slope of log regret against log rounds, over the last factor of ten."""
    late = result.rounds >= result.rounds[-1] / 10
    regret = np.maximum(result.regret()[:, late], 1.0)
    slopes = np.polyfit(np.log(result.rounds[late]), np.log(regret).T, 1)[0]
    return np.asarray(slopes)


def _said(found: dict[str, Estimate], size: Size) -> str:
    """What was found in each world."""
    return "; ".join(f"{named(name, size).name}: {one}" for name, one in found.items())


def _logarithmic(results: Results, size: Size) -> Verdict:
    found = {name: estimate(exponents(results[NAME, _long(name, size).name])) for name in STEADY}
    return Verdict(
        "With steady users, by the end of the run, regret grows slower than the square root of T.",
        "ours, from Theorem 2",
        judge([-one for one in found.values()], -0.5),
        f"exponent of T over the last factor of ten: {_said(found, size)}",
        "the exponent is below one half, so that growth is slower than the square root of Theorem 1",
        "growth",
        "Theorem 2 promises log T in the end, which no finite run can refute; this asks whether one sees any of it.",
    )


def _square_root(results: Results, size: Size) -> Verdict:
    found = {name: estimate(exponents(results[NAME, _long(name, size).name])) for name in HOSTILE}
    return Verdict(
        "With hostile users, by the end of the run, regret grows no faster than the square root of T.",
        "ours, from Theorem 1",
        judge([-one for one in found.values()], -NOT_ABOVE),
        f"exponent of T over the last factor of ten: {_said(found, size)}",
        f"the exponent is below {NOT_ABOVE} in every hostile world",
        "growth",
        "Theorem 1 bounds the regret and not its slope, for the worst of all worlds, which these are not.",
    )


def _below_the_bounds(results: Results, size: Size) -> Verdict:
    shares = {}
    for name in STEADY + HOSTILE:
        one = results[NAME, _long(name, size).name]
        place = _long(name, size)
        n, m = place.n_items, place.n_positions
        bound = np.array([adversarial_bound(n, m, int(t)) for t in one.rounds])
        shares[name] = estimate((one.regret() / bound).max(axis=1))
    return Verdict(
        "Regret stays below the bound of Theorem 1, with its constants repaired.",
        "Theorem 1",
        judge([-one for one in shares.values()], -1.0),
        f"largest share of the bound: {_said(shares, size)}",
        "the share is below 1 at every checkpoint",
        "growth",
        f"The bound is so wide that uniformly random lists reach {_uniform_share(results, size):.2f} of it here.",
    )


def _uniform_share(results: Results, size: Size) -> float:
    """The share of Theorem 1's bound that uniformly random lists reach in the steady synthetic world."""
    place = _long(STEADY[0], size)
    best = results[NAME, place.name].best_fixed[-1] / size.long_rounds
    lost = best - place.click_probabilities(0).mean(axis=0).sum()
    return float(lost * size.long_rounds / adversarial_bound(place.n_items, place.n_positions, size.long_rounds))


def _lower_bound(results: Results, size: Size) -> Verdict:
    place = _hard(size)
    bound = lower_bound(place.n_items, place.n_positions, size.rounds)
    found = {name: estimate(results[name, place.name].regret()[:, -1] / bound) for name in ON_THE_HARD_INSTANCE}
    told = "; ".join(f"{name}: {one}" for name, one in found.items())
    return Verdict(
        "No policy can lose less than m sqrt((n - m + 1) T) / 16 on the hard instance.",
        "Theorem 3",
        judge(found.values(), 1.0),
        f"regret as a multiple of the bound ({bound:,.0f}): {told}",
        "every policy tried loses more than the bound",
        "growth",
        "On that instance nobody can lose more than twice the bound either: it tells no two policies apart.",
    )


def _draw(panel: Axes, results: list[Result]) -> None:
    for result, colour in zip(results, PALETTE):
        regret = result.regret()
        label = result.world.removesuffix(", long").partition("(")[0].partition("/")[2]
        if result.world.startswith(("yandex", "fitted")):
            label = "Yandex" if result.world.startswith("yandex") else "fitted log"
        slope = exponents(result).mean()
        mean = regret.mean(axis=0)
        shown = np.where(mean > 1.0, mean, np.nan)  # early on it can be negative where the best list changes
        panel.loglog(result.rounds, shown, color=colour, label=f"{label}: {slope:.2f}")
    rounds = results[0].rounds
    bound = [adversarial_bound(10, 5, int(t)) for t in rounds]
    panel.loglog(rounds, bound, "--", color="0.6", linewidth=1, label="Theorem 1")
    first = world(results[0].world.removesuffix(", long").partition("(")[0])
    if isinstance(first, Stochastic):
        steady = [stochastic_bound(first.attraction, first.examination, int(t)) for t in rounds]
        panel.loglog(rounds, steady, ":", color="0.6", linewidth=1, label="Theorem 2")
    panel.set_xlabel("rounds")
    panel.legend(frameon=False, fontsize=6.5)


def _draw_hard_instance(panel: Axes, results: Results, size: Size) -> None:
    place = _hard(size)
    bound = lower_bound(place.n_items, place.n_positions, size.rounds)
    most = results[NAME, place.name].best_fixed[-1] - 0.5 * place.n_positions * size.rounds
    for name, colour, line in zip(ON_THE_HARD_INSTANCE, PALETTE, ("-", "--", ":")):
        found = results[name, place.name]
        panel.plot(found.rounds, found.regret().mean(axis=0), line, color=colour, label=name)
    panel.axhline(bound, color="0.6", linewidth=1, linestyle="--", label="Theorem 3")
    panel.axhline(most, color="0.6", linewidth=1, label="the most there is to lose")
    panel.legend(frameon=False, fontsize=6.5)
    panel.set_title("hard instance")
    panel.set_xlabel("rounds")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
