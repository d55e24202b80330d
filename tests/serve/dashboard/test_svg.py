"""Charts say what the data say, and nothing about data that are not there."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.serve.dashboard import svg
from tests.serve.fake_engine import NOW, marginals, series_of

SVG = "{http://www.w3.org/2000/svg}"
any_point = st.builds(
    lambda at, arm, pages, clicks: {"at": at, "arm": arm, "pages": pages, "clicks": clicks},
    st.integers(0, 4 * 10**12), st.sampled_from(["learner", "holdout"]), st.integers(0, 10**9), st.integers(0, 10**10),
)  # fmt: skip


@given(st.lists(any_point, max_size=80), st.integers(200, 1500))
def test_any_series_is_drawn_inside_its_frame(series, width):
    drawn = str(svg.rates(series, width, 200))
    if "<svg" not in drawn:
        assert all(point["pages"] == 0 for point in series)
        return
    for spot in ET.fromstring(drawn).iter(f"{SVG}circle"):
        assert 0 <= float(spot.get("cx")) <= width
        assert 0 <= float(spot.get("cy")) <= 200


def test_merging_keeps_all_pages_and_clicks():
    series = series_of(minutes=90)
    spots = svg.merged(series, "learner", most=7)
    pages = sum(point["pages"] for point in series if point["arm"] == "learner")
    clicks = sum(point["clicks"] for point in series if point["arm"] == "learner")
    assert len(spots) <= 7
    assert sum(spot.pages for spot in spots) == pages
    assert sum(spot.pages * spot.rate for spot in spots) == pytest.approx(clicks)


def test_the_band_covers_a_poisson_rate_about_95_times_in_100(rng):
    for rate, pages in ((0.3, 50), (0.02, 400), (1.5, 20)):
        clicks = rng.poisson(rate * pages, 4000)
        spots = [
            svg.merged([{"at": 0, "arm": "learner", "pages": pages, "clicks": int(c)}], "learner")[0] for c in clicks
        ]
        covered = sum(spot.low <= rate <= spot.high for spot in spots) / len(spots)
        assert 0.92 < covered < 0.985


def test_every_point_can_be_pointed_at():
    drawing = ET.fromstring(str(svg.rates(series_of())))
    titles = [spot.find(f"{SVG}title").text for spot in drawing.iter(f"{SVG}circle")]
    assert all("clicks per page, 95% interval" in title for title in titles)
    assert drawing.get("aria-label").startswith("Clicks per page over time: learned order from")


@given(st.floats(1e-6, 1e9))
def test_what_is_written_at_an_axis_is_where_it_is_written(value):
    top = svg.nice(value)
    ticks = svg.ticks(top)
    assert 4 <= len(ticks) <= 6
    assert [float(said.replace(",", "")) for _, said in ticks] == pytest.approx([at for at, _ in ticks], rel=1e-9)
    assert ticks[-1][0] == top >= value * (1 - 1e-6)


def test_names_in_drawings_are_escaped():
    now = {"items": ["<b>&\"'"], "slots": 1, "x": [[1.0]]}
    (strip,) = svg.strips(now, [{"at": NOW, "x": [[0.5]]}, {"at": NOW + 1, "x": [[0.7]]}], [0])
    assert "<b>&\"'" in ET.fromstring(str(strip)).find(f".//{SVG}text").text


def test_an_item_that_was_not_there_yet_leaves_a_gap():
    now = {"items": ["old", "new"], "slots": 1, "x": [[0.5], [0.5]]}
    history = [{"at": NOW, "x": [[1.0]]}, {"at": NOW + 1, "x": [[1.0], None]}, {"at": NOW + 2, "x": [[0.5], [0.5]]}]
    (strip,) = svg.strips(now, history, [0, 1])
    assert len(list(ET.fromstring(str(strip)).iter(f"{SVG}rect"))) == 4


def test_a_long_history_is_thinned_and_the_latest_kept():
    now = {"items": list("abc"), "slots": 2, "x": marginals(3, 2, 1.0)}
    history = [{"at": NOW + 60_000 * k, "x": marginals(3, 2, k / 100)} for k in range(1001)]
    strips = svg.strips(now, history, [0, 1, 2], most=30)
    assert len(strips) == 2
    rects = list(ET.fromstring(str(strips[0])).iter(f"{SVG}rect"))
    assert len(rects) <= 90
    latest = max(float(rect.get("fill-opacity")) for rect in rects)
    assert math.isclose(latest, round(history[-1]["x"][0][0], 3))
