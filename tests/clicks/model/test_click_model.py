"""Click models other than the position-based one: tables, files, worlds and figures."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bothworlds import play
from bothworlds.arena.figures import drawing
from bothworlds.clicks import Pages, fit, load_model
from bothworlds.clicks.model.click_model_figures import draw_items, draw_shared
from bothworlds.clicks.model.names import MODELS
from bothworlds.clicks.model.predictions import predict
from bothworlds.worlds import world
from bothworlds.worlds.fitted import users_of_click_model
from tests.clicks.page_logs import simulated

OTHERS = [name for name in MODELS if name != "pbm"]
INDEPENDENT = ("trust", "rank-ctr", "item-ctr")


@pytest.fixture(scope="module")
def models():
    pages = simulated("dbn", 1_000, n=6, m=4, seed=1)
    return {name: fit(pages, model=name) for name in OTHERS}


@pytest.mark.parametrize("name", OTHERS)
def test_a_saved_model_is_loaded_as_it_was(models, name, tmp_path):
    model = models[name]
    again = load_model(model.save(tmp_path / "model.json"))
    assert again.document() == model.document()
    assert repr(again) == repr(model)
    pages = simulated("dbn", 100, n=6, m=4, seed=2)
    for one, other in zip(predict(model, pages), predict(again, pages)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", OTHERS)
def test_tables_have_a_row_for_every_parameter(models, name):
    model = models[name]
    assert len(model.table()) == 6
    assert all(
        row["low"] <= row[first] <= row["high"] for first in list(model.item_parameters)[:1] for row in model.table()
    )
    assert len(model.shared_table()) == sum(one.values.size for one in model.shared_parameters.values())
    assert f"ClickModel {name}: 6 items at 4 positions" in repr(model)


def test_an_unknown_parameter_is_refused_with_those_that_exist(models):
    with pytest.raises(ValueError, match="the model ubm has no satisfaction; it has attraction, examination"):
        _ = models["ubm"].satisfaction
    with pytest.raises(ValueError, match="it has attraction, satisfaction, gamma"):
        models["dbn"].shared("tau 1")


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_clicks_are_a_world(models, name, tmp_path):
    path = models[name].save(tmp_path / f"{name}.json")
    users = world(str(path))
    assert (users.n_items, users.n_positions) == (6, 4)
    np.testing.assert_array_equal(users.click_probabilities(0), models[name].world().click_probabilities(0))
    # The table holds the predictions of the model.
    items = np.array(models[name].items)
    lists = np.array([np.roll(items, k)[:4] for k in range(6)])
    pages = Pages.from_arrays(lists, np.zeros(lists.shape, int), query=["q0"] * 6)
    p = predict(models[name], pages).marginal
    np.testing.assert_allclose(users.click_probabilities(0)[pages.item, pages.position], p, atol=1e-12)
    result = play("uniform", users, rounds=200, replications=1)
    assert result.world.startswith(f"fitted {name}")


@pytest.mark.parametrize("name", [name for name in OTHERS if name not in INDEPENDENT])
def test_dependent_clicks_are_a_world_that_answers_lists(models, name, tmp_path):
    users = world(str(models[name].save(tmp_path / f"{name}.json")))
    assert (users.n_items, users.n_positions) == (6, 4)
    # The expected reward of a list is the sum of the predictions of the model.
    items = np.array(models[name].items)
    lists = np.array([np.roll(items, k)[:4] for k in range(6)])
    pages = Pages.from_arrays(lists, np.zeros(lists.shape, int), query=["q0"] * 6)
    p = predict(models[name], pages).marginal
    of_page = np.bincount(pages.of_page(), p)
    order = [tuple(pages.item[pages.starts[k] : pages.starts[k + 1]].tolist()) for k in range(len(pages))]
    number = {item: i for i, item in enumerate(items.tolist())}
    found = [users.expected_reward(0, np.array([number[pages.items[i]] for i in page])) for page in order]
    np.testing.assert_allclose(found, of_page, atol=1e-12)
    result = play("uniform", users, rounds=200, replications=1)
    assert result.world.startswith(f"fitted {name}")
    assert result.comparators["fixed"].startswith("exact")


def test_a_world_refuses_what_the_log_does_not_determine(models):
    document = models["ubm"].document()
    document["shared_parameters"]["examination"]["value"][4] = None
    with pytest.raises(ValueError, match="the examination of position 3 after a click at 1"):
        users_of_click_model(document)
    document = models["dcm"].document()
    assert document["shared_parameters"]["continuation"]["value"][3] is None  # after the last position
    document["shared_parameters"]["continuation"]["value"][1] = None
    with pytest.raises(ValueError, match="does not determine continuation after position 2"):
        users_of_click_model(document)
    document = models["dbn"].document()
    document["item_parameters"]["satisfaction"]["value"][2] = None
    assert users_of_click_model(document).n_items == 5
    document["item_parameters"]["attraction"]["value"][2] = 0.0  # it is never clicked, and satisfies nobody
    assert users_of_click_model(document).n_items == 6
    with pytest.raises(ValueError, match="not identified"):
        users_of_click_model({**document, "identified": False})


def test_a_world_of_several_queries_needs_a_name(tmp_path):
    model = fit(simulated("trust", 2_000, n=5, m=3, queries=2, seed=1), model="trust")
    with pytest.raises(ValueError, match="2 queries; name one"):
        model.world()
    assert model.world("q1").n_items == 5
    with pytest.raises(ValueError, match="no query 'q7'"):
        model.world("q7")


def test_a_damaged_file_is_no_model(models, tmp_path):
    document = {**models["dbn"].document(), "version": 1}
    del document["item_parameters"]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="not a fitted model"):
        load_model(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_every_model_is_drawn(models, name, tmp_path):
    path = tmp_path / f"{name}.svg"
    with drawing(path, across=2) as panels:
        draw_shared(panels[0, 0], models[name])
        draw_items(panels[0, 1], models[name])
    assert models[name].title in path.read_text() or name in ("cascade", "item-ctr", "sdbn")
