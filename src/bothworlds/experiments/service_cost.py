"""The cost of serving: clicks that a policy learns from late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arena import Result
from ..arena.game import Game
from ..line_styles import PALETTE
from ..policies import Delayed, Policy, policy
from ..worlds import World
from ..worlds import world as named_world
from .question import Figure, Question, Size, draw_figure, game
from .result_lookup import Results
from .verdict import Claim, Estimate, Measure, estimate

WORLDS = ("paper/stochastic", "yandex/stochastic", "paper/periodic-items")
PHASE = 5_000  # rounds
POLICIES = ("ftrl-pbm", "all-weather")
DELAYS = (10, 100, 1000)
JUDGED = 100  # rounds
MOST_ADDED = 0.05  # of the regret of FTRL-PBM
MOST_LOST = 0.002  # clicks per round


class ServiceCost(Question):
    """Compare FTRL-PBM and all-weather whose clicks are late with the policies themselves, with the same users."""

    name = "service"
    title = "Beyond the paper: what late clicks cost"
    about = (
        "A service learns from a page when its visitor has had time to click, and decides on other pages meanwhile. "
        "FTRL-PBM and all-weather whose clicks arrive late are compared with the same policies whose clicks arrive at "
        "once, with the same users."
    )
    of_paper = False

    def played(self, size: Size) -> str:
        return f"{size.rounds:,} rounds and {size.many_replications} replications of every policy, phases of {PHASE:,}"

    def games(self, size: Size) -> list[Game]:
        players = [p for name in POLICIES for p in (policy(name), *(_both(name, delay)[1] for delay in DELAYS))]
        return [game(player, world, size.rounds, size.many_replications) for world in _worlds() for player in players]

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        results = results.of_length(size.rounds)

        def draw(panels: Any) -> None:
            for panel, world in zip(panels, _worlds()):
                for name, colour in zip(POLICIES, PALETTE):
                    means, lows, highs = zip(*(lost_per_round(results, name, delay, world) for delay in DELAYS))
                    panel.fill_between(DELAYS, lows, highs, color=colour, alpha=0.2, lw=0)
                    panel.plot(DELAYS, means, marker="o", ms=3, color=colour, label=name)
                panel.axhline(0.0, color="0.6", lw=0.8)
                panel.set(title=world.name, xscale="log", xlabel="delay in rounds")
            panels[0].set_ylabel("lost per round")
            panels[0].legend()

        caption = (
            f"Reward per round that is lost against prompt clicks in {size.rounds:,} rounds: mean and 95% interval of "
            f"{size.many_replications} replications with the same users."
        )
        return draw_figure(folder, Figure(self.name, self.title, caption), len(WORLDS), draw)

    def claims(self, size: Size) -> Sequence[Claim]:
        leader, default = POLICIES
        claim = partial(Claim, source="ours", figure=self.name)
        lost = partial(
            claim, said="lost per round", below=MOST_LOST, rule=f"at most {MOST_LOST} per round is lost in every world"
        )
        return (
            claim(
                statement=f"FTRL-PBM whose clicks are {JUDGED} rounds late is as good as with prompt clicks.",
                measure=_in_all_worlds(partial(added_regret, name=leader, delay=JUDGED)),
                said="regret added, as a share",
                below=MOST_ADDED,
                rule=f"at most {MOST_ADDED:.0%} is added in every world",
            ),
            lost(
                statement=f"All-weather whose clicks are {JUDGED} rounds late earns what it earns with prompt clicks.",
                measure=_in_all_worlds(partial(lost_per_round, name=default, delay=JUDGED)),
            ),
            lost(
                statement="In the last half of the rounds, all-weather with such late clicks loses nothing.",
                measure=_in_all_worlds(partial(lost_per_round, name=default, delay=JUDGED, last_half=True)),
            ),
        )


def _in_all_worlds(measure: Callable[..., Estimate]) -> Measure:
    return lambda results, size: {
        world.name: measure(results.of_length(size.rounds), world=world) for world in _worlds()
    }


def _worlds() -> list[World]:
    return [named_world(name, phase=PHASE) if "periodic" in name else named_world(name) for name in WORLDS]


def _both(name: str, delay: int) -> tuple[Policy, Policy]:
    """Return a policy with prompt clicks and with late ones."""
    return policy(name), Delayed(policy(name), delay)


def added_regret(results: Results, name: str, delay: int, world: World) -> Estimate:
    """Estimate how much regret late clicks add, as a share of that with prompt clicks."""
    prompt, late = (results[played, world].regret()[:, -1] for played in _both(name, delay))
    return estimate((late - prompt) / prompt.mean())


def lost_per_round(results: Results, name: str, delay: int, world: World, *, last_half: bool = False) -> Estimate:
    """Estimate how much less a policy earns per round with late clicks, in all rounds or in the last half of them."""
    prompt, late = (earned_per_round(results[played, world], last_half) for played in _both(name, delay))
    return estimate(prompt - late)


def earned_per_round(result: Result, last_half: bool) -> NDArray[np.float64]:
    """Return the average reward per round of every replication, in all rounds or in the last half of them."""
    if not last_half:
        return result.reward[:, -1] / result.rounds[-1]
    middle = int(np.searchsorted(result.rounds, result.rounds[-1] // 2))
    return (result.reward[:, -1] - result.reward[:, middle]) / (result.rounds[-1] - result.rounds[middle])
