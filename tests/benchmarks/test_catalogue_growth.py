"""The growth of the cost of a round: exponents, tables and the figure."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import catalogue_growth
from benchmarks.catalogue_growth import (
    FIRST,
    ITEMS,
    PHASES,
    POLICIES,
    POSITIONS,
    SHOWN,
    Run,
    draw,
    exponents,
    period,
    runs_at,
    section,
    table,
)
from bothworlds.arena.storage import provenance

ABOUT = provenance([]) | {"load_before": 0.0, "load_after": 0.0, "repeats": 2}


def invented(power):
    """Repeats whose cost is a power of the number of items, with a constant cost below 100 items."""
    return [
        Run(name, phase, n, m, repeat, 10, 1, (1 + repeat) * max(n, 100) ** power * m, (1 + repeat) * 2.0, 8 * n * m)
        for name in POLICIES
        for phase in PHASES
        if (name, phase) != ("toprank", SHOWN)
        for n, m in dict.fromkeys([*ITEMS, *POSITIONS])
        if (name, n) != ("toprank", 100_000)
        for repeat in range(2)
    ]


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_the_exponent_is_that_of_the_cost_from_a_hundred_items_on(power):
    mine = [run for run in invented(power) if run.policy == "gibbs-ts" and run.phase == FIRST and run.m == 10]
    assert exponents(mine, "n") == pytest.approx([power, power])
    mine[-1] = mine[-1]._replace(microseconds=2.0 * mine[-1].microseconds)
    assert exponents(mine, "n")[1] > power + 0.05


def test_a_size_that_cannot_be_played_says_why():
    text = table(invented(1.0), FIRST, "n", ITEMS)
    assert "| toprank |" in text
    assert "needs 50 GB" in text
    assert "toprank" not in table(invented(1.0), SHOWN, "n", ITEMS)


@pytest.mark.slow
def test_the_section_and_the_figure_have_every_policy(tmp_path):
    runs = invented(1.0)
    text = section(runs, ABOUT)
    assert all(text.count(f"| {name} |") == (3 if name == "toprank" else 5) for name in POLICIES)
    draw(runs, tmp_path / "growth.svg")
    drawn = (tmp_path / "growth.svg").read_text()
    assert all(name in drawn for name in POLICIES)


def test_policies_are_played_in_turn_with_the_reference_beside_them(monkeypatch):
    monkeypatch.setattr(catalogue_growth, "MOST_ROUNDS", 20)
    monkeypatch.setattr(catalogue_growth, "FIRST_ROUNDS", 20)
    for phase in PHASES:
        runs = runs_at(12, 3, phase, ("ftrl-pbm", "pbm-ucb-mle"), repeats=2)
        assert [(run.policy, run.repeat) for run in runs] == [
            ("ftrl-pbm", 0),
            ("pbm-ucb-mle", 0),
            ("ftrl-pbm", 1),
            ("pbm-ucb-mle", 1),
        ]
        assert all(run.rounds == 20 and run.state_bytes > 0 and np.isfinite(run.microseconds) for run in runs)
        assert all(run.ratio == 1.0 for run in runs[::2])
        assert runs[1].reference == runs[0].microseconds


def test_rounds_are_whole_intervals_between_leaders_and_fits():
    assert period("ftrl-pbm:every=100", FIRST, 1_000) == 100
    assert period("pbm-ucb-mle", SHOWN, 1_000) == 23
    assert period("gibbs-ts", SHOWN, 1_000) == 1
