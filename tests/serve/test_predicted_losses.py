"""Predicted losses are unbiased and exact: by enumeration of all lists and clicks, in rational arithmetic.

All probabilities are powers of two, so that the whole numbers of the service are not rounded.
"""

from __future__ import annotations

import itertools
import random
import zlib
from fractions import Fraction

import msgspec
import numpy as np
import pytest

from bothworlds.serve.model import (
    LOSS_UNIT,
    Eligibility,
    Event,
    EventPrediction,
    Segment,
    loss_weight,
)
from bothworlds.serve.prediction_versions import PredictionVersion, predicted_losses
from bothworlds.serve.settlement import apply_clicks, increments_of
from tests.serve.fakes import added, plain

N, M, UNITS = 4, 2, 256  # item 3 is paused: it cannot be shown
CHANCES = {
    (0, 1): Fraction(3, 8),
    (0, 2): Fraction(1, 8),
    (2, 1): Fraction(1, 8),
    (1, 0): Fraction(1, 8),
    (1, 2): Fraction(1, 8),
    (2, 0): Fraction(1, 8),
}
P = {(i, j): sum((q for one, q in CHANCES.items() if one[j] == i), Fraction()) for i in range(3) for j in range(M)}
CLICK = {(i, j): Fraction(1 + i + 3 * j, 16) for i in range(3) for j in range(M)}
USED = np.array([[17, 200], [0, 255], [96, 3], [0, 0]], np.uint8)
EXPECTED = np.array([[30, 210], [128, 250], [96, 9], [0, 0]], np.uint8)
TILT = {(0, 0): 1, (1, 0): -1, (2, 0): 0, (0, 1): 0, (1, 1): 2, (2, 1): -2}  # s - x in eighths
NUMBER = 1_700_000_000_000


def a_version(used: np.ndarray) -> PredictionVersion:
    return PredictionVersion(NUMBER, 10, 11, None, "ftrl-va", M, zlib.compress(used.tobytes()))


def an_event(items, clicks, used=USED, **changes) -> Event:
    cells = [(item, slot) for slot, item in enumerate(items)]
    p = tuple(float(P[cell]) for cell in cells)
    difference = sum(t * int(EXPECTED[cell]) for cell, t in TILT.items()) / (8 * UNITS)
    return Event(
        id=b"", surface_id=1, segment="", arm="learner", policy_id="", created_at=0, expires_at=10, late_until=20,
        items=items, p=p, learn=0b11, clicks=clicks, eligibility=Eligibility(absent=(3,)),
        mixture=(0.5, *(TILT[cell] / 8 / float(P[cell]) for cell in cells)),
        prediction=EventPrediction(
            NUMBER, bytes(int(used[cell]) for cell in cells), bytes(int(EXPECTED[cell]) for cell in cells), difference
        ),
        **changes,
    )  # fmt: skip


def outcomes():
    """Yield all lists and clicks, with their probabilities."""
    for items, chance in CHANCES.items():
        for clicks in itertools.product((0, 1), repeat=M):
            q = chance
            for slot, click in enumerate(clicks):
                rate = CLICK[items[slot], slot]
                q *= rate if click else 1 - rate
            yield items, sum(click << slot for slot, click in enumerate(clicks)), q


def mean_losses(used=USED, stored=USED):
    """Return what an event adds to the estimated loss of every cell on average, and to the comparison."""
    mean = {(i, j): Fraction() for i in range(N) for j in range(M)}
    difference = Fraction()
    for items, clicks, q in outcomes():
        increments = increments_of(an_event(items, clicks, used))
        empty = Segment(surface_id=1, name="", rounds=0, revision=0, loss={}, shown={}, clicked={})
        segment = added(empty, increments, 0)
        predicted = predicted_losses([(a_version(stored), segment.settled[NUMBER])])
        for cell in mean:
            mean[cell] += q * Fraction(segment.loss.get(cell, 0) + int(predicted[cell]), LOSS_UNIT)
        difference += q * Fraction(increments.mixture[1], LOSS_UNIT)
    return mean, difference


def true_losses():
    losses = {cell: 1 - rate for cell, rate in CLICK.items()}
    shown = {(3, j): sum((P[i, j] * losses[i, j] for i in range(3)), Fraction()) for j in range(M)}
    return losses | shown  # an absent item is charged what was observed at the slot


def test_estimated_losses_are_unbiased_and_absent_items_are_charged_the_observed_loss():
    mean, _ = mean_losses()
    assert mean == true_losses()


def test_rewards_are_estimated_without_bias_too():
    """The mean over rewards of 0, 1/4 and 1, each as likely as its own chance at the slot."""
    values = {0: Fraction(1, 2), LOSS_UNIT // 4: Fraction(1, 4), LOSS_UNIT: Fraction(1, 4)}
    mean, difference = {cell: Fraction() for cell in P}, Fraction()
    for items, chance in CHANCES.items():
        for rewards in itertools.product(values, repeat=M):
            q = chance * values[rewards[0]] * values[rewards[1]]
            increments = increments_of(an_event(items, 0, rewards=rewards))
            for cell in increments.cells:
                mean[cell.item, cell.slot] += q * Fraction(cell.loss, LOSS_UNIT)
            difference += q * Fraction(increments.mixture[1], LOSS_UNIT)
    lost = 1 - sum(Fraction(value, LOSS_UNIT) * chance for value, chance in values.items())
    assert {cell: loss + Fraction(int(USED[cell]), UNITS) for cell, loss in mean.items()} == dict.fromkeys(P, lost)
    assert difference == pytest.approx(float(sum(Fraction(t, 8) * lost for t in TILT.values())), abs=1e-5)


def test_predictions_that_are_added_for_shown_items_only_are_caught():
    mean, _ = mean_losses(stored=np.zeros_like(USED))
    true = true_losses()
    assert all((mean[cell] == true[cell]) == (USED[cell] == 0) for cell in true)


def test_a_prediction_for_an_absent_item_is_caught():
    stored = USED.copy()
    stored[3, 0] = 128
    mean, _ = mean_losses(stored=stored)
    assert mean[3, 0] == true_losses()[3, 0] + Fraction(1, 2)
    version = a_version(stored)
    assert version.used_at([0, 1, 2]) is None  # so that such a version is not used
    assert a_version(USED).used_at([0, 1, 2]) is not None


def test_the_comparison_of_two_learners_is_unbiased():
    true = sum((Fraction(t, 8) * (1 - CLICK[cell]) for cell, t in TILT.items()), Fraction())
    assert mean_losses()[1] == true
    wrong = sum((q * increments_of(msgspec.structs.replace(
        an_event(items, clicks), prediction=msgspec.structs.replace(an_event(items, clicks).prediction, difference=0.0)
    )).mixture[1] for items, clicks, q in outcomes()), Fraction())  # fmt: skip
    assert wrong / LOSS_UNIT != true


def test_a_late_click_gives_the_sums_of_an_event_that_settles_with_it():
    chance, twin_differs = random.Random(1), 0
    empty = Segment(surface_id=1, name="", rounds=0, revision=0, loss={}, shown={}, clicked={})
    for _ in range(50):
        event = msgspec.structs.replace(
            an_event(chance.choice(list(CHANCES)), 0b00),
            p=(chance.uniform(0.001, 1.0), chance.uniform(0.001, 1.0)),
            mixture=(chance.uniform(0.02, 1.0), chance.uniform(-9.0, 9.0), chance.uniform(-9.0, 9.0)),
        )
        settled, first, _ = apply_clicks(event, 0b00, True, 1)
        _, second, _ = apply_clicks(settled, 0b10, False, 2)
        _, direct, _ = apply_clicks(event, 0b10, True, 1)
        assert plain(added(added(empty, first, 0), second, 0)) == plain(added(empty, direct, 0))
        assert tuple(a + b for a, b in zip(first.mixture, second.mixture)) == direct.mixture
        # The twin subtracts what a missing click costs without predictions: wrong by a unit where it is rounded.
        (cell,) = second.cells
        twin_differs += cell.loss != -loss_weight(event.p[1])
    assert twin_differs
