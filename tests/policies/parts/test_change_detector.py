"""The change detector, against one that counts every block again from the history."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bothworlds.kernels import kernel
from bothworlds.policies.parts.change_detector import (
    alarm_level,
    detect_change,
    make_change_detector,
    scan_statistic,
)
from bothworlds.policies.parts.counts import make_counts, record
from tests.reference.change_detector import HistoryDetector, log_likelihood_ratio

N, M = 4, 2


@kernel
def step(detector, counts, ranking, clicks):
    record(counts, ranking, clicks)
    return detect_change(detector, counts, ranking, clicks)


@kernel
def alarms_of(detector, counts, probabilities, rounds, rng, ranking, clicks, alarms):
    """Play uniform lists; fill in the rounds with an alarm and return their number."""
    n, m = probabilities.shape
    found = 0
    for _ in range(rounds):
        for j in range(m):
            ranking[j] = (ranking[j] + 1) % n if j == 0 else (ranking[0] + j) % n
            clicks[j] = 1.0 if rng.random() < probabilities[ranking[j], j] else 0.0
        record(counts, ranking, clicks)
        if detect_change(detector, counts, ranking, clicks):
            alarms[found % alarms.size] = counts.learned[0]
            found += 1
    return found


def played(phases, seed=0, n=N, m=M):
    """The rounds of all alarms in a world with these phases: (probability of a click, number of rounds)."""
    detector, counts, rng = make_change_detector(n, m), make_counts(n, m), np.random.default_rng(seed)
    ranking, alarms, found = np.arange(m), np.zeros(100, np.int64), []
    for p, rounds in phases:
        probabilities = np.broadcast_to(p, (n, m)).copy()
        count = alarms_of(detector, counts, probabilities, rounds, rng, ranking, np.zeros(m), alarms)
        found += alarms[:count].tolist()
    return found, detector, counts


def agrees_with_history(rounds, **changed):
    """Whether a detector has the counts and the alarms of one that remembers all rounds, after every round."""
    detector, counts = make_change_detector(N, M, bucket=8), make_counts(N, M)
    reference, alarms = HistoryDetector(N, M, bucket=8), 0
    for name, value in changed.items():
        detector = detector._replace(**{name: value})
    for ranking, clicks in rounds:
        alarm = step(detector, counts, ranking, clicks)
        expected = reference.add(ranking.tolist(), clicks.tolist())
        shown, clicked = reference.counts(reference.rounds)
        alarms += expected
        if (
            alarm != expected
            or counts.rounds[0] != len(reference.rounds)
            or counts.learned[0] != reference.t
            or (counts.shown != shown).any()
            or (counts.clicked != clicked).any()
        ):
            return False
    assert detector.changes[0] == alarms >= 3
    return True


def seasons(phase=120, phases=6, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (rng.permutation(N)[:M], (rng.random(M) < (0.1 if k % 2 else 0.8)).astype(float))
        for k in range(phases)
        for _ in range(phase)
    ]


@pytest.mark.slow
def test_every_round_agrees_with_counting_from_the_history():
    assert agrees_with_history(seasons())


def test_another_bucket_is_noticed_by_that_comparison():
    assert not agrees_with_history(seasons(), bucket=7)


def test_too_few_levels_are_noticed_by_that_comparison():
    assert not agrees_with_history(seasons(), blocks=np.zeros((1, 2, N, M)))


def test_the_statistic_is_the_log_likelihood_ratio(rng):
    for _ in range(50):
        n2 = rng.integers(0, 30, (N, M)).astype(float)
        c2 = np.floor(n2 * rng.random((N, M)))
        n1 = rng.integers(0, 30, (N, M)).astype(float)
        c1 = np.floor(n1 * rng.random((N, M)))
        ratios = [log_likelihood_ratio(n1[k], c1[k], n2[k], c2[k]) for k in np.ndindex(N, M) if n1[k] and n2[k]]
        assert scan_statistic(n1 + n2, c1 + c2, n2, c2) == pytest.approx(max(ratios), abs=1e-9)


def test_pairs_without_data_before_or_in_the_block_are_no_evidence():
    shown, clicked = np.array([[50.0, 50.0]]), np.array([[0.0, 50.0]])
    assert scan_statistic(shown, clicked, shown, clicked) == 0.0
    assert scan_statistic(shown, clicked, np.zeros((1, 2)), np.zeros((1, 2))) == 0.0


@pytest.mark.parametrize("rounds", [1, 31, 32, 33, 64, 96, 128, 1000])
def test_a_block_holds_the_rounds_since_the_last_multiple_of_its_length(rounds):
    detector, counts = make_change_detector(N, M), make_counts(N, M)
    for t in range(rounds):
        assert not step(detector, counts, np.array([t % N, (t + 1) % N]), np.array([1.0, 0.0]))
    assert detector.buckets[0] == rounds // 32
    assert detector.filled[0] == rounds % 32
    for level, (shown, clicked) in enumerate(detector.blocks):
        held = rounds % (32 * 2**level)
        assert shown.sum() == M * held
        assert clicked[:, 0].sum() == held
        assert clicked[:, 1].sum() == 0.0


def test_a_change_in_the_middle_of_a_block_does_not_wait_for_its_end():
    """After 32 buckets with a click in every second round, 7 of 10 rounds have one: 6 buckets show it, not 4."""
    detector, counts, before = make_change_detector(2, 1), make_counts(2, 1), 32 * 32
    alarms = [
        step(detector, counts, np.array([0]), np.array([float(t % 2 if t < before else t % 10 < 7)]))
        for t in range(before + 7 * 32)
    ]
    assert [t + 1 for t in np.flatnonzero(alarms)] == [before + 6 * 32]
    assert counts.rounds[0] == counts.shown.sum() == 7 * 32


def test_an_alarm_needs_a_statistic_above_the_level():
    """One pair: k rounds without a click, then one bucket of clicks."""
    n2 = 32.0
    for quiet in (32, 64):
        detector, counts = make_change_detector(2, 1), make_counts(2, 1)
        for _ in range(quiet):
            step(detector, counts, np.array([0]), np.array([0.0]))
        for clicks in range(33):
            twin = replace_arrays(detector), replace_arrays(counts)
            for t in range(32):
                alarm = step(*twin, np.array([0]), np.array([1.0 if t < clicks else 0.0]))
            z = log_likelihood_ratio(float(quiet), 0.0, n2, float(clicks))
            assert alarm == (z > math.log(2.0) + math.log(quiet + 32.0) + 4.0)
            if alarm:
                assert twin[1].shown.tolist() == [[32.0], [0.0]]
                assert twin[1].clicked.tolist() == [[clicks], [0.0]]
                assert twin[1].rounds[0] == 32.0
                assert twin[0].buckets[0] == 0
                assert (twin[0].blocks == 0.0).all()
                assert twin[0].detected[0] == quiet + 32


def replace_arrays(parts):
    return parts._replace(**{k: v.copy() for k, v in parts._asdict().items() if isinstance(v, np.ndarray)})


def test_a_detector_that_is_not_active_never_forgets():
    detector, counts = make_change_detector(N, M, active=False), make_counts(N, M)
    for ranking, clicks in seasons():
        assert not step(detector, counts, ranking, clicks)
    assert counts.rounds[0] == counts.learned[0] == 720
    assert detector.blocks.size == 0


@pytest.mark.parametrize("p", [0.02, 0.5, 0.97])
def test_steady_users_cause_no_alarm(p):
    for seed in range(3):
        found, _, counts = played([(p, 100_000)], seed)
        assert found == []
        assert counts.rounds[0] == 100_000


@pytest.mark.parametrize(("low", "high"), [(0.3, 0.6), (0.05, 0.2)])
def test_a_change_causes_one_alarm_soon(low, high):
    """All but the block is forgotten; it may begin at most one block before the change."""
    for seed in range(4):
        phases = [(low, 20_000), (high, 20_000), (low, 20_000)]
        found, detector, counts = played(phases, seed)
        assert len(found) == detector.changes[0] == 2
        assert all(0 < at - change <= 2048 for at, change in zip(found, (20_000, 40_000)))
        assert detector.detected[0] == found[-1]
        assert abs(counts.learned[0] - counts.rounds[0] - 40_000) <= 2048


def test_the_level_rises_with_pairs_and_rounds():
    assert alarm_level(10, 5, 1.0) == pytest.approx(math.log(50.0) + 3.0)
    assert alarm_level(10, 5, 100.0) - alarm_level(10, 5, 1.0) == pytest.approx(math.log(100.0))
