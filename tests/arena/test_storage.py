"""Results on disk: the world can be built again, and times are kept apart."""

from __future__ import annotations

import json

import numpy as np
import pytest

import bothworlds
from bothworlds.arena import compete, load, load_results, play, save_results
from bothworlds.worlds import World, periodic, stochastic

pyarrow = pytest.importorskip("pyarrow.parquet")

YEAR = periodic([stochastic([0.9, 0.5, 0.1], [1.0, 1 / 3]), stochastic([0.1, 0.5, 0.9], [1 / 3, 1.0])], phase=20)
YEAR.name = "year"


@pytest.fixture(scope="module")
def results():
    return compete(["uniform", "fixed"], ["paper/stochastic", YEAR], 60, replications=3, checkpoints=4, progress=False)


@pytest.fixture
def path(results, tmp_path):
    return save_results(results, tmp_path / "results.parquet")


def metadata(path):
    return json.loads(pyarrow.read_table(path).schema.metadata[b"bothworlds"])


@pytest.mark.slow
def test_what_is_saved_is_loaded(results, path):
    for saved, loaded in zip(results, load_results(path), strict=True):
        for name in ("policy", "policy_name", "world", "world_description", "seed", "seconds", "adaptive"):
            assert getattr(loaded, name) == getattr(saved, name)
        assert loaded.first_change == saved.first_change
        for name in ("rounds", "reward", "clicks"):
            assert (getattr(loaded, name) == getattr(saved, name)).all()
        np.testing.assert_allclose(loaded.best_fixed, saved.best_fixed)
        np.testing.assert_allclose(loaded.best_dynamic, saved.best_dynamic)


def test_the_world_is_built_again_and_gives_the_same_result(results, path):
    loaded = load(path, policy="uniform", world="year")
    world = loaded.build_world()
    assert world.name == "year"
    again = play("uniform", world, 60, replications=3, checkpoints=4)
    assert (again.reward == loaded.reward).all()


def test_one_result_is_loaded_from_many(path, tmp_path):
    assert load(path, policy="fixed", world="paper/stochastic", rounds=60).policy == "fixed"
    alone = save_results(load_results(path)[:1], tmp_path / "alone.parquet")
    assert load(alone).world == "paper/stochastic"


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        ({}, "4 of the 4 results in .* match"),
        ({"policy": "fixed"}, "2 of the 4 results .* There are fixed in paper/stochastic, 60 rounds; fixed in year"),
        ({"policy": "mw"}, "0 of the 4 results"),
        ({"policy": "fixed", "world": "year", "rounds": 61}, "0 of the 4 results"),
    ],
)
def test_a_selection_that_is_not_unique_is_refused(path, selection, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(path, **selection)


def test_the_same_results_give_the_same_file_whatever_they_cost(tmp_path):
    files = []
    for k in range(2):
        again = compete(["uniform"], [YEAR], 60, replications=3, checkpoints=4, progress=False, jobs=k + 1)
        files.append(save_results(again, tmp_path / f"{k}" / "results.parquet"))
    first, second = files
    assert first.read_bytes() == second.read_bytes()
    assert "seconds" not in json.dumps(metadata(first))


def test_times_are_kept_beside_the_results(results, path):
    times = json.loads(path.with_name("results.times.json").read_text())
    assert [time["seconds"] for time in times] == [result.seconds for result in results]


@pytest.mark.parametrize("spoil", ["missing", "of others", "broken", "no list"])
def test_without_times_that_belong_to_the_results_they_are_unknown(path, spoil):
    times = path.with_name("results.times.json")
    if spoil == "missing":
        times.unlink()
    else:
        text = {"of others": '[{"policy": "mw", "world": "year", "seconds": 1.0}]', "broken": "[{", "no list": "3"}
        times.write_text(text[spoil])
    assert all(np.isnan(result.seconds) for result in load_results(path))


def test_csv_has_provenance_and_times_beside_it(results, tmp_path):
    save_results(results, tmp_path / "results.csv")
    assert {file.name for file in tmp_path.iterdir()} == {"results.csv", "results.json", "results.times.json"}
    plays = json.loads((tmp_path / "results.json").read_text())["plays"]
    assert [play["world_description"] for play in plays] == [result.world_description for result in results]


def test_a_world_that_cannot_be_built_again_is_saved_all_the_same(tmp_path):
    class Fading(World):
        n_items, n_positions = 3, 2

        def click_probabilities(self, t):
            return np.full((3, 2), 0.999**t)

    result = play("uniform", Fading(), 20, replications=1)
    loaded = load(save_results([result], tmp_path / "results.parquet"))
    assert (loaded.reward == result.reward).all()
    with pytest.raises(ValueError, match="no world can be built"):
        loaded.build_world()


def test_another_parquet_file_is_refused(path):
    table = pyarrow.read_table(path)
    pyarrow.write_table(table.slice(0, 5), path)
    with pytest.raises(ValueError, match="was not written by save_results"):
        load_results(path)


def test_a_result_carries_the_registered_name_of_its_policy():
    result = play(bothworlds.policy("ftrl-pbm", rate=0.25), YEAR, 60, replications=1)
    assert (result.policy, result.policy_name) == ("ftrl-pbm(rate=0.25)", "ftrl-pbm")
