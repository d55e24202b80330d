"""Adversaries that react: they see the list and the clicks, and change what is reported of them, within a budget.

What users do and what is reported are kept apart. Rewards and regret are those of the users; the policy learns from
what is reported. A report that differs from a click of the users is a *flip*; flips are the cost of an attack.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import choice, number, whole
from .base import World, Wrapped, stochastic

if TYPE_CHECKING:
    from .attack_kernels import AttackState

UNLIMITED = 2**62

# Users of the attacked worlds: attraction and examination of ten items and five positions.
ATTRACTION = np.linspace(0.8, 0.1, 10)
EXAMINATION = np.array([1.0, 0.6, 0.4, 0.3, 0.2])


@dataclass(frozen=True)
class Attack:
    """What an adversary does with the clicks of a page; positions are gone through from the top.

    ========= ====================================================================================================
    kind      while the budget lasts and before round ``until``
    ========= ====================================================================================================
    promote   a click on the target is reported whenever it is shown: click fraud
    quit      a click on the target and no click on any other item is reported; usually until an early round
    suppress  no click is reported on items other than the ``companions``
    threshold as suppress, but a click is deleted only while the reported click rate of its item at its position is
              above that of the target at this position minus ``margin``
    demote    no click on the target is reported
    mirror    the clicks of the page are reported upside down: what happened at position j at position m + 1 - j
    bribe     with probability ``rate``, the page is replaced by one with a click on the target and nothing else
    random    each click is flipped with probability ``rate``: a baseline that wants nothing
    ========= ====================================================================================================

    Reported click rates are those of the pages before the current one, and 0 for an item that was not shown there.

    Parameters
    ----------
    kind
        One of the words above.
    target
        The item that is promoted or demoted. For other kinds, the item whose places are counted; None for none.
    budget
        The number of flips, at most; None for no limit.
    until
        The round before which the attack ends; None for no end.
    companions
        Items whose clicks are not suppressed, for "suppress" and "threshold"; for the latter, nor are those of the
        target.
    rate
        The probability of a fake page, for "bribe", or of a flip, for "random".
    margin
        By how much the reported click rate of other items is to stay below that of the target, for "threshold".

    Raises ValueError for settings out of range.
    """

    kind: str
    target: int | None = None
    budget: int | None = None
    until: int | None = None
    companions: tuple[int, ...] = ()
    rate: float = 0.0
    margin: float = 0.0

    def __post_init__(self) -> None:
        kinds = ("promote", "quit", "suppress", "threshold", "demote", "mirror", "bribe", "random")
        choice(self.kind, "kind", kinds)
        if self.kind in ("promote", "quit", "threshold", "demote", "bribe") and self.target is None:
            raise ValueError(f"an attack of the kind {self.kind} needs a target")
        for name in ("target", "budget", "until"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole(getattr(self, name), name, 0))
        object.__setattr__(self, "companions", tuple(whole(item, "companions", 0) for item in self.companions))
        for name in ("rate", "margin"):
            object.__setattr__(self, name, number(getattr(self, name), name, 0.0, 1.0))

    def start(self, labels: NDArray[np.int64], n_positions: int) -> AttackState:
        """Return the attack before its first round, for items in another order: item ``labels[i]`` is item i."""
        from .attack_kernels import KINDS, AttackState  # imports the compiler

        new = np.argsort(labels)
        outsider = np.ones(labels.size, np.int64)
        outsider[new[list(self.companions)]] = 0
        if self.kind == "threshold":
            outsider[new[self.target]] = 0
        seen = (labels.size, n_positions) if self.kind == "threshold" else (0, 0)
        return AttackState(
            kind=KINDS.index(self.kind),
            target=-1 if self.target is None else int(new[self.target]),
            outsider=outsider,
            until=UNLIMITED if self.until is None else self.until,
            rate=self.rate,
            margin=self.margin,
            shown=np.zeros(seen),
            reported=np.zeros(seen),
            left=np.array([UNLIMITED if self.budget is None else self.budget]),
            round=np.zeros(1, np.int64),
        )


class Adversary(Protocol):
    """An adversary in plain Python: an object with this method, and with an attribute ``target`` if it has a target.

    What it remembers, it may keep in its attributes: every replication starts with a copy of the object. Its budget is
    its own affair; flips are counted.
    """

    def report(
        self, t: int, ranking: NDArray[np.int64], clicks: NDArray[np.float64], rng: np.random.Generator
    ) -> ArrayLike:
        """Return the clicks (n_positions,), 0 or 1, that are reported to the policy in round t, from 0.

        ``ranking`` has the items of the world that were shown, and ``clicks`` what users did. All randomness comes
        from ``rng``.
        """


class PlainAttack:
    """An adversary in plain Python in progress, for items in another order: item ``labels[i]`` is item i."""

    def __init__(self, adversary: Adversary, labels: NDArray[np.int64]) -> None:
        target = getattr(adversary, "target", None)
        self.target = -1 if target is None else int(np.argsort(labels)[target])
        self._adversary, self._labels, self._round = copy.deepcopy(adversary), labels, 0

    def report(
        self, ranking: NDArray[np.int64], clicks: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return the reported clicks of the next round; raises ValueError if they are not 0 or 1 for each position."""
        given = self._adversary.report(self._round, self._labels[ranking], clicks.copy(), rng)
        reported = np.asarray(given, np.float64)
        if reported.shape != clicks.shape or not ((reported == 0.0) | (reported == 1.0)).all():
            raise ValueError(f"report must return 0 or 1 for each of {clicks.size} positions; got {reported!r}")
        self._round += 1
        return reported


class Attacked(Wrapped):
    """A world whose clicks are reported to the policy by an adversary: an :class:`Attack`, or one in plain Python.

    Rewards, regret and comparators are those of the users, ``honest``. Results have the scores of the attack.

    >>> from bothworlds import play
    >>> world = Attacked(stochastic([0.9, 0.5, 0.1], [1.0]), Attack("promote", target=2, budget=100))
    >>> result = play("comb-ucb", world, 1_000, replications=2, progress=False)
    >>> bool((result.attack.flips <= 100).all())
    True
    """

    def __init__(self, world: World, attack: Attack | Adversary) -> None:
        if not isinstance(attack, Attack) and not callable(getattr(attack, "report", None)):
            raise ValueError(f"attack must be an Attack, or an object with the method report; got {attack!r}")
        target = getattr(attack, "target", None)
        items = (*getattr(attack, "companions", ()), *(() if target is None else (target,)))
        if max(items, default=0) >= world.n_items:
            raise ValueError(f"the attack names item {max(items)}, and there are {world.n_items} items, from 0")
        if isinstance(world, Attacked):
            raise ValueError("a world can be attacked by one adversary only")
        super().__init__(world)
        self.attack = attack
        kind = attack.kind if isinstance(attack, Attack) else type(attack).__name__
        self.name = f"{world.name or type(world).__name__.lower()} with {kind}"

    def adversary(self, labels: NDArray[np.int64]) -> AttackState | PlainAttack:
        if isinstance(self.attack, Attack):
            return self.attack.start(labels, self.n_positions)
        return PlainAttack(self.attack, labels)

    @property
    def honest(self) -> World:
        return self.world

    def relabelled(self, labels: NDArray[np.int64]) -> World:
        """Return the users in another order, without the adversary."""
        return self.world.relabelled(labels)

    def numbers(self) -> dict[str, Any]:
        """The description of the users, and the attack; of an adversary in plain Python only its class."""
        if isinstance(self.attack, Attack):
            attack = {**asdict(self.attack), "companions": list(self.attack.companions)}
        else:
            attack = {"class": f"{type(self.attack).__module__}.{type(self.attack).__qualname__}"}
        return {"kind": "attacked", "world": self.world.description(), "attack": attack}


def _attacked(kind: str, target: int, budget: int | None = None, until: int | None = None, **others: Any) -> World:
    return Attacked(stochastic(ATTRACTION, EXAMINATION), Attack(kind, target, budget, until, **others))


def attack_promote(target: int = 9, budget: int = 2_000) -> World:
    """Click fraud: a click on the ``target`` is reported whenever it is shown, until the ``budget`` is spent."""
    return _attacked("promote", target, budget)


def attack_quit(target: int = 9, rounds: int = 2_000) -> World:
    """Only clicks on the ``target`` are reported in the first ``rounds``; then the adversary is gone."""
    return _attacked("quit", target, until=rounds)


def attack_suppress(target: int = 9, budget: int = 2_000) -> World:
    """Clicks on items other than the ``target`` and the four best are deleted, until the ``budget`` is spent."""
    return _attacked("suppress", target, budget, companions=(0, 1, 2, 3, whole(target, "target", 0)))


def attack_threshold(target: int = 9, margin: float = 0.1, budget: int = 2_000) -> World:
    """As attack/suppress, only while an item's reported rate at a position is above the target's minus ``margin``."""
    companions = (0, 1, 2, 3, whole(target, "target", 0))
    return _attacked("threshold", target, budget, companions=companions, margin=margin)


def attack_demote(target: int = 0, budget: int = 2_000, rounds: int | None = None) -> World:
    """Clicks on the ``target``, the best item, are deleted until the ``budget`` is spent or ``rounds`` are over."""
    return _attacked("demote", target, budget, rounds)


def attack_mirror(target: int = 9, budget: int = 2_000) -> World:
    """Clicks are reported upside down, those at the top at the bottom, until the ``budget`` of flips is spent."""
    return _attacked("mirror", target, budget)


def attack_bribe(target: int = 9, rate: float = 0.02, budget: int = 2_000) -> World:
    """A ``rate`` of all visits are bots that click the ``target`` and nothing else, until the ``budget`` is spent."""
    return _attacked("bribe", target, budget, rate=rate)


WORLDS: dict[str, Callable[..., World]] = {
    "attack/promote": attack_promote,
    "attack/quit": attack_quit,
    "attack/suppress": attack_suppress,
    "attack/threshold": attack_threshold,
    "attack/demote": attack_demote,
    "attack/mirror": attack_mirror,
    "attack/bribe": attack_bribe,
}
