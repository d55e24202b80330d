"""What labels earn: context-ts and all-weather with labels against one learner for all visitors, in many worlds.

A row has the share of the gap between one learner and the best list of every context that is closed, or the clicks a
page below a rival, each with its target, if there is one. One learner is ``gibbs-ts`` or ``all-weather``, whichever
earns more in that world. Where all tastes change, it is ``gibbs-ts``, which does not notice, and in a row of its own
``all-weather``; where the mix swings, or clicks are not a product, it is ``all-weather``. Worlds have fixed seeds. Set
``BOTHWORLDS_BENCH_ROUNDS`` and ``BOTHWORLDS_BENCH_SEEDS`` for a shorter run. The table of a full run is
written to ``docs/research/context.md``; games that were played are kept in ``out/context``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bothworlds
from bothworlds.arena.loop import play_compiled, start, users_of
from bothworlds.core import cores, streams
from bothworlds.policies import Policy, one_for_all, policy
from bothworlds.worlds import ContextualWorld, World, matrix
from bothworlds.worlds.contextual import EXAMINATION, change, labelled, labels, noise, segments
from bothworlds.worlds.users import new_answer

from .measurement import Measurement

ROUNDS = int(os.environ.get("BOTHWORLDS_BENCH_ROUNDS", "100000"))
SEEDS = int(os.environ.get("BOTHWORLDS_BENCH_SEEDS", "10"))
FULL = ROUNDS >= 100_000 and SEEDS >= 10
MARKS = (ROUNDS // 10, ROUNDS)
PAGE = Path(__file__).parents[1] / "docs" / "research" / "context.md"
CELLS = Path("out/context")
STUDENT = {2: 12.71, 3: 4.30, 5: 2.78, 10: 2.26}  # 97.5% quantile by number of worlds; 1.96 for others
LEARNERS = ("context-ts", "all-weather")
ONE, ONE_STEADY = one_for_all("all-weather"), one_for_all("gibbs-ts")
EACH = "gibbs-ts by itself in every context"
SHARE, BELOW = "share of the gap", "clicks a page below"


class Row(NamedTuple):
    """A kind of world, what is measured there, against whom, and the target of each learner, or None."""

    name: str
    world: Callable[[int], World]
    measure: str
    rivals: Sequence[Policy | str]
    targets: tuple[float | None, float | None]
    learners: Sequence[str] = LEARNERS


def rows() -> list[Row]:
    """Return the worlds of the table, then others that nothing was chosen for."""
    steady = (ONE_STEADY, ONE)
    return [
        Row("labels", lambda seed: labels(seed), SHARE, steady, (0.87, 0.85)),
        Row("noise", lambda seed: noise(seed), BELOW, steady, (0.004, 0.006)),
        Row("8 segments", lambda seed: segments(8, 0.3, seed), SHARE, steady, (0.70, 0.62)),
        Row("200 segments", lambda seed: segments(200, 0.5, seed), SHARE, steady, (0.55, 0.53)),
        Row("new items", new_items, SHARE, steady, (0.80, 0.77)),
        Row("nothing shared", lambda seed: segments(4, 0.9, seed, 20, 0.0, 0.3), BELOW, (EACH,), (0.003, 0.003)),
        Row("change", lambda seed: change(seed, ROUNDS // 2), SHARE, (ONE_STEADY,), (None, 0.84)),
        Row("*change, one that notices it", lambda seed: change(seed, ROUNDS // 2), SHARE, (ONE,), (None, None)),
        Row("swinging mix", mix, SHARE, (ONE,), (None, 0.85)),
        Row("bent products", bent, BELOW, (ONE,), (None, 0.02), ("all-weather",)),
        Row("8 + 8 labels of noise", many_labels, BELOW, steady, (0.008, 0.015)),
        Row("*30 segments, large differences", lambda seed: segments(30, 0.6, seed), SHARE, steady, (None, None)),
        Row("*a page of 12 items, 3 slots", small_page, SHARE, steady, (None, None)),
        Row("*slots by device", slots_by_device, SHARE, steady, (None, None)),
    ]


def new_items(seed: int) -> World:
    """Half of the items at first; ten times, three are replaced by new ones."""
    births = np.repeat([0, *(ROUNDS * k // 11 for k in range(1, 11))], [30, *[3] * 10])
    return ContextualWorld(*labelled(np.random.default_rng(seed), category=0.8), EXAMINATION, births=births)


def mix(seed: int) -> World:
    """The shop, where visitors of the first four favourites become 16 times as frequent, and then not, six times."""
    contexts, item_labels, share, attraction = labelled(np.random.default_rng(seed))
    swung = share * np.where(contexts[:, 2] < 4, 16.0, 1.0)
    phase = ROUNDS // 12
    return ContextualWorld(contexts, item_labels, [share, swung / swung.sum()], attraction, EXAMINATION, phase=phase)


def bent(seed: int) -> World:
    """A product times a lognormal factor for every pair of item and slot; labels of visitors say nothing."""
    rng = np.random.default_rng(seed)
    attraction, examination = rng.uniform(0.05, 0.9, 12), rng.uniform(0.1, 1.0, 4)
    product = np.outer(attraction, examination)
    bend = np.minimum(rng.lognormal(0.0, 0.35, product.shape), 0.999 / product)
    contexts = np.array(list(np.ndindex(3, 6)))
    share = rng.dirichlet(np.ones(len(contexts)))
    none = np.zeros((12, 0), np.int64)
    return ContextualWorld(contexts, none, share, np.tile(attraction, (len(contexts), 1)), examination, bend=bend)


def many_labels(seed: int) -> World:
    """Eight labels of visitors and eight of items, which say nothing."""
    rng, n, count = np.random.default_rng(seed), 40, 500
    contexts, items = rng.integers(4, size=(count, 8)), rng.integers(4, size=(n, 8))
    attraction = 1.0 / (1.0 + np.exp(2.2 - 0.6 * rng.normal(size=n)))
    share = np.full(count, 1.0 / count)
    return ContextualWorld(contexts, items, share, np.tile(attraction, (count, 1)), EXAMINATION)


def small_page(seed: int) -> World:
    """Two labels of visitors and one of items; more clicks, fewer items."""
    rng = np.random.default_rng([seed, 1])
    contexts, category = np.array(list(np.ndindex(2, 5))), rng.integers(3, size=12)
    logits = -1.0 + 0.7 * rng.normal(size=12) + 0.6 * rng.normal(size=(5, 3))[contexts[:, 1]][:, category]
    logits += 0.3 * rng.normal(size=(2, 12))[contexts[:, 0]]
    share = rng.dirichlet(np.ones(len(contexts)))
    return ContextualWorld(contexts, category[:, None], share, 1.0 / (1.0 + np.exp(-logits)), [0.9, 0.6, 0.3])


def slots_by_device(seed: int) -> World:
    """On one of three devices, visitors look at the last slots first; tastes differ by country."""
    rng = np.random.default_rng([seed, 2])
    contexts = np.array(list(np.ndindex(3, 6)))
    logits = -1.8 + 0.7 * rng.normal(size=25) + 0.5 * rng.normal(size=(6, 25))[contexts[:, 1]]
    examination = np.where(contexts[:, :1] == 2, EXAMINATION[::-1], EXAMINATION)
    share = rng.dirichlet(np.ones(len(contexts)))
    return ContextualWorld(contexts, np.zeros((25, 0), np.int64), share, 1.0 / (1.0 + np.exp(-logits)), examination)


def earned(row: Row, seed: int, player: str | Policy) -> Any:
    """Return the rewards at the marks of one game (marks,), and those of the best lists."""
    world = row.world(1000 + seed)
    world.name = f"{row.name.partition(',')[0].strip('*')} {seed}"  # what is kept is found by it
    if player == EACH:
        return np.array([each_alone(world, seed), each_alone(world, seed)]) / np.array(MARKS)
    result = bothworlds.play(
        player, world, ROUNDS, replications=1, seed=seed, checkpoints=MARKS, jobs=1, progress=False, cells=CELLS
    )
    return np.array([result.reward[0], result.best_dynamic]) / np.array(MARKS)


def each_alone(world: Any, seed: int) -> Any:
    """Return the rewards at the marks of one gibbs-ts for each context, which is played by itself with its share."""
    total = np.zeros(len(MARKS))
    for c, (share, table) in enumerate(zip(world.share(0), world.click_table(0))):
        alone, marks = matrix(table), [max(k + 1, round(share * mark)) for k, mark in enumerate(MARKS)]
        alone.name = f"{world.name}, context {c}"
        result = bothworlds.play(
            "gibbs-ts",
            alone,
            marks[-1],
            replications=1,
            seed=seed,
            checkpoints=marks,
            jobs=1,
            progress=False,
            cells=CELLS,
        )
        total += result.average_reward()[0] * share * np.array(MARKS)
    return total


def measured(row: Row) -> list[dict[str, Any]]:
    """Play all games of a row; return an entry for each learner."""
    players = [*row.learners, *row.rivals]
    with ThreadPoolExecutor(cores()) as threads:
        games = {
            k: list(threads.map(partial(earned, row, player=player), range(SEEDS))) for k, player in enumerate(players)
        }
    rewards = {k: np.array([played[0] for played in found]) for k, found in games.items()}
    best = np.array([played[1] for played in games[0]])
    rival = np.max([rewards[k] for k in range(len(row.learners), len(players))], axis=0)
    entries = []
    for k, name in enumerate(row.learners):
        values = (rewards[k] - rival) / (best - rival) if row.measure == SHARE else rival - rewards[k]
        target = row.targets[LEARNERS.index(name)]
        early, late = (interval(values[:, c]) for c in range(2))
        mean = values[:, 1].mean()
        reached = target is None or bool(mean >= target if row.measure == SHARE else mean <= target)
        entries.append(
            {
                "world": row.name,
                "policy": name,
                "measure": row.measure,
                "target": "" if target is None else f"{target:.3f}",
                f"{MARKS[0]:,} pages": early,
                f"{MARKS[1]:,} pages": late,
                "worst world": f"{values[:, 1].min() if row.measure == SHARE else values[:, 1].max():.3f}",
                "reached": "" if target is None else "yes" if reached else "no",
            }
        )
    return entries


def interval(values: Any) -> str:
    """Return the mean over worlds with the half-width of its 95% interval."""
    if len(values) < 2:
        return f"{values.mean():.3f}"
    width = STUDENT.get(len(values), 1.96) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.3f} +-{width:.3f}"


def alarms(world: World, seed: int) -> int:
    """Return the page of the last alarm of all-weather in a world; 0 without one."""
    player, source, order = policy("all-weather"), streams(seed, 0), np.arange(world.n_items)
    state, to = start(player, world, order), new_answer(world.n_positions, None)
    done = 0
    for end, users in users_of(world, order, [ROUNDS]):
        play_compiled(player, state, end - done, users, source, to)
        done = end
    return int(state.effects.alarm[0])


def measure() -> Measurement:
    """Play all rows, and write the table of a full run into the documentation."""
    entries: list[dict[str, Any]] = []
    for row in rows():
        entries += measured(row)
        print(*entries[-len(row.learners) :], sep="\n", flush=True)
    with ThreadPoolExecutor(cores()) as threads:
        sounded = sum(page > 0 for page in threads.map(lambda seed: alarms(mix(1000 + seed), seed), range(SEEDS)))
    notes = [
        f"Alarms of all-weather in the swinging mix: in {sounded} of {SEEDS} worlds.",
        f"{SEEDS} worlds a row; intervals are 95% of the mean over worlds. * not among the worlds of the targets.",
    ]
    if FULL:
        write_table(PAGE, entries, notes)
    return Measurement("What labels earn", entries, notes)


def write_table(page: Path, entries: Sequence[dict[str, Any]], notes: Sequence[str]) -> None:
    """Replace the table of a page, which is between two comments."""
    head = list(entries[0])
    lines = [head, ["---"] * len(head), *(list(entry.values()) for entry in entries)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n\n" + "\n".join(f"- {note}" for note in notes)
    text = page.read_text()
    pattern = r"(<!-- table: python -m benchmarks context -->\n).*?(\n<!-- end -->)"
    page.write_text(re.sub(pattern, lambda found: f"{found[1]}\n{table}\n{found[2]}", text, flags=re.DOTALL))
