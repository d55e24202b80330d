"""The table of contenders, and the files that are written."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest

from benchmarks import contender_rounds
from benchmarks.contender_rounds import OURS, STRAIGHTFORWARD, absent, runs_of, summary
from benchmarks.contenders import CONTENDERS
from benchmarks.peers import PEERS, Peer, is_installed
from benchmarks.results_file import COMMAND, write_results
from bothworlds.arena.storage import provenance
from bothworlds.policies import policy

ABOUT = provenance([]) | {"load_before": 0.0, "load_after": 0.0, "repeats": 2, "world": "paper/stochastic"}


@pytest.fixture(scope="module")
def runs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contender_rounds, "ROUNDS", 200)
        ours = list(runs_of("uniform", OURS, policy("uniform"), 200, 2))
        return ours, list(runs_of("uniform", STRAIGHTFORWARD, CONTENDERS["uniform"](), 100, 2))


def test_every_run_has_its_reference_and_our_policy_beside_it(runs):
    ours, theirs = runs
    for run in (*ours, *theirs):
        assert run.ratio == run.microseconds / run.reference > 0.0
    assert all(run.times_ours == 1.0 and run.reward == run.our_reward for run in ours)
    assert all(run.reward != run.our_reward for run in theirs)  # other random lists


def test_a_row_has_medians_with_the_lowest_and_the_highest(runs):
    ours, theirs = runs
    faster = [run._replace(microseconds=value, reference=2.0) for run, value in zip(ours, (1.0, 3.0))]
    assert summary(faster)["µs per round"] == "2.00 (1.00 to 3.00)"
    assert summary(faster)["ratio to ftrl-pbm"] == "1.00 (0.50 to 1.50)"
    assert summary(theirs)["minus ours"]
    assert not summary(ours)["minus ours"]


def test_the_page_and_the_parquet_file_have_every_row_and_how_it_was_made(runs, tmp_path):
    ours, theirs = runs
    rows = [summary(theirs), absent(Peer("no_such_package", "mw", CONTENDERS["uniform"])), summary(ours)]
    write_results([*theirs, *ours], rows, ABOUT, tmp_path)
    page = (tmp_path / "RESULTS.md").read_text()
    assert COMMAND in page
    assert "| mw | no_such_package: absent |" in page
    assert page.count("| uniform |") == 2
    table = pyarrow.parquet.read_table(tmp_path / "results.parquet")
    assert table.num_rows == 4
    assert json.loads(table.schema.metadata[b"bothworlds"])["versions"] == ABOUT["versions"]


def test_a_package_that_is_not_installed_is_absent():
    assert is_installed(Peer("numpy", "mw", CONTENDERS["uniform"]))
    assert not is_installed(Peer("no_such_package", "mw", CONTENDERS["uniform"]))
    assert all(absent(peer)["implementation"] == f"{peer.package}: absent" for peer in PEERS)
