"""The table of contenders, and the files that are written."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest

from benchmarks import contender_rounds
from benchmarks.contender_rounds import OURS, STRAIGHTFORWARD, absent, runs_of, section, summary
from benchmarks.contenders import CONTENDERS, play_rounds
from benchmarks.peers import PEERS, Peer, is_installed
from benchmarks.results_file import command, write_section
from bothworlds.arena.storage import provenance
from bothworlds.policies import policy
from bothworlds.worlds import stochastic

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
    rows = [summary(theirs), absent(Peer("no_such_package", "none", "mw", CONTENDERS["uniform"])), summary(ours)]
    write_section("contenders", section(rows, ABOUT), [*theirs, *ours], ABOUT, tmp_path)
    page = (tmp_path / "RESULTS.md").read_text()
    assert command("contenders") in page
    assert "| mw | no_such_package: absent |" in page
    assert page.count("| uniform |") == 2
    table = pyarrow.parquet.read_table(tmp_path / "contenders.parquet")
    assert table.num_rows == 4
    assert json.loads(table.schema.metadata[b"bothworlds"])["versions"] == ABOUT["versions"]


def test_a_package_that_is_not_installed_is_absent():
    assert is_installed(Peer("numpy", "none", "mw", CONTENDERS["uniform"]))
    assert not is_installed(Peer("no_such_package", "none", "mw", CONTENDERS["uniform"]))
    assert all(absent(peer)["implementation"] == f"{peer.package}: absent" for peer in PEERS)


def test_a_section_replaces_itself_and_leaves_the_others(runs, tmp_path):
    ours, _ = runs
    for name, text in (("growth", "slow"), ("contenders", "first"), ("contenders", "second")):
        write_section(name, f"## {text}", ours, ABOUT, tmp_path)
    page = (tmp_path / "RESULTS.md").read_text()
    assert page.index("## second") < page.index("## slow")
    assert "## first" not in page
    assert page.count("# Results") == 1
    assert {path.name for path in tmp_path.glob("*.parquet")} == {"contenders.parquet", "growth.parquet"}


@pytest.mark.nightly  # make nightly installs the extra 'peers'
@pytest.mark.parametrize("peer", PEERS, ids=[peer.package for peer in PEERS])
def test_a_peer_that_is_installed_learns(peer):
    if not is_installed(peer):
        pytest.skip(f"{peer.package} is not installed")
    world = stochastic([0.9, 0.5, 0.1, 0.1], [1.0, 0.8])
    first, later = (play_rounds(peer.make(), world, rounds, 0).reward[-1] / rounds for rounds in (20, 600))
    uniform = play_rounds(policy("uniform"), world, 600, 0).reward[-1] / 600
    assert later > max(first, uniform + 0.1)
