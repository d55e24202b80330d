"""Invalid input raises a ValueError that names the argument and the value, in every public function."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from bothworlds.geometry import best_ranking, birkhoff, frank_wolfe, leader, leaders, sample_ranking
from tests.cases import case

NAN, INF = float("nan"), float("inf")


def holed(value, shape=(4, 2)):
    """A matrix of zeros with one bad entry."""
    a = np.zeros(shape)
    a[2, 1] = value
    return a


def uniform(n, m):
    return np.full((n, m), 1.0 / n)


def changed(index, value, n=4, m=2):
    x = uniform(n, m)
    x[index] = value
    return x


OVERFULL = [[0.6, 0.6], [0.4, 0.4]]

# What is given for a matrix of items by positions, and what the message has to say of it.
BAD_MATRICES = {
    "nan": (holed(NAN), "nan"),
    "infinite": (holed(INF), "inf"),
    "minus infinite": (holed(-INF), "-inf"),
    "more positions than items": (np.zeros((2, 3)), "(2, 3)"),
    "no dimension": (3.0, "()"),
    "one dimension": ([1.0, 2.0], "(2,)"),
    "three dimensions": (np.zeros((2, 2, 2)), "(2, 2, 2)"),
    "no items": (np.zeros((0, 0)), "(0, 0)"),
    "no positions": (np.zeros((3, 0)), "(3, 0)"),
    "words": ([["a", "b"], ["c", "d"]], "'a'"),
    "ragged": ([[1.0, 2.0], [3.0]], "[3.0]"),
}

BAD_POINTS = {
    **BAD_MATRICES,
    "negative": (changed((2, 1), -0.25), "-0.25"),
    "a column above 1": (changed((1, 1), 0.5), "1.25"),
    "a column below 1": (changed((1, 1), 0.125), "0.875"),
    "a column slightly off": (changed((1, 1), 0.250001), "1.000001"),
    "a row above 1": (OVERFULL, "1.2"),
}

BAD_RATES = {
    "zero": (0.0, "0.0"),
    "negative": (-0.5, "-0.5"),
    "nan": (NAN, "nan"),
    "infinite": (INF, "inf"),
    "a word": ("fast", "fast"),
    "a vector": ([0.1, 0.2], "(2,)"),
    "another shape": (np.ones((2, 4)), "(2, 4)"),
    "one is zero": (np.where(holed(1.0) == 1.0, 0.0, 0.5), "0.0"),
    "one is negative": (np.where(holed(1.0) == 1.0, -2.5, 0.5), "-2.5"),
    "one is nan": (np.where(holed(1.0) == 1.0, NAN, 0.5), "nan"),
}

BAD_STACKS = {
    "nan": ([np.zeros((4, 2)), holed(NAN)], "nan in problem 1 at item 2, position 1"),
    "infinite": ([holed(-INF)], "-inf in problem 0"),
    "more positions than items": (np.zeros((5, 2, 3)), "(5, 2, 3)"),
    "no positions": (np.zeros((5, 3, 0)), "(5, 3, 0)"),
    "one problem": (np.zeros((4, 2)), "(4, 2)"),
    "words": ([[["a"]]], "'a'"),
    "different shapes": ([np.zeros((4, 2)), np.zeros((3, 2))], "array"),
}
BAD_STACKED_RATES = {
    "zero": ([0.5, 0.0], "0.0"),
    "negative": (-0.5, "-0.5"),
    "nan": ([NAN, 0.5], "nan"),
    "a word": ("fast", "fast"),
    "one too many": ([0.1, 0.2, 0.3], "(3,)"),
    "one for every pair of one problem": (np.ones((4, 2)), "(4, 2)"),
    "one is infinite": (np.array([np.ones((4, 2)), np.where(holed(1.0) == 1.0, INF, 1.0)]), "inf"),
}
BAD_JOBS = {"zero": (0, "0"), "negative": (-2, "-2"), "a fraction": (1.5, "1.5"), "a truth value": (True, "True")}
BAD_TOLERANCES = {"zero": (0.0, "0.0"), "negative": (-1e-3, "-0.001"), "nan": (NAN, "nan")}
BAD_NAMES = {"unknown": ("entropy", "entropy"), "empty": ("", "''"), "a number": (3, "3")}
BAD_WARM = {
    "another shape": (leader, "(4, 2)"),
    "not a leader": (uniform(4, 2), "0.25"),
    "looks like one": (SimpleNamespace(lam=1), "namespace(lam=1)"),
}
BAD_STARTS = {
    **{name: bad for name, bad in BAD_POINTS.items() if name != "a row above 1"},
    "a row above 1": ([[0.6, 0.6], [0.2, 0.2], [0.1, 0.1], [0.1, 0.1]], "1.2"),
    "on the boundary": ([[0.5, 0.25], [0.5, 0.25], [0.0, 0.25], [0.0, 0.25]], "0.0"),
    "another shape": (uniform(5, 2), "(5, 2)"),
}

LOSS, RNG = np.zeros((4, 2)), np.random.default_rng(1)

TABLE = {
    "leader loss": (BAD_MATRICES, lambda bad: leader(bad, 0.5)),
    "leader rate": (BAD_RATES, lambda bad: leader(LOSS, bad)),
    "leader regularizer": (BAD_NAMES, lambda bad: leader(LOSS, 0.5, regularizer=bad)),
    "leader tol": (BAD_TOLERANCES, lambda bad: leader(LOSS, 0.5, tol=bad)),
    "sample_ranking marginals": (BAD_POINTS, lambda bad: sample_ranking(bad, RNG)),
    "birkhoff marginals": (BAD_POINTS, birkhoff),
    "best_ranking scores": (BAD_MATRICES, best_ranking),
    "frank_wolfe loss": (BAD_MATRICES, lambda bad: frank_wolfe(bad, 0.5, iterations=3)),
    "frank_wolfe rate": (BAD_RATES, lambda bad: frank_wolfe(LOSS, bad, iterations=3)),
    "frank_wolfe start": (BAD_STARTS, lambda bad: frank_wolfe(LOSS, 0.5, iterations=3, start=bad)),
    "frank_wolfe iterations": ({"negative": (-1, "-1")}, lambda bad: frank_wolfe(LOSS, 0.5, iterations=bad)),
    "leaders losses": (BAD_STACKS, lambda bad: leaders(bad, 0.5)),
    "leaders rates": (BAD_STACKED_RATES, lambda bad: leaders([LOSS, LOSS], bad)),
    "leaders regularizer": (BAD_NAMES, lambda bad: leaders([LOSS], 0.5, regularizer=bad)),
    "leaders tol": (BAD_TOLERANCES, lambda bad: leaders([LOSS], 0.5, tol=bad)),
    "leaders jobs": (BAD_JOBS, lambda bad: leaders([LOSS], 0.5, jobs=bad)),
}


def check_refusal(call, argument, bad, reason):
    """A ValueError whose message begins with the argument and holds the offending value."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is judged below
        call(bad)
    message = str(caught.value)
    assert message.startswith(argument), f"which argument? {message}"
    assert reason in message.removeprefix(argument), f"the reason is missing: {message}"


@pytest.mark.parametrize("name", TABLE)
def test_bad_input_is_refused_by_name(name):
    bad_values, call = TABLE[name]
    for kind, (bad, reason) in bad_values.items():
        with case(kind=kind):
            check_refusal(call, name.split()[1], bad, reason)


@pytest.mark.parametrize("name", BAD_WARM)
def test_a_bad_warm_start_is_refused_by_name(name):
    bad, reason = BAD_WARM[name]
    if bad is leader:
        bad = leader(LOSS, 0.5)
    check_refusal(lambda warm: leader(np.zeros((5, 2)), 0.5, warm=warm), "warm", bad, reason)


@pytest.mark.parametrize("bad", [None, 7, np.random.RandomState(1)])
def test_rng_must_be_a_generator(bad):
    with pytest.raises((TypeError, ValueError), match="rng"):
        sample_ranking(uniform(3, 2), bad)


def test_an_error_that_does_not_name_the_argument_is_caught():
    def call(_):
        raise ValueError("bad input")

    with pytest.raises(AssertionError, match="which argument"):
        check_refusal(call, "loss", NAN, "nan")


def test_an_error_without_the_value_is_caught():
    def call(_):
        raise ValueError("loss is bad")

    with pytest.raises(AssertionError, match="the reason is missing"):
        check_refusal(call, "loss", NAN, "nan")


def test_a_missing_error_is_caught():
    with pytest.raises(pytest.fail.Exception):
        check_refusal(lambda _: None, "loss", NAN, "nan")
