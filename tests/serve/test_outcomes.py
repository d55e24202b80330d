"""Outcomes: the order of feedback changes nothing, and whether a page is learned from does not depend on its clicks."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bothworlds.serve import outcomes
from bothworlds.serve.events import Event, Feedback, Listed
from bothworlds.serve.model import LOSS_UNIT
from bothworlds.serve.outcomes import due_at, is_compared, is_learned, merged, rewards_of, settled_by

SHOWN_AT, DEADLINE, LATE_UNTIL = 1_000, 2_000, 3_000
SLOTS = 3
LISTED = Listed((4, 0, 2), (0.5, 0.25, 0.125), 0b111)
MODES: tuple[Any, ...] = ("final", "clicks")


def page(**changes: Any) -> Event:
    fields = {
        "id": bytes(16),
        "surface_id": 1,
        "learner_id": 1,
        "arm": "learner",
        "created_at": SHOWN_AT,
        "expires_at": DEADLINE,
        "late_until": LATE_UNTIL,
        "n": 5,
        "listed": LISTED,
    }
    return Event(**fields | changes)


def feedback(**reported: Any) -> Feedback:
    return Feedback(event=page(), **reported)


def settled(event: Event, mode: Any = "final", now: int = DEADLINE + 1, as_they_come: bool = True) -> Event:
    reason = settled_by(event, mode, now, as_they_come)
    return replace(event, number=1, settled_at=now, settled_by=reason) if reason else event


def after(*reports: Feedback, event: Event | None = None, now: int = SHOWN_AT) -> tuple[Event, list[str]]:
    current, statuses = event or page(), []
    for report in reports:
        current, status = merged(current, report, now)
        statuses.append(status)
    return current, statuses


REPORTS = st.builds(
    lambda clicks, shown, final: feedback(clicks=clicks, shown=shown, final=final),
    st.integers(0, 7),
    st.sampled_from((None, True, False)),
    st.booleans(),
)
REWARDS = st.builds(
    lambda rewards, final: feedback(rewards=rewards, final=final),
    st.tuples(*[st.integers(0, LOSS_UNIT)] * SLOTS),
    st.booleans(),
)


def check_order_makes_no_difference(reports: list[Feedback], data: st.DataObject) -> None:
    """Repeated, split and shuffled feedback gives the same open event."""
    shuffled = data.draw(st.permutations(reports + data.draw(st.lists(st.sampled_from(reports)))))
    assert after(*reports)[0] == after(*shuffled)[0]


@given(st.lists(REPORTS, min_size=1, max_size=5), st.data())
def test_the_order_of_feedback_makes_no_difference(reports: list[Feedback], data: st.DataObject) -> None:
    check_order_makes_no_difference(reports, data)


@given(st.lists(REWARDS, min_size=1, max_size=5), st.data())
def test_the_order_of_rewards_makes_no_difference(reports: list[Feedback], data: st.DataObject) -> None:
    check_order_makes_no_difference(reports, data)


def test_a_merge_in_which_the_last_report_of_shown_wins_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "_merged_shown", lambda before, given, clicks: before if given is None else given)
    with pytest.raises(AssertionError):
        test_the_order_of_feedback_makes_no_difference()


def test_feedback_on_an_open_event_is_accepted_once() -> None:
    event, statuses = after(
        feedback(clicks=0b001),
        feedback(clicks=0b001),
        feedback(shown=True),
        feedback(shown=True, clicks=0b101),
        feedback(final=True),
        feedback(final=True),
        feedback(),
    )
    assert statuses == ["accepted", "duplicate", "accepted", "accepted", "accepted", "duplicate", "duplicate"]
    assert event == page(clicks=0b101, shown=True, final=True)
    assert page() == page(clicks=0)  # the arguments are not changed


def test_rewards_of_a_slot_are_merged_by_the_maximum() -> None:
    half = LOSS_UNIT // 2
    event, statuses = after(
        feedback(rewards=(0, half, 0)), feedback(rewards=(0, 5, LOSS_UNIT)), feedback(rewards=(0, half, 7))
    )
    assert statuses == ["accepted", "accepted", "duplicate"]
    assert (event.rewards, event.clicks) == ((0, half, LOSS_UNIT), 0b110)
    np.testing.assert_array_equal(rewards_of(event), [0.0, 0.5, 1.0])


def test_clicks_on_a_settled_event_are_reported_and_not_learned() -> None:
    event = settled(page(clicks=0b001, final=True))
    late, statuses = after(
        feedback(clicks=0b001),
        feedback(final=True),
        feedback(clicks=0b011),
        feedback(clicks=0b010),
        event=event,
        now=LATE_UNTIL,
    )
    assert statuses == ["duplicate", "duplicate", "late_applied", "duplicate"]
    assert late == replace(event, late=0b010)
    np.testing.assert_array_equal(rewards_of(late), [1.0, 0.0, 0.0])
    assert after(feedback(clicks=0b100), event=late, now=LATE_UNTIL + 1) == (late, ["expired"])
    by_deadline = settled(page(shown=True))
    assert after(feedback(final=True), feedback(shown=False), event=by_deadline)[1] == ["settled", "settled"]


def test_a_larger_reward_on_a_settled_event_is_reported_and_not_learned() -> None:
    event = settled(page(rewards=(3, 0, 0), clicks=0b001, final=True))
    late, statuses = after(feedback(rewards=(5, 0, 9)), feedback(rewards=(2, 0, 0)), event=event)
    assert statuses == ["late_applied", "duplicate"]
    assert late == replace(event, late=0b101)


def test_after_the_late_window_an_open_event_takes_nothing() -> None:
    assert after(feedback(clicks=1, final=True), now=LATE_UNTIL + 1) == (page(), ["expired"])
    assert after(feedback(clicks=1), now=LATE_UNTIL) == (page(clicks=1), ["accepted"])


def test_feedback_on_another_list_or_on_a_deleted_event_is_rejected() -> None:
    others = (
        page(listed=Listed((0, 4, 2), LISTED.p, 0b111)),
        page(listed=Listed(LISTED.items, (0.5, 0.25, 0.25), 0b111)),
        page(listed=Listed(LISTED.items, LISTED.p, 0b011)),
        page(arm="holdout"),
        page(learner_id=2),
    )
    for other in others:
        assert merged(page(), Feedback(event=other, clicks=1), SHOWN_AT) == (page(), "rejected")
    gone = page(deleted=True)
    assert merged(gone, feedback(clicks=1), SHOWN_AT) == (gone, "rejected")


def test_a_page_that_was_not_shown_is_void_unless_it_was_clicked_or_confirmed() -> None:
    for mode, reports in product(MODES, permutations((feedback(shown=False), feedback(final=True)))):
        event = settled(after(*reports)[0], mode, SHOWN_AT)
        assert event.settled_by == "void"
        assert not is_learned(event)
        assert not is_compared(event)
    for other in (feedback(shown=True), feedback(clicks=0b1)):
        for reports in permutations((feedback(shown=False), other)):
            assert settled(after(*reports)[0], now=SHOWN_AT).settled_by == ""


def test_a_final_page_settles_as_it_comes_or_at_its_deadline() -> None:
    final = page(final=True)
    assert settled_by(final, "final", SHOWN_AT, True) == "final"
    assert settled_by(final, "final", DEADLINE, False) == ""
    assert settled_by(final, "final", DEADLINE + 1, False) == "final"
    assert settled_by(final, "clicks", DEADLINE, True) == ""
    assert settled_by(final, "clicks", DEADLINE + 1, True) == "final"


def check_clicks_do_not_confirm(reason: Any) -> None:
    """Whether and when a page is learned from is the same with and without clicks."""
    for mode, shown, final, now, at_once in product(
        MODES, (None, True), (False, True), (SHOWN_AT, DEADLINE, DEADLINE + 1), (False, True)
    ):
        of_clicks = {reason(page(shown=shown, final=final, clicks=clicks), mode, now, at_once) for clicks in range(8)}
        assert len(of_clicks) == 1, (mode, shown, final, now, at_once)


def test_clicks_do_not_decide_whether_or_when_a_page_is_learned_from() -> None:
    check_clicks_do_not_confirm(settled_by)
    unconfirmed = settled(page(clicks=0b111))
    assert (unconfirmed.settled_by, is_learned(unconfirmed), is_compared(unconfirmed)) == ("unconfirmed", False, False)
    assert is_learned(settled(page(shown=True)))
    assert [is_learned(settled(page(clicks=clicks), "clicks")) for clicks in range(8)] == [True] * 8


def test_a_rule_in_which_clicks_confirm_is_caught() -> None:
    def confirmed_by_clicks(event: Event, *others: Any) -> str:
        return settled_by(replace(event, shown=bool(event.shown or event.clicks) or None), *others)

    with pytest.raises(AssertionError, match="final"):
        check_clicks_do_not_confirm(confirmed_by_clicks)


def test_what_is_learned_and_what_is_compared() -> None:
    final = settled(page(final=True))
    for event, learned, compared in (
        (final, True, True),
        (settled(page(shown=True)), True, True),
        (page(final=True), False, False),  # still open
        (replace(final, settled_by="import"), True, False),
        (replace(final, counted=False), False, False),
        (replace(final, listed=Listed(LISTED.items, LISTED.p, 0)), False, True),
        (replace(final, arm="holdout"), False, True),
        (replace(final, deleted=True), True, True),  # its content goes later, under a snapshot of the state
    ):
        assert (is_learned(event), is_compared(event)) == (learned, compared), event


def test_an_event_is_due_no_later_than_it_settles() -> None:
    for shown, final, now in product((None, True, False), (False, True), (SHOWN_AT, DEADLINE, DEADLINE + 1)):
        event = page(shown=shown, final=final)
        assert (due_at(event) < now) == bool(settled_by(event, "final", now, True))
