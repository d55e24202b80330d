"""Lists of one state of a learner: a matrix of marginals, and lists drawn with exactly these probabilities.

What is drawn from is always a matrix over the items that can be shown and the slots that are free. It is the policy's
own, or, of a policy that states none, the frequencies of some rankings. It is mixed with the page's own order while the
learner starts, and with uniform lists. Every policy has exact propensities and a floor in this way.

Lists are drawn many at a time and each is used once. Lists that are left when another matrix takes over are dropped:
that is exact, because nobody has looked at them.

To draw one, the rows of the matrix are packed into at most 2m + 1 bins with sums of at most 1, as in
``geometry.sampling``. A list of different bins is drawn, whose marginals are the sums B of the rows in each bin. Then
an item of each bin is drawn in proportion to x at the slot: item i of bin b is at slot j with probability
B[b, j] (x[i, j] / B[b, j]). A binary search in cumulative sums finds it, so that the time does not grow with the number
of items. Few items are drawn without bins of this kind: each has one of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...core import NO_CONTEXT, NONE_ABSENT, Shape, copy_state, note
from ...geometry.leader import ConvergenceError
from ...geometry.mixtures import mixed, with_baseline
from ...geometry.sampling import Urn, draw, make_urn, prepare
from ...kernels import Floats, Ints, kernel
from ...policies import Policy
from ...policies.logged_pages import policy_name
from ...policies.marginals import entropy_of, frequencies, known_marginals
from ...policies.pages import NEW, Page, Part, part_for, resized
from ...policies.parts.random_stream import Stream, make_stream
from ..events import Listed

FIRST_BATCH, BATCH = 8, 256  # lists drawn at a time: twice as many each time, since most constraints are rare
SAMPLED_RANKINGS = 64  # of a policy that does not state its marginals
FEW_ITEMS = 200
TOLERANCE = 1e-6  # of the sums of the marginals that a policy states


class Mixing(NamedTuple):
    """What the marginals of a policy are mixed with: the page's own order, then uniform lists."""

    floor: float
    exposure: float = 0.0  # minimum share of the pages that show each item
    baseline_share: float = 0.0
    baseline: tuple[int, ...] = ()  # the item of every slot


class Source(NamedTuple):
    """Which state lists are of: its learner, the number of its last event, its rounds, and when and in which order."""

    learner: int = 0
    number: int = 0
    rounds: int = 0
    made_at: int = 0
    order: int = 0


NO_SOURCE = Source()


class Lists:
    """What is drawn from, and lists that were drawn; immutable but for these.

    The ``items`` can be shown at the ``free`` slots, with ``marginals`` (items, free slots). ``id`` is the name of the
    policy and a digest of this and of the learner. ``next`` is called by one thread at a time; the rest can be read in
    any thread.
    """

    def __init__(
        self,
        marginals: Floats,
        page: Page,
        shape: Shape,
        name: str,
        *,
        seed: int,
        note_of: Callable[[Ints], Floats] | None = None,
        source: Source = NO_SOURCE,
    ) -> None:
        n, slots = shape
        self.source, self._batch = source, FIRST_BATCH
        self.marginals, self.items, self._note = marginals, page.items, note_of
        self.free = np.array([slot for slot in range(slots) if slot not in page.pins], np.int64)
        self._pinned = sum(1 << slot for slot in page.pins)
        self._learn = (1 << slots) - 1 - self._pinned if len(self.items) > 1 else 0  # else there is nothing to choose
        absent = np.setdiff1d(np.arange(n), self.items) if self._learn and len(self.items) < n else NONE_ABSENT
        self._absent = tuple(absent.tolist())
        drawn_from = msgspec.msgpack.encode(
            (source.learner, sorted(page.pins.items()), self.items.tobytes(), marginals.tobytes())
        )
        self.id = f"{name}:{blake2b(drawn_from, digest_size=6).hexdigest()}"
        self._fixed = np.array([page.pins.get(slot, NEW) for slot in range(slots)])
        self._sampler = make_sampler(marginals, make_stream(seed)) if len(self.free) else None
        self._drawn: list[tuple[list[int], list[float]]] = []
        self._draw()

    def next(self) -> Listed:
        """Returns a list that was not used before."""
        if not self._drawn:
            self._draw()
        items, p = self._drawn.pop()
        noted: tuple[float, ...] = ()
        if self._note is not None:
            noted = tuple(self._note(np.searchsorted(self.items, np.array(items)[self.free])).tolist())
        return Listed(tuple(items), tuple(p), self._learn, self._pinned, self._absent, noted, self.id)

    def _draw(self) -> None:
        count = self._batch
        self._batch = min(2 * count, BATCH)
        rankings, p = np.tile(self._fixed, (count, 1)), np.ones((count, len(self._fixed)))
        if self._sampler is not None:
            rows = np.empty((count, len(self.free)), np.int64)
            draw_rows(self._sampler, self._sampler.stream, rows)
            rankings[:, self.free] = self.items[rows]
            p[:, self.free] = self.marginals[rows, np.arange(len(self.free))]
        self._drawn = list(zip(rankings.tolist(), p.tolist()))

    @property
    def entropy(self) -> float:
        """The entropy of the lists in nats per free slot: log n if uniform, 0 if always the same."""
        return entropy_of(self.marginals)


def make_lists(
    policy: Any,
    state: Any,
    page: Page,
    shape: Shape,
    mixing: Mixing,
    *,
    seed: int,
    source: Source = NO_SOURCE,
    context: Ints = NO_CONTEXT,
) -> Lists:
    """Returns the lists of a page for the state of a policy and a context; can be called in any thread.

    ``shape`` is that of the surface: the state may have fewer items, or another number of slots. The state must not
    change meanwhile and is not kept. Rankings of a policy that states no marginals are seeded with the learner and the
    number, so that they are the same wherever the state is; lists are drawn with ``seed``. Raises ValueError if the
    policy cannot show such a page, and ConvergenceError if its marginals are impossible.
    """
    part = _part_of(policy, state, page, shape)
    free = [slot for slot in range(shape.n_positions) if slot not in page.pins]
    name = policy_name(policy)
    if part is None:
        return Lists(np.ones((len(page.items), len(free))), page, shape, name, seed=seed, source=source)
    x = _marginals(part, (len(page.items), len(free)), source, context)
    if mixing.baseline_share:
        own = np.searchsorted(page.items, [mixing.baseline[slot] for slot in free])
        x = with_baseline(x, own.tolist(), mixing.baseline_share)
    x = mixed(x, mixing.floor, mixing.exposure)
    noted = _note_of(part, shape, context)
    return Lists(np.array(x, order="C"), page, shape, name, seed=seed, note_of=noted, source=source)


def _part_of(policy: Any, state: Any, page: Page, shape: Shape) -> Part | None:
    """Returns the part that a page is drawn from, of the state in this shape; None if there is nothing to choose."""
    known = getattr(state, "shape", shape)  # a policy in plain Python need not state it
    if tuple(known) != tuple(shape):
        (n, m), (n_items, slots) = known, shape
        rows, columns = [*range(n), *[NEW] * (n_items - n)], [*range(min(m, slots)), *[NEW] * (slots - m)]
        state = resized(policy, state, rows, columns).state
    if len(page.items) == shape.n_items > 1 and not page.pins:
        return Part(policy, state, page.items, np.arange(shape.n_positions))
    return part_for(policy, state, page)


def _marginals(part: Part, shape: tuple[int, int], source: Source, context: Ints) -> Floats:
    """Returns the marginals of the next decision of a part."""
    x = known_marginals(part.policy, part.state, context)
    if x is None:
        rng = np.random.default_rng((source.learner, source.number))
        x = frequencies(part.policy.sample_rankings(part.state, SAMPLED_RANKINGS, rng), shape)
    possible = x.shape == shape and np.isfinite(x).all() and x.min() >= -TOLERANCE
    if not (possible and abs(x.sum(axis=0) - 1.0).max() <= TOLERANCE and x.sum(axis=1).max() <= 1.0 + TOLERANCE):
        raise ConvergenceError("the probabilities of the policy are not those of lists")
    return np.maximum(x, 0.0)


def _note_of(part: Part, shape: Shape, context: Ints) -> Callable[[Ints], Floats] | None:
    """Returns what computes the note of a ranking of a part; None if the policy remembers nothing of it."""
    policy, state, _, positions = part
    if not isinstance(policy, Policy):
        return None
    if tuple(getattr(state, "shape", shape)) != tuple(shape):
        if type(policy).note_of_part is Policy.note_of_part:
            return None
        given = (context,) if context.size else ()
        return lambda ranking: policy.note_of_part(state, ranking, positions, shape.n_positions, *given)
    size = policy.note_size(shape)
    kept = copy_state(state) if size else None

    def of_page(ranking: Ints) -> Floats:
        noted = np.zeros(size)
        note(kept, ranking, noted)
        return noted

    return of_page if size else None


class ListSampler(NamedTuple):
    """Marginals prepared for sampling. Drawing uses its work arrays: only one thread at a time."""

    bins: Floats  # (k, m) sums of the rows in each bin
    urn: Urn  # of the bins
    start: Ints  # (k + 1,) where the members of each bin begin
    members: Ints  # (n,) rows, by bin
    cumulative: Floats  # (m, n) sums of the marginals of the members of a bin up to and including each
    stream: Stream


def make_sampler(marginals: Floats, stream: Stream) -> ListSampler:
    """Prepares sampling with these marginals, which must be feasible; they are copied."""
    n, m = marginals.shape
    if n <= FEW_ITEMS:
        start, members, cumulative = np.arange(n + 1), np.arange(n), np.array(marginals.T, order="C")
    else:
        rows = make_urn(n, m)
        prepare(np.array(marginals, order="C"), rows)
        start, members = np.zeros(rows.bins[0] + 1, np.int64), np.zeros(n, np.int64)
        cumulative = np.zeros((m, n), marginals.dtype)
        accumulate(np.array(marginals, order="C"), rows, start, members, cumulative)
    bins = np.array(cumulative[:, start[1:] - 1].T, order="C")
    urn = make_urn(len(bins), m)
    prepare(bins, urn)
    return ListSampler(bins, urn, start, members, cumulative, stream)


@kernel
def accumulate(x: Floats, rows: Urn, start: Ints, members: Ints, cumulative: Floats) -> None:
    """Write the members of all bins one after the other, with the cumulative sums of their rows."""
    m = x.shape[1]
    place = 0
    for b in range(rows.bins[0]):
        start[b] = place
        i = rows.head[b]
        while i >= 0:
            members[place] = i
            for j in range(m):
                before = cumulative[j, place - 1] if place > start[b] else 0.0
                cumulative[j, place] = before + x[i, j]
            place += 1
            i = rows.following[i]
    start[rows.bins[0]] = place


@partial(kernel, nogil=False)
def draw_rows(sampler: ListSampler, rng: Any, rows: Ints) -> None:
    """Draw the row at every slot of many lists (lists, m); ``rng`` is the stream of the sampler."""
    start = sampler.start
    for k in range(rows.shape[0]):
        ranking = rows[k]
        draw(sampler.bins, rng, sampler.urn, ranking)
        for j in range(ranking.size):
            low, high = start[ranking[j]], start[ranking[j] + 1] - 1
            if low < high:
                left = rng.random() * sampler.cumulative[j, high]
                while low < high:  # the first member whose cumulative sum is greater than ``left``
                    middle = (low + high) // 2
                    if left < sampler.cumulative[j, middle]:
                        high = middle
                    else:
                        low = middle + 1
            ranking[j] = sampler.members[low]


def warm_up() -> None:
    """Compiles the kernels that lists need, so that the first visitor does not wait."""
    for n in (3, FEW_ITEMS + 1):
        Lists(np.full((n, 2), 1.0 / n), Page(np.arange(n), {}), Shape(n, 2), "", seed=0).next()
