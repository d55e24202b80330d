"""The algorithms of this package written the straightforward way, in Python with NumPy and SciPy.

Each file has one policy under the name that it has in ``bothworlds.policies``. Nothing in them is compiled, and they
use nothing of this package but the interface of policies. ``decide`` may store in the state what it has drawn, so a
decision is followed by its clicks; feedback is not validated.
"""

from __future__ import annotations

from bothworlds.arena.game import Game
from bothworlds.arena.loop import Score, replicate
from bothworlds.policies import Policy
from bothworlds.worlds import World

from .comb_ucb import CombUcb
from .ftrl_pbm import FtrlPbm
from .gibbs_ts import GibbsTs
from .pbm_ts import PbmTs
from .pbm_ucb import PbmUcb
from .ranked_exp3 import RankedExp3
from .toprank import TopRank
from .uniform import Uniform

__all__ = ["CONTENDERS", "FtrlPbm", "play_rounds"]

CONTENDERS: dict[str, type[Policy]] = {
    contender.name: contender for contender in (Uniform, TopRank, PbmUcb, CombUcb, PbmTs, GibbsTs, RankedExp3, FtrlPbm)
}


def play_rounds(policy: Policy, world: World, rounds: int, replication: int) -> Score:
    """Play one replication in the loop of the arena, compiled if the policy is, in this thread.

    The policy gets the horizon and the examination if it needs them. Every policy meets the same users. The processor
    time of the score includes the clicks, and does not include compilation.
    """
    return replicate(Game.of(policy, world, rounds, checkpoints=1, inform=True), replication, lambda played: None)
