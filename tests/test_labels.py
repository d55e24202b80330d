"""Labels: what a declaration allows, the numbers of values, and what is wrong, by name."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.labels import LabelError, LabelTable

DECLARED = {"device": None, "plan": ["free", "paid"], "age": [18, 30.5, 50]}


def table(declared=DECLARED, known=None):
    return LabelTable(declared, "labels", known)


def test_values_are_numbered_from_the_unknown_one():
    visitor = table()
    assert (visitor.names, visitor.sizes) == (("device", "plan", "age"), (1, 3, 5))
    assert visitor.row({}, "context") == ((0, 0, 0), ())
    assert visitor.row({"device": "", "age": ""}, "context") == ((0, 0, 0), ())
    assert visitor.row({"device": "tv", "plan": "paid", "age": 18}, "context").values == (1, 2, 2)
    assert visitor.row({"device": True}, "context").values == (2, 0, 0)
    assert visitor.values("device") == ("", "tv", "true")
    assert visitor.texts((2, 1, 4)) == {"device": "true", "plan": "free", "age": "50.."}


def test_a_number_stands_for_the_range_that_contains_it():
    visitor = table()
    ages = {-3: "..18", 17.9: "..18", 18: "18..30.5", np.float32(30.5): "30.5..50", 50: "50..", 1e300: "50.."}
    for age, text in ages.items():
        assert visitor.texts(visitor.row({"age": age}, "context").values)["age"] == text


def test_values_that_are_not_known_are_unknown_and_named():
    visitor = table()
    assert visitor.row({"plan": "gold"}, "context") == ((0, 0, 0), ("plan",))
    assert visitor.row({"device": "tv"}, "context", grow=False) == ((0, 0, 0), ("device",))
    assert visitor.sizes == (1, 3, 5)


def test_an_open_label_has_at_most_200_values():
    visitor = table(["id"])
    rows = [visitor.row({"id": f"v{k}"}, "context") for k in range(230)]
    assert [row.values[0] for row in rows] == [*range(1, 201), *[0] * 30]
    assert {row.unknown for row in rows[200:]} == {("id",)}
    assert visitor.row({"id": "v199"}, "context").values == (200,)


def test_a_table_is_made_again_from_its_declaration_and_its_values():
    visitor = table()
    visitor.row({"device": "tv"}, "context")
    again = table(visitor.declaration, visitor.known)
    assert again.declaration == {"device": None, "plan": ["free", "paid"], "age": [18.0, 30.5, 50.0]}
    assert again.row({"device": "tv", "age": 60}, "context") == visitor.row({"device": "tv", "age": 60}, "context")
    assert table(["device"]).declaration == {"device": None}
    assert table(None).names == table([]).names == table({}).names == ()
    assert table({"age": np.array([18, 30])}).declaration == {"age": [18.0, 30.0]}


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ("device", "labels must be a list of names"),
        (3, "labels must be a list of names"),
        ([3], "names of labels must be texts"),
        ([""], "names of labels must be texts of 1 to 64"),
        (["a\n"], "printable"),
        (["x" * 65], "1 to 64"),
        (["item"], "and not all, item"),
        (["a", "a"], "must be different"),
        ([f"l{k}" for k in range(9)], "at most 8 labels; got 9"),
        ({"age": "old"}, "labels.age must be None, a list of texts, or a list of numbers"),
        ({"age": []}, "labels.age must be None"),
        ({"age": [1, "b"]}, "labels.age must be None"),
        ({"age": [1.0, float("nan")]}, "labels.age must be None"),
        ({"age": [2, 1]}, "labels.age must be edges that increase"),
        ({"age": [1, 1]}, "labels.age must be edges that increase"),
        ({"age": list(range(65))}, "at most 64 edges"),
        ({"age": [True]}, "labels.age must be None"),
        ({"plan": ["free", ""]}, "values of labels.plan must be texts"),
        ({"plan": ["free", "free"]}, "different values"),
        ({"plan": [f"v{k}" for k in range(201)]}, "at most 200"),
    ],
    ids=str,
)
def test_a_wrong_declaration_names_the_field(declared, sentence):
    with pytest.raises(LabelError, match=sentence):
        table(declared)


@pytest.mark.parametrize(
    ("given", "path", "sentence"),
    [
        ("mobile", (), "context must map labels to values"),
        ({"country": "de"}, ("country",), "'country' that is not declared; labels declares device, plan, age"),
        ({"device": 3}, ("device",), "context.device must be a text or a boolean; numbers need edges"),
        ({"device": None}, ("device",), "context.device must be a text or a boolean; got None"),
        ({"device": "a" * 65}, ("device",), "context.device must be texts of 1 to 64"),
        ({"device": "a\x00"}, ("device",), "printable"),
        ({"age": "34"}, ("age",), "context.age must be a finite number; got '34'"),
        ({"age": float("nan")}, ("age",), "context.age must be a finite number"),
        ({"age": float("inf")}, ("age",), "context.age must be a finite number"),
        ({"age": True}, ("age",), "context.age must be a finite number"),
        ({"plan": ["free"]}, ("plan",), "context.plan must be a text or a boolean"),
    ],
    ids=str,
)
def test_a_wrong_value_names_the_field_and_adds_nothing(given, path, sentence):
    visitor = table()
    with pytest.raises(LabelError, match=sentence) as error:
        visitor.row({"device": "new", **given} if isinstance(given, dict) else given, "context")
    assert error.value.path == path
    assert visitor.sizes == (1, 3, 5)
