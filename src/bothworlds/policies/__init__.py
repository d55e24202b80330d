"""Ranking policies, one file or one folder each.

A policy is made by name, ``policy("ftrl-pbm", rate=0.25)``, or from its class, ``FtrlPbm(rate=0.25)``. A class is the
only one of its file and is named like it, without underscores: ``ftrl_pbm.py`` holds ``FtrlPbm``. Importing this
package imports none of these files; a file is imported when its class or its name is first used.

A new file in this folder registers its policy; for editors and type checkers, its class is also listed below. A policy
of another package registers through the entry point group ``bothworlds.policies``, or is passed as an object wherever
a name is accepted.
"""

from __future__ import annotations

import inspect
import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

from ..registry import defaults_of, make, parsed_name, sentence_of
from .base import CompiledPolicy, Policy, check_needs, checked_feedback, configured_for

if TYPE_CHECKING:
    from .all_weather import AllWeather
    from .batchrank import BatchRank
    from .bubblerank import BubbleRank
    from .cascade_kl_ucb import CascadeKlUcb
    from .cascade_ucb import CascadeUcb
    from .cascade_ucb_v import CascadeUcbV
    from .comb_ts import CombTs
    from .comb_ucb import CombUcb
    from .context_ts import ContextTs
    from .contexts import one_for_all, one_per_context
    from .dcm_ucb import DcmUcb
    from .delayed import Delayed
    from .fixed import Fixed
    from .ftpl import Ftpl
    from .ftrl_pbm import FtrlPbm
    from .ftrl_va import FtrlVa
    from .gibbs_ts import GibbsTs
    from .grab import Grab
    from .hybrid import Hybrid
    from .kl_comb_ucb import KlCombUcb
    from .lbinf import Lbinf
    from .lbinfv import Lbinfv
    from .mw import Mw
    from .oracle import Oracle
    from .osmd import Osmd
    from .pb_mhb import PbMhb
    from .pbm_pie import PbmPie
    from .pbm_pie_mle import PbmPieMle
    from .pbm_ts import PbmTs
    from .pbm_ucb import PbmUcb
    from .pbm_ucb_mle import PbmUcbMle
    from .pmed import Pmed
    from .ranked_exp3 import RankedExp3
    from .recurrank import RecurRank
    from .toprank import TopRank
    from .tsallis_rv import TsallisRv
    from .uniform import Uniform
    from .unirank import UniRank

__all__ = [
    "AllWeather",
    "BatchRank",
    "BubbleRank",
    "CascadeKlUcb",
    "CascadeUcb",
    "CascadeUcbV",
    "CombTs",
    "CombUcb",
    "CompiledPolicy",
    "ContextTs",
    "DcmUcb",
    "Delayed",
    "Description",
    "Fixed",
    "Ftpl",
    "FtrlPbm",
    "FtrlVa",
    "GibbsTs",
    "Grab",
    "Hybrid",
    "KlCombUcb",
    "Lbinf",
    "Lbinfv",
    "Mw",
    "Oracle",
    "Osmd",
    "PbMhb",
    "PbmPie",
    "PbmPieMle",
    "PbmTs",
    "PbmUcb",
    "PbmUcbMle",
    "Pmed",
    "Policy",
    "RankedExp3",
    "RecurRank",
    "TopRank",
    "TsallisRv",
    "UniRank",
    "Uniform",
    "check_needs",
    "checked_feedback",
    "configured_for",
    "describe",
    "names",
    "one_for_all",
    "one_per_context",
    "policy",
    "resolve",
]

if not TYPE_CHECKING:  # or every unknown name would have the type Any

    def __getattr__(name: str) -> Any:
        if name in ("one_for_all", "one_per_context"):
            return getattr(import_module(f"{__name__}.contexts"), name)
        if name in __all__:
            for module in pkgutil.iter_modules(__path__):
                if module.name.replace("_", "") == name.lower():
                    globals()[name] = getattr(import_module(f"{__name__}.{module.name}"), name)
                    return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def names() -> list[str]:
    """Return the names of all registered policies, including those of other packages, in alphabetical order.

    >>> "ftrl-pbm" in names()
    True
    """
    return sorted(_registered())


def policy(name: str, **settings: Any) -> Policy:
    """Return the policy of that name with these settings; raises ValueError for an unknown name or setting.

    >>> policy("ftrl-pbm", rate=0.25)
    FtrlPbm(restart=None, tolerance=1e-06, every=1, rate=0.25)
    """
    return make("policy", _registered(), name, settings)


class Description(NamedTuple):
    """A policy in one sentence, what it requires, and its settings with their defaults."""

    sentence: str
    needs: tuple[str, ...]
    settings: dict[str, Any]


def describe(name: str) -> Description:
    """Return the description of the policy of that name; raises KeyError for an unknown name.

    >>> describe("uniform").needs
    ()
    """
    known = _registered()[name]
    return Description(sentence_of(known), getattr(known, "needs", ()), defaults_of(known))


def resolve(given: str | Policy) -> Policy:
    """Return a policy that is given by name or as an object; raises ValueError for anything else.

    Settings may follow the name, as on the command line:

    >>> resolve("ftrl-pbm:rate=0.25").label
    'ftrl-pbm(rate=0.25)'
    """
    if isinstance(given, str):
        name, settings = parsed_name(given)
        return policy(name, **settings)
    if isinstance(given, type):
        raise ValueError(f"policy must be an object; got the class {given.__name__}: call it, {given.__name__}()")
    if not all(callable(getattr(given, verb, None)) for verb in ("init", "decide", "learn")):
        raise ValueError(f"policy must be a name or an object with init, decide and learn; got {given!r}")
    return given


@cache
def _registered() -> dict[str, type[Policy]]:
    """All policies by name: those of this folder, then those of entry points, which may replace one of ours."""
    policies: dict[str, type[Policy]] = {}
    for module in pkgutil.iter_modules(__path__):
        for item in vars(import_module(f"{__name__}.{module.name}")).values():
            if inspect.isclass(item) and issubclass(item, Policy) and item.name:
                policies[item.name] = item
    for entry in entry_points(group="bothworlds.policies"):
        policies[entry.name] = entry.load()
    return policies
