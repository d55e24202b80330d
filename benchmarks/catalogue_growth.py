"""How the cost of a round grows with the number of items and of positions: six policies, with fitted exponents.

Two phases are measured. In the *first rounds*, most items were never shown. *All items shown* is the phase in which
every item was shown once at every position, and has losses or counts of its own.

Writes the section "growth" of ``RESULTS.md``, ``growth.parquet``, and a figure.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bothworlds.arena.figures import EndLabel, drawing, label_ends
from bothworlds.arena.loop import play_compiled
from bothworlds.arena.storage import provenance
from bothworlds.core import Decision, leaves, streams
from bothworlds.line_styles import DASHES, PALETTE
from bothworlds.policies import Policy, configured_for, resolve
from bothworlds.policies.pages import has_parts
from bothworlds.worlds.users import TableUsers, new_answer

from .ftrl_round import click_probabilities
from .measurement import Measurement
from .results_file import FOLDER, made_by, markdown, number, write_section

REFERENCE = "ftrl-pbm"
POLICIES = (REFERENCE, "ftrl-pbm:every=100", "all-weather", "gibbs-ts", "pbm-ucb-mle", "toprank")
FIRST, SHOWN = PHASES = ("first rounds", "all items shown")
ITEMS = [(n, 10) for n in (10, 100, 1_000, 10_000, 100_000)]
POSITIONS = [(1_000, m) for m in (2, 5, 10, 20, 50)]
FITTED_FROM = 100  # items from which on exponents are fitted; with fewer, constant costs dominate
FIRST_ROUNDS = 200
MOST_ROUNDS = 1_000  # per repeat where all items were shown
BUDGET = 0.2  # seconds of processor time per repeat, if one start or one period does not take longer
MOST_MEMORY = 4e9  # bytes of a state
HORIZON = 1_000_000
REPEATS = 5
FIGURE = FOLDER.parent / "docs" / "figures" / "growth.png"


class Run(NamedTuple):
    """One repeat. ``reference`` is the time of FTRL-PBM at the same size, in the same phase and repeat.

    It plays ``rounds`` rounds, ``starts`` times from the start in the first phase and once in the second.
    """

    policy: str
    phase: str
    n: int
    m: int
    repeat: int
    rounds: int
    starts: int
    microseconds: float  # of processor time per round
    reference: float
    state_bytes: int

    @property
    def ratio(self) -> float:
        """The time as a multiple of that of the reference."""
        return self.microseconds / self.reference


def make_policy(name: str) -> Policy:
    """Return the policy of a name with settings; TopRank plans for ``HORIZON`` rounds."""
    return configured_for(resolve(name), HORIZON)


def all_shown(policy: Policy, n: int, m: int) -> Any:
    """Return the state after n rounds in which every item was shown once at every position."""
    state, places = policy.init(n, m), np.arange(m)
    clicked = np.random.default_rng(0).random((n, m)) < click_probabilities(n, m)
    for k in range(n):
        ranking = (k + places) % n
        # A uniformly random list shows a pair with probability 1/n.
        policy.learn(state, Decision(ranking, np.full(m, 1.0 / n)), clicked[ranking, places])
    return state


def state_bytes(state: Any) -> int:
    """Return the size of all arrays of a state."""
    return sum(np.asarray(leaf).nbytes for _, leaf in leaves(state))


def relation_bytes(name: str, n: int) -> int:
    """Return the size of what a policy keeps for all pairs of items: 5 bytes a pair for TopRank, nothing for others."""
    return 5 * n * n if name == "toprank" else 0


def period(name: str, phase: str, n: int) -> int:
    """Return after how many rounds the work of a policy repeats itself: its next leader, or its next fit."""
    if phase == SHOWN and name == "pbm-ucb-mle":
        return n // 45 + 1  # it fits again when the number of rounds, n to 1.1 n, has grown by 2%
    return int(getattr(make_policy(name), "every", 1))


def play(name: str, state: Any, rounds: int, seed: int) -> float:
    """Play rounds in the compiled loop of the arena; returns their processor time in seconds."""
    n, m = state.shape
    policy, rest = make_policy(name), (TableUsers(click_probabilities(n, m)), streams(0, seed), new_answer(m))
    started = time.thread_time()
    play_compiled(policy, state, rounds, *rest)
    return time.thread_time() - started


class Contestant:
    """A policy at one size in one phase, and how much of it fits into the budget."""

    def __init__(self, name: str, phase: str, n: int, m: int) -> None:
        self.name, self.phase, self.n, self.m = name, phase, n, m
        self.state = self.start()
        self.state_bytes = state_bytes(self.state)
        play(self.name, self.state, 0, 0)  # compiles
        repeated = period(name, phase, n)
        if phase == FIRST:
            self.rounds = FIRST_ROUNDS
            self.starts = min(MOST_ROUNDS, max(1, int(BUDGET / play(self.name, self.state, FIRST_ROUNDS, REPEATS))))
        else:
            tried = max(2, min(repeated, 100))
            affordable = int(BUDGET * tried / play(self.name, self.state, tried, REPEATS))
            self.rounds, self.starts = max(repeated, min(MOST_ROUNDS, affordable) // repeated * repeated), 1

    def start(self) -> Any:
        """Return a state at the beginning of the phase; raises ValueError if the policy cannot start there."""
        policy = make_policy(self.name)
        return policy.init(self.n, self.m) if self.phase == FIRST else all_shown(policy, self.n, self.m)

    def microseconds(self, repeat: int) -> float:
        """Play once more, from the start or, where all items were shown, onwards; returns the time of a round."""
        seconds = 0.0
        for _ in range(self.starts):
            if self.phase == FIRST:
                self.state = self.start()
            seconds += play(self.name, self.state, self.rounds, repeat)
        return seconds / (self.starts * self.rounds) * 1e6


def runs_at(n: int, m: int, phase: str, names: Sequence[str] = POLICIES, repeats: int = REPEATS) -> list[Run]:
    """Play all policies in turn, several times, and return every repeat.

    Left out are policies whose state is larger than ``MOST_MEMORY``, and in the second phase those without parts.
    """
    small = [name for name in names if relation_bytes(name, n) <= MOST_MEMORY]
    contestants = [Contestant(name, phase, n, m) for name in small if phase == FIRST or has_parts(resolve(name))]
    runs: list[Run] = []
    for repeat in range(repeats):
        times = [contestant.microseconds(repeat) for contestant in contestants]
        for made, microseconds in zip(contestants, times):
            runs.append(
                Run(made.name, phase, n, m, repeat, made.rounds, made.starts, microseconds, times[0], made.state_bytes)
            )
    return runs


def exponents(runs: Sequence[Run], varied: str) -> list[float]:
    """Return, for every repeat, the slope of the logarithm of the cost over that of the size, by least squares."""
    slopes = []
    for repeat in sorted({run.repeat for run in runs}):
        chosen = [run for run in runs if run.repeat == repeat and run.n >= FITTED_FROM]
        sizes, costs = [getattr(run, varied) for run in chosen], [run.microseconds for run in chosen]
        slopes.append(float(np.polyfit(np.log(sizes), np.log(costs), 1)[0]))
    return slopes


def chosen_runs(runs: Sequence[Run], name: str, phase: str, shapes: Sequence[tuple[int, int]]) -> list[Run]:
    """Return the repeats of a policy in a phase, at these sizes."""
    return [run for run in runs if run.policy == name and run.phase == phase and (run.n, run.m) in shapes]


def median(runs: Sequence[Run], attribute: str) -> float:
    """Return the median of an attribute over repeats; NaN if there are none."""
    return float(np.median([getattr(run, attribute) for run in runs])) if runs else math.nan


def table(runs: Sequence[Run], phase: str, varied: str, shapes: Sequence[tuple[int, int]]) -> str:
    """Return a table with a line per policy and a column per size: microseconds, the ratio, and the exponent."""
    rows = []
    for name in POLICIES:
        mine = chosen_runs(runs, name, phase, shapes)
        if not mine:
            continue
        row = {"policy": name}
        for n, m in shapes:
            here = [run for run in mine if (run.n, run.m) == (n, m)]
            label = f"{varied} = {n if varied == 'n' else m:,}"
            if here:
                row[label] = f"{number(median(here, 'microseconds'))} ({number(median(here, 'ratio'))})"
            else:
                row[label] = f"needs {relation_bytes(name, n) / 1e9:,.0f} GB"
        slopes = exponents(mine, varied)
        row["exponent"] = f"{np.median(slopes):.2f} ({min(slopes):.2f} to {max(slopes):.2f})"
        if min(slopes) < 0.0:
            row["exponent"] = "not a power"
        rows.append(row)
    return markdown(rows, list(rows[0]))


def memory_table(runs: Sequence[Run]) -> str:
    """Return the size of the state in megabytes, by policy and number of items."""
    rows = []
    for name in POLICIES:
        row = {"policy": name}
        for n, m in ITEMS:
            here = chosen_runs(runs, name, FIRST, [(n, m)])
            megabytes = (here[0].state_bytes if here else relation_bytes(name, n)) / 1e6
            row[f"n = {n:,}"] = f"{megabytes:.1g}" if megabytes < 0.1 else number(megabytes)
        rows.append(row)
    return markdown(rows, list(rows[0]))


def unsteadiness(runs: Sequence[Run]) -> tuple[float, float]:
    """Return how much longer the slowest repeat of a figure takes than the fastest: the median, and the most."""
    figures: dict[tuple[Any, ...], list[float]] = {}
    for run in runs:
        figures.setdefault((run.policy, run.phase, run.n, run.m), []).append(run.microseconds)
    excess = [max(times) / min(times) - 1.0 for times in figures.values()]
    return float(np.median(excess)), max(excess)


def section(runs: Sequence[Run], about: Mapping[str, Any]) -> str:
    """Return the text of the section."""
    typical, most = unsteadiness(runs)
    return f"""## Growth with the catalogue and the page

{made_by("growth", about)}
- Method: microseconds of processor time per round (decide, clicks, learn), the median of {about["repeats"]} repeats.
  In parentheses is the ratio to `ftrl-pbm` at the same size, in the same repeat. The slowest repeat of a figure takes
  {100 * typical:.0f}% longer than the fastest (median over all figures; {100 * most:.0f}% at most).
- First rounds are {FIRST_ROUNDS}, from several starts if they take less than {BUDGET} s. Where all items were shown, a
  repeat plays up to {MOST_ROUNDS:,} rounds, fewer if they take longer than {BUDGET} s; with `every=100` a multiple of
  100, and for `pbm-ucb-mle` all rounds until its next fit.
- "Exponent" is the slope in logarithms, from {FITTED_FROM} items on: the median of the repeats, the lowest and the
  highest.

![Microseconds per round over items and over positions, with logarithmic axes.](../docs/figures/{FIGURE.name})

### 10 positions, first rounds

With 10,000 items or more, most were never shown. With 500 items or more, `pbm-ucb-mle` fits nothing before it has shown
every item at every position, so its rounds cost less than with 100 items.

{table(runs, FIRST, "n", ITEMS)}
### 10 positions, all items shown

Every item was shown once at every position. The state of `toprank` depends on the order of rounds and cannot be made
from counts; the costs of its rounds are those above as long as most items are in one block.

{table(runs, SHOWN, "n", ITEMS)}
### 1,000 items, first rounds

{table(runs, FIRST, "m", POSITIONS)}
### 1,000 items, all items shown

{table(runs, SHOWN, "m", POSITIONS)}
### Memory

Megabytes of the state at 10 positions. `toprank` keeps two relations of all pairs of items.

{memory_table(runs)}"""


def draw(runs: Sequence[Run], path: Path) -> None:
    """Draw the cost of a round over items in both phases, and over positions where all items were shown."""
    panels_of = (
        (f"10 positions, first {FIRST_ROUNDS} rounds", "n", FIRST, ITEMS),
        ("10 positions, all items shown", "n", SHOWN, ITEMS),
        ("1,000 items, all items shown", "m", SHOWN, POSITIONS),
    )
    times = [run.microseconds for run in runs]
    with drawing(path, len(panels_of)) as panels:
        for panel, (title, varied, phase, shapes) in zip(panels.flat, panels_of):
            panel.set(xscale="log", yscale="log", ylim=(0.6 * min(times), 1.6 * max(times)), title=title)
            sizes = [n if varied == "n" else m for n, m in shapes]
            labels = []
            for name, colour, dash in zip(POLICIES, PALETTE, DASHES):
                mine = chosen_runs(runs, name, phase, shapes)
                costs = [median([run for run in mine if (run.n, run.m) == shape], "microseconds") for shape in shapes]
                panel.plot(sizes, costs, linestyle=dash, marker="o", markersize=2.5, linewidth=1.2, color=colour)
                if np.isfinite(costs[-1]):
                    labels.append(EndLabel(costs[-1], name, colour))
                elif mine:  # it cannot be played at the largest size
                    last = int(np.flatnonzero(np.isfinite(costs))[-1])
                    place = {"xytext": (4, -8), "textcoords": "offset points", "fontsize": 7, "va": "center"}
                    panel.annotate(name, (sizes[last], costs[last]), color=colour, **place)
            panel.set_xlabel("items" if varied == "n" else "positions")
            panel.set_xticks(
                sizes, [f"{size:,}" if varied == "m" or k % 2 == 0 else "" for k, size in enumerate(sizes)]
            )
            panel.minorticks_off()
            label_ends(panel, sizes[-1], labels)
        panels.flat[0].set_ylabel("microseconds per round")


def measure() -> Measurement:
    """Return one row per policy, phase and size, and write the section and the figure."""
    about = provenance([]) | {"load_before": os.getloadavg()[0], "repeats": REPEATS}
    shapes = list(dict.fromkeys([*ITEMS, *POSITIONS]))
    runs = [run for phase in PHASES for n, m in shapes for run in runs_at(n, m, phase)]
    about |= {"load_after": os.getloadavg()[0]}
    draw(runs, FIGURE)
    written = write_section("growth", section(runs, about), runs, about)
    rows = []
    for first in (run for run in runs if run.repeat == 0):
        repeats = chosen_runs(runs, first.policy, first.phase, [(first.n, first.m)])
        rows.append(
            {
                "policy": first.policy,
                "phase": first.phase,
                "n": first.n,
                "m": first.m,
                "rounds": first.rounds,
                "starts": first.starts,
                "µs per round": median(repeats, "microseconds"),
                "ratio to ftrl-pbm": median(repeats, "ratio"),
                "state, MB": first.state_bytes / 1e6,
            }
        )
    return Measurement("A round by the size of the catalogue", rows, [*written, f"figure: {FIGURE.name}"])
