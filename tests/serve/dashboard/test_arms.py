"""The comparison of arms on the page of a surface: in words and in a table."""

from __future__ import annotations

import pytest

from bothworlds.serve.dashboard import arm_text, svg
from tests.serve.samples import NOW, report_of, surface_of

from .test_pages import EVIL, dashboard

SINCE = NOW - 86_400_000
MISSING = "arm young has 9 of the 30 clicks needed"


def arm(name, relative=None, low=None, high=None, **changes):
    """Return the line of an arm; without a difference, of the first one."""
    comparison = None
    if relative is not None:
        figures = {"relative": relative, "low": low, "high": high, "enough": low is not None, "needed_pages": 60}
        comparison = figures | {"missing": "" if low is not None else MISSING, "since": SINCE, "compared_with": "old"}
    line = {"name": name, "policy": "all-weather", "policy_settings": {}, "share": 0.45, "pages": 4500}
    line |= {"clicks_per_page": 0.51, "interval": (0.49, 0.53), "comparison": comparison, "guarded_since": None}
    return line | changes


OLD, BETTER, WORSE = arm("old"), arm("new", 0.041, 0.012, 0.07), arm("wild", -0.2, -0.3, -0.1)
UNCLEAR, YOUNG = arm("new", 0.01, -0.02, 0.04), arm("young", 0.3)


def verdict(*arms, **changes):
    return arm_text.arm_verdict(report_of(surface_of()) | {"arms": [OLD, *arms], **changes})


def test_the_verdict_says_what_is_known_and_nothing_else():
    assert verdict(BETTER, WORSE, YOUNG).sentence.startswith(
        "new gets more clicks than old: +4.1% (95% interval 1.2% to 7.0%) since 13 Nov"
    )
    assert '{"arm": "new"}' in verdict(BETTER).meaning
    both = verdict(BETTER, arm("other", 0.3, 0.2, 0.4))
    assert both.sentence == "new and other get more clicks than old"
    assert "not compared with each other" in both.meaning
    assert verdict(WORSE).sentence == "old gets more clicks than wild"
    assert '{"arm": "old"}' in verdict(WORSE).meaning
    assert verdict(UNCLEAR, WORSE).tone == verdict(WORSE, YOUNG).tone == "none"
    assert "No clear difference" in verdict(UNCLEAR).sentence
    assert "Not enough data" in verdict(WORSE, YOUNG).sentence
    alarm = report_of(surface_of())["sample_ratio"] | {"alarm": True}
    assert verdict(BETTER, sample_ratio=alarm).tone == "bad"
    assert "more clicks" not in verdict(BETTER, sample_ratio=alarm).sentence


@pytest.mark.slow
def test_on_a_surface_with_rewards_the_arms_are_compared_by_reward():
    sentence = verdict(BETTER, objective="rewards").sentence
    assert sentence.startswith("new gets more reward than old: +4.1%")
    page = dashboard(arms=[OLD, BETTER, YOUNG], objective="rewards")
    assert "+4.1% reward compared with old" in page.text
    assert "Reward per page" in page.text
    assert "clicks compared" not in page.text
    assert f"not enough data yet: {MISSING}" in page.text


@pytest.mark.slow
def test_the_page_shows_words_and_a_table():
    page = dashboard(arms=[OLD, BETTER, arm(EVIL, -0.2, -0.3, -0.1, guarded_since=NOW)])
    assert "new gets more clicks than old" in page.text
    assert "+4.1% clicks compared with old (95% interval 1.2% to 7.0%)" in page.text
    assert "the guard shows the page's own order instead since 14 Nov 22:13 UTC" in page.text
    assert page.count("tr") > 8
    assert EVIL not in page.source
    assert "Policy against policy" not in dashboard().text


@pytest.mark.parametrize("arms", [("learner", "new"), ("old", "new")])
def test_curves_are_those_of_all_policies_together(arms):
    series = [{"at": k, "arm": arm, "pages": 10, "clicks": 4 + 2 * k, "design_effect": 1.0}
              for k in range(3) for arm in (*arms, "holdout")]  # fmt: skip
    assert [point.pages for point in svg.merge_points(series, "learner")] == [20, 20, 20]
    assert [point.pages for point in svg.merge_points(series, "holdout")] == [10, 10, 10]
