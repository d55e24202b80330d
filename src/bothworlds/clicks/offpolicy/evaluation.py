"""Off-policy evaluation: the clicks that rankings and policies would have had, estimated on a log of other rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...checks import choice, whole
from ...extras import import_extra
from ...kernels import Floats, Ints
from ..model.model import ClickModel, load_model
from .backtest import Backtest, backtest
from .choice import Choice, asked_for, choose
from .click_rates import MODELS, FittedRates, RateModel, level_distance
from .dependence import FAR, Dependence, list_dependence
from .identification import OPEN, Identified, bounds_of_value, identify, placement_table, what_to_log
from .importance_weighting import Weighted, weighted_estimates
from .logged import logged_pages
from .policy_training import from_policy, is_policy
from .result import ALIASES, NAN, Z95, Change, Estimate, Evaluation, make_estimate
from .targets import Target, from_marginals, from_ranking, from_rankings, read_rankings
from .warnings import FEWEST_IMPRESSIONS, all_warnings, log_notes, wrong_propensities

MOST_POSITIONS = 20  # of user browsing, which has a parameter for every pair of positions
WEIGHTED = ("ips", "snips", "clipped", "dr")
ESTIMATORS = ("auto", *MODELS, "shrunken", *WEIGHTED, *ALIASES)


class _Value(NamedTuple):
    """An estimate of the whole page with what it is made of."""

    name: str
    clicks: Floats  # (m,) per position
    of_query: Floats  # (Q,) clicks times the share of pages
    terms: list[tuple[Ints, Floats]]
    unseen: float
    shrunken: float


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
    options: dict[str, Any] = {"windows": windows, "examination": examination, "cluster": cluster, "since": since}
    if target is None and marginals is None:
        raise ValueError("nothing to evaluate; give a target, or marginals={item: [...]}")
    if target is not None and marginals is not None:
        raise ValueError("give either a target or marginals")
    found = Evaluator(log, **options, clip_weights=clip_weights, draws=draws, seed=seed, progress=progress)
    return found.evaluate(target, marginals=marginals, estimator=estimator, label=label)


class Evaluator:
    """A log that is read, fitted and held out once, for several targets; arguments are those of :func:`evaluate`."""

    def __init__(
        self,
        log: Any,
        *,
        windows: str | None = "auto",
        examination: Any = None,
        cluster: str = "page",
        since: Any = None,
        clip_weights: float | None = None,
        draws: int | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> None:
        cap: Any = clip_weights
        if cap is not None and not (isinstance(cap, Real) and 0.0 < float(cap) < np.inf):
            raise ValueError(
                f"clip_weights must be above 0 and finite (the estimate ips does not clip); got {clip_weights!r}"
            )
        self.clip, self.seed, self.progress = clip_weights, whole(seed, "seed", 0), progress
        self.draws = None if draws is None else whole(draws, "draws", 1)
        self.logged, self.log = logged_pages(log, windows, since, cluster, progress)
        curve, self.curve_name = _curve(examination, self.logged.pages.positions)
        self.has_propensities = self.logged.pages.propensity is not None
        names = ["pbm"]
        if len(self.logged.pages.windows) > 1:
            names.append("pbm+level")
        if self.logged.has_pages and 1 < len(self.logged.pages.positions) <= MOST_POSITIONS and curve is None:
            names.append("ubm")
        self.models = {name: RateModel(name, self.logged, curve if name != "ubm" else None) for name in names}
        self.fits = {name: model.fit() for name, model in self.models.items()}

    @cached_property
    def halves(self) -> tuple[Ints, Ints]:
        """Counts of the pages of two random halves."""
        return self.logged.halves(self.seed)

    @cached_property
    def backtest(self) -> Backtest:
        """Lists held out in turn; levels that do not differ are not tried."""
        models = [model for name, model in self.models.items() if name != "pbm+level" or self._raw_levels >= FAR]
        return backtest(self.logged, models, self.seed, self.progress)

    @cached_property
    def dependence(self) -> Dependence | None:
        """Whether clicks depend on the items above."""
        return list_dependence(self.logged, self.fits["pbm"].design, self.seed)

    @cached_property
    def levels(self) -> float:
        """How far levels of windows differ, in widened standard errors."""
        return self._raw_levels / self._factor("pbm+level")

    @cached_property
    def _raw_levels(self) -> float:
        return level_distance(self.fits["pbm+level"]) if "pbm+level" in self.fits else 0.0

    def evaluate(
        self, given: Any, *, marginals: Mapping[Any, Any] | None = None, estimator: str = "auto", label: str = ""
    ) -> Evaluation:
        """Return the evaluation of one target."""
        name = ALIASES.get(choice(estimator, "estimator", ESTIMATORS), estimator)
        target = self._target(given, marginals)
        target = replace(target, label=label or target.label)
        logged, fit = self.logged, self.fits["pbm"]
        placed = [target.placements(logged, count, h) for h, count in enumerate(self._counts(target))]
        together = type(placed[0])(*(np.concatenate(part) for part in zip(*placed)))
        found = identify(logged, together, fit)
        weighted = None
        if self.has_propensities:
            weighted = weighted_estimates(logged, target, self.models["pbm"], self.halves, self.clip)
        values = {one: self._value(one, target) for one in ("cells", *self.models) if one != "ubm" or target.lists}
        estimates = self._estimates(values, weighted)
        picked = self._choose(name, target, estimates, found, weighted)
        bounds, warned = self._bounds(values["pbm"], found), list[str]()
        value = _whole(estimates, picked.name).value if picked.name else NAN
        lower, upper = (value, value) if found.shares[OPEN] <= 0.0 else bounds
        warned += all_warnings(self, target, picked, found, values, estimates, weighted)
        own = picked.name if picked.name in self.models else None
        tested = own or _best(self.backtest)
        return Evaluation(
            target=target.label,
            chosen=picked.name,
            reason=picked.reason,
            value=value,
            change=self._change(picked.name, values, weighted, value),
            lower_bound=lower,
            upper_bound=upper,
            determined=1.0 - found.shares[OPEN],
            positions=logged.pages.positions,
            estimates=tuple(estimates),
            candidates=self.backtest.candidates,
            support=weighted.support if weighted else (),
            clip_weights=weighted.clip if weighted else None,
            pages=round(logged.total),
            queries_in_log=len(logged.pages.queries),
            shares=found.shares,
            placements=placement_table(logged, found, target.unknown),
            queries=self._queries(values.get(picked.name or "")),
            backtest=self.backtest.table(logged, tested),
            notes=(*logged.pages.notes, *log_notes(self), *target.notes),
            warnings=(*what_to_log(logged, found, fit, target.unknown), *warned),
        )

    def _counts(self, target: Target) -> Sequence[Ints]:
        """The pages that every part of a target is evaluated on."""
        return (self.logged.pages.count,) if len(target.parts) == 1 else self.halves

    def _target(self, given: Any, marginals: Mapping[Any, Any] | None) -> Target:
        if marginals is not None:
            return from_marginals(marginals, self.logged)
        if is_policy(given):
            return from_policy(given, self.logged, self.halves, self.seed, self.draws, self.progress)
        named = isinstance(given, Mapping) and {str(key).lower() for key in given} >= {"position", "item"}
        if isinstance(given, Mapping) and not named:
            return from_rankings(given, self.logged)
        is_list = isinstance(given, (list, tuple)) and not any(isinstance(one, Mapping) for one in given)
        if is_list or (getattr(given, "ndim", 0) == 1 and getattr(given.dtype, "names", None) is None):
            return from_ranking(given, self.logged)
        if (lists := read_rankings(given)) is not None:
            if list(lists) == [""] and "" not in self.logged.pages.queries:
                return from_ranking(lists[""], self.logged)
            return from_rankings(lists, self.logged)
        made = f"; bothworlds.policy({given!r}) makes a policy" if isinstance(given, str) else ""
        raise ValueError(
            "target must be a list of items, a dictionary from query to list, a table with the columns query, position "
            f"and item, or a policy; got {given!r}{made}"
        )

    def _value(self, name: str, target: Target) -> _Value:
        """The value of a target by a model, and what every page adds to it."""
        logged, (queries, _, m, _) = self.logged, self.logged.shape
        kept = None if target.has is None or target.has.all() else ~target.has
        clicks, of_query = np.zeros(m), np.zeros(queries)
        terms, unseen, shrunken = [], 0.0, 0.0
        counts = self._counts(target)
        for h, count in enumerate(counts):
            model = self.models.get(name) or RateModel(name, logged)
            fit = self._fit(model, None if len(counts) == 1 else count)
            placed = target.placements(logged, count, h)
            found = fit.predict(placed)
            clicks += np.bincount(placed.position, found.clicks, m)
            of_query += np.bincount(placed.query, found.clicks, queries)
            known = not np.isnan(found.clicks).any()
            of_pages = fit.terms(found) if known else np.full(len(logged.pages), np.nan)
            unseen += fit.unseen(found) if known else NAN
            shrunken += fit.shrunken(found) if known and name == "pbm" else NAN
            if kept is not None:
                of_pages = of_pages + logged.click_terms(kept)
            terms.append((count, of_pages))
        if kept is not None:
            clicks = clicks + logged.clicks(kept)
            own = np.where(kept, np.nan_to_num(logged.clicks_of_query) * logged.of_query / logged.total, 0.0)
            of_query, shrunken = of_query + own, shrunken + own.sum()
        return _Value(name, clicks, of_query, terms, unseen, shrunken)

    def _fit(self, model: RateModel, count: Ints | None) -> FittedRates:
        return self.fits[model.name] if count is None and model.name in self.fits else model.fit(count)

    def _factor(self, name: str | None) -> float:
        """By how much errors of a model exceed what chance explains."""
        found = self.backtest.of("pbm" if name == "shrunken" else name)
        return float(np.sqrt(max(found.phi, 1.0))) if found else 1.0

    def _apart(self, of_query: Floats) -> Floats:
        """(Q,) how far the part of every query is from its share of the whole."""
        return of_query - of_query.sum() * self.logged.of_query / self.logged.total

    @cached_property
    def _log_terms(self) -> Floats:
        """(P,) what every page adds to the clicks of the log.

        Clusters of (query, window) have one list each: what they add is their difference from the fit.
        """
        logged, fit = self.logged, self.fits["pbm"]
        if logged.cluster == "query" or logged.clusters is None:
            return logged.click_terms()
        p = np.nan_to_num(fit.fitted.predict(fit.design.row, fit.design.columns))[fit.design.cell]
        return logged.by_page((logged.pages.click - p) * logged.scale[logged.place] / logged.total)

    def _estimates(self, values: Mapping[str, _Value], weighted: Weighted | None) -> list[Estimate]:
        logged = self.logged
        clicks = logged.clicks()
        of_log = np.nan_to_num(logged.clicks_of_query) * logged.of_query / logged.total
        error = logged.error([(logged.pages.count, self._log_terms)], self._apart(of_log))
        estimates = _of_model("logged", logged.pages.positions, clicks, error, _rule_of_three(clicks, logged.total))
        for name, one in values.items():
            error = self._factor(name) * logged.error(one.terms, self._apart(one.of_query))
            estimates += _of_model(name, logged.pages.positions, one.clicks, error, one.unseen)
        pbm = values["pbm"]
        whole_page = _whole(estimates, "pbm")
        estimates.append(make_estimate("shrunken", None, pbm.shrunken, whole_page.standard_error, pbm.unseen))
        return estimates + (weighted.estimates if weighted else [])

    def _choose(
        self, name: str, target: Target, estimates: list[Estimate], found: Identified, weighted: Weighted | None
    ) -> Choice:
        known = {one.estimator for one in estimates if one.position is None and one.value == one.value}
        open_share = found.shares[OPEN]
        if name != "auto":
            if name in WEIGHTED and weighted is None:
                raise ValueError(f"the estimator {name!r} needs propensities, and the log has none")
            if name == "ubm" and not self.logged.has_pages:
                raise ValueError("the estimator 'ubm' needs pages, and the log has no column event that groups rows")
            if name == "ubm" and not target.lists:
                raise ValueError("the estimator 'ubm' needs one list per query; marginals are not enough")
            if name not in {one.estimator for one in estimates}:
                why = "from 2 to 20 positions, and no given examination"
                why = "times over at least two windows" if name == "pbm+level" else why
                raise ValueError(f"the estimator {name!r} needs {why}")
            return asked_for(name, known.__contains__, open_share)
        usable = weighted is not None and all(
            part.effective_impressions >= FEWEST_IMPRESSIONS and not wrong_propensities(part)
            for part in weighted.support[:-1]
        )
        if usable and self.dependence is not None and self.dependence.fires:
            usable = False
        picked = choose(known.__contains__, self.backtest, usable, self.levels, self.dependence, open_share)
        if picked.name and self.curve_name and picked.name in self.models:
            return picked._replace(reason=f"{picked.reason} Examination is that of {self.curve_name}.")
        return picked

    def _change(
        self, name: str | None, values: Mapping[str, _Value], weighted: Weighted | None, value: float
    ) -> Change:
        """The change, with an interval from slope times change to change, and 1.96 widened standard errors outside."""
        logged = self.logged
        base = float(logged.clicks().sum())
        if name is None or value != value or base <= 0.0:
            return Change(NAN, NAN, NAN)
        own = values.get("pbm" if name == "shrunken" else name)
        terms = own.terms if own else weighted.terms[name] if weighted else []
        of_log = self._log_terms if own else logged.click_terms(pooled=True)  # weighted estimates are pooled
        joint = [(count, (term - (value / base) * of_log) / base) for count, term in terms]
        apart = None
        if own is not None:
            of_base = np.nan_to_num(logged.clicks_of_query) * logged.of_query / logged.total
            apart = (own.of_query - (value / base) * of_base) / base
        outside = Z95 * self._factor(name) * logged.error(joint, apart)
        change = value / base - 1.0
        tested = self.backtest.of(name)
        slope = max(tested.slope, 0.0) if tested else 1.0
        low, high = sorted((change, slope * change))
        return Change(change, max(low - outside, -1.0), high + outside)

    def _bounds(self, pbm: _Value, found: Identified) -> tuple[float, float]:
        """Bounds on the value by the position-based model, if the target is not determined."""
        if found.shares[OPEN] <= 0.0:
            return NAN, NAN
        fit, p = self.fits["pbm"], found.placements
        some = found.how != OPEN
        prediction = fit.predict(type(p)(*(part[some] for part in p)))
        error = self.logged.error([(self.logged.pages.count, fit.terms(prediction))])
        own = self._kept_clicks(p)
        return bounds_of_value(float(prediction.clicks.sum()) + own, self._factor("pbm") * error, fit, found)

    def _kept_clicks(self, p: Any) -> float:
        """Clicks per page of queries without placements, which keep their rankings."""
        kept = np.ones(self.logged.shape[0], bool)
        kept[p.query] = False
        return float(self.logged.clicks(kept).sum())

    def _queries(self, one: _Value | None) -> Any:
        """The Arrow table of queries, those that gain most first."""
        logged = self.logged
        some = np.flatnonzero(logged.of_query)
        base, pages = logged.clicks_of_query[some], logged.of_query[some]
        value = one.of_query[some] * logged.total / pages if one else np.full(some.size, np.nan)
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
    name = "the given curve"
    if isinstance(given, (str, Path)):
        name = Path(given).name
        given = load_model(given)
    if isinstance(given, ClickModel):
        name = name if name != "the given curve" else f"the model of {given.origin or 'another log'}"
        if given.model != "pbm" or not set(positions) <= set(given.positions):
            raise ValueError(f"examination must be that of a position-based model with the positions {positions}")
        given = [given.examination[given.positions.index(p)] for p in positions]
    try:
        curve = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        curve = np.empty(0)
    good = (
        curve.shape == (len(positions),) and np.isfinite(curve).all() and (curve >= 0.0).all() and (curve <= 1.0).all()
    )
    if not good or not curve.any():
        raise ValueError(
            f"examination must be {len(positions)} numbers from 0 to 1, one for every position; got {given!r}"
        )
    return curve, name


def _of_model(name: str, positions: tuple[int, ...], clicks: Floats, error: float, unseen: float) -> list[Estimate]:
    parts = [Estimate(name, p, value, NAN, NAN, NAN) for p, value in zip(positions, clicks.tolist())]
    return [*parts, make_estimate(name, None, float(clicks.sum()), error, unseen)]


def _rule_of_three(clicks: Floats, pages: float) -> float:
    return 0.0 if clicks.any() else 3.0 * clicks.size / max(pages, 3.0)


def _whole(estimates: Sequence[Estimate], name: str) -> Estimate:
    return next(one for one in estimates if one.estimator == name and one.position is None)


def _best(found: Backtest) -> str:
    """The model that predicts held-out lists best."""
    return min(found.candidates, key=lambda one: one.squared_error).model if found.candidates else "pbm"
