"""Finished replications are not played again; everything that determines a result is part of its file name."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import bothworlds
from bothworlds.arena import parallel, replication_cache
from bothworlds.arena.run import engine_named, run
from bothworlds.experiments import game as game_of
from bothworlds.experiments.question import game_checkpoints
from tests.policies.plain import FixedList


def game(policy="uniform", world="paper/stochastic", rounds=60, replications=3, **settings):
    return game_of(bothworlds.policy(policy, **settings), bothworlds.world(world), rounds, replications)


def play_all(games, folder, seed=0, jobs=None):
    return run([replace(one, seed=seed) for one in games], engine_named("local", jobs=jobs), cells=folder)


@pytest.fixture
def played(monkeypatch):
    """The replications that are played and not read from the cache, as (policy, replication)."""
    seen, replicate = [], parallel.replicate

    def counted(game, replication, report):
        seen.append((game.policy_name, replication))
        return replicate(game, replication, report)

    monkeypatch.setattr(parallel, "replicate", counted)
    return seen


def test_results_are_those_of_play(tmp_path):
    [result] = play_all([game()], tmp_path)
    alone = bothworlds.play("uniform", "paper/stochastic", 60, replications=3, checkpoints=result.rounds)
    assert (result.reward == alone.reward).all()
    assert (result.best_fixed == alone.best_fixed).all()
    assert result.policy == alone.policy


def test_finished_replications_are_not_played_again(tmp_path, played):
    first = play_all([game()], tmp_path)
    assert len(played) == 3
    again = play_all([game()], tmp_path)
    assert len(played) == 3
    assert (first[0].reward == again[0].reward).all()


def test_more_replications_continue_fewer(tmp_path, played):
    play_all([game(replications=2)], tmp_path)
    play_all([game(replications=4)], tmp_path)
    assert sorted(replication for _, replication in played) == [0, 1, 2, 3]


def test_an_interrupted_run_continues_where_it_stopped(tmp_path, played, monkeypatch):
    replicate = parallel.replicate

    def interrupted(game, replication, report):
        if replication == 2:
            raise KeyboardInterrupt
        return replicate(game, replication, report)

    with monkeypatch.context() as patch:
        patch.setattr(parallel, "replicate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            play_all([game(replications=3)], tmp_path, jobs=1)
    before = len(played)
    [result] = play_all([game(replications=3)], tmp_path, jobs=1)
    assert played[before:] == [("uniform", 2)]
    whole = play_all([game(replications=3)], tmp_path / "fresh", jobs=1)
    assert (result.reward == whole[0].reward).all()


@pytest.mark.parametrize(
    "other",
    [
        game(rounds=61),
        game(world="yandex/stochastic"),
        game(policy="fixed"),
        game(policy="fixed", ranking=[4, 3, 2, 1, 0]),
    ],
)
def test_another_game_is_another_file(tmp_path, played, other):
    play_all([game(replications=1)], tmp_path)
    play_all([replace(other, replications=1)], tmp_path)
    assert len(played) == 2


def test_another_seed_and_other_sources_are_other_files(tmp_path, played, monkeypatch):
    play_all([game(replications=1)], tmp_path)
    play_all([game(replications=1)], tmp_path, seed=1)
    assert len(played) == 2
    monkeypatch.setattr(replication_cache, "SOURCES_DIGEST", "edited")
    play_all([game(replications=1)], tmp_path)
    assert len(played) == 3


def test_a_world_without_a_name_cannot_be_cached(tmp_path):
    nameless = game_of(bothworlds.policy("uniform"), bothworlds.worlds.stochastic([0.9, 0.1], [1.0]), 10, 1)
    with pytest.raises(ValueError, match="a world needs a name"):
        play_all([nameless], tmp_path)


def test_checkpoints_suit_even_and_logarithmic_axes():
    marks = game_checkpoints(100_000)
    assert marks[0] == 10
    assert marks[-1] == 100_000
    assert {1000, 50_000} <= set(marks.tolist())
    assert (np.diff(marks) > 0).all()
    assert game_checkpoints(3).tolist() == [1, 2, 3]


def test_a_world_is_identified_by_its_users_not_by_its_name(tmp_path, played):
    one, other = bothworlds.world("paper/stochastic"), bothworlds.world("paper/stochastic", gap=0.01)
    other.name = one.name
    for place in (one, other, one):
        play_all([game_of(bothworlds.policy("uniform"), place, 30, 1)], tmp_path)
    assert len(played) == 2


@pytest.mark.slow
def test_a_policy_in_plain_python_is_relabelled():
    @dataclass(frozen=True)
    class Ordered(FixedList):
        items: tuple = (4, 3, 2, 1, 0)

        def relabelled(self, labels):
            return replace(self, items=tuple(np.argsort(labels)[list(self.items)]))

    result = bothworlds.play(Ordered(), "paper/stochastic", 20, replications=3)
    assert np.ptp(result.reward[:, -1]) < 1e-9
