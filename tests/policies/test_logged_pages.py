"""Pages of a log: learned in any division as one by one, with growth, other numbers of positions, notes, rewards."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from bothworlds.core import Decision
from bothworlds.policies.logged_pages import LoggedPage, LogState
from bothworlds.policies.pages import has_parts
from tests.cases import case
from tests.policies.informed import informed, others_nightly
from tests.policies.logs import played, same_bits
from tests.policies.plain import Divisible, EpsilonGreedy, Interpreted, Stranger

N, M, ADDED = 6, 3, 2
NAMES = sorted({*bothworlds.policies.names()} - {"oracle"})


def policy_for(name, n=N + ADDED):
    return informed(name, n, M, rounds=400)


def learned(policy, pages, sizes=(10_000,), m=M):
    log, start = LogState(policy, N + ADDED if has_parts(policy) else N, m), 0
    k = 0
    while start < len(pages):
        log.learn(pages[start : start + sizes[k % len(sizes)]])
        start += sizes[k % len(sizes)]
        k += 1
    return log


def same_log(one, other):
    counts = ("shown", "clicked", "loss")
    return same_bits(one.state, other.state) and all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in counts
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", others_nightly(NAMES))
def test_a_log_is_learned_as_one_page_after_the_other(name):
    policy = policy_for(name, N + ADDED if has_parts(bothworlds.policy(name)) else N)
    pages, state = played(policy, N, M, 90, added=ADDED)
    at_once = learned(policy, pages)
    assert same_bits(at_once.state, state)
    assert (at_once.pages, at_once.skipped, at_once.number) == (len(pages), 0, len(pages))
    for sizes in ((1,), (7, 1, 2)):
        with case(sizes=sizes):
            assert same_log(learned(policy, pages, sizes), at_once)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [EpsilonGreedy(), Divisible(), Stranger(), Interpreted(policy_for("toprank", N))],
    ids=lambda policy: type(policy).__name__,
)
def test_a_policy_in_plain_python_learns_a_log(policy):
    n = N + ADDED if has_parts(policy) else N
    pages, state = (
        played(policy, N, M, 60, added=ADDED) if not isinstance(policy, Stranger) else stranger_played(policy)
    )
    log = learned(policy, pages, (7, 1))
    assert same_bits(log.state, state)
    assert log.shape == (n, M)
    assert not log.is_compiled


def stranger_played(policy):
    rng, state, pages = np.random.default_rng(0), policy.init(N, M), []
    for k in range(60):
        ranking = policy.decide(state, rng).ranking
        decision, rewards = Decision(ranking, np.full(M, 0.5)), rng.random(M)
        policy.learn(state, decision, rewards)
        pages.append(LoggedPage(k + 1, N, ranking.tolist(), [0.5] * M, rewards.tolist(), 0b111))
    return pages, state


def page(number, items, *, n=N, learned=None, **others):
    m = len(items)
    return LoggedPage(
        number,
        n,
        items,
        [0.5] * m,
        [1.0, 0.0, 0.25, 0.5, 0.0][:m],
        (1 << m) - 1 if learned is None else learned,
        **others,
    )


def test_a_page_with_other_positions_is_learned_where_it_has_them():
    policy, decision = bothworlds.policy("comb-ucb"), Decision(np.array([4, 0, 2]), np.full(3, 0.5))
    longer, shorter = page(1, [4, 0, 2, 1, 5]), page(2, [2, 4])
    log = learned(policy, [longer, shorter])
    state = policy.init(N, M)
    policy.learn(state, decision, [1.0, 0.0, 0.25])
    filled = Decision(np.array([2, 4, 0]), np.ones(3), learned=np.array([True, True, False]))
    policy.learn(state, filled, [1.0, 0.0, 0.0])
    assert same_bits(log.state, state)
    assert log.shown.sum(axis=0).tolist() == [2.0, 2.0, 1.0]
    assert log.loss[4].tolist() == [0.0, 2.0, 0.0]


def test_a_page_that_has_none_of_the_positions_left_is_not_learned():
    log = learned(bothworlds.policy("comb-ucb"), [page(1, [4, 0, 2, 1], learned=0b1000), page(2, [0, 1, 2], learned=0)])
    assert (log.pages, log.number, log.state) == (0, 2, None)


def test_a_state_has_as_many_items_as_positions_from_the_first_page_on():
    log = LogState(bothworlds.policy("comb-ucb"), 8, 5)
    log.learn([page(1, [2, 0, 1], n=3)])
    assert log.state.shape == (5, 5)
    assert log.present(8).shape == (8, 5)
    assert log.state.shape == (5, 5)


def test_settings_may_refer_to_items_that_came_later():
    log = learned(bothworlds.policy("fixed", ranking=[7, 1, 2]), [page(1, [0, 1, 2])])
    assert log.state.ranking.tolist() == [1, 2, 0]
    assert log.present(8).ranking.tolist() == [7, 1, 2]
    log.learn([page(2, [7, 1, 2], n=8)])
    assert log.state.ranking.tolist() == [7, 1, 2]


def test_a_policy_without_parts_skips_pages_of_another_shape():
    pages = [page(1, [0, 1]), page(2, [0, 1, 2], n=5), page(3, [0, 1, 2, 3]), page(4, [0, 1, 2], absent=[4])]
    pages += [page(5, [0, 1, 2], learned=0b110), page(6, [3, 1, 2])]
    log = learned(policy_for("batchrank", N), pages)
    assert (log.pages, log.skipped, log.number) == (1, 5, 6)
    assert log.shown.sum() == M


def test_a_note_is_learned_by_the_policy_that_made_it_only():
    policy = policy_for("unirank", N)
    pages, _ = played(policy, N, M, 60)
    assert any(any(one.note) for one in pages)
    of_another = [one._replace(policy="toprank") for one in pages]
    without = [one._replace(note=()) for one in pages]
    assert same_log(learned(policy, of_another), learned(policy, without))
    assert not same_log(learned(policy, pages), learned(policy, without))


def test_pages_that_were_learned_are_ignored():
    policy, pages = bothworlds.policy("comb-ucb"), [page(k, [k % N, (k + 1) % N, (k + 2) % N]) for k in range(1, 9)]
    log = learned(policy, pages[:5])
    log.learn(pages)
    assert same_log(log, learned(policy, pages))
    assert log.pages == 8


def test_an_absent_item_is_charged_what_the_others_lost():
    log = learned(bothworlds.policy("ftrl-pbm"), [page(1, [0, 1, 2], absent=[4, 5], learned=0b110)])
    assert log.loss[4].tolist() == log.loss[5].tolist() == [0.0, 1.0, 0.75]
    assert log.loss[2].tolist() == [0.0, 0.0, 1.5]


@pytest.mark.parametrize(
    "changed",
    [
        {"items": [0, 1, N]},
        {"items": [0, 1, -1]},
        {"items": [0, 1, 0]},
        {"propensity": [0.5, 0.0, 0.5]},
        {"propensity": [0.5, float("nan"), 0.5]},
        {"rewards": [0.0, 1.5, 0.0]},
        {"absent": [N]},
        {"absent": [4], "note": [0.5, 0.0], "policy": "all-weather"},
    ],
    ids=str,
)
def test_a_page_that_is_not_valid_is_refused(changed):
    with pytest.raises(ValueError, match=r"page|absent|note"):
        learned(bothworlds.policy("all-weather"), [page(1, [0, 1, 2])._replace(**changed)])
