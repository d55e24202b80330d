"""A Ray cluster gives the bytes of one machine, survives the loss of a node, and names a cell that fails.

Starting a cluster takes seconds, so all tests share one; each node is a process group of this machine.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import warnings

import pytest

import bothworlds
from bothworlds.arena import compete, ray_engine, save_results
from tests.policies.plain import EpsilonGreedy

POLICIES = ("uniform", "ftrl-pbm")
WORLDS = ("paper/stochastic", "yandex/stochastic")
GAME = {"rounds": 200, "seeds": 3, "progress": False}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a core each."""
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        settings = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
        machines = Cluster(initialize_head=True, head_node_args=settings)
        machines.extra = machines.add_node(num_cpus=1, object_store_memory=80 << 20)
        ray.init(address=machines.address, log_to_driver=False, logging_level="ERROR")
        yield machines
        ray.shutdown()
        machines.shutdown()


def saved(results, path):
    return save_results(results, path).read_bytes()


class Fails(EpsilonGreedy):
    """A policy with a fault."""

    def decide(self, state, rng):
        raise ValueError("no list today")


@pytest.mark.slow
def test_a_cluster_gives_the_same_bytes_and_both_engines_share_cells(cluster, tmp_path):
    here = compete(POLICIES, WORLDS, **GAME)
    there = compete(POLICIES, WORLDS, engine="ray", cells=tmp_path / "cells", **GAME)
    assert saved(here, tmp_path / "here.parquet") == saved(there, tmp_path / "there.parquet")
    files = sorted((tmp_path / "cells").iterdir())
    assert len(files) == len(POLICIES) * len(WORLDS) * GAME["seeds"]
    for file in files[::2]:
        file.unlink()
    resumed = compete(POLICIES, WORLDS, cells=tmp_path / "cells", **GAME)
    assert saved(resumed, tmp_path / "resumed.parquet") == saved(here, tmp_path / "here.parquet")


@pytest.mark.slow
def test_a_policy_in_plain_python_is_played_too(cluster):
    here = bothworlds.play(EpsilonGreedy(), WORLDS[0], **GAME)
    there = bothworlds.play(EpsilonGreedy(), WORLDS[0], engine="ray", **GAME)
    assert (here.reward == there.reward).all()


@pytest.mark.slow
def test_a_cell_that_fails_is_named_and_the_others_are_kept(cluster, tmp_path):
    with pytest.raises(ValueError, match="no list today") as failure:
        compete([Fails(), "uniform"], WORLDS[:1], engine="ray", cells=tmp_path, **GAME)
    assert any("replication 0 of Fails in paper/stochastic" in note for note in failure.value.__notes__)
    assert len(list(tmp_path.iterdir())) == GAME["seeds"]


def test_other_sources_on_a_node_are_refused(cluster, monkeypatch):
    monkeypatch.setattr(ray_engine, "sources_digest", lambda: "another version")
    with pytest.raises(RuntimeError, match="has another version of bothworlds"):
        bothworlds.play("uniform", WORLDS[0], engine="ray", **GAME)


@pytest.mark.slow
def test_the_loss_of_a_node_costs_its_cells_only(cluster, tmp_path):
    """The last test of this file: the cluster has one node afterwards."""
    game = {"rounds": 50_000, "seeds": 12, "progress": False}
    alone = bothworlds.play("ftrl-pbm", WORLDS[0], **game)
    finished_before = []

    def lose_a_node():
        while len(list(tmp_path.glob("*.npz"))) < 2:
            time.sleep(0.02)
        cluster.remove_node(cluster.extra, allow_graceful=False)
        finished_before.append(len(list(tmp_path.glob("*.npz"))))

    loss = threading.Thread(target=lose_a_node)
    loss.start()
    result = bothworlds.play("ftrl-pbm", WORLDS[0], engine="ray", cells=tmp_path, **game)
    loss.join()
    assert (result.reward == alone.reward).all()
    assert finished_before[0] < game["seeds"] == len(list(tmp_path.iterdir()))


@pytest.mark.slow
def test_nothing_imports_ray_unless_it_is_requested():
    code = (
        "import sys, bothworlds as b; b.play('uniform', 'paper/stochastic', 10, seeds=2); print('ray' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "spark"}, "engine must be 'local' or 'ray'; got 'spark'"),
        ({"address": "10.0.0.1:6379"}, "is the address of a Ray cluster; it needs engine 'ray'"),
    ],
)
def test_wrong_engines_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        bothworlds.play("uniform", WORLDS[0], 10, **given)
