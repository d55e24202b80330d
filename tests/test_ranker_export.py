"""A ranker that is made from the export of a surface: it has learned what the service has."""

from __future__ import annotations

import json

import numpy as np
import pytest

import bothworlds
from bothworlds import Ranker
from bothworlds.export_format import read_export
from bothworlds.policies.logged_pages import LogState
from tests.cases import case
from tests.exports import rows_of, surface_of, write_export
from tests.policies.logs import played, same_bits
from tests.policies.plain import EpsilonGreedy

N, M, ADDED = 6, 3, 2


def exported(path, pages, surface=None, **fields):
    rows = [row for page in pages for row in rows_of(page, **fields)]
    return write_export(path, surface or surface_of(N + ADDED, M), rows)


def log_of(pages, policy="all-weather", n=N + ADDED, m=M):
    log = LogState(bothworlds.policies.resolve(policy), n, m)
    log.learn(pages)
    return log


@pytest.fixture(scope="module")
def pages():
    """A log with excluded, pinned and added items, rewards and notes."""
    return played(bothworlds.policy("all-weather"), N, M, 60, added=ADDED)[0]


@pytest.fixture(scope="module")
def path(pages, tmp_path_factory):
    return exported(tmp_path_factory.mktemp("export") / "home.ndjson", pages)


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_a_ranker_has_learned_what_is_exported(pages, tmp_path, ending):
    assert any(page.note for page in pages)
    assert any(page.absent for page in pages)
    ranker = Ranker.from_export(exported(tmp_path / f"home.{ending}", pages), seed=1)
    assert ranker.items == tuple(f"i{k}" for k in range(N + ADDED))
    assert (ranker.slots, ranker.policy, ranker.pending) == (M, bothworlds.policy("all-weather"), 0)
    assert same_bits(ranker._state, log_of(pages).state)


def test_one_bit_more_or_less_is_noticed(pages, tmp_path):
    changed = [page._replace(propensity=np.nextafter(page.propensity, 0.0).tolist()) for page in pages]
    ranker = Ranker.from_export(exported(tmp_path / "home", changed))
    assert not same_bits(ranker._state, log_of(pages).state)


def test_a_policy_without_parts_and_its_notes(tmp_path):
    policy = bothworlds.policy("toprank", horizon=1000)
    pages, state = played(policy, N, M, 60)
    surface = surface_of(N, M, "toprank", policy_settings={"horizon": 1000})
    assert same_bits(Ranker.from_export(exported(tmp_path / "home", pages, surface))._state, state)


def test_it_ranks_and_learns(path):
    ranker, twin = (Ranker.from_export(path, seed=3) for _ in range(2))
    for _ in range(20):
        shown = ranker.rank(exclude=["i2"])
        assert shown == twin.rank(exclude=["i2"])
        for one in (ranker, twin):
            one.feedback(shown.id, rewards={shown.items[0]: 0.5})
    assert ranker.learned().to_dict() == twin.learned().to_dict()


def test_items_keep_their_states(pages, tmp_path):
    states = ["active"] * 5 + ["paused", "removed", "active"]
    surface = surface_of(8, M, items=[{"name": f"i{k}", "state": state} for k, state in enumerate(states)])
    ranker = Ranker.from_export(exported(tmp_path / "home", pages, surface), seed=0)
    assert ranker.items == ("i0", "i1", "i2", "i3", "i4", "i5", "i7")
    learned = ranker.learned()
    assert learned["i5"].tolist() == [0.0] * M
    assert same_bits(ranker._state, log_of(pages).state)
    ranker.resume("i5")
    assert ranker.learned()["i5"].sum() > 0.0


def test_another_policy_learns_the_same_pages(path, pages):
    for policy in ("ftrl-pbm:rate=0.25", bothworlds.policy("comb-ucb"), EpsilonGreedy()):
        with case(policy=policy):
            ranker = Ranker.from_export(path, policy=policy)
            n = N + ADDED
            assert same_bits(ranker._state, log_of(pages, policy, n).present(n))


def test_an_arm_has_a_learner_of_its_own_and_a_segment_can_be_chosen(tmp_path, pages):
    arms = [{"name": "b", "policy": "comb-ucb", "policy_settings": {"width": 0.5}, "share": 0.5, "learner": 2}]
    own, phone, arm = pages[0::3], pages[1::3], pages[2::3]
    rows = [row for page in pages for row in rows_of(page, **of_page(page.number, arm, phone))]
    path = write_export(tmp_path / "home", surface_of(N + ADDED, M, arms=arms), rows)
    n = N + ADDED
    both = sorted([*own, *phone], key=lambda page: page.number)
    assert same_bits(Ranker.from_export(path)._state, log_of(both).present(n))
    assert same_bits(Ranker.from_export(path, "phone")._state, log_of(phone).present(n))
    of_arm = Ranker.from_export(path, arm="b")
    assert of_arm.policy == bothworlds.policy("comb-ucb", width=0.5)
    assert same_bits(of_arm._state, log_of(arm, of_arm.policy).present(n))
    empty = Ranker.from_export(path, "phone", "b")
    assert same_bits(empty._state, empty.policy.init(n, M))


def of_page(number, arm, phone):
    if any(page.number == number for page in arm):
        return {"learner": 2, "arm": "b"}
    return {"segment": "phone"} if any(page.number == number for page in phone) else {}


def test_what_was_learned_before_a_reset_is_left_out(tmp_path, pages):
    reset = [{"learner": 0, "number": 25}, {"learner": 1, "number": 50}]
    ranker = Ranker.from_export(exported(tmp_path / "home", pages, surface_of(N + ADDED, M, reset=reset)))
    assert same_bits(ranker._state, log_of(pages[25:]).present(N + ADDED))


def test_pages_that_were_not_learned_are_left_out(tmp_path, pages):
    rows = [row for page in pages for row in rows_of(page, **({"learn": False} if page.number > 40 else {}))]
    ranker = Ranker.from_export(write_export(tmp_path / "home", surface_of(N + ADDED, M), rows))
    assert same_bits(ranker._state, log_of(pages[:40]).present(N + ADDED))


def test_clicks_are_learned_where_there_are_no_rewards(tmp_path, pages):
    rows = [row for page in pages for row in rows_of(page)]
    without = [{name: value for name, value in row.items() if name != "reward"} for row in rows]
    ranker = Ranker.from_export(write_export(tmp_path / "home", surface_of(N + ADDED, M), without))
    clicked = [page._replace(rewards=[float(reward > 0) for reward in page.rewards]) for page in pages]
    assert same_bits(ranker._state, log_of(clicked).state)


def test_an_empty_export_and_one_with_unknown_fields_are_read(tmp_path, pages):
    surface = surface_of(4, 2, theme="dark")
    ranker = Ranker.from_export(write_export(tmp_path / "empty", surface, []))
    assert same_bits(ranker._state, ranker.policy.init(4, 2))
    again = Ranker.from_export(exported(tmp_path / "more", pages, weather="rain"))
    assert same_bits(again._state, log_of(pages).state)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not the export"),
        ("{}\n", "header of an export"),
        ("event,item\n1,2\n", "is not the export"),
        ('{"event": "1", "item": "a"}\n', "header of an export"),
        ('{"format": "bothworlds export 9", "surface": {}}\n', "'bothworlds export 9'"),
        ('{"format": "bothworlds export 1", "surface": {}}\n', "cannot be learned"),
        ("PAR1", "is not the export"),
    ],
)
def test_other_files_are_refused(tmp_path, text, reason):
    (tmp_path / "file").write_text(text)
    with pytest.raises(ValueError, match=reason):
        Ranker.from_export(tmp_path / "file")


@pytest.mark.parametrize(
    "changed",
    [{"item": "x"}, {"n": 99}, {"number": None}, {"propensity": 0.0}, {"reward": 2.0}, {"event": None}],
    ids=str,
)
def test_rows_that_do_not_fit_are_refused(tmp_path, pages, changed):
    name = next(iter(changed))
    rows = [row for page in pages[:3] for row in rows_of(page)]
    rows[3] = rows[3] | changed if name != "event" else {"n": 1}
    with pytest.raises(ValueError, match="cannot be learned"):
        Ranker.from_export(write_export(tmp_path / "home", surface_of(N + ADDED, M), rows))


def test_an_arm_that_is_not_there_is_refused(path):
    with pytest.raises(ValueError, match="there is no arm 'b'"):
        Ranker.from_export(path, arm="b")
    with pytest.raises(FileNotFoundError):
        Ranker.from_export(path.with_name("nothing"))


def test_an_export_is_read_row_by_row(path, pages):
    surface, events = read_export(path)
    assert json.dumps(surface) == json.dumps(surface_of(N + ADDED, M))
    assert [rows[0]["number"] for rows in events] == [page.number for page in pages]
