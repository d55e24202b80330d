"""The table of average rewards."""

from __future__ import annotations

import pytest

from bothworlds.arena import compete, save_table, standings
from bothworlds.worlds import matrix

WORLDS = ["paper/stochastic", "yandex/stochastic"]


@pytest.fixture(scope="module")
def table():
    return standings(
        compete(["uniform", "oracle", "ftrl-pbm"], WORLDS, 300, replications=3, inform=True, progress=False)
    )


@pytest.mark.slow
def test_comparators_come_first_then_the_policies(table):
    names = [row.name for row in table.rows]
    assert names == ["best of each round", "best fixed list", "uniform", "oracle", "ftrl-pbm"]
    assert table.worlds == WORLDS
    assert "300 rounds, 3 replications" in table.title


def test_only_policies_that_learn_compete(table):
    best = [row.name for row in table.rows if all(cell.best for cell in row.cells)]
    assert best == ["ftrl-pbm"]
    assert [row.name for row in table.rows if not row.reference] == ["ftrl-pbm"]


def test_if_no_policy_learns_all_compete():
    alone = standings(compete(["uniform"], WORLDS[:1], 20, replications=1, progress=False))
    assert alone.rows[-1].cells[0].best
    assert "±" not in alone.rows[-1].cells[0].text  # one replication has no error
    assert alone.title.endswith("1 replication")


def test_markdown_marks_the_best_and_the_references(table, tmp_path):
    text = save_table(table, tmp_path / "new" / "table.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(table.rows)
    assert {line.count("|") for line in lines} == {len(WORLDS) + 3}
    assert next(line for line in lines if "ftrl-pbm" in line).count("**") == 4
    assert any(line.startswith("| *oracle* |") for line in lines)


def test_a_policy_that_needs_examination_is_left_out_of_a_world_without_it():
    class NeedsExamination:
        examination = None
        adaptive = True

        def init(self, n, m):
            raise AssertionError("it must not play")

        decide = learn = init

    world = matrix([[0.9, 0.1], [0.1, 0.9]])
    results = compete([NeedsExamination(), "uniform"], [world], 10, replications=1, inform=True, progress=False)
    assert [result.policy for result in results] == ["uniform"]
