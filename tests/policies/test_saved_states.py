"""Rankers saved before array entries became named fields load, and continue as they would have continued then.

``tests/saved_rankers`` holds one ranker for every policy, saved after 150 rounds, and the next 20 lists of each.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bothworlds import Ranker
from bothworlds.policies.saved_states import with_current_fields

SAVED = Path(__file__).parents[1] / "saved_rankers"
EXPECTED = json.loads((SAVED / "expected.json").read_text())


def number(item):
    return int(item.removeprefix("item "))


def next_lists(ranker, rounds):
    """Continue with the random clicks of the run that was saved: one number for every position of every round."""
    rng = np.random.default_rng(4)
    rng.random(150 * ranker.slots)
    for _ in range(rounds):
        shown, u = ranker.rank(), rng.random(ranker.slots)
        rates = [(0.9 - 0.15 * number(item)) / (1 + j) for j, item in enumerate(shown.items)]
        ranker.feedback(shown.id, [item for item, rate, x in zip(shown.items, rates, u) if x < rate])
        yield [number(item) for item in shown.items]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_ranker_of_an_earlier_release_continues_as_it_would_have_then(name):
    ranker = Ranker.load(SAVED / f"{name}.npz")
    assert list(next_lists(ranker, 20)) == EXPECTED[name]


def test_leaves_with_an_unknown_path_are_returned_for_the_caller_to_reject():
    leaves = {"unknown.leaf": np.zeros(3), "moves": np.zeros(7)}
    assert with_current_fields(leaves, {}).keys() == leaves.keys()
