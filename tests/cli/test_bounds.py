"""The command ``bounds``: its numbers and its errors."""

from __future__ import annotations

from functools import partial

import pytest

import bothworlds
from tests import commands

PAPER = ("--attraction", "0.95,0.92,0.89,0.86,0.83,0.80,0.77,0.74,0.71,0.68", "--examination", "1,1/2,1/3,1/4,1/5")
run, answer = partial(commands.run, "bounds"), partial(commands.answer, "bounds")


def test_the_table_has_the_numbers_of_the_theory():
    text = answer(*PAPER, "--rounds", "1000000")
    world = bothworlds.world("paper/stochastic")
    rows = bothworlds.theory.table(world.attraction, world.examination, 1_000_000)
    for row in rows:
        number = "-" if row.bound is None else f"{row.bound:,.0f}"
        lines = [line for line in text.splitlines() if row.source in line and row.order in line and row.users in line]
        assert any(number in line.split("│")[-2] for line in lines)
    for word in ("1,000,000 rounds", "453,500", "n = 10 items", "m = 5", "delta = 0.03", "delta_beta = 0.05"):
        assert word in text


def test_a_named_world_is_the_same_as_its_numbers():
    assert answer(*PAPER, "-T", "4000") == answer("--world", "paper/stochastic", "-T", "4000")


def test_settings_of_a_world_follow_a_colon():
    assert "delta = 0.01" in answer("-w", "paper/stochastic:gap=0.01")


def test_ties_make_the_bound_infinite():
    assert "infinite" in answer("-a", "0.5,0.5,0.1", "-e", "1")
    assert "infinite" not in answer("-a", "0.5,0.4,0.1", "-e", "1")


def test_a_single_item_has_bounds_too():
    assert "n = 1 items" in answer("-a", "0.5", "-e", "1")


def test_the_table_is_complete_without_a_terminal():
    assert "…" not in answer("--world", "yandex/stochastic", width=60)


def test_there_is_help_with_an_example():
    text = answer("--help")
    assert "bothworlds bounds --attraction" in text


REFUSED = {
    (): "give --attraction and --examination, or a --world",
    ("--attraction", "0.5,0.4"): "give --attraction and --examination, or a --world",
    ("--world", "paper/stochastic", "--attraction", "0.5"): "but not both",
    ("--world", "paper/periodic-both"): "world 'paper/periodic-both' has no fixed attraction and examination",
    ("--world", "adversarial/hard-instance"): "has no fixed attraction",
    ("--world", "nowhere"): "no world named 'nowhere'",
    ("-a", "0.5,much", "-e", "1"): "cannot read the numbers in --attraction '0.5,much'; write them like",
    ("-a", "0.5,", "-e", "1"): "cannot read the numbers in --attraction",
    ("-a", "0.5,0.4", "-e", "1/0"): "cannot read the numbers in --examination",
    ("-a", "0.5,nan", "-e", "1"): "cannot read the numbers in --attraction",
    ("-a", "0.5,1.5", "-e", "1"): "attraction must be probabilities from 0 to 1; got 1.5",
    ("-a", "0.5", "-e", "1,0.5"): "examination must not have more positions than there are items",
}


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED.items(), ids=[" ".join(arguments) for arguments in REFUSED])
def test_errors_are_printed_in_one_line(arguments, sentence):
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_no_rounds_are_refused():
    assert run(*PAPER, "--rounds", "0").exit_code == 2
