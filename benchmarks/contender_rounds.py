"""The cost of a round of every policy at (10, 5), beside straightforward implementations and other packages.

Writes the section "contenders" of ``RESULTS.md``, and ``contenders.parquet``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

import bothworlds
from bothworlds.arena.storage import provenance
from bothworlds.policies import Policy, names, policy

from .contenders import CONTENDERS, play_rounds
from .measurement import Measurement
from .peers import PEERS, Peer, is_installed
from .results_file import made_by, markdown, spread, write_section

WORLD = bothworlds.world("paper/stochastic")  # 10 items, 5 positions
REFERENCE = "ftrl-pbm"
ROUNDS = 10_000
FEWER_ROUNDS = {"pbm-ts": 1_000, "ftrl-pbm": 300}  # of straightforward implementations that take a millisecond a round
REPEATS = 9
OURS, STRAIGHTFORWARD = "bothworlds", "NumPy, SciPy"


class Run(NamedTuple):
    """One replication; times are processor times in microseconds per round, rewards are expected clicks per round.

    ``reference`` is FTRL-PBM over ``ROUNDS`` rounds, played just before. ``ours`` and ``our_reward`` are of the policy
    of this package, over the same rounds and with the same users.
    """

    policy: str
    implementation: str
    rounds: int
    repeat: int
    microseconds: float
    reference: float
    ours: float
    reward: float
    our_reward: float

    @property
    def ratio(self) -> float:
        """The time as a multiple of that of the reference."""
        return self.microseconds / self.reference

    @property
    def times_ours(self) -> float:
        """The time as a multiple of that of our policy."""
        return self.microseconds / self.ours


def runs_of(name: str, implementation: str, played: Policy, rounds: int, repeats: int) -> Iterator[Run]:
    """Play a policy, with the reference before and our policy of that name after each repeat."""
    for repeat in range(repeats):
        reference = play_rounds(policy(REFERENCE), WORLD, ROUNDS, repeat)
        score = play_rounds(played, WORLD, rounds, repeat)
        ours = score if implementation == OURS else play_rounds(policy(name), WORLD, rounds, repeat)
        yield Run(
            policy=name,
            implementation=implementation,
            rounds=rounds,
            repeat=repeat,
            microseconds=score.seconds / rounds * 1e6,
            reference=reference.seconds / ROUNDS * 1e6,
            ours=ours.seconds / rounds * 1e6,
            reward=float(score.reward[-1]) / rounds,
            our_reward=float(ours.reward[-1]) / rounds,
        )


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the row of a table: medians of the repeats, with the lowest and the highest."""
    first, replaced = runs[0], runs[0].implementation != OURS
    difference = np.array([run.reward - run.our_reward for run in runs])
    error = difference.std(ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else np.nan
    return {
        "policy": first.policy,
        "implementation": first.implementation,
        "rounds": first.rounds,
        "µs per round": spread([run.microseconds for run in runs]),
        "ratio to ftrl-pbm": spread([run.ratio for run in runs]),
        "ratio to ours": spread([run.times_ours for run in runs]) if replaced else "",
        "clicks per round": f"{np.mean([run.reward for run in runs]):.4f}",
        "minus ours": f"{difference.mean():+.4f} ± {error:.4f}" if replaced else "",
    }


def absent(peer: Peer) -> dict[str, Any]:
    """Return the row of a package that is not installed."""
    columns = ("rounds", "µs per round", "ratio to ftrl-pbm", "ratio to ours", "clicks per round", "minus ours")
    return {"policy": peer.name, "implementation": f"{peer.package}: absent"} | dict.fromkeys(columns, "")


def runs_of_peer(peer: Peer, repeats: int = REPEATS) -> list[Run]:
    """Play an algorithm of another package, with our policy that it is compared with after each repeat."""
    return list(runs_of(peer.name, f"{peer.package}: {peer.algorithm}", peer.make(), peer.rounds, repeats))


def section(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> str:
    """Return the text of the section; ``about`` also has the number of repeats and the world."""
    ours = [row for row in rows if row["implementation"] == OURS]
    others = [row for row in rows if row["implementation"] != OURS]
    return f"""## A round at 10 items and 5 positions

{made_by("contenders", about)}
- Method: world `{about["world"]}`. Processor time of decide, clicks and learn, from the first round on, without
  compilation. Median of {about["repeats"]} repeats, with the lowest and the highest in parentheses.
- Ratios are taken within each repeat, in one process: to `ftrl-pbm` of this package just before, and to our policy of
  the same name over the same rounds with the same users. On another machine, compare the ratios.

### Other implementations

`uniform` shows what the loop in Python costs by itself. "Minus ours" is the difference of clicks per round, with its
standard error. Algorithms of other packages are different ones: "ours" is the policy of this package that is most like
them.

{markdown(others, list(rows[0]))}
### Policies of this package

{markdown(ours, [column for column in rows[0] if column not in ("implementation", "ratio to ours", "minus ours")])}"""


def measure() -> Measurement:
    """Return one row per straightforward implementation, package and policy of ours, and write the results."""
    about = provenance([]) | {"load_before": os.getloadavg()[0]}  # the commit before this run writes files
    about["versions"] |= {peer.package: version(peer.package) for peer in filter(is_installed, PEERS)}
    others = [runs_of_peer(peer) for peer in filter(is_installed, PEERS)]
    for name, contender in CONTENDERS.items():
        rounds = FEWER_ROUNDS.get(name, ROUNDS)
        others.append(list(runs_of(name, STRAIGHTFORWARD, contender(), rounds, REPEATS)))
    ours = [list(runs_of(name, OURS, policy(name), ROUNDS, REPEATS)) for name in names()]
    missing = [absent(peer) for peer in PEERS if not is_installed(peer)]
    rows = [*map(summary, others), *missing, *map(summary, ours)]
    about |= {"load_after": os.getloadavg()[0], "repeats": REPEATS, "world": WORLD.name}
    runs = [run for repeats in (*others, *ours) for run in repeats]
    written = write_section("contenders", section(rows, about), runs, about)
    notes = ["Processor time, clicks included; the median of the repeats, the lowest and the highest.", *written]
    return Measurement("Policies and contenders at (10, 5)", rows, notes)
