"""Ranking policies, one file or one folder each.

A policy is made by name, ``policy("ftrl-pbm", rate=0.25)``, or from its class, ``FtrlPbm(rate=0.25)``. A class is named
like its file, without underscores: ``ftrl_pbm.py`` holds ``FtrlPbm``; files with several are listed below. Importing
this package imports none of these files; a file is imported when its class or its name is first used.

A new file in this folder registers its policies; for editors and type checkers, their classes are also listed below. A
policy of another package registers through the entry point group ``bothworlds.policies``, or is passed as an object
wherever a name is accepted.
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
    from .all_weather import AllWeather as AllWeather
    from .batchrank import BatchRank as BatchRank
    from .bubblerank import BubbleRank as BubbleRank
    from .cascade import CascadeKlUcb as CascadeKlUcb
    from .cascade import CascadeUcb as CascadeUcb
    from .cascade import CascadeUcbV as CascadeUcbV
    from .cascade import DcmUcb as DcmUcb
    from .comb_ts import CombTs as CombTs
    from .comb_ucb import CombUcb as CombUcb
    from .comb_ucb import KlCombUcb as KlCombUcb
    from .context_ts import ContextTs as ContextTs
    from .contexts import one_for_all as one_for_all
    from .contexts import one_per_context as one_per_context
    from .delayed import Delayed as Delayed
    from .fixed import Fixed as Fixed
    from .ftpl import Ftpl as Ftpl
    from .ftrl_pbm import FtrlPbm as FtrlPbm
    from .ftrl_pbm import Hybrid as Hybrid
    from .ftrl_va import FtrlVa as FtrlVa
    from .gibbs_ts import GibbsTs as GibbsTs
    from .grab import Grab as Grab
    from .lbinfv import Lbinf as Lbinf
    from .lbinfv import Lbinfv as Lbinfv
    from .mirror_descent import Mw as Mw
    from .mirror_descent import Osmd as Osmd
    from .oracle import Oracle as Oracle
    from .pb_mhb import PbMhb as PbMhb
    from .pbm_pie import PbmPie as PbmPie
    from .pbm_pie import PbmPieMle as PbmPieMle
    from .pbm_ts import PbmTs as PbmTs
    from .pbm_ucb import PbmUcb as PbmUcb
    from .pbm_ucb import PbmUcbMle as PbmUcbMle
    from .pmed import Pmed as Pmed
    from .ranked_exp3 import RankedExp3 as RankedExp3
    from .recurrank import RecurRank as RecurRank
    from .toprank import TopRank as TopRank
    from .tsallis_rv import TsallisRv as TsallisRv
    from .uniform import Uniform as Uniform
    from .unirank import UniRank as UniRank

__all__ = [
    "CompiledPolicy",
    "Description",
    "Policy",
    "check_needs",
    "checked_feedback",
    "configured_for",
    "describe",
    "names",
    "policy",
    "resolve",
]

# The files of what is not named like its file.
_FILES = {
    "CascadeKlUcb": "cascade",
    "CascadeUcb": "cascade",
    "CascadeUcbV": "cascade",
    "DcmUcb": "cascade",
    "Hybrid": "ftrl_pbm",
    "KlCombUcb": "comb_ucb",
    "Lbinf": "lbinfv",
    "Mw": "mirror_descent",
    "Osmd": "mirror_descent",
    "PbmPieMle": "pbm_pie",
    "PbmUcbMle": "pbm_ucb",
    "one_for_all": "contexts",
    "one_per_context": "contexts",
}


if not TYPE_CHECKING:  # or every unknown name would have the type Any

    def __getattr__(name: str) -> Any:
        files = {module.name.replace("_", ""): module.name for module in pkgutil.iter_modules(__path__)}
        file = _FILES.get(name) or files.get(name.lower())
        known = None if file is None else getattr(import_module(f"{__name__}.{file}"), name, None)
        if known is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = known
        return known


def __dir__() -> list[str]:
    classes = (known.__name__ for known in _registered().values() if known.__module__.startswith(__name__))
    return sorted({*globals(), *_FILES, "Delayed", *classes})


def names() -> list[str]:
    """Return the names of all registered policies, including those of other packages, in alphabetical order."""
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
    """Return the description of the policy of that name; raises KeyError for an unknown name."""
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
