"""Worlds in which visitors have a context: labels that say what they like, or say nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import number, whole
from .base import World, check_round
from .best_list import BestList
from .list_world import CompiledListWorld

if TYPE_CHECKING:
    from ..core import Labels

EXAMINATION = np.array([1.0, 0.72, 0.54, 0.42, 0.33])
SHARES = 1e-9  # shares sum to 1 up to this error


class ContextualWorld(CompiledListWorld):
    """Visitors of several contexts. Each context has labels, a share of the visitors, attraction and examination.

    A policy that learns labels sees the row of labels of every visitor, and the labels of every item; others see none.
    Regret is against the best list of each context.

    ``labels`` (contexts, visitor labels) and ``item_labels`` (items, item labels) are values of labels, from 0.
    ``share`` (contexts,) is that of each context among visitors; ``attraction`` is (contexts, items), and
    ``examination`` (slots,) or (contexts, slots). Each of these three may have a first axis of phases, of ``phase``
    rounds each; after the last one comes the first again. ``births`` (items,) are the rounds in which items are born:
    the game has as many items as are born in round 0, and one that is born later takes the place of the oldest.
    ``bend`` (items, slots) is a factor of every click probability, with which clicks are not a product.

    Visitors on phones like the first item, and others the second:

    >>> world = ContextualWorld([[0], [1]], [[0], [1], [1]], [0.7, 0.3], [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], [1.0])
    >>> world
    <ContextualWorld: 3 items, 1 positions>
    >>> world.best_lists(0).tolist(), round(world.best_value(0), 12), round(world.best_list(0).value, 12)
    ([[0], [1]], 0.8, 0.59)
    """

    def __init__(
        self,
        labels: ArrayLike,
        item_labels: ArrayLike,
        share: ArrayLike,
        attraction: ArrayLike,
        examination: ArrayLike,
        *,
        phase: int | None = None,
        births: ArrayLike | None = None,
        bend: ArrayLike | None = None,
    ) -> None:
        self._contexts, self._item_labels = _values(labels, "labels"), _values(item_labels, "item_labels")
        n_contexts, n = len(self._contexts), len(self._item_labels)
        self._attraction = _phases(attraction, "attraction", (n_contexts, n))
        slots = np.asarray(examination).shape[-1:]
        if np.ndim(examination) == 1:
            examination = np.tile(np.asarray(examination, np.float64), (n_contexts, 1))
        self._examination = _phases(examination, "examination", (n_contexts, *slots))
        self._share = _phases(share, "share", (n_contexts,))
        if abs(self._share.sum(axis=1) - 1.0).max() > SHARES:
            raise ValueError(f"share must sum to 1; got {self._share.sum(axis=1).tolist()}")
        parts = self._share, self._attraction, self._examination
        self._n_phases = max(map(len, parts))
        if any(len(part) not in (1, self._n_phases) for part in parts):
            raise ValueError(f"share, attraction and examination must have as many phases; got {[*map(len, parts)]}")
        if self._n_phases > 1 and phase is None:
            raise ValueError("several phases need phase=..., the rounds of each")
        self._phase = None if phase is None else whole(phase, "phase", 1)
        self._bend = np.ones((n, *slots)) if bend is None else np.asarray(bend, np.float64)
        largest = (
            self._attraction.max(axis=(0, 1))[:, None] * self._examination.max(axis=(0, 1))[None, :]
        ) * self._bend
        if self._bend.shape != (n, *slots) or not ((largest >= 0.0) & (largest <= 1.0)).all():
            raise ValueError("bend must be (items, slots), and click probabilities from 0 to 1")
        self._births = np.zeros(n, np.int64) if births is None else np.asarray(births, np.int64)
        if self._births.shape != (n,) or self._births.min(initial=0) < 0:
            raise ValueError(f"births must be a round for each of {n} items; got {births!r}")
        self._renewals, self._living = _generations(self._births)
        self.n_items, self.n_positions = self._living.shape[1], slots[0]
        if not 1 <= self.n_positions <= self.n_items or self.n_items < 2:
            raise ValueError(f"there must be at least 2 items and one for each slot; got {self.n_items} in round 0")

    def labels(self, t: int, order: NDArray[np.int64] | None = None) -> Labels:
        """Return the declared labels, and their values of the items of round t; item ``order[i]`` is item i."""
        from ..core import Labels  # imports the compiler

        items = self.living(t) if order is None else self.living(t)[order]
        sizes = self._contexts.max(axis=0, initial=0) + 1, self._item_labels.max(axis=0, initial=0) + 1
        return Labels(*sizes, np.ascontiguousarray(self._item_labels[items].T))

    def living(self, t: int) -> NDArray[np.int64]:
        """Return the items of round t (n_items,), of all that are ever born."""
        return self._living[np.searchsorted(self._renewals, t, "right") - 1]

    @property
    def renewals(self) -> frozenset[int]:
        """The rounds after the first in which items are born."""
        return frozenset(self._renewals[1:].tolist())

    def renewed(self, t: int, order: NDArray[np.int64]) -> tuple[NDArray[np.int64], Labels]:
        """Return which items of round t were there in the round before, -1 in the place of others, and all labels."""
        kept = np.where((self.living(t) == self.living(t - 1))[order], np.arange(self.n_items), -1)
        return kept, self.labels(t, order)

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Any:
        from .users import ContextUsers  # imports the compiler

        items = self.living(t) if labels is None else self.living(t)[labels]
        share, attraction, examination = self._at(t)
        until = np.cumsum(share)
        chosen = np.ascontiguousarray(attraction[:, items]), np.ascontiguousarray(examination)
        bend = np.ascontiguousarray(self._bend[items])
        return ContextUsers(self._contexts, until / until[-1], *chosen, bend, np.zeros(1, np.int64))

    def click_table(self, t: int) -> NDArray[np.float64]:
        """Return the click probabilities (contexts, n_items, n_positions) of round t."""
        _, attraction, examination = self._at(t)
        items = self.living(t)
        return attraction[:, items, None] * examination[:, None, :] * self._bend[items]

    def share(self, t: int) -> NDArray[np.float64]:
        """Return the share of each context (contexts,) in round t."""
        return self._at(t)[0]

    def best_lists(self, t: int) -> NDArray[np.int64]:
        """Return the best list of each context (contexts, n_positions) in round t."""
        return _best_of(self.click_table(t))

    def best_value(self, t: int) -> float:
        """Return the expected number of clicks in round t if every context gets its best list."""
        return float(self.share(t) @ _values_of(self.click_table(t), self.best_lists(t)))

    def best_list(self, t: int) -> BestList:
        """Return the list that is best for all visitors together in round t."""
        from ..geometry import best_ranking

        ranking = best_ranking(np.tensordot(self.share(t), self.click_table(t), 1))
        value = self.expected_reward(t, ranking)
        return BestList(ranking, value, value, "assignment")

    def best_by_context(self, marks: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the cumulative rewards at ``marks`` of the best fixed list of each context, and of its best lists.

        Where items are born, a fixed list consists of places, not of items.
        """
        total = np.zeros((len(self._contexts), self.n_items, self.n_positions))
        fixed, dynamic, reward, done = np.empty(len(marks)), np.empty(len(marks)), 0.0, 0
        for k, mark in enumerate(marks):
            for end in self.spans(done, mark):
                reward += (end - done) * self.best_value(done)
                total += (end - done) * self.share(done)[:, None, None] * self.click_table(done)
                done = end
            fixed[k], dynamic[k] = _values_of(total, _best_of(total)).sum(), reward
        return fixed, dynamic

    def spans(self, start: int, stop: int) -> Iterator[int]:
        while start < stop:
            ends = [stop, *self._renewals[self._renewals > start][:1].tolist()]
            if self._n_phases > 1 and self._phase is not None:
                ends.append((start // self._phase + 1) * self._phase)
            start = min(ends)
            yield start

    def first_round_like(self, t: int) -> int:
        """Return the first round of the phase of round t if no items are born, and else the first of this part."""
        if self._n_phases == 1 or self._phase is None:
            begin = 0
        else:
            begin = (t // self._phase if len(self._renewals) > 1 else t // self._phase % self._n_phases) * self._phase
        return max(begin, int(self._renewals[np.searchsorted(self._renewals, t, "right") - 1]))

    def first_change(self) -> int | None:
        """The end of the first phase, or the round in which the first items are born; None if nothing changes."""
        return next((end for end in self.spans(0, 2**62) if end < 2**62), None)

    def numbers(self) -> dict[str, Any]:
        given = {
            "labels": self._contexts,
            "item_labels": self._item_labels,
            "share": self._share,
            "attraction": self._attraction,
            "examination": self._examination,
            "births": self._births,
            "bend": self._bend,
        }
        return {"kind": "contextual", "phase": self._phase} | {name: array.tolist() for name, array in given.items()}

    def _at(self, t: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return share, attraction and examination in round t."""
        check_round(t)
        k = 0 if self._phase is None else t // self._phase % self._n_phases
        share, attraction, examination = (
            part[k if len(part) > 1 else 0] for part in (self._share, self._attraction, self._examination)
        )
        return share, attraction, examination


def _values(given: ArrayLike, name: str) -> NDArray[np.int64]:
    """Return a table of values of labels; raises ValueError that names the argument."""
    table = np.asarray(given)
    if table.ndim != 2 or not len(table) or (table.size and (table.dtype.kind not in "iu" or table.min() < 0)):
        raise ValueError(f"{name} must have a row of whole numbers from 0 for each; got shape {table.shape}")
    return np.ascontiguousarray(table, np.int64).reshape(table.shape)


def _phases(given: ArrayLike, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return probabilities (phases, *shape); raises ValueError that names the argument."""
    array = np.asarray(given, np.float64)
    array = array[None] if array.ndim == len(shape) else array
    if array.shape[1:] != shape or not len(array) or not ((array >= 0.0) & (array <= 1.0)).all():
        raise ValueError(f"{name} must be probabilities of shape {shape}, or several of them; got {np.shape(given)}")
    return array


def _generations(births: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rounds in which items are born, and the items from then on (rounds, n_items).

    >>> _generations(np.array([0, 0, 5, 9]))[1].tolist()
    [[0, 1], [2, 1], [2, 3]]
    """
    living = np.flatnonzero(births == 0)
    rounds, everyone, oldest = np.unique(np.append(births, 0)), [living], 0
    for round in rounds[1:].tolist():
        living = living.copy()
        for item in np.flatnonzero(births == round).tolist():
            living[oldest % max(1, len(living))] = item
            oldest += 1
        everyone.append(living)
    return rounds, np.array(everyone)


def _best_of(tables: NDArray[np.float64]) -> NDArray[np.int64]:
    from ..geometry import best_ranking

    return np.array([best_ranking(table) for table in tables])


def _values_of(tables: NDArray[np.float64], lists: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the value of a list of each context."""
    values: NDArray[np.float64] = np.take_along_axis(tables, lists[:, None, :], axis=1).sum(axis=(1, 2))
    return values


# Registered worlds


def _attraction(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-logits))


def _zipf(rng: np.random.Generator, n: int, exponent: float) -> NDArray[np.float64]:
    """Return the shares of Zipf's law, in random order."""
    share = rng.permutation(np.arange(1.0, n + 1.0) ** -exponent)
    return share / share.sum()


def segments(
    segments: int = 8, own: float = 0.3, seed: int = 0, items: int = 20, common: float = 0.8, exponent: float = 0.7
) -> ContextualWorld:
    """Visitors of several segments, which like much the same items; every segment also has a taste of its own.

    The log-odds of attraction are -1.6 plus a normal number of each item, with standard deviation ``common``, and one
    of each segment and item, with standard deviation ``own``. Shares of segments fall by Zipf's law with ``exponent``.
    """
    rng, n = np.random.default_rng(whole(seed, "seed", 0)), whole(items, "items", 5)
    count = whole(segments, "segments", 1)
    logits = -1.6 + number(common, "common", 0.0, 10.0) * rng.normal(size=n)
    taste = number(own, "own", 0.0, 10.0) * rng.normal(size=(count, n))
    share = _zipf(rng, count, number(exponent, "exponent", 0.0, 10.0))
    none = np.zeros((n, 0), np.int64)
    return ContextualWorld(np.arange(count)[:, None], none, share, _attraction(logits + taste), EXAMINATION)


DEVICES, COUNTRIES, CATEGORIES, PRICES = 3, 6, 8, 3


def labelled(
    rng: np.random.Generator, noise: bool = False, category: float = 0.3, items: int = 60, redrawn: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return labels, item labels, shares and attraction (redrawn, contexts, items) of a shop.

    Contexts are 3 devices x 6 countries x 8 favourite categories; items have a category and a price.
    """
    sizes = (DEVICES, COUNTRIES, CATEGORIES)
    contexts = np.array(list(np.ndindex(sizes)))
    of_values = [_zipf(rng, size, exponent) for size, exponent in zip(sizes, (1.0, 1.0, 0.5))]
    share = np.prod([of_value[values] for of_value, values in zip(of_values, contexts.T)], axis=0)
    item_labels = np.stack([rng.integers(CATEGORIES, size=items), rng.integers(PRICES, size=items)], axis=1)
    drawn = []
    for _ in range(redrawn):
        logits = np.tile(-2.2 + 0.6 * rng.normal(size=items), (len(contexts), 1))
        if not noise:
            logits += category * rng.normal(size=CATEGORIES)[item_labels[:, 0]]
            logits += 1.3 * (contexts[:, 2:] == item_labels[:, 0])
            logits += 0.4 * rng.normal(size=(DEVICES, PRICES))[contexts[:, :1], item_labels[:, 1]]
            logits += 0.35 * rng.normal(size=(COUNTRIES, items))[contexts[:, 1]]
            logits += 0.15 * rng.normal(size=logits.shape)
        drawn.append(_attraction(logits))
    return contexts, item_labels, share / share.sum(), np.array(drawn)


def labels(seed: int = 0) -> ContextualWorld:
    """A shop with 60 items, whose visitors have a device, a country and a favourite category, which all matter."""
    return ContextualWorld(*labelled(np.random.default_rng(whole(seed, "seed", 0))), EXAMINATION)


def noise(seed: int = 0) -> ContextualWorld:
    """The same shop, whose visitors all like the same items: labels say nothing."""
    return ContextualWorld(*labelled(np.random.default_rng(whole(seed, "seed", 0)), noise=True), EXAMINATION)


def change(seed: int = 0, phase: int = 50_000) -> ContextualWorld:
    """The same shop, whose visitors change their taste every ``phase`` rounds, and then back."""
    rng = np.random.default_rng(whole(seed, "seed", 0))
    return ContextualWorld(*labelled(rng, redrawn=2), EXAMINATION, phase=phase)


WORLDS: dict[str, Callable[..., World]] = {
    "context/segments": segments,
    "context/labels": labels,
    "context/noise": noise,
    "context/change": change,
}
