"""From counters to lists: a ledger, marginals, and an immutable policy that lists are drawn from.

Serving is the same for every policy: a matrix of marginals over the eligible items and the free slots is mixed with
uniform lists, and lists are drawn exactly with it. A policy that follows a leader knows its marginals. A policy that
only decides makes 64 rankings, and a random one of them is served: a mixture whose marginals are also known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ... import policies
from ...core import Block, Ledger
from ...geometry.baseline_mixture import baseline_share, with_baseline
from ...geometry.leader import ConvergenceError
from ...geometry.uniform_mixture import mixed
from ...kernels import Floats, Ints
from ...policies import Policy
from ...policies.marginals import entropy_of, frequencies, known_marginals, most_shown_rows
from ...policies.mixture import Mixture
from ...policies.parts.change_detector import find_change
from ...policies.predictions import UNITS, Predictions, Units, exceeds_limit, in_units
from ..model import (
    ALL_ELIGIBLE,
    LISTED_ITEMS,
    LOSS_UNIT,
    MAX_ITEMS_EVER,
    Eligibility,
    EventPrediction,
    Item,
    Segment,
    Surface,
    SurfaceSettings,
)
from ..prediction_versions import PredictionVersion
from ..schemas import PlacedItem
from ..time_blocks import TimeBlock, cells_from
from .list_sampler import ListSampler, draw_list, make_list_sampler
from .served_policies import refusal

__all__ = [
    "DrawnList",
    "SegmentCounters",
    "ServingPolicy",
    "baseline_list",
    "blocks_of",
    "counters_of",
    "eligibility_of",
    "marginals_of",
    "policy_of",
    "policy_record",
    "serving_policy",
    "warm_up",
]

SAMPLED_DECISIONS = 64  # of a policy that does not know its marginals
CERTAIN = 1.0  # the propensity of a pinned item


class SegmentCounters(NamedTuple):
    """The counters of a segment as arrays: one row per item, including removed ones, and one column per slot.

    ``blocks`` are the same counters by time, if the policy of the surface needs them; they hold no zeros, since there
    are many blocks and may be many items. ``changed_at`` is the second of the last change that was detected, if the
    policy detects changes. ``compared_at`` and ``wake`` are as in a ledger; ``alone_since`` is the second at which the
    leader of the policy took over, if it plays alone. ``baseline_rounds`` is the number of rounds in which the segment
    leaves the page's own order; None: that of the surface. ``loss`` includes what was predicted, and ``version`` is the
    version of predictions in force.
    """

    rounds: int
    revision: int
    loss: Ints
    shown: Ints
    clicked: Ints
    blocks: tuple[TimeBlock, ...] = ()
    changed_at: int | None = None
    compared_at: int = 0
    wake: int = 0
    alone_since: int | None = None
    baseline_rounds: int | None = None
    version: PredictionVersion | None = None

    def baseline_share(self, settings: SurfaceSettings) -> float:
        """Returns the share of pages that show the page's own order because the segment started from it."""
        own = self.baseline_rounds
        return baseline_share(self.rounds, settings.baseline_rounds if own is None else own)


def blocks_of(blocks: Sequence[TimeBlock], items: Sequence[int], slots: Sequence[int]) -> tuple[Block, ...]:
    """Returns blocks of time as arrays, with one row for each of these items and one column for each of the slots."""
    largest = max((int(block.cells[:, :2].max()) for block in blocks if block.cells.size), default=0)
    rows, columns = np.full((2, max([largest, *items, *slots]) + 1), -1)
    rows[list(items)], columns[slots] = np.arange(len(items)), np.arange(len(slots))
    made = []
    for block in blocks:
        row, column = rows[block.cells[:, 0]], columns[block.cells[:, 1]]
        kept = (row >= 0) & (column >= 0)
        row, column, cells = row[kept], column[kept], block.cells[kept]
        shown, clicked = np.zeros((2, len(items), len(slots)))
        shown[row, column], clicked[row, column] = cells[:, 3], cells[:, 4]
        mixture = (value / LOSS_UNIT for value in block.mixture)
        made.append(Block(float(block.start), float(block.until), max(0, block.rounds), shown, clicked, *mixture))
    return tuple(made)


def counters_of(segment: Segment | None, surface: Surface) -> SegmentCounters:
    """Returns the counters of a segment as arrays, without blocks; zeros if it is None."""
    n, m = len(surface.items), surface.settings.slots
    tables = np.zeros((3, n, m), np.int64)
    if segment is None:
        return SegmentCounters(0, -1, *tables)
    for table, counts in zip(tables, (segment.loss, segment.shown, segment.clicked)):
        for (item, slot), count in counts.items():
            if slot < m and item < n:
                table[item, slot] = count
    for (item, slot), loss in segment.predicted.items():
        if slot < m and item < n:
            tables[0, item, slot] += loss
    return SegmentCounters(segment.rounds, segment.revision, *tables)


class DrawnList(NamedTuple):
    """A list: the item index and propensity of every slot, and the slots as they are returned."""

    items: tuple[int, ...]
    p: tuple[float, ...]
    slots: tuple[PlacedItem, ...]
    mixture: tuple[float, ...] = ()  # of an event
    prediction: EventPrediction | None = None  # of an event


class ServedPredictions(NamedTuple):
    """The predictions that decisions record: b' of a version, and b, of the eligible items at all slots."""

    version: int
    used: Units  # (eligible, slots)
    expected: Units  # (eligible, slots)
    difference: float  # that b predicts for two mixed learners


class ServingPolicy:
    """The immutable policy that answers requests until a newer one replaces it.

    ``eligible`` are the items that can be shown at the ``free`` slots, with ``marginals`` (eligible, free). ``learn``
    and ``pinned`` are the masks of free and pinned slots. ``id`` is a digest of all this. ``predictions`` are those of
    the policy in its present state, if it predicts losses; ``predicts`` is whether decisions record a version of them.
    """

    __slots__ = (
        "_cells",
        "_pinned",
        "_predicted",
        "_share",
        "_weights",
        "eligibility",
        "eligible",
        "free",
        "id",
        "learn",
        "marginals",
        "pinned",
        "predictions",
        "predicts",
        "rounds",
        "sampler",
    )

    def __init__(
        self,
        surface: Surface,
        eligible: Sequence[Item],
        free: Sequence[int],
        pins: Mapping[int, Item],
        marginals: Floats,
        rounds: int,
        mixture: Mixture | None = None,
        predictions: Predictions | None = None,
        recorded: ServedPredictions | None = None,
    ) -> None:
        self.eligible, self.free, self.marginals, self.rounds = tuple(eligible), tuple(free), marginals, rounds
        self.sampler: ListSampler | None = make_list_sampler(marginals) if free else None
        self.learn, self.pinned = (sum(1 << slot for slot in slots) for slots in (free, pins))
        self.eligibility = eligibility_of(surface, eligible) if free else ALL_ELIGIBLE
        self._pinned = sorted(
            (slot, item.index, PlacedItem(slot, item.name, CERTAIN, True, False)) for slot, item in pins.items()
        )
        # Placements are created on first use and then shared by all lists.
        self._cells: list[dict[int, tuple[int, float, PlacedItem, float]]] = [{} for _ in free]
        self._share = None if mixture is None else mixture.share
        self._weights = np.zeros(marginals.shape)
        if mixture is not None:
            self._weights = mixture.weights(marginals)
        self.predictions, self.predicts = predictions, recorded is not None
        self._predicted: tuple[int, list[bytes], list[bytes], float] | None = None
        if recorded is not None:
            used, expected = ([column.tobytes() for column in matrix.T] for matrix in recorded[1:3])
            self._predicted = (recorded.version, used, expected, recorded.difference)
        self.id = self._digest(surface.id, pins)

    def _digest(self, surface_id: int, pins: Mapping[int, Item]) -> str:
        digest = blake2b(digest_size=12)
        pinned = sorted((slot, item.index) for slot, item in pins.items())
        content = (surface_id, [item.index for item in self.eligible], self.free, pinned)
        digest.update(msgspec.msgpack.encode(content))
        digest.update(self.marginals.tobytes())
        if self._share is not None:
            digest.update(np.float64(self._share).tobytes() + self._weights.tobytes())
        return digest.hexdigest()

    def draw(self, seed: bytes) -> DrawnList:
        """Returns the list for a seed of at least 16 bytes; only one thread at a time."""
        rows = draw_list(self.sampler, seed) if self.sampler is not None else []
        cells = [known.get(row) or self._cell(k, row) for k, (known, row) in enumerate(zip(self._cells, rows))]
        for slot, index, placed in self._pinned:
            cells.insert(slot, (index, CERTAIN, placed, 0.0))
        items, p, slots, weights = zip(*cells)
        mixture = () if self._share is None else (self._share, *weights)
        if self._predicted is None:
            return DrawnList(items, p, slots, mixture)
        version, used, expected, difference = self._predicted
        prediction = EventPrediction(version, _entries(used, rows), _entries(expected, rows), difference)
        return DrawnList(items, p, slots, mixture, prediction)

    def _cell(self, k: int, row: int) -> tuple[int, float, PlacedItem, float]:
        item, p, weight = self.eligible[row], float(self.marginals[row, k]), float(self._weights[row, k])
        cell = self._cells[k][row] = (item.index, p, PlacedItem(self.free[k], item.name, p, False, True), weight)
        return cell

    @property
    def entropy(self) -> float:
        """The entropy of the lists in nats per free slot: log n if uniform, 0 if always the same."""
        return entropy_of(self.marginals)


def _entries(columns: Sequence[bytes], rows: Sequence[int]) -> bytes:
    return bytes([column[row] for column, row in zip(columns, rows)])


def policy_of(settings: SurfaceSettings) -> Policy:
    """Returns the policy that a surface configures; raises ValueError if it does not exist or cannot be served."""
    made = policies.policy(settings.policy, **settings.policy_settings)
    n, m = settings.slots + 1, settings.slots
    positions = np.arange(m)
    listed = max(getattr(made, "ranking", None) or (0,)) + 1  # the items of a fixed list must exist
    if listed > MAX_ITEMS_EVER:
        raise ValueError(f"ranking contains item {listed - 1}, but no surface can have that many items")
    loss, shown, clicked = np.zeros((3, max(n, listed), m))
    try:
        made.part(np.arange(max(n, listed)), positions).resumed(Ledger(0, loss, shown, clicked))
    except ValueError as error:
        raise ValueError(f"{error}{refusal(settings.policy)}") from error
    return made


def eligibility_of(surface: Surface, eligible: Sequence[Item]) -> Eligibility:
    """Returns the items of a surface, including removed ones, that could not be shown; or the others, if fewer."""
    present = tuple(sorted(item.index for item in eligible))
    absent = tuple(sorted({item.index for item in surface.items}.difference(present)))
    return Eligibility(absent=absent) if len(absent) <= len(present) else Eligibility(present=present)


def serving_policy(
    surface: Surface, policy: Policy, counters: SegmentCounters, eligible: Sequence[Item], pins: Mapping[int, Item]
) -> ServingPolicy:
    """Solves the policy for these items at the slots to which no item is pinned; can be called in any thread."""
    settings = surface.settings
    free = [slot for slot in range(settings.slots) if slot not in pins]
    rows = [item.index for item in eligible]
    if not free or len(rows) == 1:
        return ServingPolicy(surface, eligible, free, pins, np.ones((len(rows), len(free))), counters.rounds)
    part = np.ix_(rows, free)
    known = Ledger(
        counters.rounds,
        centred(counters.loss[part]),
        counters.shown[part].astype(np.float64),
        counters.clicked[part].astype(np.float64),
        blocks_of(counters.blocks, rows, free),
        counters.changed_at,
        counters.compared_at,
        counters.wake,
    )
    part_policy = policy.part(np.array(rows), np.array(free))
    state = part_policy.resumed(known)
    own = marginals_of(part_policy, state, known)
    mixture, predictions = part_policy.mixture(state), part_policy.predictions(state)
    x, share = own, counters.baseline_share(settings)
    if share:
        baseline = baseline_list(surface, eligible, pins).items
        x = with_baseline(x, [rows.index(baseline[slot]) for slot in free], share)
        mixture = mixture and mixture._replace(share=(1.0 - share) * mixture.share)
    x = mixed(x, settings.floor, settings.minimum_exposure)
    if not np.isfinite(x).all():
        raise ConvergenceError("the probabilities are not finite numbers")
    if predictions is not None:
        predictions = predictions.drawn_with(x, own)
    recorded = _recorded(counters.version, predictions, mixture, rows, free, settings.slots)
    return ServingPolicy(surface, eligible, free, pins, x, counters.rounds, mixture, predictions, recorded)


def _recorded(
    version: PredictionVersion | None,
    predictions: Predictions | None,
    mixture: Mixture | None,
    rows: Sequence[int],
    free: Sequence[int],
    slots: int,
) -> ServedPredictions | None:
    """Returns the predictions that decisions record; None if the version in force cannot be used.

    It can be used if all slots are learned from, if every item that it predicts can be shown, and if no prediction
    exceeds the limit of the leader.
    """
    if version is None or predictions is None or not version.slots == slots == len(free):
        return None
    used = version.used_at(rows)
    if used is None or exceeds_limit(used, predictions):
        return None
    expected = in_units(predictions.expected)
    difference = 0.0 if mixture is None else mixture.expected_difference(expected / UNITS)
    return ServedPredictions(version.number, used, expected, difference)


def centred(loss: Ints) -> Floats:
    """Returns losses minus the smallest loss of each slot, subtracted as integers: only differences matter."""
    return (loss - loss.min(axis=0)) / LOSS_UNIT


def marginals_of(policy: Policy, state: Any, ledger: Ledger) -> Floats:
    """Returns the marginals of the next decision of a policy, in the state that a ledger gives; deterministic."""
    known = known_marginals(policy, state)
    if known is not None:
        return known
    rng = np.random.default_rng(_seed(policy, ledger))
    return frequencies(policy.sample_rankings(state, SAMPLED_DECISIONS, rng), ledger.loss.shape)


def _seed(policy: Policy, ledger: Ledger) -> int:
    digest = blake2b(policy.label.encode(), digest_size=16)
    for part in (np.int64(ledger.rounds), ledger.loss, ledger.shown, ledger.clicked):
        digest.update(part.tobytes())
    for block in ledger.blocks:
        digest.update(np.int64(block.rounds).tobytes() + block.shown.tobytes() + block.clicked.tobytes())
    return int.from_bytes(digest.digest(), "big")


def baseline_list(surface: Surface, eligible: Sequence[Item], pins: Mapping[int, Item]) -> DrawnList:
    """Returns the page's own order, for the holdout: every propensity is 1 and nothing is learned from it."""
    place = {name: k for k, name in enumerate(surface.settings.baseline)}
    order = sorted(eligible, key=lambda item: (place.get(item.name, math.inf), item.index))
    rest = iter(order)
    shown = [pins.get(slot) or next(rest) for slot in range(surface.settings.slots)]
    slots = (PlacedItem(slot, item.name, CERTAIN, slot in pins, False) for slot, item in enumerate(shown))
    return DrawnList(tuple(item.index for item in shown), (CERTAIN,) * len(shown), tuple(slots))


def policy_record(policy: ServingPolicy) -> dict[str, Any]:
    """Returns a policy as it is stored, to explain later why a list was shown; of many items, those shown most."""
    rows = most_shown_rows(policy.marginals, LISTED_ITEMS)
    return {
        "items": [policy.eligible[row].name for row in rows],
        "slots": list(policy.free),
        "x": policy.marginals[rows].tolist(),
        "rounds": policy.rounds,
        "entropy": policy.entropy,
    }


def warm_up() -> None:
    """Compiles the kernels that every request needs, so that the first visitor does not wait."""
    settings = SurfaceSettings(slots=2)
    items = tuple(Item(name=str(k), index=k, state="active", added_at=0, changed_at=0) for k in range(3))
    surface = Surface(id=0, name="", version=0, settings=settings, items=items, created_at=0, changed_at=0)
    cells = np.arange(6).reshape(3, 2)
    counted = {(k // 2, k % 2): (LOSS_UNIT * k, 2 * k, k) for k in range(6)}
    counters = SegmentCounters(9, 0, LOSS_UNIT * cells, 2 * cells, cells, (TimeBlock(0, 1, 9, cells_from(counted)),))
    serving_policy(surface, policy_of(settings), counters, items, {}).draw(bytes(16))
    (block,) = blocks_of(counters.blocks, range(3), range(2))
    find_change((block, block._replace(start=1.0, until=2.0)), 18)
