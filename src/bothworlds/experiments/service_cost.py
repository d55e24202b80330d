"""The regret added by serving: a stale leader, a probability floor, fixed-point losses, and items added later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arena.figures import PALETTE, drawing
from ..policies import policy
from ..worlds import World
from ..worlds import world as named_world
from .delayed_policy import DelayedFtrl
from .question import Figure, Game, Question, Size, figure_files
from .result_lookup import Results
from .verdict import Estimate, Verdict, estimate, judge

__all__ = ["ServiceCost", "newcomers", "variants"]

WORLDS = ("paper/stochastic", "yandex/stochastic", "paper/periodic-items")
DELAYS = (1, 10, 100, 1000)
FLOORS = (0.0, 0.005, 0.01, 0.02, 0.05)
DEFAULT = DelayedFtrl(refresh=100, delay=100, floor=0.005, fixed_point=True)  # the defaults of the service
PLAIN = "ftrl-pbm"
ROUNDS = {"quick": 100_000, "paper": 1_000_000}
SEEDS = {"quick": 20, "paper": 40}


def variants() -> dict[str, DelayedFtrl]:
    """Return policies that differ from FTRL-PBM in one respect each, and one with all defaults of the service."""
    return {
        **{f"refresh and delay {k}": DelayedFtrl(refresh=k, delay=k) for k in DELAYS},
        **{f"floor {floor:g}": DelayedFtrl(floor=floor) for floor in FLOORS if floor},
        "fixed point": DelayedFtrl(fixed_point=True),
        "all defaults": DEFAULT,
    }


def newcomers(n_items: int, rounds: int) -> dict[str, DelayedFtrl]:
    """Return the policies to which the worst or the best item is added half way, with both starting values."""
    return {
        f"{which} item starts at {start}": replace(DEFAULT, newcomer=item, arrives=rounds // 2, start_at=start)
        for which, item in (("worst", n_items - 1), ("best", 0))
        for start in ("zero", "median")
    }


class ServiceCost(Question):
    """Compare FTRL-PBM as the service runs it with FTRL-PBM itself, with the same users."""

    name = "service"
    title = "Beyond the paper: what serving costs"
    about = (
        "A service computes its leader at intervals instead of in every round, gets clicks late, keeps a floor under "
        "every probability, counts in whole numbers, and adds items while it runs. Each of these alone, and all "
        "together, are compared with FTRL-PBM, with the same users."
    )

    def games(self, size: Size) -> list[Game]:
        """Return FTRL-PBM and every variant in every world, and added items in the steady worlds."""
        rounds, seeds, worlds = ROUNDS[size.name], SEEDS[size.name], _worlds()
        plain = [Game(policy(PLAIN), world, rounds, seeds) for world in worlds]
        changed = [Game(one, world, rounds, seeds) for world in worlds for one in variants().values()]
        added = [
            Game(one, world, rounds, seeds) for world in worlds[:2] for one in newcomers(world.n_items, rounds).values()
        ]
        return plain + changed + added

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        """Draw the regret that every variant adds."""
        results = results.of_length(ROUNDS[size.name])
        for path, narrow in figure_files(folder, "service").items():
            with drawing(path, len(WORLDS), narrow=narrow) as panels:
                for panel, world in zip(panels[0], _worlds()):
                    rows = added_regret(results, world)
                    spots = np.arange(len(rows))[::-1]
                    panel.axvline(0.0, color="0.6", lw=0.8)
                    for spot, cost in zip(spots, rows.values()):
                        panel.plot([cost.low, cost.high], [spot, spot], color=PALETTE[0])
                        panel.plot(cost.mean, spot, "o", ms=3, color=PALETTE[0])
                    panel.set(xlabel="regret added, share of FTRL-PBM's", title=world.name)
                    panel.set_yticks(spots, list(rows) if narrow or panel is panels[0, 0] else [""] * len(rows))
        caption = (
            f"Regret added to that of FTRL-PBM after {ROUNDS[size.name]:,} rounds, as a share of it: mean and 95% "
            f"interval of {SEEDS[size.name]} replications with the same users."
        )
        return [Figure("service", self.title, caption)]

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        """Judge whether a stale leader and fixed-point losses cost little, and which start suits an added item."""
        results = results.of_length(ROUNDS[size.name])
        added = {world.name: added_regret(results, world) for world in _worlds()}
        stale = {name: rows["refresh and delay 100"] for name, rows in added.items()}
        rounded = {name: rows["fixed point"] for name, rows in added.items()}
        saved = {world.name: regret_saved_by_median(results, world, size) for world in _worlds()[:2]}
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
        ]


def _worlds() -> list[World]:
    return [named_world(name, phase=5_000) if "periodic" in name else named_world(name) for name in WORLDS]


def _listed(estimates: dict[str, Estimate]) -> str:
    return "; ".join(f"{name}: {one}" for name, one in estimates.items())


def added_regret(results: Results, world: World) -> dict[str, Estimate]:
    """Estimate how much regret every variant adds to that of FTRL-PBM, as a share of it."""
    plain = results[PLAIN, world].regret()[:, -1]
    return {
        name: estimate((results[one, world].regret()[:, -1] - plain) / plain.mean()) for name, one in variants().items()
    }


def regret_saved_by_median(results: Results, world: World, size: Size) -> Estimate:
    """Estimate how much less regret there is if the worst item starts at the median instead of zero."""
    added = newcomers(world.n_items, ROUNDS[size.name])
    zero, median = (
        results[added[f"worst item starts at {start}"], world].regret()[:, -1] for start in ("zero", "median")
    )
    return estimate(zero - median)
