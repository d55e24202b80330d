"""Adversaries that react: procedures by hand, cost, budget, and what they do not change."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from bothworlds import play
from bothworlds.arena import load, save_results
from bothworlds.arena.result import AttackScores
from bothworlds.worlds import Attack, Attacked, cascade, from_description, names, stochastic
from bothworlds.worlds.attack_kernels import KINDS, tamper
from tests.policies.plain import EpsilonGreedy

USERS = stochastic([0.8, 0.6, 0.4, 0.2], [1.0, 0.7, 0.4])
RANKING = np.array([2, 0, 3])
ATTACKS = {
    "promote": Attack("promote", target=3, budget=60),
    "quit": Attack("quit", target=3, until=50),
    "suppress": Attack("suppress", target=3, budget=60, companions=(3, 1, 2)),
    "threshold": Attack("threshold", target=3, budget=60, margin=0.05),
    "demote": Attack("demote", target=0, budget=60),
    "mirror": Attack("mirror", target=3, budget=60),
    "bribe": Attack("bribe", target=3, budget=60, rate=0.5),
    "random": Attack("random", target=3, budget=60, rate=0.3),
}


def reported(attack, clicks, rounds=1, seed=0):
    state, rng, said = attack.start(np.arange(4), 3), np.random.default_rng(seed), np.empty(3)
    for _ in range(rounds):
        flips = tamper(state, RANKING, np.array(clicks, float), rng, said)
    return said.tolist(), flips


@pytest.mark.parametrize(
    ("attack", "clicks", "expected"),
    [
        (Attack("promote", target=3), [1, 0, 0], [1, 0, 1]),
        (Attack("promote", target=1), [1, 0, 0], [1, 0, 0]),  # it is not shown
        (Attack("promote", target=3, budget=0), [1, 0, 0], [1, 0, 0]),
        (Attack("quit", target=3, until=1), [1, 1, 0], [0, 0, 1]),
        (Attack("quit", target=3, until=0), [1, 1, 0], [1, 1, 0]),
        (Attack("quit", target=3, until=1, budget=2), [1, 1, 0], [0, 0, 0]),  # from the top, while it lasts
        (Attack("suppress", companions=(3, 2)), [1, 1, 1], [1, 0, 1]),
        (Attack("threshold", target=3, margin=0.1), [1, 1, 1], [0, 0, 1]),  # all rates are 0, above 0 - 0.1
        (Attack("threshold", target=3, margin=0.0), [1, 1, 1], [1, 1, 1]),  # 0 is not above 0
        (Attack("threshold", target=3, margin=0.1, companions=(2,)), [1, 1, 1], [1, 0, 1]),
        (Attack("demote", target=0), [0, 1, 1], [0, 0, 1]),
        (Attack("mirror"), [1, 1, 0], [0, 1, 1]),
        (Attack("mirror"), [1, 0, 1], [1, 0, 1]),
        (Attack("bribe", target=3, rate=1.0), [1, 1, 0], [0, 0, 1]),
        (Attack("bribe", target=3, rate=0.0), [1, 1, 0], [1, 1, 0]),
        (Attack("random", rate=1.0), [1, 0, 1], [0, 1, 0]),
        (Attack("random", rate=0.0), [1, 0, 1], [1, 0, 1]),
    ],
)
def test_each_procedure_reports_what_its_card_says(attack, clicks, expected):
    said, flips = reported(attack, clicks)
    assert said == expected
    assert flips == sum(a != b for a, b in zip(clicks, expected))


def test_an_attack_ends_with_its_rounds_and_its_budget():
    assert reported(Attack("quit", target=3, until=2), [1, 0, 0], rounds=2)[0] == [0, 0, 1]
    assert reported(Attack("quit", target=3, until=2), [1, 0, 0], rounds=3)[0] == [1, 0, 0]
    assert reported(Attack("promote", target=3, budget=2), [0, 0, 0], rounds=3)[0] == [0, 0, 0]


def test_fake_pages_are_as_many_as_the_rate_says():
    state, rng, said = Attack("bribe", target=3, rate=0.2).start(np.arange(4), 3), np.random.default_rng(7), np.empty(3)
    fake = sum(tamper(state, RANKING, np.array([1.0, 0.0, 0.0]), rng, said) == 2 for _ in range(5_000))
    assert abs(fake - 1_000) < 5.0 * np.sqrt(5_000 * 0.2 * 0.8)


def test_all_kinds_have_a_kernel():
    assert set(KINDS) == set(ATTACKS)
    assert {f"attack/{kind}" for kind in KINDS if kind != "random"} == {n for n in names() if n.startswith("attack/")}


def game(attack, policy="comb-ucb", world=USERS, **settings):
    given = {"replications": 3, "seed": 4, "checkpoints": 5, "jobs": 1, **settings}
    return play(policy, Attacked(world, attack), 300, **given)


def test_without_a_budget_the_game_is_the_honest_one_draw_for_draw():
    honest = play("comb-ucb", USERS, 300, replications=3, seed=4, checkpoints=5, jobs=1)
    for kind in ("promote", "suppress", "demote", "mirror"):
        attacked = game(Attack(kind, target=3, budget=0))
        np.testing.assert_array_equal(attacked.clicks, honest.clicks)
        np.testing.assert_array_equal(attacked.reward, honest.reward)
        np.testing.assert_array_equal(attacked.best_fixed, honest.best_fixed)
        assert (attacked.attack.flips == 0).all()
    assert honest.attack is None


@pytest.mark.parametrize("kind", ATTACKS)
def test_a_budget_is_never_exceeded_and_flips_are_counted(kind):
    scores = game(ATTACKS[kind]).attack
    limit = 60 if ATTACKS[kind].budget else 50 * 3
    assert (scores.flips <= limit).all()
    assert (scores.touched <= scores.flips).all()
    assert (scores.flips > 0).any()
    assert (scores.target_first <= scores.target_shown).all()
    assert (np.diff(scores.flips, axis=1) >= 0).all()


def test_a_policy_that_does_not_learn_has_the_same_regret_under_every_attack():
    shown = bothworlds.policy("fixed", ranking=[1, 3, 0])
    results = [game(attack, shown, shuffle=False) for attack in ATTACKS.values()]
    for result in results:
        np.testing.assert_array_equal(result.clicks, results[0].clicks)
        np.testing.assert_array_equal(result.regret(), results[0].regret())
    # The same list is the same cost: item 3 is clicked with probability 0.14 at position 2.
    assert results[0].attack.flips.max() == 60


def test_the_reported_clicks_are_what_is_learned():
    # Counts of a policy that only counts: what it was told minus what users did is the number of flips.
    class Counting(EpsilonGreedy):
        told = 0.0

        def learn(self, state, decision, clicks):
            Counting.told += float(np.sum(clicks))
            return super().learn(state, decision, clicks)

    result = game(ATTACKS["promote"], Counting(), replications=1)
    assert Counting.told == result.clicks[0, -1] + result.attack.flips[0, -1]


@pytest.mark.slow
def test_compiled_and_interpreted_loops_agree_under_attack():
    class Interpreted(type(bothworlds.policy("uniform"))):
        def runs_compiled(self, state):
            return False

    for world in (USERS, cascade([0.8, 0.6, 0.4, 0.2], 3)):
        one, other = (game(ATTACKS["mirror"], policy, world) for policy in ("uniform", Interpreted()))
        np.testing.assert_array_equal(one.clicks, other.clicks)
        np.testing.assert_allclose(one.reward, other.reward, rtol=1e-12)
        for name in ("flips", "touched", "target_first", "target_shown"):
            np.testing.assert_array_equal(getattr(one.attack, name), getattr(other.attack, name))


class Threshold:
    """The card of the attack threshold, word for word, with a budget; as an adversary of one's own."""

    target, margin = 3, 0.05

    def __init__(self, budget=60):
        self.left, self.shown, self.told = budget, np.zeros((4, 3)), np.zeros((4, 3))

    def rate(self, item, j):
        return self.told[item, j] / self.shown[item, j] if self.shown[item, j] else 0.0

    def report(self, t, ranking, clicks, rng):
        said = clicks.copy()
        for j, item in enumerate(ranking):
            above = self.rate(item, j) > self.rate(self.target, j) - self.margin
            if item != self.target and clicks[j] and above and self.left > 0:
                said[j] = 0.0
                self.left -= 1
            self.shown[item, j] += 1
            self.told[item, j] += said[j]
        return said


class RateOfAllPositions(Threshold):
    def rate(self, item, j):
        return self.told[item].sum() / max(self.shown[item].sum(), 1)


class WithoutRates(Threshold):
    def rate(self, item, j):
        return 1.0


@pytest.mark.parametrize(
    ("adversary", "right"), [(Threshold(), True), (RateOfAllPositions(), False), (WithoutRates(), False)]
)
def test_threshold_deletes_clicks_only_while_the_rate_at_the_position_is_above_that_of_the_target(adversary, right):
    compiled, plain = game(ATTACKS["threshold"]), game(adversary)
    same = np.array_equal(compiled.attack.flips, plain.attack.flips) and np.array_equal(compiled.clicks, plain.clicks)
    assert same is right
    if right:
        np.testing.assert_allclose(compiled.reward, plain.reward, rtol=1e-12)
        for name in ("touched", "target_first", "target_shown"):
            np.testing.assert_array_equal(getattr(compiled.attack, name), getattr(plain.attack, name))


def test_threshold_is_cheaper_than_suppress():
    everything = {"target": 3, "companions": (3,)}
    threshold, suppress = (
        game(attack, "uniform").attack.flips[:, -1].mean()
        for attack in (Attack("threshold", margin=0.05, **everything), Attack("suppress", **everything))
    )
    assert 0 < threshold < suppress


def test_every_replication_starts_with_an_adversary_as_it_was_made():
    adversary = Threshold(budget=20)
    flips = game(adversary, "uniform").attack.flips[:, -1]
    assert flips.tolist() == [20.0, 20.0, 20.0]
    assert adversary.left == 20


def test_an_adversary_in_plain_python_is_described_by_its_class():
    world = Attacked(USERS, Threshold())
    assert world.name == "stochastic with Threshold"
    assert world.description()["attack"] == {"class": f"{__name__}.Threshold"}
    with pytest.raises(ValueError, match="incomplete"):
        from_description(world.description())


def test_reports_of_an_adversary_are_checked():
    class Half(Threshold):
        def report(self, t, ranking, clicks, rng):
            return clicks / 2.0

    with pytest.raises(ValueError, match="0 or 1 for each of 3 positions"):
        game(Half())


def test_the_target_is_the_same_item_whatever_the_labels():
    oracle = bothworlds.policy("oracle")
    result = game(Attack("promote", target=0), oracle, inform=True)
    assert (result.attack.share_first() == 1.0).all()  # shuffled labels: the best item is item 0 of the world
    np.testing.assert_allclose(result.regret(), 0.0, atol=1e-9)


def test_scores_of_an_attack_by_hand():
    rounds = np.array([10, 20, 30, 40])
    scores = AttackScores(
        rounds,
        flips=np.array([[5.0, 8.0, 8.0, 8.0], [5.0, 5.0, 5.0, 5.0], [0.0, 0.0, 0.0, 0.0]]),
        touched=np.ones((3, 4)),
        target_first=np.array([[10.0, 20.0, 25.0, 25.0], [10.0, 20.0, 30.0, 40.0], [0.0, 0.0, 0.0, 0.0]]),
        target_shown=np.array([[10.0, 20.0, 30.0, 40.0]] * 3),
    )
    assert scores.share_first().tolist() == [25 / 40, 1.0, 0.0]
    assert scores.share_first(since=20).tolist() == [0.25, 1.0, 0.0]
    assert scores.share_shown(since=20).tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="before the last checkpoint"):
        scores.share_first(since=40)


def test_scores_of_attacks_are_saved_beside_honest_ones(tmp_path):
    attacked, honest = game(ATTACKS["promote"]), play("uniform", USERS, 300, replications=3, checkpoints=5)
    path = save_results([attacked, honest], tmp_path / "results.parquet")
    again = load(path, policy="comb-ucb")
    np.testing.assert_array_equal(again.attack.flips, attacked.attack.flips)
    np.testing.assert_array_equal(again.attack.share_first(), attacked.attack.share_first())
    assert load(path, policy="uniform").attack is None
    assert again.build_world().attack == ATTACKS["promote"]
    save_results([attacked], tmp_path / "results.csv")
    assert (tmp_path / "results.csv").read_text().splitlines()[0].endswith("flips,touched,target_first,target_shown")


def test_an_attacked_world_is_built_again_from_its_description():
    world = Attacked(cascade([0.5, 0.2], 1), Attack("demote", target=0, budget=5))
    again = from_description(world.description())
    assert again.attack == world.attack
    assert again.honest.expected_reward(0, [0]) == 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Attack("flatter"), "kind must be one of"),
        (lambda: Attack("promote"), "needs a target"),
        (lambda: Attack("threshold"), "needs a target"),
        (lambda: Attack("threshold", target=3, margin=2), "margin must be a number"),
        (lambda: Attacked(USERS, "promote"), "an object with the method report"),
        (lambda: Attack("mirror", budget=-1), "budget must be a whole number"),
        (lambda: Attack("random", rate=2), "rate must be a number"),
        (lambda: Attacked(USERS, Attack("promote", target=4)), "there are 4 items"),
        (lambda: Attacked(Attacked(USERS, ATTACKS["quit"]), ATTACKS["quit"]), "one adversary only"),
    ],
)
def test_impossible_attacks_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
