"""Fitted models: tables, files, worlds and figures."""

from __future__ import annotations

import json

import numpy as np
import pytest

import bothworlds
from bothworlds import play
from bothworlds.arena.figures import drawing
from bothworlds.clicks import ClickModel, Counts, Pages, figures, fit, load_model
from bothworlds.clicks.fitting.fit import fit_each_query
from bothworlds.clicks.model.model import MODELS, save_models
from bothworlds.clicks.model.predict import predict, rates_of_counts
from bothworlds.worlds import world
from bothworlds.worlds.fitted import from_document
from tests.clicks.logs import fit_tables, generated
from tests.clicks.page_logs import simulated
from tests.clicks.real import real_file

INDEPENDENT = [name for name, model in MODELS.items() if not model.dependent]


@pytest.fixture(scope="module")
def models():
    pages = simulated("dbn", 1_000, n=6, m=4, seed=1)
    return {name: fit(pages, name) for name in MODELS}


@pytest.fixture(scope="module")
def several():
    return fit_each_query(generated(5, seed=2))


@pytest.mark.parametrize("name", MODELS)
def test_tables_have_a_row_for_every_parameter(models, name):
    model = models[name]
    assert [row["item"] for row in model.table()] == list(model.items)
    assert sum(row["clicks"] for row in model.table()) == model.item_counts[1].sum()
    assert all(
        row["low"] <= row[first] <= row["high"] for first in list(model.item_parameters)[:1] for row in model.table()
    )
    assert len(model.shared_table()) == sum(one.value.size for one in model.shared_parameters.values())
    assert f"ClickModel {name}: 6 items at 4 positions" in repr(model)


def test_the_examination_of_the_first_position_is_one():
    row = fit(generated(seed=2)).shared_table()[0]
    assert (row["parameter"], row["of"], row["value"], row["low"]) == ("examination", "1", 1.0, 1.0)


def test_an_unknown_parameter_is_refused_with_those_that_exist(models):
    with pytest.raises(ValueError, match="the model ubm has no satisfaction; it has attraction, examination"):
        _ = models["ubm"].satisfaction
    with pytest.raises(ValueError, match="it has attraction, satisfaction, gamma"):
        models["dbn"].shared("tau 1")


def test_rates_of_counts_are_products_where_components_can_be_compared():
    counts = generated(seed=2)
    model = fit(counts)
    expected = (model.attraction[:, None] * model.examination)[counts.item, counts.position]
    np.testing.assert_allclose(rates_of_counts(model, counts), expected, rtol=1e-12)
    whole = Counts.from_tables([[90, 90], [90, 90]], [[40, 20], [30, 9]])
    loose = fit_tables([[90, 0], [0, 90]], [[40, 0], [0, 9]])
    assert np.isnan(rates_of_counts(loose, whole)).tolist() == [False, True, True, False]
    silent = fit_tables([[90, 0, 90], [0, 90, 90]], [[40, 0, 0], [0, 9, 0]])
    assert np.isfinite(rates_of_counts(silent, Counts.from_tables([[90, 0, 90], [0, 90, 90]], np.zeros((2, 3))))).all()


# Files


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_is_loaded_as_it_was(models, name, tmp_path):
    model = models[name]
    again = load_model(model.save(tmp_path / "deep" / "model.json"))
    assert again.document() == model.document()
    assert repr(again) == repr(model)
    pages = simulated("dbn", 100, n=6, m=4, seed=2)
    for one, other in zip(predict(model, pages), predict(again, pages)):
        np.testing.assert_array_equal(one, other)
    assert list(tmp_path.rglob("*.json")) == [tmp_path / "deep" / "model.json"]


def test_models_of_queries_are_saved_in_one_file(several, tmp_path):
    again = load_model(save_models(several, tmp_path / "models.json"))
    assert list(again) == list(several)
    assert all(again[query].table() == model.table() for query, model in several.items())


def test_the_file_of_a_model_has_the_usual_permissions(several, tmp_path):
    (tmp_path / "plain").touch()
    path = several["query0"].save(tmp_path / "m.json")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_nan_is_null_in_the_file(tmp_path):
    fit_tables([[9, 0], [0, 0]], [[3, 0], [0, 0]]).save(tmp_path / "m.json")
    document = json.loads((tmp_path / "m.json").read_text(), parse_constant=pytest.fail)
    assert document["item_parameters"]["attraction"]["value"][1] is None
    assert document["shared_parameters"]["examination"]["value"][1] is None
    assert document["version"] == 1
    assert np.isnan(load_model(tmp_path / "m.json").attraction[1])


def test_a_failing_write_leaves_the_old_file(several, tmp_path, monkeypatch):
    path = several["query0"].save(tmp_path / "m.json")
    before = path.read_text()
    monkeypatch.setattr("os.fsync", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        several["query0"].save(path)
    assert path.read_text() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a fitted model"),
        ("[1, 2]", "not a fitted model"),
        ('{"a": 1}', "not a fitted model"),
        ('{"model": "dbn", "item": []}', "not a fitted model"),
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


@pytest.mark.parametrize("exam", [[0.0, 0.0], []])
def test_models_without_examination_are_refused(exam, tmp_path):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({"7": {"attr": [0.5], "exam": exam}}))
    with pytest.raises(ValueError, match="no position has an examination above 0"):
        bothworlds.world(str(path))


def test_models_that_list_parameters_only_are_read(tmp_path):
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps({"7": {"attr": [0.8, 0.4], "exam": [0.5, 0.25]}, "8": {"attr": [0.1], "exam": [1.0]}}))
    models = load_model(path)
    np.testing.assert_allclose(models["7"].attraction, [0.4, 0.2])
    assert models["7"].examination.tolist() == [1.0, 0.5]
    assert models["7"].expected_reward(["0", "1"], "7") == pytest.approx(0.4 + 0.2 * 0.5)
    assert bothworlds.world(str(path), query="7").n_items == 2


@pytest.mark.parametrize("name", ["pbm_10Q.json", "pbm_60Q.json"])
def test_public_models_are_read(name):
    models = load_model(real_file(f"pbm_models/{name}"))
    assert len(models) == int(name[4:6])
    assert all(model.world().n_positions == 10 for model in models.values())


# Worlds


def lists_of(model):
    """Six lists as pages, and the indices of their items in the model."""
    lists = np.array([np.roll(np.arange(6), k)[:4] for k in range(6)])
    names = np.array(model.items)[lists]
    return names, lists


@pytest.mark.parametrize("name", MODELS)
def test_the_expected_reward_in_the_world_is_the_sum_of_the_predictions(models, name, tmp_path):
    model, users = models[name], world(str(models[name].save(tmp_path / f"{name}.json")))
    assert (users.n_items, users.n_positions) == (6, 4)
    for names, ranking in zip(*lists_of(model)):
        assert users.expected_reward(0, ranking) == pytest.approx(model.expected_reward(names, "q0"), abs=1e-12)
    assert users.has_table is (name in INDEPENDENT)
    result = play("uniform", users, rounds=200, replications=1)
    assert result.world.startswith(f"fitted {name}")
    assert result.comparators["fixed"].startswith("exact")


def test_a_world_refuses_what_the_log_does_not_determine(models):
    document = models["ubm"].document()
    document["shared_parameters"]["examination"]["value"][4] = None
    with pytest.raises(ValueError, match="the examination of position 3 after a click at 1"):
        from_document(document)
    document = models["dcm"].document()
    assert document["shared_parameters"]["continuation"]["value"][3] is None  # after the last position
    document["shared_parameters"]["continuation"]["value"][1] = None
    with pytest.raises(ValueError, match="does not determine continuation after position 2"):
        from_document(document)
    document = models["dbn"].document()
    document["item_parameters"]["satisfaction"]["value"][2] = None
    assert from_document(document).n_items == 5
    document["item_parameters"]["attraction"]["value"][2] = 0.0  # it is never clicked, and satisfies nobody
    assert from_document(document).n_items == 6
    with pytest.raises(ValueError, match="not identified"):
        from_document({**document, "identified": False})


def test_one_of_several_queries_must_be_named(several, tmp_path):
    shared = fit(generated(5, seed=2))
    with pytest.raises(ValueError, match="5 queries; name one"):
        shared.world()
    with pytest.raises(ValueError, match=r"no query 'nobody'"):
        shared.world("nobody")
    shared.save(tmp_path / "shared.json")
    save_models(several, tmp_path / "each.json")
    for name, model in (("shared", shared), ("each", several["query3"])):
        found = bothworlds.world(str(tmp_path / f"{name}.json"), query="query3")
        assert found.attraction.tolist() == model.world("query3").attraction.tolist()
        assert found.name == f"fitted {name}(query3)"
    with pytest.raises(ValueError, match="5 queries; name one"):
        bothworlds.world(str(tmp_path / "each.json"))


def test_a_model_that_is_not_identified_makes_no_world(tmp_path):
    model = fit_tables([[9, 0], [0, 9]], [[3, 0], [0, 2]])
    with pytest.raises(ValueError, match="not identified"):
        model.world()
    with pytest.raises(ValueError, match=r"loose.json: the model is not identified"):
        bothworlds.world(str(model.save(tmp_path / "loose.json")))


def test_more_positions_than_items_make_no_world():
    with pytest.raises(ValueError, match="--positions 1"):
        fit_tables([[9, 9]], [[3, 2]]).world()


def test_a_setting_that_a_fitted_world_does_not_have_is_refused(several, tmp_path):
    path = str(several["query0"].save(tmp_path / "m.json"))
    with pytest.raises(ValueError, match="no setting 'gap'; it has query"):
        bothworlds.world(path, gap=3)


# Figures


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_drawn(models, name, tmp_path):
    path = tmp_path / f"{name}.svg"
    with drawing(path, across=2) as panels:
        figures.draw_shared(panels[0, 0], models[name])
        figures.draw_items(panels[0, 1], models[name])
    assert models[name].title in path.read_text() or name in ("pbm", "cascade", "item-ctr", "sdbn")


def test_an_expected_reward_needs_no_pages():
    model = fit(Pages.from_arrays([["a", "b"], ["b", "a"]] * 20, [[1, 0], [0, 1], [0, 0], [1, 0]] * 10), "cascade")
    assert isinstance(model, ClickModel)
    a, b = model.attraction
    assert model.expected_reward(["b", "a"]) == pytest.approx(b + (1 - b) * a)
    assert model.expected_reward(["b"]) == pytest.approx(b)
    for items in ([], ["a", "b", "c"]):
        with pytest.raises(ValueError, match=f"a list has 1 to 2 items; got {len(items)}"):
            model.expected_reward(items)
