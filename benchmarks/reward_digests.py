"""Digests of the rewards and clicks of every policy in five worlds: what must not change when code is rearranged.

``python -m benchmarks.reward_digests > before``, and again after the change: equal lines, equal bits. Arguments are
names of policies; without any, all are played.
"""

from __future__ import annotations

import hashlib
import sys

from bothworlds import play, policies, world

WORLDS = [
    world("paper/stochastic"),
    world("paper/periodic-both", phase=3_000),
    world("yandex/periodic-both", phase=2_000),
    world("dbn/yandex"),
    world("attack/promote"),
]
ROUNDS, SEEDS = 10_000, 2
VARIANTS = {  # in the third world
    "pbm-ucb": [{"window": 1000}, {"discount": 0.999}],
    "pbm-pie": [{"discount": 0.999}],
    "pbm-ucb-mle": [{"window": 1000}, {"detect": True}],
    "pbm-pie-mle": [{"discount": 0.999}],
    "comb-ucb": [{"discount": 0.999}, {"detect": True}],
    "kl-comb-ucb": [{"window": 1000}],
    "comb-ts": [{"window": 1000}],
    "pbm-ts": [{"discount": 0.999}],
    "pb-mhb": [{"window": 1000}],
    "gibbs-ts": [{"discount": 0.999}, {"detect": True}],
    "grab": [{"window": 1000}],
    "all-weather": [{"recall": 0}],
    "ftrl-pbm": [{"every": 7, "restart": 900}],
}


def main(names: list[str]) -> None:
    """Print policy, world and digest of each game."""
    for name in names or policies.names():
        players = [(policies.policy(name), place) for place in WORLDS]
        players += [(policies.policy(name, **settings), WORLDS[2]) for settings in VARIANTS.get(name, [])]
        for player, place in players:
            try:
                game = play(player, place, ROUNDS, replications=SEEDS, inform=True, progress=False)
            except ValueError:
                digest = "cannot play there"
            else:
                digest = hashlib.sha256(game.reward.tobytes() + game.clicks.tobytes()).hexdigest()[:16]
            print(player.label, place.name, digest, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
