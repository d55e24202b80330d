"""Visitors: the arm stays with the visitor, shares are as asked for, and her id is not stored."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import numpy as np
import pytest

from bothworlds.serve.model import LOSS_UNIT, Invalid, Surface, SurfaceSettings
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.reports.inputs import HOUR
from bothworlds.serve.reports.strata import ArmHistory
from bothworlds.serve.schemas import FeedbackEvent
from bothworlds.serve.stores.factory import open_store
from bothworlds.serve.visitors import BUCKETS, arm_intervals, bucket_of, visitor_draw, visitor_hash
from tests.serve.running import ITEMS, Clock, answer, running, with_engine, written

KEY = bytes(range(32))
CHI_SQUARE = {1: 10.83, 3: 16.27, BUCKETS - 1: 267.5}  # with these degrees of freedom, exceeded once in a thousand


def surface_with(holdout=0.2, arms=(), **fields) -> Surface:
    settings = msgspec.convert({"slots": 1, "holdout": holdout, "arms": arms}, SurfaceSettings)
    return Surface(id=1, name="home", version=1, settings=settings, items=(), created_at=0, changed_at=0, **fields)


def two_arms(one=0.3, other=0.1):
    return [{"name": "one", "share": one}, {"name": "other", "share": other}]


def arms_of(surface, visitors=4000):
    intervals = arm_intervals(surface)
    return [intervals.arm_of(visitor_draw(surface, visitor_hash(f"v{k}", KEY), KEY)) for k in range(visitors)]


def chi_square(counts, expected):
    return sum((n - e) ** 2 / e for n, e in zip(counts, expected, strict=True))


@pytest.mark.parametrize("surface", [surface_with(), surface_with(arms=two_arms())], ids=["holdout", "arms"])
def test_visitors_are_divided_as_the_shares_say(surface):
    arms, shares = Counter(arms_of(surface)), surface.shares
    assert (
        chi_square([arms[arm] for arm in shares], [4000 * share for share in shares.values()])
        < CHI_SQUARE[len(shares) - 1]
    )
    wrong = {arm: 1 / len(shares) for arm in shares}  # the broken twin
    assert chi_square([arms[arm] for arm in wrong], [4000 * share for share in wrong.values()]) > 500


def test_buckets_are_equally_likely_and_independent_of_arms():
    arms, buckets = (
        np.array(arms_of(surface_with(0.5))),
        np.array([bucket_of(visitor_hash(f"v{k}", KEY)) for k in range(4000)]),
    )
    for arm in ("learner", "holdout"):
        counts = np.bincount(buckets[arms == arm], minlength=BUCKETS)
        assert chi_square(counts, [counts.sum() / BUCKETS] * BUCKETS) < CHI_SQUARE[BUCKETS - 1]


def test_surfaces_and_comparisons_divide_visitors_independently():
    first = arms_of(surface_with(0.5))
    for other in (
        msgspec.structs.replace(surface_with(0.5), id=2),
        surface_with(0.5, comparison_restarted_at=5),
    ):
        same = np.mean([one == two for one, two in zip(first, arms_of(other))])
        assert abs(same - 0.5) < 5 * 0.5 / 4000**0.5


def test_the_guard_takes_visitors_from_its_own_arm_only():
    before = surface_with(arms=two_arms())
    after = msgspec.structs.replace(before, guarded_arms={"one": 7})
    moved = Counter((old, new) for old, new in zip(arms_of(before), arms_of(after)) if old != new)
    assert moved.keys() == {("one", "holdout")}
    assert after.shares == pytest.approx(
        {"holdout": 0.2 + 0.3 * 0.995, "one": 0.3 * 0.005, "other": 0.1, "learner": 0.4}
    )


@with_engine(holdout=0.5)
async def test_the_arm_stays_with_the_visitor_and_her_id_is_not_stored(engine, store, clock):
    arms: dict[int, set[str]] = {}
    for number in range(200):
        ranked = await engine.rank("home", f"r{number}", visitor=f"secret-{number % 20}")
        arms.setdefault(number % 20, set()).add(ranked.arm)
    assert all(len(seen) == 1 for seen in arms.values())
    assert {arm for seen in arms.values() for arm in seen} == {"learner", "holdout"}
    without = {(await engine.rank("home", f"page {k}")).arm for k in range(20)}
    assert without == {"learner", "holdout"}  # every page draws its arm anew
    await written(engine)
    assert len({event.visitor for event in store.log.values()}) == 21
    assert all(b"secret" not in msgspec.msgpack.encode(event) for event in store.log.values())


@with_engine(holdout=0.5)
async def test_a_repeated_request_gets_the_same_list_whoever_asks(engine, store, clock):
    first = await engine.rank("home", "r1", visitor="ann")
    assert await engine.rank("home", "r1", visitor="bob") == first
    for visitor in ("a\nb", "v" * 257):
        with pytest.raises(Invalid, match="visitor must be 1 to 256 printable characters"):
            await engine.rank("home", "r2", visitor=visitor)


@pytest.mark.slow
def test_arms_and_sums_of_visitors_survive_a_restart(tmp_path):
    """Feedback restores an event that was lost, with its visitor; the sums by bucket are those of the events."""
    clock, place = Clock(1_700_000_000_000 // HOUR * HOUR), str(tmp_path / "store.db")

    async def run(requests, store):
        async with running(store, clock=clock) as engine:
            if not engine.surfaces():
                await engine.put_surface("home", {"slots": 2, "items": ITEMS, "holdout": 0.5}, actor="test")
            pages = [await engine.rank("home", request, visitor=f"v{k % 7}") for k, request in enumerate(requests)]
            for k, page in enumerate(pages):
                await answer(engine, page, [0] if k % 3 else [0, 1])
            return [page.arm for page in pages]

    store = open_store(place)
    first = asyncio.run(run([f"a{k}" for k in range(28)], store))
    store.close()
    store = open_store(place)
    assert asyncio.run(run([f"b{k}" for k in range(28)], store)) == first
    sums = store.visitor_sums(1, None, clock.at, clock.at + HOUR)
    expected: dict[tuple[str, int], list[int]] = {}
    for event in store.settled():
        clicks = event.clicks.bit_count()
        cell = expected.setdefault((event.arm, bucket_of(event.visitor)), [0, 0, 0])
        for k, value in enumerate((1, clicks, clicks**2)):
            cell[k] += value
    assert {(arm, b): list(row) for arm, rows in sums.items() for b, row in rows.items()} == expected
    assert store.visitor_sums(1, "other segment", clock.at, clock.at + HOUR) == {}
    assert store.visitor_sums(1, None, clock.at + 1, clock.at + HOUR) == {}
    assert verify(store).clean
    store.close()


def test_rewards_of_visitors_are_summed_exactly(tmp_path):
    """Rewards take the place of clicks in the sums by bucket, in the fixed point of losses, and are read back."""
    hour = 1_700_000_000_000 // HOUR * HOUR
    clock, store = Clock(hour), open_store(str(tmp_path / "store.db"))

    async def run():
        async with running(store, clock=clock) as engine:
            settings = {"slots": 2, "items": ITEMS, "holdout": 0.5, "objective": "rewards"}
            surface, _ = await engine.put_surface("home", settings, actor="test")
            for k in range(40):
                page = await engine.rank("home", f"r{k}", visitor=f"v{k % 7}" if k % 4 else None)
                rewards = {0: 0.25, 1: (k % 5) / 4} if k % 3 else {}
                event = FeedbackEvent(event_id=page.event_id, token=page.token, rewards=rewards, final=True)
                assert (await engine.feedback([event]))[0].status == "accepted"
            return surface

    surface = asyncio.run(run())
    events = list(store.settled())
    [totals] = ArmHistory().arm_totals(store, surface, None, hour, hour + HOUR)
    for arm, total in totals.items():
        values = [sum(event.rewards) / LOSS_UNIT for event in events if event.arm == arm]
        own = [sum(event.rewards) / LOSS_UNIT for event in events if event.arm == arm and event.visitor is None]
        by_visitor = total.by_visitor
        assert total.clicks == pytest.approx(sum(values))
        assert (by_visitor.pages, by_visitor.clicks) == (len(own), pytest.approx(sum(own)))
        assert by_visitor.rate == pytest.approx(sum(values) / len(values))
        assert sum(event.clicks.bit_count() for event in events if event.arm == arm) != pytest.approx(sum(values))
    store.close()
