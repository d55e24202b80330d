"""A ranker with labels of visitors and items."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds import Ranker

SHOP = {
    "lamp": {"category": "light", "price": 29.0},
    "bulb": {"category": "light", "price": 5},
    "rug": {"category": "floor", "price": 80.0},
    "mat": {"category": "floor", "price": 20},
}
DECLARED = {
    "labels": {"device": ["phone", "desktop"], "age": [18, 30, 50], "country": None},
    "item_labels": {"category": None, "price": [10, 50]},
}
LIKED = {"phone": "light", "desktop": "floor"}


def shop(**settings):
    return Ranker(SHOP, 2, **{"seed": 0, **DECLARED, **settings})


def visit(ranker, pages, seed=0, **context):
    """Show pages to visitors who click on a category that their device tells, and return all that was shown."""
    rng, shown = np.random.default_rng(seed), []
    for _ in range(pages):
        device = "phone" if rng.random() < 0.5 else "desktop"
        page = ranker.rank(context={"device": device, "country": str(rng.choice(["de", "fr"])), **context})
        likes = [item for item in page.items if SHOP.get(item, {"category": "light"})["category"] == LIKED[device]]
        ranker.feedback(page.id, [item for item in likes if rng.random() < 0.8])
        shown.append((page.items, page.propensities))
    return shown


@pytest.mark.parametrize("policy", ["all-weather", "context-ts"])
def test_what_a_device_likes_is_learned_shown_and_told(policy):
    ranker = shop(policy=policy)
    visit(ranker, 1500)
    phone, desktop = (ranker.learned({"device": device, "country": "de"}) for device in LIKED)
    assert phone["lamp"].sum() + phone["bulb"].sum() > 1.7
    assert desktop["rug"].sum() + desktop["mat"].sum() > 1.7
    told = ranker.effects()
    assert told[0][:2] in {("device", "category"), ("device", "item")}
    pair = {(one.visitor_label, one.item_label): one for one in told}
    assert pair["device", "category"].sd > 3.0 * pair["country", "category"].sd
    assert (pair["device", "category"].values, pair["device", "category"].pages) == (4, 1500)
    best = ranker.effects("device", "category")
    assert {(best[0].visitor_value, best[0].item_value), (best[1].visitor_value, best[1].item_value)} == set(
        LIKED.items()
    )
    assert best[0].effect > 3.0 * best[0].standard_error
    assert "device" in repr(told)
    assert "phone" in repr(best)
    assert {row.item_value for row in ranker.effects("all", "item")} == set(SHOP)
    assert {row.item_value for row in ranker.effects("device", "slot")} == {"1", "2"}
    assert told.to_frame("arrow").column_names == ["visitor_label", "item_label", "sd", "values", "pages"]


def test_propensities_are_those_of_the_context():
    ranker = shop(seed=5)
    visit(ranker, 400)
    for device in LIKED:
        learned, counts = ranker.learned({"device": device}), np.zeros((4, 2))
        for _ in range(2000):
            page = ranker.rank(context={"device": device})
            for slot, item in enumerate(page.items):
                assert page.propensities[slot] == pytest.approx(learned[item][slot])
                counts[learned.items.index(item), slot] += 1 / 2000
        p = learned.probabilities
        assert (np.abs(counts - p) < 5.0 * np.sqrt(p * (1 - p) / 2000) + 1e-3).all()


def test_two_arguments_are_enough_and_no_context_is_the_unknown_one():
    ranker = Ranker(["a", "b", "c"], 2, labels=["device"], seed=3)
    page = ranker.rank()
    ranker.feedback(page.id, page.items)
    assert ranker.rank(context={}).items
    assert ranker.effects()


def test_without_labels_a_ranker_is_what_it_was():
    plain, empty = Ranker(SHOP.keys(), 2, seed=1), Ranker(list(SHOP), 2, seed=1, labels=[], item_labels=None)
    for one in (plain, empty):
        for _ in range(50):
            page = one.rank()
            one.feedback(page.id, page.items[:1])
    assert plain.rank() == empty.rank()
    with pytest.raises(ValueError, match="context needs labels"):
        plain.rank(context={"device": "phone"})
    with pytest.raises(ValueError, match="effects need labels"):
        plain.effects()


@pytest.mark.parametrize("policy", ["all-weather", "context-ts"])
def test_a_saved_ranker_has_the_same_future(policy, tmp_path):
    ranker = shop(policy=policy)
    visit(ranker, 60)
    ranker.rank(context={"device": "tv"})
    waiting = ranker.rank(context={"country": "it", "age": 34}, exclude=["lamp"])
    ranker.save(tmp_path / "ranker")
    twin = Ranker.load(tmp_path / "ranker")
    assert twin.unknown == ranker.unknown == {"context.device": 1}
    for one in (ranker, twin):
        one.feedback(waiting.id, waiting.items[:1])
        one.add("vase", labels={"category": "glass"})
    assert visit(ranker, 40, age=70) == visit(twin, 40, age=70)
    assert [*ranker.effects()] == [*twin.effects()]


def test_a_new_item_starts_where_its_category_is():
    ranker = shop()
    visit(ranker, 1500)
    ranker.add("torch", labels={"category": "light"})
    ranker.add("box")
    ranker.remove("bulb")
    ranker.remove("mat")
    phone, desktop = (ranker.learned({"device": device})["torch"].sum() for device in LIKED)
    assert phone > desktop + 0.2
    ranker.add("torch", labels={"category": "floor"})  # known: it gets other labels
    phone, desktop = (ranker.learned({"device": device})["torch"].sum() for device in LIKED)
    assert desktop > phone + 0.2


def test_items_come_and_go_and_lists_exclude_and_pin_with_labels():
    ranker = shop()
    visit(ranker, 300)
    ranker.add("vase", labels={"category": "glass", "price": 100})
    ranker.pause("rug")
    for _ in range(30):
        page = ranker.rank(context={"device": "desktop", "country": "es"}, exclude=["lamp"], pins={0: "bulb"})
        assert page.items[0] == "bulb"
        assert page.items[1] in ("mat", "vase")
        ranker.feedback(page.id, ["mat"] if "mat" in page.items else [])
    ranker.remove("vase")
    ranker.resume("rug")
    visit(ranker, 50)
    assert set(ranker.learned({"device": "desktop"}).items) == set(SHOP)


def test_values_that_are_not_known_are_served_and_counted_and_lose_nothing():
    ranker = Ranker(["a", "b", "c"], 1, labels={"plan": ["free"], "city": None}, item_labels={"kind": ["x"]}, seed=0)
    ranker.add("d", labels={"kind": "y"})
    for k in range(230):
        page = ranker.rank(context={"plan": "gold", "city": f"city {k}"})
        ranker.feedback(page.id, ["a"] if "a" in page.items else [])
    assert ranker.unknown == {"items.kind": 1, "context.plan": 230, "context.city": 30}
    assert {pair.visitor_label: pair.pages for pair in ranker.effects()}["city"] == 200
    assert ranker.effects()[0].item_label == "item"
    assert ranker.learned()["a"][0] > 0.5


@pytest.mark.parametrize(
    ("context", "sentence"),
    [
        ({"colour": "red"}, "context has a label 'colour' that is not declared; labels declares device, age, country"),
        ({"device": 3}, "context.device must be a text or a boolean"),
        ({"age": "old"}, "context.age must be a finite number"),
        ({"age": float("nan")}, "context.age must be a finite number"),
        ({"country": ""}, None),
        ({"country": "x" * 65}, "context.country must be texts of 1 to 64"),
        ("phone", "context must map labels to values"),
    ],
)
def test_a_context_that_is_not_allowed_names_the_field_and_changes_nothing(context, sentence):
    ranker, twin = shop(), shop()
    if sentence is None:
        assert ranker.rank(context=context) == twin.rank()
        return
    with pytest.raises(ValueError, match=sentence):
        ranker.rank(context=context)
    assert visit(ranker, 20) == visit(twin, 20)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"labels": {"age": [30, 18]}}, "labels.age must be edges that increase"),
        ({"labels": [""]}, "names of labels must be"),
        ({"labels": [f"l{k}" for k in range(9)]}, "labels must be at most 8"),
        ({"labels": {"id": [f"v{k}" for k in range(201)]}}, "labels.id must be at most 200"),
        ({"labels": "device"}, "labels must be a list of names"),
        ({"item_labels": ["price"]}, "items.lamp has a label 'category' that is not declared; item_labels declares"),
        ({"item_labels": ["category", "price"]}, "items.lamp.price must be a text or a boolean; numbers need edges"),
        ({"items": {"lamp": 3, "rug": {}}}, "items.lamp must map labels to values"),
        ({"policy": "gibbs-ts"}, "all-weather or context-ts; gibbs-ts"),
    ],
)
def test_a_declaration_that_is_not_allowed_names_the_field(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        Ranker(**{"items": SHOP, "slots": 2, **DECLARED, **wrong})


def test_labels_of_items_and_of_effects_are_checked():
    ranker = shop()
    with pytest.raises(ValueError, match=r"items\.vase has a label 'colour' that is not declared"):
        ranker.add("vase", labels={"colour": "red"})
    assert ranker.items == tuple(SHOP)
    with pytest.raises(ValueError, match="visitor must be one of all, device, age, country"):
        ranker.effects("colour", "category")
    with pytest.raises(ValueError, match="a label of visitors and one of items"):
        ranker.effects("device")
