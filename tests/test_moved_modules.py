"""Every import path of an earlier release still works."""

from __future__ import annotations

import importlib
import sys

import pytest

from bothworlds.moved_modules import MOVED, install


@pytest.mark.parametrize("old", MOVED)
def test_a_moved_module_is_importable_from_its_old_path(old, monkeypatch):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to {MOVED[old]}") as caught:
        module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert module.__spec__.name == MOVED[old]
    assert all(hasattr(module, name) for name in module.__all__)
    assert len(caught) == 1


def test_the_warning_names_the_importing_line(monkeypatch):
    monkeypatch.delitem(sys.modules, "bothworlds.statistics.epochs", raising=False)
    with pytest.warns(DeprecationWarning, match="has moved") as caught:
        import bothworlds.statistics.epochs
    assert caught[0].filename == __file__
    assert bothworlds.statistics.epochs.make_epochs(horizon=5).horizon[0] == 5


def test_a_name_can_be_imported_from_the_old_parent(monkeypatch):
    monkeypatch.delitem(sys.modules, "bothworlds.statistics.counts", raising=False)
    monkeypatch.delattr("bothworlds.statistics.counts", raising=False)
    with pytest.warns(DeprecationWarning, match="has moved"):
        from bothworlds.statistics import counts
    assert counts.make_counts(3, 2).shown.shape == (3, 2)


def test_no_old_path_shadows_a_module_that_exists():
    for old in MOVED:
        parent, _, name = old.rpartition(".")
        folder = importlib.import_module(parent).__path__[0]
        assert importlib.machinery.PathFinder.find_spec(old, [folder]) is None, name


def test_installing_twice_adds_one_finder():
    before = list(sys.meta_path)
    install()
    assert sys.meta_path == before
