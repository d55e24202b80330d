"""A Ray cluster plays the games and counts the clicks of one machine, to the last bit, and names what fails.

Starting a cluster takes seconds, so all tests that need one stand in this file and share it; each node is a process
group of this machine.
"""

from __future__ import annotations

import re
import threading
import time
import warnings

import pyarrow
import pyarrow.parquet
import pytest

import bothworlds
from bothworlds.arena import compete, ray_engine, save_results
from bothworlds.worlds import stochastic
from tests.clicks.naive import same
from tests.clicks.written import count_pages, counts, write
from tests.policies.plain import EpsilonGreedy

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray warns of itself

POLICIES = ("uniform", "ftrl-pbm")
WORLDS = ("paper/stochastic", "yandex/stochastic")
GAME = {"rounds": 200, "replications": 3, "progress": False}
CASES = (
    ("log.parquet", "tidy", {}),
    ("log.parquet", "tidy", {"top_items": 25, "positions": 3}),
    ("log.csv", "tidy", {"query": ["1", "3"]}),
    ("log.ndjson.gz", "service", {"positions": 2}),
    ("log.csv", "obd", {"top_items": 4}),
    ("log.parquet", "counts", {}),
    ("log.tsv", "relpred", {}),
    ("log.tsv", "relpred", {"top_items": 25, "positions": 3}),
    ("log.txt.gz", "yandex", {"query": "2_0"}),
)


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


# Games


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
    assert len(files) == len(POLICIES) * len(WORLDS) * GAME["replications"]
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
    assert len(list(tmp_path.iterdir())) == GAME["replications"]


def test_other_sources_on_a_node_are_refused(cluster, monkeypatch):
    monkeypatch.setattr(ray_engine, "SOURCES_DIGEST", "another version")
    with pytest.raises(RuntimeError, match="has another version of bothworlds"):
        bothworlds.play("uniform", WORLDS[0], engine="ray", **GAME)


# Clicks


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases", [CASES[1::2], pytest.param(CASES[::2], marks=pytest.mark.nightly)], ids=["some", "others"]
)
def test_two_machines_return_the_counts_of_one(tmp_path, cluster, cases):
    for k, (name, layout, options) in enumerate(cases):
        path = write(tmp_path / f"{k}-{name}", pages=2000, layout=layout, queries=3)
        here, there = counts(path, **options), counts(path, engine="ray", **options)
        assert same(here, there), (name, layout, options)
        assert here.notes == there.notes


def same_pages(one, other):
    """Whether pages are equal to the last byte, with labels and notes."""
    names = ("items", "queries", "positions", "origin", "notes")
    arrays = ("query", "starts", "item", "position", "click", "count")
    return all(getattr(one, name) == getattr(other, name) for name in names) and all(
        getattr(one, name).dtype == getattr(other, name).dtype
        and getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in arrays
    )


@pytest.mark.slow
def test_two_machines_return_the_pages_of_one(tmp_path, cluster):
    users = stochastic([0.8, 0.5, 0.3, 0.1], [1.0, 0.6, 0.3])  # few lists, so that machines count equal pages
    for k, (name, layout, options) in enumerate(CASES):
        if layout in ("obd", "counts"):
            continue
        path = write(tmp_path / f"{k}-{name}", users, 2000, layout, queries=3)
        fewer = {**options, "top_items": 9} if "top_items" in options else options
        here, there = count_pages(path, **fewer), count_pages(path, engine="ray", **fewer)
        assert same_pages(here, there), (name, layout, fewer)
        assert len(here) < here.pages
        assert not same_pages(here, there.with_counts(there.count + (there.count == there.count.max())))


@pytest.mark.slow
def test_two_machines_refuse_and_skip_the_pages_that_one_does(tmp_path, cluster):
    rows = "".join(f"{k},1,a,0\n{k},2,b,{k % 2}\n" for k in range(50))
    path = tmp_path / "log.csv"
    path.write_text(f"event,position,item,click\n{rows}7,3,a,0\n8,2,c,0\n9,9,d,1\n")
    messages = []
    for engine in ("duckdb", "ray"):
        with pytest.raises(ValueError, match="twice") as caught:
            count_pages(path, engine=engine)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    here, there = count_pages(path, skip_bad=True), count_pages(path, skip_bad=True, engine="ray")
    assert same_pages(here, there)
    assert here.pages == 48


@pytest.mark.slow
def test_two_machines_give_the_labels_that_one_gives(tmp_path, cluster):
    for name, item in (("whole", [5, 7]), ("pointed", [5.0, 7.5])):
        columns = {"event": [f"{name} 1", f"{name} 2"], "position": [1, 1], "item": item, "click": [1, 0]}
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / name)
    here, there = counts(tmp_path), counts(tmp_path, engine="ray")
    assert here.items == ("5", "7", "7.5")
    assert same(here, there)


@pytest.mark.slow
def test_two_machines_return_the_notes_of_one(tmp_path, cluster):
    table = tmp_path / "table"
    table.write_text("event,query,position,item,click\n1,x,1,tea,0\n1,x,2, milk,1\n2,y,1,tea ,1\n2,y,90,milk,0\n")
    text = tmp_path / "text"
    text.write_text("1_0\t7,8 : 7 , 9\n2_0\t7,8 : 9 , 10\n")
    for path, query, notes in ((table, "x", 0), (table, None, 1), (text, "1_0", 1)):
        here, there = counts(path, query=query), counts(path, query=query, engine="ray")
        assert same(here, there)
        assert here.notes == there.notes
        assert len(here.notes) == notes


@pytest.mark.slow
def test_of_several_files_the_error_of_the_first_bad_one_is_raised(tmp_path, cluster):
    rows = "".join(f"{k},1,a,0\n{k},2,b,1\n" for k in range(20))
    for name, content in {"a": rows, "b": f"{rows}x,1\n", "c": rows.replace("0\n", "9\n")}.items():
        (tmp_path / name).write_text(f"event,position,item,click\n{content}")
    with pytest.raises(ValueError, match="b, line 42: the line has fewer columns"):
        counts([tmp_path / name for name in "abc"], engine="ray")
    assert counts([tmp_path / "a", tmp_path / "b"], engine="ray", skip_bad=True).pages == 40


@pytest.mark.slow
def test_two_machines_refuse_and_skip_the_rows_that_one_does(tmp_path, cluster):
    rows = "".join(f"{k},1,a,0\n{k},2,b,1\n" for k in range(50))
    twice = rows + "7,3,a,0\n"
    text = "".join(f"{k}\t0\tQ\t5\t0\t7\n" for k in range(50))
    bad = {
        "value": f"event,position,item,click\n{rows}x,1,a,5\n",
        "line": f"event,position,item,click\n{rows}x,1\n",
        "lines[1]": f"event,position,item,click\n{rows}x,1\ny,1\nz,1,a,0,7\n",
        "page": f"event,position,item,click\n{twice}",
        "text": f"{text}50\t0\tX\n51\t0\tQ\t5\t0\t7\n",
        "texts": f"{text}50\t0\tX\n{text}51\t0\tX\n{text}52\tX\n53\n",
        "pages": f"event,position,item,click\n{twice}12,3,a,0\n3,1,c,0\n40,5,b,0\n",
        "mixed": f"event,position,item,click\n{rows}x,1,a,5\nx,1\ny,1000000,a,1\nz,1\n",
    }
    for name, content in bad.items():
        path = tmp_path / name
        path.write_text(content)
        with pytest.raises(ValueError, match=re.escape(str(path))) as here:
            counts(path)
        with pytest.raises(ValueError, match=re.escape(str(path))) as there:
            counts(path, engine="ray")
        assert str(here.value) == str(there.value)
        one, several = counts(path, skip_bad=True), counts(path, skip_bad=True, engine="ray")
        assert same(one, several)
        assert one.notes == several.notes


@pytest.mark.slow
@pytest.mark.nightly
def test_the_loss_of_a_node_costs_its_cells_only(cluster, tmp_path):
    """The last test of this file: the cluster has one node afterwards."""
    game = {"rounds": 50_000, "replications": 12, "progress": False}
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
    assert finished_before[0] < game["replications"] == len(list(tmp_path.iterdir()))
