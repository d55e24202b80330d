"""The cost of serving: a stale policy, a probability floor, fixed-point sums, and items added later."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arena import Result
from ..arena.figures import PALETTE, drawing
from ..policies import policy
from ..worlds import World
from ..worlds import world as named_world
from .baseline_start import BASELINE_ROUNDS, Served, allowed_cost, baseline_games, page_orders, regret_added, table_rows
from .delayed_all_weather import DelayedAllWeather
from .delayed_policy import DelayedFtrl
from .question import Figure, Game, Question, Size, figure_files
from .result_lookup import Results
from .verdict import Estimate, Verdict, estimate, judge

__all__ = ["ServiceCost", "all_weather_variants", "newcomers", "variants"]

WORLDS = ("paper/stochastic", "yandex/stochastic", "paper/periodic-items")
PHASE = 5_000  # rounds
DELAYS = (1, 10, 100, 1000)
FLOORS = (0.0, 0.005, 0.01, 0.02, 0.05)
DEFAULT = DelayedFtrl(refresh=100, delay=100, floor=0.005, fixed_point=True)  # the defaults of the service
PLAIN = "ftrl-pbm"
ALL_WEATHER = "all-weather"
ALL_WEATHER_DEFAULT = DelayedAllWeather(refresh=100, delay=100, floor=0.005, fixed_point=True)
ALL_WEATHER_LOSS = 0.002  # per round
FAR = 5.0  # times the median cost
JUDGED = "all defaults but the floor"  # refresh and delay of 100 rounds, in fixed point
DELAY_ALONE = "delay 100, refresh 10"
FIRST_ROUNDS = 200  # with a refresh and a delay of 100 rounds, no click is known before
PARTS = ALL, FIRST, LAST = "all rounds", f"first {FIRST_ROUNDS} rounds", "last half"  # of a game
STARTED = (DEFAULT, ALL_WEATHER_DEFAULT)  # from the page's own order


class Lengths(NamedTuple):
    """Rounds and replications of FTRL-PBM and of all-weather, whose variants are not compiled."""

    rounds: int
    seeds: int
    served_rounds: int  # of all-weather, and of starts from the page's own order
    served_seeds: int  # of all-weather
    judged_seeds: int  # of the variant of all-weather that statements are about
    first_rounds: int  # of games that show the first rounds of all-weather
    first_seeds: int
    start_seeds: int  # of FTRL-PBM with a start from the page's own order, which varies more


LENGTHS = {
    "quick": Lengths(100_000, 20, 20_000, 10, 25, 1_000, 50, 100),
    "paper": Lengths(1_000_000, 40, 200_000, 20, 40, 1_000, 100, 200),
}
LENGTHS["long"] = LENGTHS["paper"]


def variants() -> dict[str, DelayedFtrl]:
    """Return policies that differ from FTRL-PBM in one respect each, and one with all defaults of the service."""
    return {
        **{f"refresh and delay {k}": DelayedFtrl(refresh=k, delay=k) for k in DELAYS},
        **{f"floor {floor:g}": DelayedFtrl(floor=floor) for floor in FLOORS if floor},
        "fixed point": DelayedFtrl(fixed_point=True),
        "all defaults": DEFAULT,
    }


def all_weather_variants() -> dict[str, DelayedAllWeather]:
    """Return policies that differ from all-weather as the service does: all of them compute it from sums."""
    return {
        **{f"refresh and delay {k}": DelayedAllWeather(refresh=k, delay=k) for k in (10, 1000)},
        DELAY_ALONE: DelayedAllWeather(refresh=10, delay=100),
        JUDGED: replace(ALL_WEATHER_DEFAULT, floor=0.0),
        "all defaults": ALL_WEATHER_DEFAULT,
    }


def newcomers(n_items: int, rounds: int) -> dict[str, DelayedFtrl]:
    """Return the policies to which the worst or the best item is added half way, with both starting values."""
    return {
        f"{which} item starts at {start}": replace(DEFAULT, newcomer=item, arrives=rounds // 2, start_at=start)
        for which, item in (("worst", n_items - 1), ("best", 0))
        for start in ("zero", "median")
    }


class ServiceCost(Question):
    """Compare FTRL-PBM and all-weather as the service runs them with the policies themselves, with the same users."""

    name = "service"
    title = "Beyond the paper: what serving costs"
    about = (
        "A service computes its leader at intervals instead of in every round, gets clicks late, keeps a floor under "
        "every probability, counts in whole numbers, and adds items while it runs. Each of these alone, and all "
        "together, are compared with FTRL-PBM, with the same users. All-weather is compared likewise; besides, the "
        "service computes it from sums over blocks of time, with predictions that stay in force for many rounds. "
        f"Both are also started from an order that the page had, which they leave in {BASELINE_ROUNDS:,} rounds."
    )
    of_paper = False

    def played(self, size: Size) -> str:
        """Return how much is played, in words."""
        lengths = LENGTHS[size.name]
        return (
            f"{lengths.rounds:,} rounds and {lengths.seeds} replications of FTRL-PBM, {lengths.served_rounds:,} rounds "
            f"and {lengths.served_seeds} to {lengths.judged_seeds} replications of all-weather, phases of {PHASE:,}"
        )

    def games(self, size: Size) -> list[Game]:
        """Return both policies and their variants in every world, and added items in the steady worlds."""
        lengths, worlds = LENGTHS[size.name], _worlds()
        rounds, seeds = lengths.rounds, lengths.seeds
        compared = [policy(PLAIN), *variants().values()]
        games = [Game(one, world, rounds, seeds) for world in worlds for one in compared]
        games += [
            Game(one, world, rounds, seeds) for world in worlds[:2] for one in newcomers(world.n_items, rounds).values()
        ]
        rounds, seeds = lengths.served_rounds, lengths.served_seeds
        judged = (policy(ALL_WEATHER), all_weather_variants()[JUDGED])
        others = [one for one in all_weather_variants().values() if one not in judged]
        games += [Game(one, world, rounds, lengths.judged_seeds) for world in worlds for one in judged]
        games += [Game(one, world, rounds, seeds) for world in worlds for one in others]
        games += [
            Game(one, world, lengths.first_rounds, lengths.first_seeds)
            for world in worlds[:2]
            for one in (*judged, all_weather_variants()[DELAY_ALONE])
        ]
        starts: dict[Served, int] = {DEFAULT: lengths.start_seeds, ALL_WEATHER_DEFAULT: seeds}
        games += [Game(DEFAULT, world, rounds, lengths.start_seeds) for world in worlds[:2]]
        return games + baseline_games(starts, worlds[:2], rounds)

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        """Draw the regret that every variant adds to FTRL-PBM, and what every variant of all-weather loses."""
        lengths = LENGTHS[size.name]
        ftrl, served = results.of_length(lengths.rounds), results.of_length(lengths.served_rounds)
        added = {world.name: added_regret(ftrl, world) for world in _worlds()}
        lost = {
            world.name: {
                **lost_per_round(served, world),
                **{f"{JUDGED}, {part}": lost_per_round(served, world, part)[JUDGED] for part in PARTS[1:]},
            }
            for world in _worlds()
        }
        starts = {
            f"{world.name}, {one.name}": table_rows(served, one, world) for world in _worlds()[:2] for one in STARTED
        }
        _draw(folder, "service", added, "regret added, share of FTRL-PBM's")
        _draw(folder, "service-baseline", starts, "regret added")
        _draw(folder, "service-all-weather", lost, "lost per round")
        intervals = (
            "mean and 95% interval of {} replications with the same users. A number with an arrow is a mean outside."
        )
        return [
            Figure(
                "service",
                self.title,
                f"Regret added to that of FTRL-PBM after {lengths.rounds:,} rounds, as a share of it: "
                + intervals.format(lengths.seeds),
            ),
            Figure(
                "service-all-weather",
                "What serving costs all-weather",
                f"Reward per round that is lost against all-weather itself in {lengths.served_rounds:,} rounds: "
                + intervals.format(f"{lengths.served_seeds} ({JUDGED}: {lengths.judged_seeds})")
                + f" What is lost in the {FIRST} is divided by all rounds.",
            ),
            Figure(
                "service-baseline",
                "Starting from the page's own order",
                f"Regret that the start adds in the first {BASELINE_ROUNDS:,} rounds, and in all "
                f"{lengths.served_rounds:,}: "
                + intervals.format(f"{lengths.start_seeds} (FTRL-PBM) and {lengths.served_seeds}"),
            ),
        ]

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        """Judge whether a stale state and fixed-point sums cost little, and which start suits an added item."""
        lengths = LENGTHS[size.name]
        served = results.of_length(lengths.served_rounds)
        saved_early, kept = _baseline_verdicts(served)
        lost, lost_late = (
            {world.name: lost_per_round(served, world, part)[JUDGED] for world in _worlds()} for part in (ALL, LAST)
        )
        first = results.of_length(lengths.first_rounds)
        by_delay = {world.name: lost_by_delay(first, world) for world in _worlds()[:2]}
        results = results.of_length(lengths.rounds)
        added = {world.name: added_regret(results, world) for world in _worlds()}
        stale = {name: rows["refresh and delay 100"] for name, rows in added.items()}
        rounded = {name: rows["fixed point"] for name, rows in added.items()}
        saved = {world.name: regret_saved_by_median(results, world, lengths.rounds) for world in _worlds()[:2]}
        return [
            Verdict(
                "A leader that is 100 rounds old, from clicks that are 100 rounds late, is as good as a fresh one.",
                "ours",
                judge([-one for one in stale.values()], -0.05),
                f"regret added, as a share: {_listed(stale)}",
                "at most 5% is added in every world",
                "service",
            ),
            Verdict(
                "Losses in units of 2^-20 cost nothing.",
                "ours",
                judge([-one for one in rounded.values()], -0.02),
                f"regret added, as a share: {_listed(rounded)}",
                "at most 2% is added in every world",
                "service",
            ),
            Verdict(
                "An item that is added and happens to be the worst costs less if it starts at the median.",
                "ours",
                judge(saved.values()),
                f"regret spared: {_listed(saved)}",
                "regret is larger when it starts at zero",
                "service",
            ),
            Verdict(
                "All-weather served with the defaults, apart from the floor, earns what all-weather itself earns.",
                "ours",
                judge([-one for one in lost.values()], -ALL_WEATHER_LOSS),
                f"lost per round: {_listed(lost)}",
                f"at most {ALL_WEATHER_LOSS} per round is lost in every world",
                "service-all-weather",
                f"With a refresh and a delay of 100 rounds, no click is known in the {FIRST}.",
            ),
            Verdict(
                "In the last half of the rounds, all-weather served like that earns what all-weather itself earns.",
                "ours",
                judge([-one for one in lost_late.values()], -ALL_WEATHER_LOSS),
                f"lost per round: {_listed(lost_late)}",
                f"at most {ALL_WEATHER_LOSS} per round is lost in every world",
                "service-all-weather",
                "This statement was added after the one about all rounds had been measured.",
            ),
            Verdict(
                f"Most of what all-weather served like that loses in the {FIRST} is lost because clicks are late.",
                "ours",
                judge(by_delay.values()),
                f"clicks lost with the delay alone, minus half of all that are lost: {_listed(by_delay)}",
                f"with clicks that are 100 rounds late and a refresh after every 10, more than half is lost in the "
                f"{FIRST}, in both worlds",
                "service-all-weather",
                "This statement was added after the one about all rounds had been measured.",
            ),
            saved_early,
            kept,
        ]


def _baseline_verdicts(results: Results) -> tuple[Verdict, Verdict]:
    """Judge what a start from the page's own order saves if the order is good, and costs if it is the worst."""
    saved, spared = {}, {}
    for world in _worlds()[:2]:
        orders = page_orders(world)
        for one in STARTED:
            name = f"{world.name}, {one.name}"
            saved[name] = -regret_added(results, one, world, orders["second and third swapped"], early=True)
            cost = regret_added(results, one, world, orders["worst first"], early=False)
            limit = allowed_cost(results, world, orders["worst first"])
            spared[name] = Estimate(limit - cost.mean, limit - cost.high, limit - cost.low)
    return (
        Verdict(
            "A start from an order with one mistake, not at the first position, saves clicks in the first "
            f"{BASELINE_ROUNDS:,} rounds.",
            "ours",
            judge(saved.values()),
            f"regret spared: {_listed(saved)}",
            "regret is smaller with the start, in every world and for both policies",
            "service-baseline",
            "The order was chosen after one with the third item first had been measured, for which this fails.",
        ),
        Verdict(
            f"A start from the worst order costs no more than {BASELINE_ROUNDS // 2} pages in that order.",
            "ours",
            judge(spared.values()),
            f"regret of these pages minus regret added: {_listed(spared)}",
            "the regret added is smaller, in every world and for both policies",
            "service-baseline",
        ),
    )


def _worlds() -> list[World]:
    return [named_world(name, phase=PHASE) if "periodic" in name else named_world(name) for name in WORLDS]


def _draw(folder: str, stem: str, costs: dict[str, dict[str, Estimate]], xlabel: str) -> None:
    """Draw the costs of variants in every world, one row per variant.

    A variant that costs many times more than most is named at the edge, so that the others can be told apart.
    """
    for path, narrow in figure_files(folder, stem).items():
        with drawing(path, len(costs), narrow=narrow) as panels:
            for panel, (title, rows) in zip(panels.flat, costs.items()):
                spots = np.arange(len(rows))[::-1]
                far = FAR * float(np.median([max(abs(cost.low), abs(cost.high)) for cost in rows.values()]))
                panel.axvline(0.0, color="0.6", lw=0.8)
                for spot, cost in zip(spots, rows.values()):
                    if cost.mean > far:
                        text = f"{cost.mean:.3g} \N{RIGHTWARDS ARROW}"
                        panel.text(1.0, spot, text, ha="right", va="center", transform=panel.get_yaxis_transform())
                        continue
                    panel.plot([cost.low, cost.high], [spot, spot], color=PALETTE[0])
                    panel.plot(cost.mean, spot, "o", ms=3, color=PALETTE[0])
                panel.set(xlabel=xlabel)
                panel.set_title(title, loc="right" if narrow else "center")
                panel.set_yticks(spots, list(rows) if narrow or panel is panels[0, 0] else [""] * len(rows))


def _listed(estimates: dict[str, Estimate]) -> str:
    return "; ".join(f"{name}: {one}" for name, one in estimates.items())


def added_regret(results: Results, world: World) -> dict[str, Estimate]:
    """Estimate how much regret every variant adds to that of FTRL-PBM, as a share of it."""
    plain = results[PLAIN, world].regret()[:, -1]
    return {
        name: estimate((results[one, world].regret()[:, -1] - plain) / plain.mean()) for name, one in variants().items()
    }


def lost_per_round(results: Results, world: World, part: str = ALL) -> dict[str, Estimate]:
    """Estimate how much less every served variant earns per round than all-weather itself, in a part of the rounds.

    Replications that both have are compared, with the same users.
    """
    return {name: estimate(lost_by(results, one, world, part)) for name, one in all_weather_variants().items()}


def lost_by(results: Results, served: DelayedAllWeather, world: World, part: str) -> NDArray[np.float64]:
    """Return how much less a variant earns per round than all-weather itself, for the replications that both have."""
    plain, own = (earned_per_round(results[one, world], part) for one in (policy(ALL_WEATHER), served))
    return plain[: own.size] - own[: plain.size]


def lost_by_delay(results: Results, world: World) -> Estimate:
    """Estimate how many clicks late clicks alone cost in the first rounds, minus half of what serving costs there."""
    variants = all_weather_variants()
    delay, served = (lost_by(results, variants[name], world, FIRST) for name in (DELAY_ALONE, JUDGED))
    rounds = int(results[policy(ALL_WEATHER), world].rounds[-1])
    return estimate(rounds * (delay - 0.5 * served))


def earned_per_round(result: Result, part: str) -> NDArray[np.float64]:
    """Return the average reward per round of every replication: in all rounds, or in the last half of them.

    Of the first rounds, the reward is divided by the number of all rounds.
    """
    reward, rounds = result.reward, result.rounds
    if part == ALL:
        return reward[:, -1] / rounds[-1]
    if part == FIRST:
        return reward_until(result, min(FIRST_ROUNDS, int(rounds[-1]))) / rounds[-1]
    middle = int(np.searchsorted(rounds, rounds[-1] // 2))
    return (reward[:, -1] - reward[:, middle]) / (rounds[-1] - rounds[middle])


def reward_until(result: Result, last: int) -> NDArray[np.float64]:
    """Return the reward of every replication until a round, interpolated between the rounds that were recorded."""
    rounds, reward = np.append(0, result.rounds), np.pad(result.reward, ((0, 0), (1, 0)))
    return np.array([np.interp(last, rounds, own) for own in reward])


def regret_saved_by_median(results: Results, world: World, rounds: int) -> Estimate:
    """Estimate how much less regret there is if the worst item starts at the median instead of zero."""
    added = newcomers(world.n_items, rounds)
    zero, median = (
        results[added[f"worst item starts at {start}"], world].regret()[:, -1] for start in ("zero", "median")
    )
    return estimate(zero - median)
