"""Rewards in exact arithmetic: losses and drawn clicks are unbiased, and the draws are fixed."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.serve.model import LOSS_UNIT, Eligibility, Event, VerifiedFeedback
from bothworlds.serve.rewards import fixed_point, merged_rewards, page_squares, redrawn, reward_clicks, threshold
from bothworlds.serve.settlement import apply_clicks, apply_feedback, cells_of, increments_of, observed_losses

SLOTS = 3
REWARDS = st.tuples(*[st.integers(0, LOSS_UNIT)] * SLOTS)


def an_event(number: int = 1, **changes) -> Event:
    fields = {"id": number.to_bytes(16, "big"), "surface_id": 1, "segment": "", "arm": "learner", "policy_id": ""}
    times = {"created_at": 0, "expires_at": 100, "late_until": 1000}
    placed = {"items": (4, 7, 2), "p": (0.5, 0.25, 0.125), "learn": 0b111, "eligibility": Eligibility(absent=(9,))}
    return Event(**(fields | times | placed | changes))


def settled(*reports: tuple[int, ...], at: tuple[int, ...] = (), number: int = 1) -> tuple[Event, list]:
    """An event after these rewards, the last of them final, and all its increments."""
    event, made = an_event(number), []
    for k, rewards in enumerate(reports):
        now = at[k] if at else 10
        event, increments, _ = apply_clicks(event, 0, k == len(reports) - 1, now, rewards)
        made += [increments] if increments else []
    return event, made


def totals(increments: list) -> dict:
    sums: dict = {}
    for one in increments:
        for cell in one.cells:
            key = (cell.item, cell.slot)
            sums[key] = tuple(map(sum, zip(sums.get(key, (0, 0, 0)), (cell.loss, cell.shown, cell.clicked))))
        for slot, loss in one.observed:
            sums["absent", slot] = sums.get(("absent", slot), 0) + loss
        sums["mixture"] = tuple(map(sum, zip(sums.get("mixture", (0, 0, 0)), one.mixture)))
    return {key: value for key, value in sums.items() if value}


# Unbiased


@pytest.mark.parametrize("reward", [0, 1, LOSS_UNIT // 3, LOSS_UNIT - 1, LOSS_UNIT])
def test_the_loss_is_unbiased_in_rational_arithmetic(reward):
    """The mean over lists of the weighted loss is 1 - reward: exactly where 1/p is whole, else within half a unit."""
    for p in (1.0, 0.5, 0.125, 0.3, 2.0**-10):
        event = an_event(p=(p,) * SLOTS, rewards=(reward,) * SLOTS)
        for _, _, loss, _, _ in cells_of(event):
            error = Fraction(p) * Fraction(loss, LOSS_UNIT) - (1 - Fraction(reward, LOSS_UNIT))
            assert abs(error) <= Fraction(p) / (2 * LOSS_UNIT) + Fraction(1, 2**52)
            if Fraction(1) / Fraction(p) == round(1 / p):
                assert error == 0


def clicks_over_all_thresholds(reward: int, is_click) -> Fraction:
    """The mean of the drawn click, with every threshold equally likely."""
    return Fraction(sum(is_click(reward, u) for u in range(0, LOSS_UNIT, LOSS_UNIT // 4096)), 4096)


def test_the_drawn_click_has_the_reward_as_its_mean():
    # At multiples of 1/4096 the mean over all thresholds equals that over every 256th.
    for reward in (0, LOSS_UNIT // 4096, LOSS_UNIT // 4, 5 * LOSS_UNIT // 8, LOSS_UNIT):
        assert clicks_over_all_thresholds(reward, lambda r, u: r > u) == Fraction(reward, LOSS_UNIT)
        # The broken twin rounds to the nearer of no click and a click.
        rounded = clicks_over_all_thresholds(reward, lambda r, u: 2 * r >= LOSS_UNIT)
        assert (rounded == Fraction(reward, LOSS_UNIT)) is (reward in (0, LOSS_UNIT))


def test_thresholds_are_uniform_and_independent_of_each_other():
    n, bins = 4000, 16
    first, second = ([threshold(k.to_bytes(16, "big"), slot) * bins // LOSS_UNIT for k in range(n)] for slot in (0, 1))
    for values, cells in ((first, bins), (second, bins), ([bins * a + b for a, b in zip(first, second)], bins**2)):
        counts = [values.count(cell) for cell in range(cells)]
        chi = sum((count - n / cells) ** 2 / (n / cells) for count in counts)
        assert abs(chi - (cells - 1)) < 5.0 * (2.0 * (cells - 1)) ** 0.5
    fractions = [LOSS_UNIT // 10, LOSS_UNIT // 2]
    for reward in fractions:
        drawn = sum(reward_clicks(k.to_bytes(16, "big"), (reward,)) for k in range(n))
        p = reward / LOSS_UNIT
        assert abs(drawn - n * p) < 5.0 * (n * p * (1.0 - p)) ** 0.5


# Fixed


def test_the_draw_of_an_event_is_fixed_for_ever():
    """A changed hash would make ``verify`` of every existing store fail."""
    assert [threshold(bytes(range(16)), slot) for slot in range(4)] == [593297, 372201, 826148, 656208]


def test_verify_draws_the_clicks_again():
    event, _ = settled((LOSS_UNIT // 3, LOSS_UNIT // 2, LOSS_UNIT))
    assert redrawn(event) == event
    forged = an_event(rewards=event.rewards, clicks=event.clicks ^ 1)
    assert redrawn(forged).clicks == event.clicks


@given(REWARDS, REWARDS, st.integers(0, 2**64))
def test_a_larger_reward_never_takes_a_click_back(one, other, number):
    event_id = number.to_bytes(16, "big")
    both = reward_clicks(event_id, merged_rewards(one, other))
    assert both == reward_clicks(event_id, one) | reward_clicks(event_id, other)


# Any order, and late


def mean_rewards(one, other):
    """A broken twin of ``merged_rewards``: later feedback is averaged with the earlier one."""
    return tuple((a + b) // 2 for a, b in zip(one, other)) if one else other


@pytest.mark.slow
@given(st.lists(REWARDS, min_size=2, max_size=4), st.integers(0, 1000))
def test_any_order_and_repetition_of_feedback_gives_the_same_sums(reports, number):
    event, made = settled(*reports, number=number)
    for order in permutations(reports):
        again, other = settled(*order, *order[:1], number=number)
        assert (again.rewards, again.clicks, totals(other)) == (event.rewards, event.clicks, totals(made))


def test_a_merge_that_depends_on_the_order_is_caught(monkeypatch):
    monkeypatch.setattr("bothworlds.serve.settlement.merged_rewards", mean_rewards)
    one, other = (LOSS_UNIT, 0, 0), (0, LOSS_UNIT // 2, 0)
    assert totals(settled(one, other, other)[1]) != totals(settled(other, other, one)[1])


@pytest.mark.slow
@given(REWARDS, REWARDS, st.sampled_from((50, 500)), st.integers(0, 1000))
def test_a_reward_after_settling_changes_the_sums_to_those_of_the_larger_reward(first, later, now, number):
    event, _, _ = apply_clicks(an_event(number, mixture=(0.3, 2.5, -1.5, 0.7)), 0, True, 10, first)
    after, late, status = apply_clicks(event, 0, False, now, later)
    made = [increments_of(event)] + ([late] if late else [])
    assert totals(made) == totals([increments_of(after)])
    larger = merged_rewards(first, later)
    assert after.rewards == larger
    assert status == ("duplicate" if larger == first else "accepted" if now == 50 else "late_applied")
    assert after.late == (sum(1 << k for k in range(SLOTS) if larger[k] > first[k]) if now == 500 else 0)


def test_no_feedback_until_the_deadline_means_no_reward():
    event, made = settled((0, 0, 0))
    assert totals(made) == totals([increments_of(an_event())])
    assert event.clicks == 0


def test_after_a_reset_a_new_reward_has_expired():
    event, _, _ = apply_clicks(an_event(), 0, True, 10, (0, 5, 0))
    for rewards, status in (((0, 6, 0), "expired"), ((0, 5, 0), "duplicate")):
        given = VerifiedFeedback(event=event, clicks=0, final=True, rewards=rewards)
        assert apply_feedback(event, given, 20, reset_at=15)[2] == status


def test_absent_items_are_charged_what_was_lost():
    event, _ = settled((LOSS_UNIT // 4, 0, LOSS_UNIT))
    assert dict(observed_losses(event)) == {0: 3 * LOSS_UNIT // 4, 1: LOSS_UNIT}


# Numbers


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e-9, 1.0000001, True, "1", None])
def test_only_numbers_from_0_to_1_are_rewards(value):
    with pytest.raises(ValueError, match="number from 0 to 1"):
        fixed_point(value)


@given(REWARDS)
def test_the_square_of_a_page_is_never_too_small(rewards):
    exact = Fraction(sum(rewards), LOSS_UNIT) ** 2
    assert 0 <= Fraction(page_squares(rewards), LOSS_UNIT) - exact < Fraction(1, LOSS_UNIT)
