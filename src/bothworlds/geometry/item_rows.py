"""Which items have a row of their own: those that have learned something, if there are many items.

With a hundred thousand items, most have never been shown, and all of these are alike. What is computed for every item
is then computed once for all of them, or not at all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels import Ints, kernel

MANY_ITEMS = 500  # from so many items on, items that are alike share a row


class Rows(NamedTuple):
    """An order of the items: those with a row of their own come first.

    Items are in *places*. Place i < ``own`` has row i to itself; the items in all places from ``own`` on are alike.
    """

    own: Ints  # (1,) number of items with a row of their own
    item: Ints  # (n,) item at each place
    place: Ints  # (n,) place of each item


def make_rows(n: int, *, sharing: bool) -> Rows:
    """Return rows in which no item has one of its own, or every item if it is not ``sharing``."""
    return Rows(np.array([0 if sharing else n]), np.arange(n), np.arange(n))


def worth_sharing(n: int) -> bool:
    """Whether n items are so many that items should share a row until they have learned something."""
    return n >= MANY_ITEMS


def fill_rows(rows: Rows, own: NDArray[np.bool_]) -> None:
    """Give a row to each of the items that are marked, and to no others.

    >>> rows = make_rows(4, sharing=True)
    >>> fill_rows(rows, np.array([False, True, False, True]))
    >>> rows.own.tolist(), rows.item.tolist()
    ([2], [1, 3, 0, 2])
    """
    rows.own[0] = own.sum()
    rows.item[:] = np.argsort(~own, kind="stable")
    rows.place[rows.item] = np.arange(len(own))


@kernel
def add_row(rows: Rows, i: int) -> bool:
    """Give item i the next row, unless it has one already; returns whether it is new.

    >>> rows = make_rows(3, sharing=True)
    >>> add_row(rows, 2), add_row(rows, 2), rows.item.tolist()
    (True, False, [2, 1, 0])
    """
    row, item, place = rows.own[0], rows.item, rows.place
    if place[i] < row:
        return False
    other = item[row]
    item[place[i]] = other
    place[other] = place[i]
    item[row] = i
    place[i] = row
    rows.own[0] += 1
    return True
