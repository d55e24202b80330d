"""The items of a ranker: added, paused, resumed and removed; excluded from one list, or pinned to its slots."""

from __future__ import annotations

import asyncio
from itertools import count

import numpy as np
import pytest

from bothworlds import Ranker
from bothworlds.core import Ledger
from bothworlds.policies.item_ledger import ItemLedger
from bothworlds.serve.model import LOSS_UNIT, Eligibility, Event
from bothworlds.serve.settlement import increments_of, spread_loss
from tests.policies.plain import EpsilonGreedy
from tests.rankers import PAGES, future
from tests.serve.fakes import FakeStore
from tests.serve.running import answer, refreshed, running

ADDITIVE = ["ftrl-pbm", "hybrid", "comb-ucb", "comb-ts", "uniform"]
RATES = {"best": 0.5, "good": 0.4, "fair": 0.3, "worst": 0.05}
EXAMINED = (1.0, 0.7)


def visit(ranker, rng, **constraints):
    shown = ranker.rank(**constraints)
    clicked = [item for slot, item in enumerate(shown.items) if rng.random() < RATES.get(item, 0.2) * EXAMINED[slot]]
    ranker.feedback(shown.id, clicked)
    return shown


# Policies as on the command line


def test_a_policy_may_have_settings_as_on_the_command_line():
    assert Ranker(PAGES, 2, policy="ftrl-pbm:rate=0.3").policy.rate == 0.3
    for text, sentence in (("ftrl-pbm:speed=1", "no setting 'speed'"), ("ftrl-pbm:rate", "cannot read the settings")):
        with pytest.raises(ValueError, match=sentence):
            Ranker(PAGES, 2, policy=text)


# One list


@pytest.mark.parametrize("policy", ADDITIVE)
def test_excluded_items_are_not_shown_and_pinned_items_are_at_their_slots(policy):
    ranker = Ranker(PAGES, 3, policy=policy, seed=0)
    for k in range(60):
        shown = ranker.rank(exclude=["news"], pins={1: "chess"})
        assert "news" not in shown.items
        assert shown.items[1] == "chess"
        assert shown.propensities[1] == 1.0
        assert len(set(shown.items)) == 3
        ranker.feedback(shown.id, shown.items[k % 3 : k % 3 + 1])
    assert set(ranker.rank(exclude=["news", "sport"]).items) == {"weather", "music", "chess"}
    assert ranker.rank(pins={0: "news", 1: "sport", 2: "music"}).items == ("news", "sport", "music")


@pytest.mark.parametrize(
    ("constraints", "sentence"),
    [
        ({"exclude": PAGES[:3]}, "3 slots need 3 items; 2 eligible"),
        ({"exclude": "news"}, "exclude must be a list"),
        ({"exclude": ["opera"]}, "must be items of this ranker; got 'opera'"),
        ({"pins": {3: "news"}}, "slot 3 does not exist"),
        ({"pins": {0: "news", 1: "news"}}, "pinned to two slots"),
        ({"pins": {0: "opera"}}, "must be items of this ranker; got 'opera'"),
        ({"pins": {0: "news"}, "exclude": ["news"]}, "both pinned and excluded"),
        ({"pins": ["news"]}, "pins must map slots to items"),
    ],
    ids=str,
)
def test_impossible_constraints_raise_value_error(constraints, sentence):
    ranker = Ranker(PAGES, 3, seed=0)
    with pytest.raises(ValueError, match=sentence):
        ranker.rank(**constraints)
    assert ranker.pending == 0


def test_exclusions_may_be_an_iterator():
    assert "news" not in Ranker(PAGES, 3, seed=0).rank(exclude=iter(["news", "sport"])).items


@pytest.mark.parametrize("policy", ["toprank", "ftrl-pbm:restart=50", EpsilonGreedy()], ids=str)
def test_a_policy_that_depends_on_the_order_of_pages_says_so(policy):
    ranker = Ranker(PAGES, 3, policy=policy, seed=0)
    before = future(Ranker(PAGES, 3, policy=policy, seed=0))
    for change in (
        lambda: ranker.pause("news"),
        lambda: ranker.add("opera"),
        lambda: ranker.remove("news"),
        lambda: ranker.rank(exclude=["news"]),
    ):
        with pytest.raises(ValueError, match=r"depends on the order|keeps no sums"):
            change()
    assert ranker.items == tuple(PAGES)
    assert future(ranker) == before


# Items that come and go


def test_paused_and_removed_items_are_not_shown():
    ranker = Ranker(PAGES, 3, seed=0)
    ranker.pause("news")
    ranker.remove("sport")
    assert ranker.items == ("news", "weather", "music", "chess")
    assert all({"news", "sport"}.isdisjoint(shown[1]) for shown in future(ranker))
    learned = ranker.learned()
    assert learned.items == ranker.items
    assert (learned["news"] == 0.0).all()
    assert learned.probabilities.sum(axis=0) == pytest.approx(1.0)
    ranker.resume("news")
    ranker.add("sport")
    assert ranker.items == tuple(PAGES)
    assert {item for _ in range(100) for item in ranker.rank().items} == set(PAGES)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda ranker: ranker.pause("opera"), "no item 'opera'"),
        (lambda ranker: ranker.resume("opera"), "no item 'opera'"),
        (lambda ranker: ranker.remove("opera"), "no item 'opera'"),
        (lambda ranker: ranker.resume("chess"), "'chess' was removed; add it again"),
        (lambda ranker: ranker.pause("chess"), "'chess' was removed; add it again"),
        (lambda ranker: ranker.pause("news"), "4 slots need 4 active items; there would be 3"),
        (lambda ranker: ranker.add(["opera"]), "items must be hashable"),
    ],
)
def test_impossible_changes_raise_value_error(change, sentence):
    ranker = Ranker(PAGES, 4, seed=0)
    ranker.remove("chess")
    with pytest.raises(ValueError, match=sentence):
        change(ranker)


def test_a_new_item_starts_at_the_median():
    ranker = Ranker(["a", "b", "c"], 1, policy="ftrl-pbm", seed=0)
    rng = np.random.default_rng(1)  # not the seed of the ranker, whose draws the clicks would follow
    for _ in range(300):
        shown = ranker.rank()
        ranker.feedback(shown.id, [item for item in shown.items if rng.random() < {"a": 0.8, "b": 0.5, "c": 0.1}[item]])
    before = ranker.learned()
    ranker.add("d")
    learned = ranker.learned()
    assert learned["d"][0] == pytest.approx(learned["b"][0], rel=1e-3)
    assert before["a"][0] > learned["a"][0] > learned["d"][0] > learned["c"][0]


def test_a_change_that_is_undone_changes_nothing_in_a_policy_of_sums():
    one, other = (Ranker(PAGES, 3, policy="ftrl-pbm", seed=3) for _ in range(2))
    future(one, 200), future(other, 200)
    one.pause("music")
    one.resume("music")
    one.add("news")
    assert np.asarray(one.learned()) == pytest.approx(np.asarray(other.learned()), abs=1e-4)


@pytest.mark.parametrize("policy", ["ftrl-pbm", "hybrid", "comb-ucb"])
def test_late_feedback_on_lists_from_before_a_change_is_learned_from(policy):
    ranker = Ranker(PAGES, 2, policy=policy, seed=1)
    early = [ranker.rank() for _ in range(50)]
    ranker.add("opera")
    ranker.remove("news")
    late = [ranker.rank(exclude=["sport"]) for _ in range(50)]
    for shown in (*late, *early):
        ranker.feedback(shown.id, shown.items[:1])
    assert ranker.pending == 0
    assert ranker._ledger.rounds == 100
    assert ranker._ledger.shown.sum() == 200
    assert ranker._ledger.shown[5].sum() == sum("opera" in shown.items for shown in late)
    assert "news" not in ranker.rank().items


RESTRICTED = {
    "the worst item excluded on 60% of pages": lambda k: {"exclude": ["worst"]} if k % 5 < 3 else {},
    "the worst item pinned on half of the pages": lambda k: {"pins": {0: "worst"}} if k % 2 else {},
    "the best item excluded on half of the pages": lambda k: {"exclude": ["best"]} if k % 2 else {},
}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["all-weather", "ftrl-pbm"])
@pytest.mark.parametrize("restriction", RESTRICTED.values(), ids=RESTRICTED)
def test_constraints_do_not_bias_what_is_learned(restriction, policy):
    ranker, rng = Ranker(RATES, 2, policy=policy, seed=5), np.random.default_rng(2)
    for k in range(2500):
        visit(ranker, rng, **restriction(k))
    learned = ranker.learned()
    assert learned["worst"].sum() < 0.25
    assert learned["best"].sum() > 0.75


@pytest.mark.slow
def test_without_the_charge_for_absence_the_worst_item_looks_best(monkeypatch):
    def settle(self, decision, clicks, pinned, absent, mixture):
        return charged(self, decision, clicks, pinned, (), mixture)

    charged = ItemLedger.settle
    monkeypatch.setattr(ItemLedger, "settle", settle)
    ranker, rng = Ranker(RATES, 2, policy="ftrl-pbm", seed=5), np.random.default_rng(2)
    for k in range(2500):
        visit(ranker, rng, **RESTRICTED["the worst item excluded on 60% of pages"](k))
    assert ranker.learned()["worst"].sum() > 0.25


# The same rules as in the service


def test_a_page_adds_the_same_sums_as_in_the_service(rng):
    ledger, sums = ItemLedger(6, 3), np.zeros((3, 6, 3))
    for _ in range(200):
        absent = tuple(sorted(rng.choice(6, rng.integers(0, 3), replace=False).tolist()))
        items = rng.permutation([i for i in range(6) if i not in absent])[:3]
        p, clicks, pinned = rng.uniform(0.05, 1.0, 3), rng.integers(0, 2, 3), rng.integers(0, 2, 3)
        ledger.settle(Ranking(items, p), clicks.astype(float), np.flatnonzero(pinned).tolist(), absent)
        mask = sum(1 << slot for slot in range(3) if not pinned[slot])
        event = Event(
            id=b"", surface_id=1, segment="", arm="learner", policy_id="", created_at=0, expires_at=1, late_until=2,
            items=tuple(items.tolist()), p=tuple(p.tolist()), learn=mask,
            clicks=int(sum(int(c) << slot for slot, c in enumerate(clicks))), eligibility=Eligibility(absent=absent),
        )  # fmt: skip
        added = increments_of(event)
        for cell in added.cells:
            sums[:, cell.item, cell.slot] += cell.loss, cell.shown, cell.clicked
        for slot, observed in added.observed:
            for item, _, loss in spread_loss(added.eligibility, slot, observed):
                sums[0, item, slot] += loss
    assert ledger.loss == pytest.approx(sums[0] / LOSS_UNIT, abs=1e-3)
    assert (ledger.shown == sums[1]).all()
    assert (ledger.clicked == sums[2]).all()


def Ranking(items, p):
    from bothworlds.core import Decision

    return Decision(items.astype(np.int64), p)


@pytest.mark.slow
def test_the_same_pages_teach_a_ranker_and_the_service_the_same():
    """Pages of the service, with pauses, exclusions and pins, are replayed into the sums of a ranker."""

    async def whole():
        store, numbers = FakeStore(), count()
        async with running(store, refresh_ms=10**7, refresh_events=10**9) as engine:
            body = {"slots": 2, "items": list(RATES), "floor": 0.001, "policy": "ftrl-pbm"}  # it predicts no losses
            await engine.put_surface("home", body, actor="test")
            rng, names = np.random.default_rng(4), list(RATES)
            ledger = ItemLedger(4, 2)

            async def pages(many, absent, **constraints):
                for _ in range(many):
                    ranked = await engine.rank("home", f"v{next(numbers)}", **constraints)
                    clicks = np.array([float(rng.random() < RATES[s.item] * EXAMINED[s.slot]) for s in ranked.slots])
                    await answer(engine, ranked, np.flatnonzero(clicks).tolist())
                    items = np.array([names.index(s.item) for s in ranked.slots])
                    pinned = [s.slot for s in ranked.slots if s.pinned]
                    ledger.settle(Ranking(items, np.array([s.p for s in ranked.slots])), clicks, pinned, absent)
                await refreshed(engine)

            await pages(60, ())
            await pages(60, (0,), exclude=["best"])
            await pages(60, (3,), pins={0: "worst"})
            await engine.pause_item("home", "fair", actor="test")
            await pages(60, (2,))
            return ledger, await engine.state("home")

    ledger, state = asyncio.run(whole())
    loss = np.array(state["loss"])
    assert ledger.loss - ledger.loss[0] == pytest.approx(loss - loss[0], abs=1e-3)
    assert (ledger.shown == np.array(state["shown"])).all()
    assert (ledger.clicked == np.array(state["clicked"])).all()
    assert ledger.rounds == state["rounds"]


# Saving


def test_a_saved_ranker_keeps_items_constraints_and_sums(tmp_path):
    ranker, rng = Ranker(RATES, 2, seed=5), np.random.default_rng(2)
    for k in range(100):
        visit(ranker, rng, **({"exclude": ["worst"]} if k % 2 else {}))
    ranker.add("new")
    ranker.pause("fair")
    waiting = [ranker.rank(), ranker.rank(pins={1: "new"}), ranker.rank(exclude=["best"])]
    ranker.save(tmp_path / "ranker")
    twin = Ranker.load(tmp_path / "ranker")
    assert twin.items == ranker.items
    for one in (ranker, twin):
        for shown in waiting:
            one.feedback(shown.id, shown.items[:1])
        one.resume("fair")
    assert (twin._ledger.loss == ranker._ledger.loss).all()
    assert [twin.rank(exclude=["good"]) for _ in range(5)] == [ranker.rank(exclude=["good"]) for _ in range(5)]
    assert future(twin) == future(ranker)


def test_a_file_of_an_older_version_has_no_sums_and_goes_on_without_them(tmp_path):
    ranker = Ranker(PAGES, 3, seed=0)
    future(ranker)
    ranker.save(tmp_path / "ranker")
    with np.load(tmp_path / "ranker") as archive:
        arrays = {name: archive[name] for name in archive.files if not name.startswith("ledger/")}
    header = arrays["header"].tobytes().replace(b'"rounds"', b'"unused"')
    np.savez(tmp_path / "old.npz", **(arrays | {"header": np.frombuffer(header, np.uint8)}))
    old = Ranker.load(tmp_path / "old.npz")
    assert future(old) == future(ranker)
    with pytest.raises(ValueError, match="keeps no sums"):
        old.pause("news")


def test_sums_are_those_of_the_policy_itself():
    ranker = Ranker(PAGES, 3, policy="ftrl-pbm", seed=0)
    future(ranker, 300)
    ledger: Ledger = ranker._ledger.part(np.arange(5), range(3))
    assert ranker._ledger.loss == pytest.approx(ranker._state.loss)
    resumed = ranker.policy.resumed(ledger)
    assert ranker.policy.marginals(resumed) == pytest.approx(ranker.policy.marginals(ranker._state), abs=1e-4)
