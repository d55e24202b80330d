"""Which policies the service can use, and why it cannot use the others.

The service knows sums over events, by item, slot and time. A policy can be served if its state is a function of them.
"""

from __future__ import annotations

from ... import policies

__all__ = ["NOT_SERVED", "refusal", "served_names"]

_PROJECTION = "each step starts from the point before and is projected, and such steps cannot be exchanged"
_STAGES = "items are compared in stages, and a page counts only for the stage in which it was shown"
_FIRST_CLICK = (
    "an item counts only down to the first or last click of its page, and sums by item and slot do not have it"
)
_DUELS = "a page counts only for pairs of items that were in one block of its order at that time"

NOT_SERVED = {
    "batchrank": _STAGES,
    "bubblerank": "a page counts only for pairs of items that were neighbours in its list at that time",
    "cascade-kl-ucb": _FIRST_CLICK,
    "cascade-ucb": _FIRST_CLICK,
    "cascade-ucb-v": _FIRST_CLICK,
    "dcm-ucb": _FIRST_CLICK,
    "grab": "it counts in how many rounds each list was the best one by then",
    "lbinf": "every pair has a rate that adapts to its errors one by one",
    "lbinfv": "every pair has a prediction and a rate that adapt to its errors one by one",
    "mw": _PROJECTION,
    "oracle": "it knows the world that it plays in, which only a simulation has",
    "osmd": _PROJECTION,
    "pb-mhb": "its random walk continues from page to page; gibbs-ts draws from the same posterior",
    "pmed": "it shows the lists of a plan in turn, and what is left of the plan depends on when it was made",
    "ranked-exp3": "a slot learns about the item that it intended to show, which is not always the one that was shown",
    "recurrank": _STAGES,
    "toprank": _DUELS,
    "unirank": _DUELS,
}


def served_names() -> list[str]:
    """Returns the names of the policies that the service can use."""
    return [name for name in policies.names() if policies.describe(name).additive]


def refusal(name: str) -> str:
    """Returns why a policy cannot be served, as the end of a sentence; empty if it can, or if it is not known.

    >>> refusal("toprank"), refusal("ftrl-pbm")
    (': a page counts only for pairs of items that were in one block of its order at that time', '')
    """
    return f": {NOT_SERVED[name]}" if name in NOT_SERVED else ""
