"""What is said about surfaces: events with reasons, counts of what was learned, and the figures of reports."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bothworlds.serve.model import Invalid, Unknown
from bothworlds.serve.reports.inputs import DAY
from tests.serve.running import ITEMS, MINUTE, answer, refreshed, visit, visits, with_engine


@with_engine()
async def test_an_event_is_shown_with_its_outcome_and_why_it_is_not_learned(engine, store, clock):
    page = await engine.rank("home", "r1", exclude=["f"], pins={0: "c"})
    view = await engine.reports.event(page.event_id)
    assert (view["settled"], view["settled_by"], view["number"], view["learned"], view["shown"]) == (
        False, "", None, False, None,
    )  # fmt: skip
    assert view["slots"][0] == {
        "slot": 0, "item": "c", "p": 1.0, "learn": False, "pinned": True, "clicked": False, "late": False,
    }  # fmt: skip
    assert sorted(view["absent"]) == ["c", "f"]
    await answer(engine, page, [1])
    await refreshed(engine)
    void, unseen = await engine.rank("home", "void"), await engine.rank("home", "unseen")
    uncounted = await engine.rank("home", "many", counted=False)
    await answer(engine, void, [], shown=False, final=False)
    await answer(engine, uncounted, [0])
    await refreshed(engine)
    assert (await answer(engine, page, [2])).status == "late_applied"
    clock.at += DAY // 2
    await refreshed(engine)
    view = await engine.reports.event(page.event_id)
    assert (view["settled_by"], view["number"], view["learned"]) == ("final", 1, True)
    assert [(slot["clicked"], slot["late"]) for slot in view["slots"]] == [(False, False), (True, False), (True, True)]
    assert "the request pinned some slots" in view["why"]
    for one, reason in ((void, "the page was not shown"), (unseen, "nothing has confirmed"), (uncounted, "too many")):
        view = await engine.reports.event(one.event_id)
        assert not view["learned"]
        assert reason in view["why"]
    for unknown in ("x", "ab" * 16):
        with pytest.raises(Unknown):
            await engine.reports.event(unknown)
    json.dumps(view, allow_nan=False)


@with_engine()
async def test_the_state_has_counts_of_what_was_learned_and_what_is_drawn_from(engine, store, clock):
    await visits(engine, [f"v{k}" for k in range(50)], {"a"})
    await refreshed(engine)
    state = await engine.reports.state("home")
    json.dumps(state, allow_nan=False)
    assert state["rounds"] == state["revision"] == 50
    assert np.array(state["shown"]).sum() == 150
    assert np.array(state["clicked"])[1:].sum() == 0
    assert {type(count) for row in state["shown"] + state["clicked"] for count in row} == {int}
    x = np.array(state["marginals"]["x"])
    assert np.allclose(x.sum(axis=0), 1.0)
    assert x[0].sum() > x[1:].sum(axis=1).max()
    page = await engine.rank("home", "last")
    assert page.policy_id == state["policy_id"]
    assert [slot.p for slot in page.slots] == [x[ITEMS.index(slot.item), slot.slot] for slot in page.slots]
    # A new item has a row at once, at the median.
    await engine.administration.change_item("home", "g", "add", actor="ann")
    grown = await engine.reports.state("home")
    assert (grown["items"][-1], grown["shown"][-1]) == ("g", [0, 0, 0])
    assert grown["loss"][-1] == pytest.approx(np.median(state["loss"], axis=0))
    few = await engine.reports.state("home", limit=2)
    assert (len(few["items"]), few["items_total"], len(few["marginals"]["x"])) == (2, 7, 2)
    with pytest.raises(Invalid, match="not declared"):
        await engine.reports.state("home", {"device": "m"})
    with pytest.raises(Unknown, match="no arm 'holdout'"):
        await engine.reports.state("home", arm="holdout")


@with_engine(objective="rewards")
async def test_clicked_of_a_surface_with_rewards_is_their_sum(engine, store, clock):
    for k in range(10):
        await answer(engine, await engine.rank("home", f"v{k}"), [], rewards={0: 0.25})
    await refreshed(engine)
    assert np.array((await engine.reports.state("home"))["clicked"]).sum() == 2.5
    assert (await engine.reports.report("home"))["headline"]["clicks_per_page"] == 0.25


@with_engine(holdout=0.2)
async def test_a_report_has_all_its_parts_and_is_valid_json(engine, store, clock):
    empty = await engine.reports.report("home")
    assert empty["headline"] == {"pages": 0, "clicks_per_page": None, "interval": None}
    assert empty["uplift"]["relative"] is None
    rng = np.random.default_rng(1)
    for k in range(10):
        for n in range(20):
            page = await engine.rank("home", f"v{k}-{n}")
            likes = [s.slot for s in page.slots if rng.random() < (0.8 if s.item == "a" else 0.2)]
            await answer(engine, page, likes)
        clock.at += MINUTE
        await refreshed(engine)
    await answer(engine, await engine.rank("home", "open"), [0], final=False)
    report = await engine.reports.report("home", since=clock.at - 3_600_000, until=clock.at + 1)
    json.dumps(report, allow_nan=False)
    assert report["headline"]["pages"] + report["holdout"]["pages"] == 200
    low, high = report["headline"]["interval"]
    assert low < report["headline"]["clicks_per_page"] < high
    assert sum(point["pages"] for point in report["series"]) == 200
    assert [item["name"] for item in report["items"]] == ITEMS
    best = max(report["items"], key=lambda item: item["rate"] or 0)
    assert best["name"] == "a"
    assert np.isclose(sum(item["share"] for item in report["items"]), 1.0)
    assert report["learning"]["outstanding"] == 1
    assert report["learning"]["rounds"] == report["headline"]["pages"]
    assert report["learning"]["entropy"] < report["learning"]["entropy_start"]
    assert len(report["marginals"]["x"]) == 6
    headline = await engine.reports.headline("home")
    assert headline["pages"] == report["headline"]["pages"]
    assert headline["rounds"] == report["learning"]["rounds"]
    with pytest.raises(Invalid):
        await engine.reports.report("home", since=10, until=5)
    assert (await engine.reports.report("home", segment="z"))["headline"]["pages"] == 0


@with_engine()
async def test_a_report_covers_one_segment_or_all_of_them(engine, store, clock):
    for k in range(30):
        await visit(engine, f"v{k}", {"a"}, segment=["x", "y", "y"][k % 3])
    await refreshed(engine)
    until = clock.at + 1
    pages = {
        s: (await engine.reports.report("home", until=until, segment=s))["headline"]["pages"] for s in ("x", "y", None)
    }
    assert pages == {"x": 10, "y": 20, None: 30}
    report = await engine.reports.report("home", until=until)
    assert (report["holdout"], report["segments"]) == (None, ["x", "y"])
    assert "without a holdout" in " ".join(report["warnings"])


@with_engine(attribution_seconds=60)
async def test_unconfirmed_pages_are_a_figure_with_what_to_do(engine, store, clock):
    pages = [await engine.rank("home", f"v{k}") for k in range(40)]
    for page in pages[:10]:
        await answer(engine, page, [0])
    for page in pages[10:15]:
        await answer(engine, page, [], shown=True, final=False)
    for page in pages[15:30]:
        await answer(engine, page, [0], final=False)  # a click alone does not confirm
    await answer(engine, pages[39], [], shown=False, final=False)
    await answer(engine, await engine.rank("home", "many", counted=False), [0])
    clock.at += 10 * MINUTE
    await refreshed(engine)
    report = await engine.reports.report("home")
    ends = report["feedback"]
    assert {name: ends[name] for name in ends if name != "since"} == {
        "pages": 15, "by_deadline": 5, "unconfirmed": 24, "unconfirmed_with_clicks": 15, "void": 1, "not_counted": 1,
    }  # fmt: skip
    assert report["headline"]["pages"] == 15
    assert (await engine.reports.state("home"))["rounds"] == 15
    assert any("clicks" in warning and "feedback" in warning for warning in report["warnings"])
