"""Fitted models: tables, files, perplexity, and the worlds they define."""

from __future__ import annotations

import json

import numpy as np
import pytest

import bothworlds
from bothworlds.clicks import Counts, fit, load_model
from bothworlds.clicks.model.model import Model, Models
from tests.clicks.logs import generated
from tests.clicks.real import real_file


@pytest.fixture(scope="module")
def model():
    return fit(generated(seed=2))


@pytest.fixture(scope="module")
def several():
    return fit(generated(5, seed=2), per_query=True)


def test_the_table_has_a_row_for_every_item(model):
    rows = model.table()
    assert [row["item"] for row in rows] == list(model.items)
    assert set(rows[0]) == {
        *("query", "item", "component", "impressions", "clicks", "attraction", "standard_error", "low", "high")
    }
    assert all(row["low"] < row["attraction"] < row["high"] for row in rows)
    assert sum(row["clicks"] for row in rows) == sum(row["clicks"] for row in model.curve())


def test_the_curve_has_a_row_for_every_position(model):
    assert [row["position"] for row in model.curve()] == [1, 2, 3, 4]
    assert model.curve()[0]["low"] == model.curve()[0]["examination"] == 1.0


# Surprise


def test_models_are_a_mapping_from_queries_to_models(several):
    assert [query for query, _ in several.items()] == list(several) == list(several.keys())
    for query, model in dict(several).items():
        np.testing.assert_array_equal(model.attraction, several[query].attraction)


def test_the_arrays_of_all_queries_are_aligned(several):
    rows = several.table()
    assert list(several.item_names) == [row["item"] for row in rows]
    assert list(several.queries) == [row["query"] for row in rows]
    assert several.attraction.tolist() == [row["attraction"] for row in rows]


def test_perplexity_is_that_of_the_likelihood(model):
    counts = generated(seed=2)
    assert model.perplexity(counts) == pytest.approx(np.exp(-model.log_likelihood / counts.shown.sum()))
    assert model.perplexity(counts) < model.perplexity(generated(seed=3))


def test_models_of_queries_predict_each_its_own_query(several):
    counts = generated(5, seed=2)
    assert several.perplexity(counts) == pytest.approx(np.exp(-several.log_likelihood / counts.shown.sum()))


def test_a_coin_has_perplexity_two():
    assert fit(([[100]], [[50]])).perplexity(([[10]], [[5]])) == pytest.approx(2.0)


def test_unknown_pairs_are_left_out_of_perplexity_and_reported(model):
    wide = generated(1, 8, 5, seed=2)
    found = model.perplexity(wide)
    known = (wide.item < 6) & (wide.position < 4)
    assert found.impressions == wide.shown[known].sum()
    assert found.left_out == wide.shown[~known].sum()
    assert f"{found.left_out:,} of {wide.shown.sum():,} impressions left out" in str(found)
    assert str(model.perplexity(generated(seed=2))) == repr(float(model.perplexity(generated(seed=2))))


def test_impossible_clicks_count_as_one_in_a_million():
    held = fit(([[10], [10]], [[5], [0]]))
    found = held.perplexity(([[10], [10]], [[5], [1]]))
    assert found == pytest.approx((2.0**10 * 1e6) ** (1 / 20))
    assert found.impossible == 1
    assert "1 of 20 impressions are impossible in the model" in str(found)
    assert held.perplexity(([[10], [10]], [[5], [0]])).impossible == 0
    sure = fit(([[50, 50], [50, 50]], [[50, 20], [25, 10]]))
    assert 0.999999 < sure.attraction[0] < 1.0
    assert sure.perplexity(([[50], [50]], [[40], [25]])).impossible == 10


def test_the_repr_of_models_and_counts_is_one_line(model):
    assert repr(model).startswith("<Model: 6 items at 4 positions, log-likelihood -")
    assert repr(generated(seed=2)).startswith("<Counts: 6 items at 4 positions, ")


def test_pairs_of_different_components_are_left_out_of_perplexity(tmp_path):
    whole = [[90, 90], [90, 90]], [[40, 20], [30, 9]]
    loose = fit(([[90, 0], [0, 90]], [[40, 0], [0, 9]]))
    for model in (loose, load_model(loose.save(tmp_path / "m.json"))):
        found = model.perplexity(whole)
        assert (found.impressions, found.left_out) == (180, 180)
    each = fit(Counts.from_tables([[90, 0], [0, 90]], [[40, 0], [0, 9]], query="q"), per_query=True)
    for models in (each, load_model(each.save(tmp_path / "each.json"))):
        assert models.perplexity(Counts.from_tables(*whole, query="q")).left_out == 180


def test_items_without_clicks_have_probability_zero_in_all_components():
    tables = [[90, 0, 90], [0, 90, 90]], [[40, 0, 0], [0, 9, 0]]
    assert fit(tables).perplexity(tables).left_out == 0


def test_counts_without_a_known_pair_are_refused(model):
    with pytest.raises(ValueError, match="knows none of the pairs"):
        model.perplexity(Counts.from_tables([[9]], [[3]], items=["somebody"]))


# Files


def test_a_loaded_model_equals_the_saved_one(model, tmp_path):
    again = load_model(model.save(tmp_path / "deep" / "model.json"))
    assert isinstance(again, Model)
    assert again.attraction.tolist() == model.attraction.tolist()
    assert (again.items, again.queries, again.positions) == (model.items, model.queries, model.positions)
    assert again.table() == model.table()
    assert again.curve() == model.curve()
    assert again.warnings == model.warnings
    assert list(tmp_path.rglob("*.json")) == [tmp_path / "deep" / "model.json"]


def test_loaded_models_of_queries_have_the_same_warnings(tmp_path):
    models = fit({"query": ["q"] * 4, "item": list("aabb"), "position": [1, 2] * 2, "impressions": [9] * 4,
                  "clicks": [3, 2, 2, 1]}, per_query=True)  # fmt: skip
    (warning,) = models.warnings
    assert warning.startswith("1 of 1 queries have a curve that is noise")
    assert load_model(models.save(tmp_path / "m.json")).warnings == models.warnings


def test_the_file_of_a_model_has_the_usual_permissions(model, tmp_path):
    (tmp_path / "plain").touch()
    path = model.save(tmp_path / "m.json")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_models_of_queries_are_saved_in_one_file(several, tmp_path):
    again = load_model(several.save(tmp_path / "models.json"))
    assert isinstance(again, Models)
    assert list(again) == list(several)
    assert again.log_likelihood == several.log_likelihood
    assert again.table() == several.table()
    counts = generated(5, seed=2)
    assert again.perplexity(counts) == several.perplexity(counts)


def test_nan_is_null_in_the_file(tmp_path):
    fit(([[9, 0], [0, 0]], [[3, 0], [0, 0]])).save(tmp_path / "m.json")
    document = json.loads((tmp_path / "m.json").read_text(), parse_constant=pytest.fail)
    assert document["attraction"][1] is None
    assert document["examination"][1] is None
    assert document["version"] == 1
    assert np.isnan(load_model(tmp_path / "m.json").attraction[1])


def test_a_failing_write_leaves_the_old_file(model, tmp_path, monkeypatch):
    path = model.save(tmp_path / "m.json")
    before = path.read_text()
    monkeypatch.setattr("os.fsync", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.save(path)
    assert path.read_text() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a fitted model"),
        ("[1, 2]", "not a fitted model"),
        ('{"a": 1}', "not a fitted model"),
        ('{"version": 7, "format": "x"}', "version 7"),
    ],
)
def test_other_files_are_refused(text, message, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_model(path)
    with pytest.raises(ValueError, match=r"no file .*nowhere.json"):
        load_model(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"7": {"attr": [0.5], "exam": [0.0, 0.0]}}, "no position has an examination above 0"),
        ({"7": {"attr": [0.5], "exam": []}}, "no position has an examination above 0"),
        ({"examination": [1.0], "attraction": [0.5, 0.4], "query": [""]}, "2 attractions and 1 queries"),
    ],
)
def test_invalid_models_are_refused_as_worlds(document, message, tmp_path):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=message):
        bothworlds.world(str(path))


def test_models_that_list_parameters_only_are_read(tmp_path):
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps({"7": {"attr": [0.8, 0.4], "exam": [0.5, 0.25]}, "8": {"attr": [0.1], "exam": [1.0]}}))
    models = load_model(path)
    np.testing.assert_allclose(models["7"].attraction, [0.4, 0.2])
    assert models["7"].examination.tolist() == [1.0, 0.5]
    assert bothworlds.world(str(path), query="7").n_items == 2


@pytest.mark.parametrize("name", ["pbm_10Q.json", "pbm_60Q.json"])
def test_public_models_are_read(name):
    models = load_model(real_file(f"pbm_models/{name}"))
    assert len(models) == int(name[4:6])
    assert all(models.world(query).n_positions == 10 for query in models)


# Worlds


def test_a_model_becomes_a_world(model, tmp_path):
    world = model.world()
    np.testing.assert_allclose(world.click_probabilities(0), np.outer(model.attraction, model.examination))
    model.save(tmp_path / "m.json")
    again = bothworlds.world(str(tmp_path / "m.json"))
    assert again.attraction.tolist() == world.attraction.tolist()
    assert (world.name, again.name) == ("fitted(query0)", "fitted m(query0)")
    result = bothworlds.play("uniform", str(tmp_path / "m.json"), rounds=50, replications=1)
    assert result.world == "fitted m(query0)"


def test_one_of_several_queries_must_be_named(several, tmp_path):
    shared = fit(generated(5, seed=2))
    shared.save(tmp_path / "shared.json")
    several.save(tmp_path / "each.json")
    for model in (shared, several):
        with pytest.raises(ValueError, match="name one"):
            model.world()
        assert model.world("query3").n_items == 6
        with pytest.raises(ValueError, match=r"no .*'nobody'"):
            model.world("nobody")
    for name, model in (("shared", shared), ("each", several)):
        found = bothworlds.world(str(tmp_path / f"{name}.json"), query="query3")
        assert found.attraction.tolist() == model.world("query3").attraction.tolist()
    with pytest.raises(ValueError, match="5 queries; name one"):
        bothworlds.world(str(tmp_path / "each.json"))


def test_a_model_that_is_not_identified_makes_no_world(tmp_path):
    model = fit(([[9, 0], [0, 9]], [[3, 0], [0, 2]]))
    with pytest.raises(ValueError, match="not identified"):
        model.world()
    with pytest.raises(ValueError, match=r"loose.json: the model is not identified"):
        bothworlds.world(str(model.save(tmp_path / "loose.json")))


def test_more_positions_than_items_make_no_world():
    with pytest.raises(ValueError, match="--positions 1"):
        fit(([[9, 9]], [[3, 2]])).world()


def test_a_setting_that_a_fitted_world_does_not_have_is_refused(model, tmp_path):
    path = str(model.save(tmp_path / "m.json"))
    with pytest.raises(ValueError, match="no setting 'gap'; it has query"):
        bothworlds.world(path, gap=3)
