"""Saving and loading a ranker."""

from __future__ import annotations

import gc
import json
import pickle
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import bothworlds
from bothworlds import Ranker, policy
from tests.policies.plain import EpsilonGreedy, Stranger, called
from tests.rankers import PAGES, PLAYERS, experienced, future, visited


@pytest.mark.parametrize("player", PLAYERS, ids=called)
def test_a_saved_ranker_has_the_same_future(player, tmp_path):
    ranker = Ranker(PAGES, 3, policy=player, seed=3)
    future(ranker)
    waiting = [ranker.rank() for _ in range(5)]
    ranker.save(tmp_path / "ranker")
    twin = Ranker.load(tmp_path / "ranker", **({} if isinstance(player, str) else {"policy": player}))
    assert twin.items == ranker.items
    assert twin.slots == 3
    assert twin.pending == 5
    for shown in waiting[::-1]:
        for one in (ranker, twin):
            one.feedback(shown.id, shown.items[1:])
    assert future(ranker) == future(twin)


def test_saving_changes_nothing(tmp_path):
    ranker, twin = experienced(), experienced()
    ranker.save(tmp_path / "ranker")
    assert future(ranker) == future(twin)


def test_the_original_and_the_loaded_share_nothing(tmp_path):
    ranker = experienced()
    ranker.save(tmp_path / "ranker")
    future(ranker, 50)
    assert future(Ranker.load(tmp_path / "ranker")) == future(experienced())


def test_a_fresh_ranker_can_be_saved(tmp_path):
    Ranker(PAGES, 3, seed=9).save(tmp_path / "ranker")
    assert future(Ranker.load(tmp_path / "ranker")) == future(Ranker(PAGES, 3, seed=9))


def test_saving_and_loading_again_and_again_changes_nothing(tmp_path):
    ranker = experienced()
    for _ in range(3):
        ranker.save(tmp_path / "ranker")
        ranker = Ranker.load(tmp_path / "ranker")
    assert future(ranker) == future(experienced())


def test_settings_of_the_policy_are_kept(tmp_path):
    experienced(policy=policy("ftrl-pbm", rate=0.125)).save(tmp_path / "ranker")
    loaded = Ranker.load(tmp_path / "ranker")
    assert loaded.policy == policy("ftrl-pbm", rate=0.125)
    assert future(loaded) == future(experienced(policy=policy("ftrl-pbm", rate=0.125)))


def test_settled_and_dropped_rankings_stay_so_after_loading(tmp_path):
    ranker = Ranker(PAGES, 3, seed=0, max_pending=2)
    shown = [ranker.rank() for _ in range(4)]
    ranker.feedback(shown[3].id, [])
    ranker.save(tmp_path / "ranker")
    loaded = Ranker.load(tmp_path / "ranker")
    with pytest.raises(ValueError, match="was dropped: at most 2 wait"):
        loaded.feedback(shown[0].id, [])
    with pytest.raises(ValueError, match="had its feedback already"):
        loaded.feedback(shown[3].id, [])
    loaded.feedback(shown[2].id, [])
    assert loaded.rank().id not in {one.id for one in shown}
    loaded.rank()
    loaded.rank()
    assert loaded.pending == 2


@pytest.mark.parametrize(
    "items", [["a", "b"], [1, 2, 3], [-5, 10**30], ["ü", "日本", "a b", "", "\ud800"], ["1", 1]], ids=repr
)
def test_names_are_restored_with_their_types(items, tmp_path):
    Ranker(items, 2, seed=0).save(tmp_path / "ranker")
    loaded = Ranker.load(tmp_path / "ranker")
    assert loaded.items == tuple(items)
    assert [type(item) for item in loaded.items] == [type(item) for item in items]


@pytest.mark.parametrize(
    "items",
    [[("a", 1), ("b", 2)], [b"a", b"b"], [0.5, 1.5], [None, "a"], [False, True], [np.int64(1), 2], [frozenset(), "a"]],
    ids=repr,
)
def test_other_names_are_refused_when_saving(items, tmp_path):
    ranker = Ranker(items, 2, seed=0)
    ranker.rank()
    with pytest.raises(ValueError, match="strings or whole numbers"):
        ranker.save(tmp_path / "ranker")
    assert list(tmp_path.iterdir()) == []
    ranker.rank()


@pytest.mark.parametrize("name", ["ranker", "ranker.npz", "ranker.v1", ".ranker", "no suffix at all"])
@pytest.mark.parametrize("kind", [str, Path])
def test_the_file_has_exactly_the_name_it_was_given(name, kind, tmp_path):
    experienced().save(kind(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert future(Ranker.load(kind(tmp_path / name))) == future(experienced())


def test_a_file_in_the_current_folder_needs_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experienced().save("ranker")
    assert future(Ranker.load("ranker")) == future(experienced())


def test_the_file_holds_plain_arrays_and_no_pickle(tmp_path):
    experienced().save(tmp_path / "ranker")
    with np.load(tmp_path / "ranker", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    assert all(not array.dtype.hasobject for array in arrays.values())
    assert json.loads(arrays["header"].tobytes())["items"] == PAGES
    with zipfile.ZipFile(tmp_path / "ranker") as members:
        for name in members.namelist():
            assert members.read(name).startswith(b"\x93NUMPY")


def test_neither_saving_nor_loading_uses_pickle(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("pickle was used")

    for verb in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, verb, refuse)
    saved = experienced(10)
    saved.save(tmp_path / "ranker")
    assert Ranker.load(tmp_path / "ranker").rank() == saved.rank()


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_a_file_with_a_pickle_is_refused_and_not_executed(tmp_path):
    for name in ("header", "state/loss"):
        np.savez(tmp_path / "trap.npz", allow_pickle=True, **{name: np.array([Trap(tmp_path / "sprung")])})
        with pytest.raises(ValueError, match="not a saved ranker"):
            Ranker.load(tmp_path / "trap.npz")
    (tmp_path / "trap.pkl").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(ValueError, match="not a saved ranker"):
        Ranker.load(tmp_path / "trap.pkl")
    assert not (tmp_path / "sprung").exists()


def archive(**arrays):
    """A maker of NumPy archives, under any name."""

    def make(path):
        with path.open("wb") as file:
            np.savez(file, **arrays)

    return make


def header(text):
    return np.frombuffer(text, dtype=np.uint8)


def one_array(path):
    with path.open("wb") as file:
        np.save(file, np.arange(3))


WRONG_FILES = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("hello"),
    "json": lambda path: path.write_text('{"format": "bothworlds ranker 1"}'),
    "a zip of nothing": lambda path: zipfile.ZipFile(path, "w").close(),
    "one array": one_array,
    "arrays of something else": archive(x=np.arange(3)),
    "a header that is no text": archive(header=header(b"\xff")),
    "a header that is no object": archive(header=header(b"[1]")),
    "another format": archive(header=header(b'{"format": "bothworlds ranker 999"}')),
    "an older format": archive(header=header(b'{"format": "bothworlds ranker 2"}')),
    "a header and nothing else": archive(header=header(b'{"format": "bothworlds ranker 1"}')),
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("make", WRONG_FILES.values(), ids=WRONG_FILES.keys())
def test_a_wrong_file_is_refused_by_name(make, tmp_path):
    make(tmp_path / "wrong")
    with pytest.raises(ValueError, match=r"wrong\b.* is not a saved ranker"):
        Ranker.load(tmp_path / "wrong")


def test_a_missing_file_raises_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Ranker.load(tmp_path / "nowhere")


@pytest.mark.slow
def test_a_truncated_file_is_refused_and_closed(tmp_path):
    experienced(policy="uniform").save(tmp_path / "ranker")
    data = (tmp_path / "ranker").read_bytes()
    for length in [*range(0, len(data), 37), len(data) - 1]:
        (tmp_path / "short").write_bytes(data[:length])
        with pytest.raises(ValueError, match="short is not a saved ranker"):
            Ranker.load(tmp_path / "short")
    gc.collect()  # a file left open would be reported here


@pytest.mark.slow
def test_a_damaged_file_is_refused_or_harmless(tmp_path):
    ranker = experienced(policy="uniform")
    ranker.save(tmp_path / "ranker")
    data = (tmp_path / "ranker").read_bytes()
    expected = future(ranker)
    for k in range(0, len(data), 5):
        damaged = bytearray(data)
        damaged[k] ^= 0xFF
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            loaded = Ranker.load(tmp_path / "damaged")
        except ValueError:
            continue
        assert future(loaded) == expected
    gc.collect()


def test_the_state_of_another_policy_is_refused(tmp_path):
    experienced(policy="uniform").save(tmp_path / "ranker")
    with pytest.raises(ValueError, match="state of another policy"):
        Ranker.load(tmp_path / "ranker", policy=policy("ftrl-pbm"))


def test_an_unregistered_policy_must_be_passed_to_load(tmp_path):
    experienced(policy=EpsilonGreedy()).save(tmp_path / "ranker")
    with pytest.raises(ValueError, match=r"the state of 'EpsilonGreedy', which is not registered: pass policy=$"):
        Ranker.load(tmp_path / "ranker")
    loaded = Ranker.load(tmp_path / "ranker", policy=EpsilonGreedy())
    assert future(loaded) == future(experienced(policy=EpsilonGreedy()))


class Secretive(EpsilonGreedy):
    """Its state is no collection of arrays and numbers."""

    def init(self, n_items, n_positions):
        return {"counts": super().init(n_items, n_positions), "lock": threading.Lock()}

    def decide(self, state, rng):
        return super().decide(state["counts"], rng)

    def learn(self, state, decision, clicks):
        super().learn(state["counts"], decision, clicks)
        return state


def test_a_state_that_is_not_made_of_arrays_is_refused_when_saving(tmp_path):
    ranker = experienced(policy=Secretive())
    with pytest.raises(ValueError, match=r"Secretive.*state that is not made of arrays"):
        ranker.save(tmp_path / "ranker")
    assert list(tmp_path.iterdir()) == []


STATES = {
    "nothing": lambda: None,
    "numbers in a tuple": lambda: (4, 0.5, True),
    "arrays in a tuple": lambda: (4, np.arange(3.0)),
    "arrays in a list": lambda: [np.arange(3.0), np.arange(2)],
    "lists and words in a dictionary": lambda: {"kind": "counts", "shown": [1, 2], "deep": {"rate": 0.25, "none": []}},
    "one array": lambda: np.arange(6.0).reshape(3, 2),
}


@pytest.mark.parametrize("make", STATES.values(), ids=STATES.keys())
def test_a_state_may_have_any_structure(make, tmp_path):
    class Plain(Stranger):
        """Uniform lists, whatever the state."""

        def init(self, n_items, n_positions):
            return make()

        def decide(self, state, rng):
            return bothworlds.Decision(rng.permutation(5)[:3], np.full(3, 0.2))

        def learn(self, state, decision, clicks):
            return state

    Ranker(PAGES, 3, policy=Plain(), seed=0).save(tmp_path / "ranker")
    loaded = Ranker.load(tmp_path / "ranker", policy=Plain())
    assert repr(loaded._state) == repr(make())
    assert future(loaded) == future(Ranker(PAGES, 3, policy=Plain(), seed=0))


def test_settings_that_cannot_be_written_are_refused_when_saving(tmp_path):
    with pytest.raises(ValueError, match=r"EpsilonGreedy.*settings"):
        experienced(policy=EpsilonGreedy(np.float32(0.5))).save(tmp_path / "ranker")
    assert list(tmp_path.iterdir()) == []


def failing_savez(file, **_):
    file.write(b"half of it")
    raise OSError("no space left on device")


def failing_replace(*_):
    raise PermissionError("not today")


@pytest.mark.parametrize(
    ("owner", "verb", "failure", "error"),
    [(np, "savez", failing_savez, OSError), (Path, "replace", failing_replace, PermissionError)],
)
def test_a_failed_save_leaves_the_old_file_and_nothing_else(owner, verb, failure, error, tmp_path, monkeypatch):
    ranker = experienced()
    ranker.save(tmp_path / "ranker")
    before = (tmp_path / "ranker").read_bytes()
    expected = future(Ranker.load(tmp_path / "ranker"))
    future(ranker, 5)
    with monkeypatch.context() as broken:
        broken.setattr(owner, verb, failure)
        with pytest.raises(error):
            ranker.save(tmp_path / "ranker")
    assert [path.name for path in tmp_path.iterdir()] == ["ranker"]
    assert (tmp_path / "ranker").read_bytes() == before
    assert future(Ranker.load(tmp_path / "ranker")) == expected
    ranker.save(tmp_path / "ranker")
    assert (tmp_path / "ranker").read_bytes() != before


def test_a_missing_folder_raises_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        experienced(1).save(tmp_path / "nowhere" / "ranker")


@pytest.mark.slow
def test_a_ranker_can_be_saved_while_others_use_it(tmp_path):
    ranker, stop = Ranker(PAGES, 3, seed=0), threading.Event()
    with ThreadPoolExecutor(3) as threads:
        crowd = [threads.submit(visited, ranker, iter(stop.is_set, True)) for _ in range(3)]
        try:
            for _ in range(10):
                ranker.save(tmp_path / "ranker")
                future(Ranker.load(tmp_path / "ranker"), 3)
        finally:
            stop.set()
    ids = [id for visits in crowd for id in visits.result()]
    assert len(set(ids)) == len(ids)


@pytest.mark.slow
def test_a_loaded_ranker_of_another_process_has_the_same_future(tmp_path):
    experienced().save(tmp_path / "ranker")
    code = (
        "import sys, json, bothworlds\n"
        "ranker = bothworlds.Ranker.load(sys.argv[1])\n"
        "print(json.dumps([[s.id, s.items, s.propensities] for s in (ranker.rank() for _ in range(5))]))"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "ranker"], capture_output=True, text=True, check=True)
    here = experienced()
    expected = [[s.id, list(s.items), list(s.propensities)] for s in (here.rank() for _ in range(5))]
    assert json.loads(run.stdout) == expected
