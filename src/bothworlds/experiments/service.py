"""What serving costs: a stale leader, a floor, fixed point, and items that come later, in regret."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arena.figures import PALETTE, drawing
from ..policies import policy
from ..worlds import World, world
from .base import Estimate, Figure, Game, Question, Results, Size, Verdict, estimate, figure_files, judge
from .served import ServedFtrl

__all__ = ["Service", "table"]

WORLDS = ("paper/stochastic", "yandex/stochastic", "paper/periodic-items")
STALE = (1, 10, 100, 1000)
FLOORS = (0.0, 0.005, 0.01, 0.02, 0.05)
DEFAULT = ServedFtrl(refresh=100, delay=100, floor=0.005, fixed_point=True)  # as the service starts out
PLAIN = "ftrl-pbm"
ROUNDS = {"quick": 100_000, "paper": 1_000_000}
SEEDS = {"quick": 20, "paper": 40}


def variants() -> dict[str, ServedFtrl]:
    """One thing changed at a time, and all of them together."""
    return {
        **{f"refresh and delay {k}": ServedFtrl(refresh=k, delay=k) for k in STALE},
        **{f"floor {floor:g}": ServedFtrl(floor=floor) for floor in FLOORS if floor},
        "fixed point": ServedFtrl(fixed_point=True),
        "all defaults": DEFAULT,
    }


def arrivals(n_items: int, rounds: int) -> dict[str, ServedFtrl]:
    """The worst and the best item, coming half way, with both ways to start."""
    return {
        f"{who} item starts at {start}": replace(DEFAULT, newcomer=item, arrives=rounds // 2, start_at=start)
        for who, item in (("worst", n_items - 1), ("best", 0))
        for start in ("zero", "median")
    }


class Service(Question):
    """The learner of the service against FTRL-PBM itself, with the same users."""

    name = "service"
    title = "Beyond the paper: what serving costs"
    about = (
        "A service finds its leader now and then instead of in every round, gets clicks late, keeps a floor under "
        "every probability, counts in whole numbers, and adds items while it runs. Each of these alone, and all "
        "together, against FTRL-PBM with the same users."
    )

    def games(self, size: Size) -> list[Game]:
        rounds, seeds = ROUNDS[size.name], SEEDS[size.name]
        plain = [Game(policy(PLAIN), place, rounds, seeds) for place in places()]
        changed = [Game(one, place, rounds, seeds) for place in places() for one in variants().values()]
        late = [Game(one, place, rounds, seeds) for place in places()[:2] for one in late_ones(place, rounds).values()]
        return plain + changed + late

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        for path, narrow in figure_files(folder, "service").items():
            with drawing(path, len(WORLDS), narrow=narrow) as panels:
                for panel, place in zip(panels[0], places()):
                    rows = costs(results, place)
                    spots = np.arange(len(rows))[::-1]
                    panel.axvline(0.0, color="0.6", lw=0.8)
                    for spot, cost in zip(spots, rows.values()):
                        panel.plot([cost.low, cost.high], [spot, spot], color=PALETTE[0])
                        panel.plot(cost.mean, spot, "o", ms=3, color=PALETTE[0])
                    panel.set(xlabel="regret added, share of FTRL-PBM's", title=place.name)
                    panel.set_yticks(spots, list(rows) if narrow or panel is panels[0, 0] else [""] * len(rows))
        caption = (
            f"Regret added to that of FTRL-PBM after {ROUNDS[size.name]:,} rounds, as a share of it: mean and 95% "
            f"interval of {SEEDS[size.name]} replications with the same users."
        )
        return [Figure("service", self.title, caption)]

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        told = {place.name: costs(results, place) for place in places()}
        stale = [rows["refresh and delay 100"] for rows in told.values()]
        every = [rows["fixed point"] for rows in told.values()]
        late = {place.name: spared(results, place, size) for place in places()[:2]}
        return [
            Verdict(
                "A leader that is 100 rounds old, from clicks that are 100 rounds late, is as good as a fresh one.",
                "ours",
                judge([-one for one in stale], -0.05),
                "regret added, as a share: " + "; ".join(f"{name}: {c}" for name, c in zip(told, stale)),
                "at most 5% is added in every world",
                "service",
            ),
            Verdict(
                "Losses in units of 2^-20 cost nothing.",
                "ours",
                judge([-one for one in every], -0.02),
                "regret added, as a share: " + "; ".join(f"{name}: {c}" for name, c in zip(told, every)),
                "at most 2% is added in every world",
                "service",
            ),
            Verdict(
                "An item that is added and happens to be the worst costs less if it starts at the median.",
                "ours",
                judge(late.values()),
                "regret spared: " + "; ".join(f"{name}: {one}" for name, one in late.items()),
                "regret is larger when it starts at zero",
                "service",
            ),
        ]


def places() -> list[World]:
    """The worlds, under names of their own: fewer rounds are played here than elsewhere."""
    found = [world(name, phase=5_000) if "periodic" in name else world(name) for name in WORLDS]
    for place, name in zip(found, WORLDS):
        place.name = f"{name}, served"
    return found


def late_ones(place: World, rounds: int) -> dict[str, ServedFtrl]:
    return arrivals(place.n_items, rounds)


def costs(results: Results, place: World) -> dict[str, Estimate]:
    """What every variant adds to the regret of FTRL-PBM, as a share of it."""
    plain = results[PLAIN, place.name].regret()[:, -1]
    return {
        name: estimate((results[one.label, place.name].regret()[:, -1] - plain) / plain.mean())
        for name, one in variants().items()
    }


def spared(results: Results, place: World, size: Size) -> Estimate:
    """How much less regret there is if the worst item starts at the median, and not at zero."""
    late = late_ones(place, ROUNDS[size.name])
    zero, median = (
        results[late[f"worst item starts at {start}"].label, place.name].regret()[:, -1] for start in ("zero", "median")
    )
    return estimate(zero - median)


def table(results: Results, size: Size) -> str:
    """All figures in plain text."""
    lines = []
    for place in places():
        plain = estimate(results[PLAIN, place.name].regret()[:, -1])
        lines += ["", f"{place.name}: regret of FTRL-PBM {plain}", "  added, as a share of it:"]
        lines += [f"  {name:24} {cost}" for name, cost in costs(results, place).items()]
    for place in places()[:2]:
        for name, one in late_ones(place, ROUNDS[size.name]).items():
            regret = results[one.label, place.name].regret()
            lines.append(f"  {place.name}: {name:28} regret {estimate(regret[:, -1])}")
    return "\n".join(lines)
