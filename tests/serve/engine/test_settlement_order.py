"""Order of settlement: visitors who do not change raise no alarm, whatever feedback is lost, late, or never sent.

The policy is the real all-weather, which draws the lists of every step and learns the pages that settle in it. Days are
shorter than real ones: what counts is how many pages wait for their deadline, and how often traffic stops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import bothworlds
from bothworlds.geometry.sampling import draw, make_urn, prepare
from bothworlds.policies.logged_pages import LoggedPage, LogState
from bothworlds.serve.outcomes import Endings, as_they_come, feedback_notice

N, M = 10, 3
CLICKS = np.outer(np.linspace(0.4, 0.1, N), [1.0, 0.7, 0.5])
FLOOR = 0.005
STEP, LOOK, DEADLINE = 10, 60, 600  # seconds
EVERY = (1 << M) - 1


@dataclass(frozen=True)
class Traffic:
    """Pages of steady visitors, who are fewest in the morning and in the evening, and sleep for a quarter of the day.

    The last day is cut off at its peak.
    """

    pages: int  # a day
    day: int  # seconds
    days: int

    @property
    def end(self) -> int:
        return self.day * (self.days - 1) + 3 * self.day // 8

    def expected(self, time: int) -> float:
        """Return the expected number of pages in a step."""
        part = time / self.day % 1.0
        if part > 0.75 or time > self.end:
            return 0.0
        return (1.0 - 0.8 * np.cos(2 * np.pi * part / 0.75)) / 0.75 * self.pages * STEP / self.day


@dataclass(frozen=True)
class Visits:
    """What is sent: ``lost`` of the pages without a click never end, and ``late`` of all end after the deadline."""

    lost: float = 0.0
    late: float = 0.01
    feedback: str = "final"

    def drawn(self, rankings, now, rng):
        """Return the clicks of visitors on these lists, and when their feedback comes."""
        clicked = rng.random(rankings.shape) < CLICKS[rankings, np.arange(M)]
        ends = now + rng.exponential(40.0, len(rankings))
        ends[rng.random(len(rankings)) < self.late] += 2 * DEADLINE
        silent = ~clicked.any(axis=1)
        ends[silent & ((rng.random(len(rankings)) < self.lost) | (self.feedback == "clicks"))] = np.inf
        clicked[ends > now + DEADLINE] = False  # late clicks are not learned
        return clicked.astype(float), ends


def play_visits(traffic: Traffic, visits: Visits, order: Callable[..., bool] = as_they_come, seed: int = 0):
    """Return the number of changes detected, and the share of steps in which pages settled as they came."""
    rng, log = np.random.default_rng(seed), LogState(bothworlds.policy("all-weather"), N, M)
    log.learn([LoggedPage(1, N, [0, 1, 2], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0], EVERY)])
    urn, created, ends, drawn, orders = make_urn(N, M), np.zeros(0), np.zeros(0), [], []
    confirmed, by_deadline = np.zeros((2, (traffic.end + 2 * DEADLINE) // STEP))  # by step in which they were created
    early = False
    for step, now in enumerate(range(0, traffic.end + DEADLINE + 2 * STEP, STEP)):
        x = (1.0 - FLOOR) * log.policy.marginals(log.state) + FLOOR / N
        prepare(x, urn)
        rankings = np.empty((rng.poisson(traffic.expected(now)), M), np.int64)
        for ranking in rankings:
            draw(x, rng, urn, ranking)
        p = x[rankings, np.arange(M)]
        clicked, new = visits.drawn(rankings, now, rng)
        drawn += zip(rankings.tolist(), p.tolist(), clicked.tolist())
        created, ends = np.append(created, np.full(len(new), now)), np.append(ends, new)
        if now % LOOK == 0:
            known = slice(max(0, step - traffic.day // STEP), max(0, step - DEADLINE // STEP))
            past = Endings(int(confirmed[known].sum()), int(by_deadline[known].sum()))
            early = order(visits.feedback, past, DEADLINE, traffic.day)
        orders.append(early)
        overdue = created + DEADLINE < now
        ripe = overdue | (early & (ends <= now))
        for k in np.flatnonzero(ripe):
            confirmed[int(created[k]) // STEP] += 1
            by_deadline[int(created[k]) // STEP] += ends[k] > created[k] + DEADLINE
        log.learn([LoggedPage(log.number + i, N, *drawn[k], EVERY) for i, k in enumerate(np.flatnonzero(ripe), 1)])
        created, ends, drawn = created[~ripe], ends[~ripe], [drawn[k] for k in np.flatnonzero(~ripe)]
    assert not drawn
    return int(log.state.detector.changes[0]), float(np.mean(orders)), log.pages


STEADY = Traffic(pages=12_000, day=7_200, days=2)


@pytest.mark.slow
@pytest.mark.parametrize("visits", [Visits(), Visits(lost=0.04), Visits(lost=0.3), Visits(feedback="clicks")], ids=str)
def test_steady_visitors_raise_no_alarm(visits):
    changes, _, pages = play_visits(STEADY, visits)
    assert changes == 0
    assert pages > 17_000


@pytest.mark.slow
@pytest.mark.parametrize("visits", [Visits(lost=0.3), Visits(feedback="clicks")], ids=str)
def test_in_the_order_in_which_feedback_comes_they_raise_alarms(visits):
    """The broken twin: pages without a click come last."""
    changes, _, _ = play_visits(STEADY, visits, lambda *ignored: True)
    assert changes > 0


def test_pages_settle_as_they_come_until_it_is_known_that_ends_are_lost():
    _, none_lost, _ = play_visits(STEADY, Visits())
    _, many_lost, _ = play_visits(STEADY, Visits(lost=0.3))
    assert none_lost == 1.0
    assert many_lost < 0.1


@pytest.mark.parametrize(
    ("feedback", "endings", "said"),
    [
        (
            "final",
            Endings(0, 0, 30, 25),
            "25 of them have clicks. If the page sends clicks only, set feedback",
        ),
        (
            "final",
            Endings(10, 0, 30, 0),
            "30 of 40 pages are not learned, because no feedback says",
        ),
        ("final", Endings(100, 40, 0, 0), "40% of the confirmed pages ended without final feedback"),
        ("final", Endings(100, 5, 40, 2), ""),
        ("final", Endings(3, 3, 9, 9), ""),  # too few
        ("clicks", Endings(0, 0, 90, 90), ""),
    ],
)
def test_the_dashboard_says_what_is_wrong_with_the_feedback(feedback, endings, said):
    assert said in feedback_notice(feedback, endings)
    assert bool(said) == bool(feedback_notice(feedback, endings))
