"""Policies and worlds that are broken on purpose, each in one way: a check that cannot fail is a defect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from bothworlds.core import NO_CONTEXT, NONE_ABSENT, Decision, Shape, decides
from bothworlds.policies import CompiledPolicy, Policy
from bothworlds.policies.context_ts import ContextTs
from bothworlds.policies.ftrl_pbm import FtrlPbm
from bothworlds.worlds import BestList, ListWorld, World, cascade
from tests.policies.plain import EpsilonGreedy, FixedList, ItemCounts, ListInWork, NotesTheList, Skipping


class ShowsAnItemTwice(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        decision.ranking[-1] = decision.ranking[0]
        return decision


class ShowsAnItemTwiceOnLongLists(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        decision.ranking[10:] = decision.ranking[0]
        return decision


class CountsItemsFromOne(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return Decision(decision.ranking + 1, decision.propensity)


class CountsFromTheEnd(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return Decision(decision.ranking - state.shape.n_items, decision.propensity)


class LeavesAPositionEmpty(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return Decision(decision.ranking[:-1], decision.propensity)


class RanksWithFractions(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return Decision(decision.ranking.astype(float), decision.propensity)


class ShowsTheImpossible(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return Decision(decision.ranking, np.zeros_like(decision.propensity))


class StatesOddsForPercentages(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return Decision(decision.ranking, 100.0 * decision.propensity)


class StatesOnePropensityForAll(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return Decision(decision.ranking, decision.propensity[:1].repeat(state.shape.n_positions + 1))


class ReturnsAList(EpsilonGreedy):
    def decide(self, state, rng):
        return super().decide(state, rng).ranking.tolist()


class ReturnsNothing(EpsilonGreedy):
    def decide(self, state, rng):
        super().decide(state, rng)


class RanksWithAList(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return Decision(decision.ranking.tolist(), decision.propensity)


class RaisesInDecide(EpsilonGreedy):
    def decide(self, state, rng):
        raise IndexError("no such item")


class Undecided(NamedTuple):
    """A state for which nobody has registered a function that decides."""

    shape: Shape


class ForgetsToRegisterDecide(CompiledPolicy):
    def start(self, shape):
        return Undecided(shape)


class Ignorant(NamedTuple):
    """A state for which a function decides, and none learns."""

    shape: Shape


@decides(Ignorant)
def decide_in_order(state, rng, ranking, propensity):
    for j in range(ranking.size):
        ranking[j] = j
        propensity[j] = 1.0


class ForgetsToRegisterLearn(CompiledPolicy):
    def start(self, shape):
        return Ignorant(shape)


class AcceptsAnyShape(EpsilonGreedy):
    def init(self, n_items, n_positions):
        shape = Shape(n_items, n_positions)
        return ItemCounts(shape, np.zeros(n_items), np.zeros(n_items))


class BelievesAnything(EpsilonGreedy):
    def learn(self, state, decision, clicks):
        for i, click in zip(decision.ranking, clicks):
            state.shown[i % len(state.shown)] += 1.0
            state.clicked[i % len(state.shown)] += click
        return state


class LearnsBeforeItLooks(EpsilonGreedy):
    def learn(self, state, decision, clicks):
        state.shown[decision.ranking % state.shape.n_items] += 1.0
        return super().learn(state, decision, clicks)


class ForgetsThatItExplores(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return Decision(decision.ranking, np.minimum(1.0, decision.propensity + self.epsilon))


class StatesTheOddsOfItsBranch(EpsilonGreedy):
    """The propensity given that it explored, or given that it did not: right on average, wrong for weighting."""

    def decide(self, state, rng):
        decision = super().decide(state, rng)
        explored = rng.random() < 0.5
        return Decision(decision.ranking, decision.propensity * (1.5 if explored else 0.5))


class ClaimsToBeUniform(EpsilonGreedy):
    """Its propensities sum to 1, but they are those of another policy."""

    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return Decision(decision.ranking, np.full(state.shape.n_positions, 1.0 / state.shape.n_items))


class StatesANoisyGuess(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return Decision(decision.ranking, decision.propensity * (1.0 - 0.001 * rng.random()))


class HidesARareItem(EpsilonGreedy):
    """Never shows item 0, and states a little less for the others than is true: columns do not sum to 1."""

    def decide(self, state, rng):
        while True:
            decision = super().decide(state, rng)
            if 0 not in decision.ranking:
                return Decision(decision.ranking, np.full(state.shape.n_positions, 0.235))


class CountsQuestions(EpsilonGreedy):
    def decide(self, state, rng):
        decision = super().decide(state, rng)
        state.shown[decision.ranking] += 1.0
        return decision


class ListCounts(NamedTuple):
    shape: Shape
    shown: np.ndarray
    clicked: np.ndarray
    last: np.ndarray


class DecidesOutsideItsWork(NotesTheList):
    """Its decisions do not depend on the last list, but a replay of the feedback would not have it."""

    state = ListCounts


@dataclass(frozen=True)
class RollsItsOwnDice(EpsilonGreedy):
    dice: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def decide(self, state, rng):
        return super().decide(state, self.dice)


class DrawsFromItsOwnGenerator(EpsilonGreedy):
    def decide(self, state, rng):
        return super().decide(state, np.random.default_rng())


@dataclass(frozen=True)
class LearnsAtRandom(EpsilonGreedy):
    dice: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0), repr=False)

    def learn(self, state, decision, clicks):
        kept = np.asarray(clicks) * (self.dice.random(len(clicks)) < 0.5)
        return super().learn(state, decision, kept)


@dataclass(frozen=True)
class LearnsOnItself(EpsilonGreedy):
    """Keeps what it has learned in the policy, where a second run finds it."""

    known: dict = field(default_factory=dict, init=False, repr=False)

    def counts(self, state):
        return self.known.setdefault(tuple(state.shape), super().init(*state.shape))

    def decide(self, state, rng):
        return super().decide(self.counts(state), rng)

    def learn(self, state, decision, clicks):
        super().learn(self.counts(state), decision, clicks)
        return state


class ExpectsPromptAnswers(EpsilonGreedy):
    """Remembers only its last decision, and takes no feedback on any other."""

    def init(self, n_items, n_positions):
        return ListCounts(*super().init(n_items, n_positions), np.zeros(n_positions, int))

    def decide(self, state, rng):
        decision = super().decide(state, rng)
        state.last[:] = decision.ranking
        return decision

    def learn(self, state, decision, clicks):
        if not np.array_equal(state.last, decision.ranking):
            raise ValueError("that was not my last decision")
        return super().learn(state, decision, clicks)


class Hoard(NamedTuple):
    shape: Shape
    shown: np.ndarray
    clicked: np.ndarray
    everything: list


class KeepsEveryClick(EpsilonGreedy):
    def init(self, n_items, n_positions):
        return Hoard(*super().init(n_items, n_positions), [])

    def learn(self, state, decision, clicks):
        super().learn(state, decision, clicks)
        state.everything.append((decision.ranking.tolist(), np.asarray(clicks).tolist()))
        return state


@dataclass(frozen=True)
class KeepsItsKnowledgeElsewhere(EpsilonGreedy):
    """The state is only a key to what the policy itself remembers, so a saved state knows nothing."""

    memory: dict = field(default_factory=dict, init=False)

    def remembered(self, state):
        # The state is part of the entry, so that no other state can come to have its address.
        return self.memory.setdefault(id(state.shown), (state, super().init(*state.shape)))[1]

    def decide(self, state, rng):
        return super().decide(self.remembered(state), rng)

    def learn(self, state, decision, clicks):
        super().learn(self.remembered(state), decision, clicks)
        return state


class LearnsInItsWork(EpsilonGreedy):
    """Takes what it has learned for arrays to work in, which are not saved."""

    def init(self, n_items, n_positions):
        shape, *counts = super().init(n_items, n_positions)
        return ListInWork(shape, *counts, np.zeros(n_items))

    def decide(self, state, rng):
        return super().decide(state._replace(clicked=state.work), rng)

    def learn(self, state, decision, clicks):
        super().learn(state._replace(clicked=state.work), decision, clicks)
        return state


class CannotBeSaved(EpsilonGreedy):
    """A state that is no collection of arrays and numbers."""

    class Secret:
        __slots__ = ()

    def init(self, n_items, n_positions):
        return Hoard(*super().init(n_items, n_positions), self.Secret())


class PrefersLowLabels(EpsilonGreedy):
    """Breaks ties by label, as argsort does."""

    def decide(self, state, rng):
        m = state.shape.n_positions
        rates = (state.clicked + 1.0) / (state.shown + 2.0)
        return Decision(np.argsort(-rates, kind="stable")[:m], np.full(m, np.nan))


class NeverLearns(EpsilonGreedy):
    def learn(self, state, decision, clicks):
        super().learn(ItemCounts(state.shape, state.shown.copy(), state.clicked.copy()), decision, clicks)
        return state


class LearnsTheOpposite(EpsilonGreedy):
    def learn(self, state, decision, clicks):
        super().learn(ItemCounts(state.shape, state.shown.copy(), state.clicked.copy()), decision, clicks)
        return super().learn(state, decision, 1.0 - np.asarray(clicks))


class ReadsItsPropensities(EpsilonGreedy):
    """Takes a small propensity for a random list, which counts less; true of its own, not of those of a mixture."""

    needs_propensity = False

    def learn(self, state, decision, clicks):
        explored = np.asarray(decision.propensity) < 0.1
        super().learn(state, decision, clicks)
        state.shown[decision.ranking[explored]] -= 0.5
        return state


class ForgetsTheClicksOfItsParts(Skipping):
    learned_leaves: ClassVar = {"shown": "i"}


class MixesUpItsParts(Skipping):
    """What was learned of the items of a part is copied in the order of the whole."""

    learned_leaves: ClassVar = {"shown": "i", "clicked": "i"}

    def refreshed(self, state):
        return ItemCounts(state.shape, np.roll(state.shown, 1), np.roll(state.clicked, 1))


class GainsByAbsence(FtrlPbm):
    """Does not charge an item that could not be shown."""

    def learn(self, state, decision, clicks):
        return super().learn(state, decision._replace(absent=NONE_ABSENT), clicks)


class RoundsRewards(EpsilonGreedy):
    def learn(self, state, decision, clicks):
        return super().learn(state, decision, np.round(clicks))


class RefusesFractions(EpsilonGreedy):
    def learn(self, state, decision, clicks):
        if not np.isin(clicks, (0.0, 1.0)).all():
            raise ValueError("clicks must be 0 or 1")
        return super().learn(state, decision, clicks)


# For the name of every check, what it must catch.
@dataclass(frozen=True)
class NeverRestarts(EpsilonGreedy):
    restart: int | None = None


@dataclass(frozen=True)
class RemembersInSecret(EpsilonGreedy):
    """Decides at random for a round after a restart, and then with all that it has learned."""

    restart: int | None = None

    def decide(self, state, rng):
        if self.restart and state.shown.sum() % (3 * self.restart) == 0:
            state = self.init(*state.shape)
        return super().decide(state, rng)


class StatesThePropensitiesOfOthers(ContextTs):
    """It forgets that they depend on the context."""

    def decide(self, state, rng, context=NO_CONTEXT):
        decision = super().decide(state, rng, context)
        others = self.marginals(state, 0 * decision.context)[decision.ranking, np.arange(decision.ranking.size)]
        return decision._replace(propensity=np.maximum(others, 1e-3))


class CountsContexts(ContextTs):
    def decide(self, state, rng, context=NO_CONTEXT):
        state.effects.seen[0] += np.size(context) > 0
        return super().decide(state, rng, context)


class ReadsTheLastLabelOnly(ContextTs):
    def decide(self, state, rng, context=NO_CONTEXT):
        row = np.zeros(state.labels.visitor.size, np.int64)
        row[-1:] = np.asarray(context)[-1:]
        return super().decide(state, rng, row)


class LearnsForAnotherContext(ContextTs):
    """It learns from every page as if the visitor were of no known context."""

    def learn(self, state, decision, clicks):
        return super().learn(state, decision._replace(context=0 * decision.context), clicks)


BROKEN_POLICIES: dict[str, list[type[Policy]]] = {
    "check_rankings_are_valid": [
        ShowsAnItemTwice,
        ShowsAnItemTwiceOnLongLists,
        CountsItemsFromOne,
        CountsFromTheEnd,
        LeavesAPositionEmpty,
        RanksWithFractions,
        ShowsTheImpossible,
        StatesOddsForPercentages,
        StatesOnePropensityForAll,
        ReturnsAList,
        ReturnsNothing,
        RanksWithAList,
        RaisesInDecide,
        ForgetsToRegisterDecide,
        ForgetsToRegisterLearn,
    ],
    "check_impossible_shapes_are_refused": [AcceptsAnyShape],
    "check_bad_feedback_is_refused_and_changes_nothing": [BelievesAnything, LearnsBeforeItLooks],
    "check_propensities_equal_frequencies": [
        ForgetsThatItExplores,
        StatesTheOddsOfItsBranch,
        ClaimsToBeUniform,
        StatesANoisyGuess,
        HidesARareItem,
    ],
    "check_deciding_leaves_no_trace": [CountsQuestions, DecidesOutsideItsWork],
    "check_a_seed_fixes_everything": [RollsItsOwnDice, DrawsFromItsOwnGenerator, LearnsAtRandom, LearnsOnItself],
    "check_late_and_shuffled_feedback_is_accepted": [ExpectsPromptAnswers],
    "check_propensities_change_nothing_unless_they_are_needed": [ReadsItsPropensities],
    "check_a_part_is_a_smaller_problem": [ForgetsTheClicksOfItsParts, MixesUpItsParts],
    "check_an_absent_item_does_not_gain": [GainsByAbsence],
    "check_memory_is_bounded": [KeepsEveryClick],
    "check_saving_and_loading_keeps_the_future": [KeepsItsKnowledgeElsewhere, LearnsInItsWork, CannotBeSaved],
    "check_a_restart_forgets_everything": [NeverRestarts, RemembersInSecret],
    "check_labels_do_not_matter": [PrefersLowLabels, FixedList],
    "check_it_beats_uniform_in_an_easy_world": [NeverLearns, LearnsTheOpposite],
    "check_rewards_between_0_and_1_are_learned_from": [RoundsRewards, RefusesFractions],
    "check_propensities_equal_frequencies_in_every_context": [StatesThePropensitiesOfOthers],
    "check_deciding_for_contexts_leaves_no_trace": [CountsContexts],
    "check_labels_of_contexts_and_items_may_be_numbered_in_any_order": [ReadsTheLastLabelOnly],
    "check_what_a_label_says_is_learned": [LearnsForAnotherContext],
}


class Sound(World):
    """A world with nothing wrong: three items, two positions, and a change at round 500."""

    n_items = 3
    n_positions = 2
    early = np.array([[0.9, 0.5], [0.5, 0.3], [0.1, 0.1]])

    def click_probabilities(self, t):
        return self.early if t < 500 else self.early[::-1]


class HasTooFewItems(Sound):
    n_items = 4


class IsMoreThanCertain(Sound):
    def click_probabilities(self, t):
        return super().click_probabilities(t) + (0.2 if t >= 500 else 0.0)


class IsNotANumber(Sound):
    early = np.array([[0.9, 0.5], [0.5, np.nan], [0.1, 0.1]])


class ChangesItsMind(Sound):
    def __init__(self):
        self.asked = 0

    def click_probabilities(self, t):
        self.asked += 1
        return super().click_probabilities(t) / self.asked


class StopsShort(Sound):
    def spans(self, start, stop):
        yield from super().spans(start, stop - 1)


class OvershootsTheEnd(Sound):
    def spans(self, start, stop):
        yield from super().spans(start, stop + 1)


class StandsStill(Sound):
    def spans(self, start, stop):
        yield start
        yield from super().spans(start, stop)


class OverlooksTheChange(Sound):
    def spans(self, start, stop):
        yield stop


class TakesThemForTheUsersOfTheStart(Sound):
    def first_round_like(self, t):
        return 0


class AnswersForItemsInTheirOwnOrder(Sound):
    def users(self, t, labels=None):
        return super().users(t)


class ClicksOnEverything(Sound):
    def click(self, t, ranking, rng):
        return super().click(t, ranking, rng) * 0.0 + 1.0


BROKEN_WORLDS: list[type[World]] = [
    HasTooFewItems,
    IsMoreThanCertain,
    IsNotANumber,
    ChangesItsMind,
    StopsShort,
    OvershootsTheEnd,
    StandsStill,
    OverlooksTheChange,
    TakesThemForTheUsersOfTheStart,
    AnswersForItemsInTheirOwnOrder,
    ClicksOnEverything,
]


class SoundLists(ListWorld):
    """One item or none is clicked, more often the first; correct, and each world below breaks one thing."""

    n_items, n_positions = 4, 2
    attraction = np.array([0.8, 0.5, 0.3, 0.2])

    def click(self, t, ranking, rng):
        first, second = rng.random(2) < self.attraction[ranking]
        return np.array([first, second and not first], float)

    def expected_reward(self, t, ranking):
        return float(1.0 - np.prod(1.0 - self.attraction[ranking]))


class ExpectsTooMuch(SoundLists):
    def expected_reward(self, t, ranking):
        return float(self.attraction[ranking].sum())


class DrawsFromElsewhere(SoundLists):
    def __init__(self):
        self.hidden = np.random.default_rng(0)

    def click(self, t, ranking, rng):
        return super().click(t, ranking, self.hidden)


class RemembersThePageBefore(SoundLists):
    last = -1

    def click(self, t, ranking, rng):
        clicks = super().click(t, ranking, rng)
        tired, self.last = self.last == ranking[0], int(ranking[0])
        return clicks * (not tired)


class ClicksTwice(SoundLists):
    def click(self, t, ranking, rng):
        return 2.0 * super().click(t, ranking, rng)


class ClicksBelowThePage(SoundLists):
    def click(self, t, ranking, rng):
        return np.append(super().click(t, ranking, rng), 0.0)


class ExpectsLessEachTime(SoundLists):
    asked = 0

    def expected_reward(self, t, ranking):
        self.asked += 1
        return super().expected_reward(t, ranking) / (1.0 + 1e-6 * self.asked)


class ChangesUnannounced(SoundLists):
    def expected_reward(self, t, ranking):
        return super().expected_reward(t, ranking) * (1.0 if t < 500 else 0.5)


class SpansTooFew(SoundLists):
    def spans(self, start, stop):
        yield stop - 1


class SpansThatStandStill(SoundLists):
    def spans(self, start, stop):
        yield from (start, stop)


class FindsAPoorList(SoundLists):
    def best_list(self, t):
        ranking = np.array([2, 3])
        value = self.expected_reward(t, ranking)
        return BestList(ranking, value, value, "guessing")


class MisstatesItsBestList(SoundLists):
    def best_list(self, t):
        return super().best_list(t)._replace(value=0.1, bound=0.1)


class HasOtherUsersCompiled(SoundLists):
    def users(self, t, labels=None):
        return cascade(self.attraction[::-1], 2).users(t, labels)


class ForgetsTheLabelsOfItsUsers(SoundLists):
    def users(self, t, labels=None):
        return cascade(self.attraction, 2).users(t)


BROKEN_LIST_WORLDS: dict[type[ListWorld], str] = {
    ExpectsTooMuch: "must be the mean of the clicks",
    DrawsFromElsewhere: "rng alone",
    RemembersThePageBefore: "rng alone|mean of the clicks",
    ClicksTwice: "0 or 1",
    ClicksBelowThePage: "0 or 1",
    ExpectsLessEachTime: "the same in every call|rewards differ|rewards of round",
    ChangesUnannounced: "rewards differ|rewards of round",
    SpansTooFew: "must cover the rounds",
    SpansThatStandStill: "must go forward",
    FindsAPoorList: "above the bound",
    MisstatesItsBestList: "must have its value",
    HasOtherUsersCompiled: "must be the mean of the clicks|expected reward of the world",
    ForgetsTheLabelsOfItsUsers: "items in another order",
}
