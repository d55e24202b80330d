"""Off-policy evaluation: the clicks that rankings and policies would have had, estimated on a log of other rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...checks import choice, is_number, whole
from ...extras import import_extra
from ...kernels import Floats, Ints
from ..model.model import ClickModel, load_model
from .backtest import Backtest, backtest
from .choice import Choice, asked_for, choose
from .click_rates import MODELS, FittedRates, RateModel, level_distance
from .dependence import FAR, Dependence, list_dependence
from .identification import OPEN, Identified, bounds_of_value, identify, placement_table, what_to_log
from .importance_weighting import Weighted, weighted_estimates
from .logged import Mask, Placements, logged_pages
from .policy_training import from_policy, is_policy
from .result import ALIASES, NAN, NOT_FROM_THIS_LOG, Z95, Change, Estimate, Evaluation, make_estimate
from .targets import Target, from_lists, from_marginals
from .warnings import FEWEST_IMPRESSIONS, all_warnings, log_notes, wrong_propensities

MOST_POSITIONS = 20  # of user browsing, which has a parameter for every pair of positions
WEIGHTED = ("ips", "snips", "clipped", "dr")
ESTIMATORS = ("auto", *MODELS, "shrunken", *WEIGHTED, *ALIASES)
NEEDS = {  # estimators that not all logs and targets allow
    "ubm": "pages (a column event), from 2 to 20 positions, no given examination, and one list per query",
    "pbm+level": "times over at least two windows",
}


def evaluate(
    log: Any,
    target: Any = None,
    *,
    marginals: Mapping[Any, Any] | None = None,
    estimator: str = "auto",
    windows: str | None = "auto",
    examination: Any = None,
    cluster: str = "page",
    since: Any = None,
    clip_weights: float | None = None,
    draws: int | None = None,
    seed: int = 0,
    label: str = "",
    progress: bool | None = None,
) -> Evaluation:
    """Estimate the clicks per page that another ranking would have had on the traffic of a log.

    The log needs no propensities. An estimator is chosen by how well it predicts lists of the log that were held out;
    if none predicts them better than no change, or if the log does not determine the target, there is no value.

    Parameters
    ----------
    log
        A log from :func:`bothworlds.clicks.read`, or a path or table that :func:`bothworlds.clicks.read` accepts;
        pages or counts.
    target
        A list of item names, one for every position of the log; or a dictionary from query to list; or a file or table
        with the columns query, position, item; or a policy, which is trained on one half of the log and evaluated,
        without learning, on the other half, and vice versa.
    marginals
        Instead of a target, the probabilities of each item at every position: ``{item: [...]}``.
    estimator
        ``"auto"``, or one of ``cells``, ``pbm`` (``direct``), ``pbm+level``, ``ubm``, ``shrunken``, and for a log with
        propensities ``ips``, ``snips``, ``clipped``, ``dr``.
    windows
        Windows of time whose level may differ: ``"day"``, ``"week"``, None for none; ``"auto"`` takes weeks if the log
        has at least three of them, else days likewise, else none.
    examination
        The examination of positions from another surface, for a log that does not determine it: a fitted model, its
        path, or a list of numbers.
    cluster
        What is independent: ``"page"``, or ``"query"`` for an interval over queries like these.
    since
        A date: only pages from then on.
    clip_weights
        The largest weight of the clipped estimate; by default the square root of the number of impressions, so that
        the bias vanishes as logs grow.
    draws, seed
        How many decisions of a policy are averaged; the seed of these and of random halves and folds.
    label
        The name of the target.
    progress
        Whether to show progress bars on standard error; by default if it is a terminal.

    Examples
    --------
    Two lists that a shop has shown determine a third, since "b" was shown at both positions:

    >>> log = {"event": [k // 2 for k in range(800)], "position": [1, 2] * 400,
    ...     "item": ["a", "b"] * 200 + ["b", "c"] * 200, "click": ([1, 0, 0, 0, 1, 1, 0, 0] * 50 + [1, 0, 0, 1] * 100)}
    >>> evaluation = evaluate(log, ["a", "c"])
    >>> evaluation.chosen, round(evaluation.value, 2), evaluation.determined
    ('pbm', 1.0, 1.0)
    >>> evaluate(log, ["c", "a"], estimator="cells").value
    nan
    """
    if (target is None) == (marginals is None):
        raise ValueError("give either a target or marginals={item: [...]}; without both there is nothing to evaluate")
    found = Evaluator(log, windows, examination, cluster, since, clip_weights, draws, seed, progress)
    return found.evaluate(target, marginals=marginals, estimator=estimator, label=label)


class Value(NamedTuple):
    """An estimate at every position and for the whole page, and what it is made of."""

    estimates: list[Estimate]
    terms: list[tuple[Ints, Floats]]  # what every page adds
    of_query: Floats | None = None  # (Q,) clicks times the share of pages; None for weighted estimates


class Evaluator:
    """A log that is read, fitted and held out once, for several targets; arguments are those of :func:`evaluate`."""

    def __init__(
        self, log: Any, windows: str | None = "auto", examination: Any = None, cluster: str = "page", since: Any = None,
        clip_weights: float | None = None, draws: int | None = None, seed: int = 0, progress: bool | None = None,
    ) -> None:  # fmt: skip
        if clip_weights is not None and not (is_number(clip_weights) and 0.0 < clip_weights < np.inf):
            raise ValueError(
                f"clip_weights must be above 0 and finite (the estimate ips does not clip); got {clip_weights!r}"
            )
        self.clip, self.seed, self.progress = clip_weights, whole(seed, "seed", 0), progress
        self.draws = None if draws is None else whole(draws, "draws", 1)
        self.logged, self.query_columns = logged_pages(log, windows, since, cluster, progress)
        curve, self.curve_name = _curve(examination, self.logged.pages.positions)
        self.models = {"cells": RateModel("cells", self.logged), "pbm": RateModel("pbm", self.logged, curve)}
        if len(self.logged.pages.windows) > 1:
            self.models["pbm+level"] = RateModel("pbm+level", self.logged, curve)
        if self.logged.has_pages and 1 < len(self.logged.pages.positions) <= MOST_POSITIONS and curve is None:
            self.models["ubm"] = RateModel("ubm", self.logged)
        self._fits: dict[tuple[str, int | None], FittedRates] = {}

    def fit(self, name: str, half: int | None = None) -> FittedRates:
        """Return the fit of a model to all pages or one half of them."""
        if (name, half) not in self._fits:
            count = None if half is None else self.halves[half]
            fitted = self.fit("pbm", half).shrunken() if name == "shrunken" else self.models[name].fit(count)
            self._fits[name, half] = fitted
        return self._fits[name, half]

    @cached_property
    def halves(self) -> tuple[Ints, Ints]:
        """Counts of the pages of two random halves."""
        return self.logged.halves(self.seed)

    @cached_property
    def backtest(self) -> Backtest:
        """Lists held out in turn; levels that do not differ are not tried."""
        left_out = ("cells",) if self._raw_levels >= FAR else ("cells", "pbm+level")
        models = [model for name, model in self.models.items() if name not in left_out]
        return backtest(self.logged, models, self.seed, self.progress)

    @cached_property
    def dependence(self) -> Dependence | None:
        """Whether clicks depend on the items above."""
        return list_dependence(self.logged, self.fit("pbm").design, self.seed)

    @cached_property
    def levels(self) -> float:
        """How far levels of windows differ, in widened standard errors."""
        return self._raw_levels / self.factor("pbm+level")

    @cached_property
    def _raw_levels(self) -> float:
        return level_distance(self.fit("pbm+level")) if "pbm+level" in self.models else 0.0

    def factor(self, name: str | None) -> float:
        """Return by how much errors of a model exceed what chance explains."""
        found = self.backtest.of("pbm" if name == "shrunken" else name)
        return float(np.sqrt(max(found.phi, 1.0))) if found else 1.0

    def evaluate(
        self, given: Any, *, marginals: Mapping[Any, Any] | None = None, estimator: str = "auto", label: str = ""
    ) -> Evaluation:
        """Return the evaluation of one target."""
        name = ALIASES.get(choice(estimator, "estimator", ESTIMATORS), estimator)
        target = self._target(given, marginals)
        target = replace(target, label=label or target.label)
        logged = self.logged
        placed = [target.placements(logged, self._count(half), half or 0) for half in target.halves]
        together = Placements(*(np.concatenate(part) for part in zip(*placed)))
        found = identify(logged, together, self.fit("pbm"))
        names = [one for one in (*self.models, "shrunken") if one != "ubm" or target.lists]
        values = {"logged": self._of_log} | {one: self._value(one, target, placed) for one in names}
        weighted = None
        if logged.pages.propensity is not None:
            weighted = weighted_estimates(logged, target, self.models["pbm"], self.halves, self.clip)
            values |= {one: Value(estimates, weighted.terms[one]) for one, estimates in weighted.estimates.items()}
        picked = self._choose(name, target, values, found, weighted)
        bounds = self._bounds(found)
        value = values[picked.name].estimates[-1].value if picked.name else NAN
        lower, upper = (value, value) if found.shares[OPEN] <= 0.0 else bounds
        warned = tuple(all_warnings(self, target, picked, found, values, weighted))
        return Evaluation(
            target=target.label,
            chosen=picked.name,
            reason=picked.reason,
            value=value,
            change=self._change(picked.name, values),
            lower_bound=lower,
            upper_bound=upper,
            determined=1.0 - found.shares[OPEN],
            positions=logged.pages.positions,
            estimates=tuple(one for part in values.values() for one in part.estimates),
            candidates=self.backtest.candidates,
            support=weighted.support if weighted else (),
            pages=round(logged.total),
            queries_in_log=len(logged.pages.queries),
            shares=found.shares,
            placements=placement_table(logged, found, target.unknown),
            queries=self._queries(values[picked.name].of_query if picked.name else None),
            backtest=self.backtest.table(logged, picked.name),
            notes=(*logged.pages.notes, *log_notes(self), *target.notes),
            warnings=(*what_to_log(logged, found, self.fit("pbm"), target.unknown), *warned),
        )

    def _count(self, half: int | None) -> Ints:
        return self.logged.pages.count if half is None else self.halves[half]

    def _target(self, given: Any, marginals: Mapping[Any, Any] | None) -> Target:
        if marginals is not None:
            return from_marginals(marginals, self.logged)
        if is_policy(given):
            return from_policy(given, self.logged, self.halves, self.seed, self.draws, self.progress)
        return from_lists(given, self.logged, self.query_columns)

    def _value(self, name: str, target: Target, placed: Sequence[Placements]) -> Value:
        """The value of a target by a model."""
        logged, (queries, _, m, _) = self.logged, self.logged.shape
        kept = np.zeros(queries, bool) if target.has is None else ~target.has
        estimates, of_all, unseen_of_all = list[Estimate](), np.zeros(queries), 0.0
        terms = [(self._count(half), np.zeros(len(logged.pages))) for half in target.halves]
        weights = np.zeros(2)  # of all placements, and of those that are determined
        for j, position in enumerate(logged.pages.positions):
            places = np.repeat(kept, m) & (np.arange(queries * m) % m == j)
            of_query, unseen, here = logged.clicks_of_queries(places), 0.0, np.zeros(2)
            own, here_terms = logged.click_terms(places), []
            for half, part, (count, sums) in zip(target.halves, placed, terms):
                fit, at = self.fit(name, half), part.position == j
                found = fit.predict(part, at)
                known = ~np.isnan(found.clicks)
                here += part.weight[at].sum(), part.weight[at][known].sum()
                of_query += np.bincount(part.query[at], found.clicks, queries)
                added = fit.terms(found) + own if known.all() else np.full(own.size, np.nan)
                unseen += fit.unseen(found)
                sums += added
                here_terms.append((count, added))
            estimates.append(self._estimate(name, position, of_query, here_terms, unseen, here))
            of_all, weights, unseen_of_all = of_all + of_query, weights + here, float(np.hypot(unseen_of_all, unseen))
        estimates.append(self._estimate(name, None, of_all, terms, unseen_of_all, weights))
        return Value(estimates, terms, of_all)

    def _estimate(
        self, name: str, position: int | None, of_query: Floats, terms: list[tuple[Ints, Floats]], unseen: float,
        weights: Floats,
    ) -> Estimate:  # fmt: skip
        apart = of_query - of_query.sum() * self.logged.of_query / self.logged.total
        error = self.factor(name) * self.logged.error(terms, apart)
        share = weights[1] / weights[0] if weights[0] else 1.0
        return make_estimate(name, position, float(of_query.sum()), error, unseen, share)

    @cached_property
    def _of_log(self) -> Value:
        """The clicks of the log itself."""
        logged, estimates = self.logged, []
        at = np.arange(logged.shown.size) % logged.shape[2]
        for j, position in enumerate((*logged.pages.positions, None)):
            places = (at == j) | (position is None)
            of_query, terms = logged.clicks_of_queries(places), [(logged.pages.count, self._log_terms(places))]
            unseen = 0.0 if of_query.any() else 3.0 / max(logged.total, 3.0)
            estimates.append(self._estimate("logged", position, of_query, terms, unseen, np.ones(2)))
        return Value(estimates, terms, of_query)

    def _log_terms(self, places: Mask) -> Floats:
        """(P,) what every page adds to the clicks of the log at some (query, position).

        Clusters of (query, window) have one list each: what they add is their difference from the fit.
        """
        logged, fit = self.logged, self.fit("pbm")
        if logged.cluster == "query" or logged.clusters is None:
            return logged.click_terms(places)
        p = np.nan_to_num(fit.fitted.predict(fit.design.row, fit.design.columns))[fit.design.cell]
        return logged.by_page((logged.pages.click - p) * (logged.scale * places)[logged.place] / logged.total)

    def _choose(
        self, name: str, target: Target, values: Mapping[str, Value], found: Identified, weighted: Weighted | None
    ) -> Choice:
        known = {one for one, value in values.items() if value.estimates[-1].value == value.estimates[-1].value}
        open_share = found.shares[OPEN]
        if name != "auto":
            if name not in values:
                raise ValueError(
                    f"the estimator {name!r} needs {NEEDS.get(name, 'propensities, and the log has none')}"
                )
            return asked_for(name, known.__contains__, open_share)
        usable = weighted is not None and all(
            part.effective_impressions >= FEWEST_IMPRESSIONS and not wrong_propensities(part)
            for part in weighted.support[:-1]
        )
        if usable and self.dependence is not None and self.dependence.fires:
            usable = False
        if not self.logged.clicked.any():
            return Choice(None, f"{NOT_FROM_THIS_LOG}: it has no clicks.")
        picked = choose(known.__contains__, self.backtest, usable, self.levels, self.dependence, open_share)
        if picked.name in self.models and self.curve_name:
            return picked._replace(reason=f"{picked.reason} Examination is that of {self.curve_name}.")
        return picked

    def _change(self, name: str | None, values: Mapping[str, Value]) -> Change:
        """The change, with an interval from slope times change to change, and 1.96 widened standard errors outside.

        It reaches down to the change with shrunken attraction, since the ranking may have been made from the log.
        """
        logged, of_log = self.logged, self._of_log
        base = of_log.estimates[-1].value
        value = values[name].estimates[-1].value if name else NAN
        if name is None or value != value or base <= 0.0:
            return Change(NAN, NAN, NAN)
        own = values[name]
        # Weighted estimates are pooled over queries.
        log_terms, apart = logged.click_terms(pooled=True), None
        if own.of_query is not None and of_log.of_query is not None:
            log_terms, apart = of_log.terms[0][1], (own.of_query - (value / base) * of_log.of_query) / base
        joint = [(count, (term - (value / base) * log_terms) / base) for count, term in own.terms]
        outside = Z95 * self.factor(name) * logged.error(joint, apart)
        change = value / base - 1.0
        low, high = sorted((change, self._slope(name) * change))
        if name in self.models:
            plain, shrunken = (values[one].estimates[-1].value for one in ("pbm", "shrunken"))
            low = min(low, value / base * shrunken / plain - 1.0)
        return Change(change, max(low - outside, -1.0), high + outside)

    def _slope(self, name: str) -> float:
        """Observed change per predicted change of lists that were held out."""
        tested = self.backtest.of("pbm" if name == "shrunken" else name)
        return max(tested.slope, 0.0) if tested else 1.0

    def _bounds(self, found: Identified) -> tuple[float, float]:
        """Bounds on the value by the position-based model, if the target is not determined.

        As for the interval of the change, changes may be as small as those of lists that were held out.
        """
        if found.shares[OPEN] <= 0.0:
            return NAN, NAN
        fit, p, logged = self.fit("pbm"), found.placements, self.logged
        prediction = fit.predict(p, found.how != OPEN)
        error = logged.error([(logged.pages.count, fit.terms(prediction))])
        kept = np.repeat(np.bincount(p.query, minlength=logged.shape[0]) == 0, logged.shape[2])
        known = float(prediction.clicks.sum() + logged.clicks_of_queries(kept).sum())
        bounds = bounds_of_value(known, self.factor("pbm") * error, fit, found)
        base, slope = self._of_log.estimates[-1].value, min(self._slope("pbm"), 1.0)
        lower, upper = (base + slope * (bound - base) for bound in bounds)
        results = float(logged.shown @ logged.scale) / logged.total  # of a page: no more can be clicked
        return min(lower, bounds[0]), min(max(upper, bounds[1]), results)

    def _queries(self, of_query: Floats | None) -> Any:
        """The Arrow table of queries, those that gain most first."""
        logged = self.logged
        some = np.flatnonzero(logged.of_query)
        pages = logged.of_query[some]
        base, value = (
            np.full(some.size, np.nan) if part is None else part[some] * logged.total / pages
            for part in (self._of_log.of_query, of_query)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.where(base > 0.0, value / base - 1.0, np.nan)
        order = np.argsort(-np.nan_to_num(pages * (value - base)), kind="stable")
        columns = {"pages": pages, "logged": base, "value": value, "change": change}
        names = [logged.pages.queries[some[k]] for k in order.tolist()]
        return import_extra("pyarrow").table({"query": names} | {key: part[order] for key, part in columns.items()})


def _curve(given: Any, positions: tuple[int, ...]) -> tuple[Floats | None, str]:
    """The examination curve of another surface, and its name."""
    if given is None:
        return None, ""
    name = Path(given).name if isinstance(given, (str, Path)) else "the given curve"
    model = load_model(given) if isinstance(given, (str, Path)) else given
    if isinstance(model, ClickModel) and model.model == "pbm" and set(positions) <= set(model.positions):
        model = [model.examination[model.positions.index(p)] for p in positions]
    try:
        curve = np.asarray(model, np.float64)
    except (TypeError, ValueError):
        curve = np.empty(0)
    if curve.shape != (len(positions),) or not ((curve >= 0.0) & (curve <= 1.0)).all() or not curve.any():
        raise ValueError(
            f"examination must be {len(positions)} numbers from 0 to 1, one for every position, or a position-based "
            f"model with the positions {positions}; got {given!r}"
        )
    return curve, name
