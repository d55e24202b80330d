"""Rewards: what each slot of a page was worth, from 0 to 1, on surfaces whose objective is rewards instead of clicks.

A reward is stored in the fixed point of losses, in units of 1 / ``LOSS_UNIT``. Rewards of the same slot are merged by
the maximum, as clicks are merged by OR: repeated, partial and reordered feedback gives the same result.
"""

from __future__ import annotations

from collections.abc import Mapping

from .model import LOSS_UNIT

Rewards = tuple[int, ...]  # of every slot, in units of 1 / LOSS_UNIT; empty without rewards


def fixed_point(value: object) -> int:
    """Returns a reward as a whole number of units; raises ValueError unless it is a number from 0 to 1.

    >>> fixed_point(0.25) == LOSS_UNIT // 4
    True
    >>> fixed_point(float("nan"))
    Traceback (most recent call last):
    ...
    ValueError: a reward must be a number from 0 to 1; got nan
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise ValueError(f"a reward must be a number from 0 to 1; got {str(value)[:40]}")
    return round(LOSS_UNIT * value)


def slot_rewards(given: Mapping[int, float], slots: int) -> Rewards:
    """Returns the rewards of all slots from those that were given; raises ValueError for a slot that does not exist.

    >>> slot_rewards({1: 0.5}, 3) == (0, LOSS_UNIT // 2, 0)
    True
    """
    rewards = [0] * slots
    for slot, value in given.items():
        if not 0 <= slot < slots:
            raise ValueError(f"there is no slot {slot}; the page has {slots}")
        rewards[slot] = fixed_point(value)
    return tuple(rewards)


def merged_rewards(one: Rewards, other: Rewards) -> Rewards:
    """Returns the larger reward of every slot.

    >>> merged_rewards((0, 5, 2), (3, 4, 2)), merged_rewards((), (1, 0))
    ((3, 5, 2), (1, 0))
    """
    return tuple(map(max, one, other)) if one and other else one or other


def increased_slots(before: Rewards, after: Rewards) -> int:
    """Returns the mask of the slots whose reward has become larger.

    >>> bin(increased_slots((), (1, 0, 2))), bin(increased_slots((1, 0, 2), (1, 4, 2)))
    ('0b101', '0b10')
    """
    return sum(1 << slot for slot, reward in enumerate(after) if reward > (before[slot] if before else 0))


def page_squares(rewards: Rewards) -> int:
    """Returns the square of the sum of a page's rewards in units of 1 / ``LOSS_UNIT``, rounded up.

    The sum of squares gives a variance, which must not be too small.

    >>> page_squares((LOSS_UNIT, LOSS_UNIT // 2)) * 4 == 9 * LOSS_UNIT, page_squares((1, 0))
    (True, 1)
    """
    return -(-(sum(rewards) ** 2) // LOSS_UNIT)
