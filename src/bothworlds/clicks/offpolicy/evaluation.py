"""What would this have done on my traffic? Rankings and policies judged on a log that others made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from ...kernels import Floats
from ...worlds.settings import whole
from ..reading.duckdb_relations import watched
from .direct_method import Rates, fit_rates, variances
from .importance_weighting import weigh
from .impressions import Cells, Impressions, cells_of, opened, share_of_folds, spread_of_lengths
from .policy_training import from_policy, is_policy
from .result import Estimate, Evaluation, interval
from .targets import Target, from_marginals, from_ranking
from .warnings import doubts_about_fit, doubts_about_model, doubts_about_support, notes_on_log

__all__ = ["compare", "evaluate"]


def evaluate(
    log: Any,
    target: Any,
    *,
    clip_weights: float | None = None,
    seed: int = 0,
    draws: int | None = None,
    label: str = "",
    progress: bool | None = None,
) -> Evaluation:
    r"""The clicks per page that a ranking, a random ranking or a policy would have had, from logged propensities.

    Parameters
    ----------
    log
        A log from :func:`bothworlds.clicks.read`, or what that takes: a path, a table in memory. Where its pages differ
        in length, a position counts as often as there are pages that have it.
    target
        A list or an array of item names, one for every position of the log; or marginals, a dictionary that gives every
        item a probability for every position; or a policy. A policy learns from one half of the log and is judged, as
        it then stands, on the other half, and the other way round: never on what taught it.
    clip_weights
        Where the clipped estimate cuts weights; if not given, at the square root of the number of impressions, which
        takes its bias away as logs grow.
    seed, draws
        Where the randomness of a policy's decisions starts, and how many of them are averaged.
    label
        What to call the target.
    progress
        Whether to report progress on standard error; if not given, where that is a terminal.

    Returns
    -------
    Evaluation
        Estimates named ``logged`` (what the logged rankings earned), ``ips``, ``snips``, ``clipped``, ``direct`` and
        ``dr``, per position and for the whole page, each with a 95% interval; how much of the log speaks for the
        target; warnings. Their formulas and references are in :mod:`bothworlds.clicks.offpolicy.importance_weighting`.

    Examples
    --------
    A log of random lists in which "a" is clicked half of the time and "b" never:

    >>> from bothworlds.clicks import from_obp
    >>> import numpy as np
    >>> action = np.arange(4000) % 2
    >>> reward = (action == 0) & (np.arange(4000) % 4 == 0)
    >>> log = from_obp({"action": action, "reward": reward, "pscore": np.full(4000, 0.5)}, names=["a", "b"])
    >>> found = evaluate(log, ["a"])
    >>> found
    <Evaluation of 'a' on 4,000 pages: clicks per page, 95% interval
      the log itself      0.2500  0.2366 to 0.2634
      inverse propensity  0.5000  0.4732 to 0.5268
      self-normalised     0.5000  0.4781 to 0.5219
      clipped             0.5000  0.4732 to 0.5268
      direct method       0.5...  0.4... to 0.5...
      doubly robust       0.5...  0.4... to 0.5...>
    >>> found.estimate("snips").value, found.estimate("logged").value
    (0.5, 0.25)
    >>> found.warnings
    ()
    """
    options: dict[str, Any] = {"clip_weights": clip_weights, "seed": seed, "draws": draws, "progress": progress}
    return compare(log, [target], labels=[label], **options)[0]


def compare(
    log: Any,
    targets: Iterable[Any],
    *,
    clip_weights: float | None = None,
    seed: int = 0,
    draws: int | None = None,
    labels: Sequence[str] | None = None,
    progress: bool | None = None,
) -> list[Evaluation]:
    """Judge several targets on one log, which is read once; the other arguments are those of :func:`evaluate`."""
    cap: Any = clip_weights
    if cap is not None and not (isinstance(cap, Real) and 0.0 < float(cap) < np.inf):
        raise ValueError(f"clip_weights must be above 0 and finite, since ips cuts nothing; got {clip_weights!r}")
    whole(seed, "seed", 0)
    if draws is not None:
        draws = whole(draws, "draws", 1)
    given = list(targets)
    if labels is not None and len(labels) != len(given):
        raise ValueError(f"{len(given)} targets need as many labels; got {len(labels)}")
    with opened(log, progress) as impressions:
        cells = cells_of(impressions, 0), cells_of(impressions, 1)
        models = fit_rates(_both(cells)[0]), fit_rates(cells[1])
        found: list[Evaluation] = []
        for target, label in zip(given, labels or [""] * len(given)):
            aim = _target(target, impressions, seed, draws, progress)
            aim = replace(aim, label=label or aim.label)
            with watched(impressions.connection, f"judging {len(found) + 1} of {len(given)}", progress):
                found.append(_judge(impressions, cells, models, aim, clip_weights))
        return found


def _both(cells: tuple[Cells, Cells]) -> tuple[Cells, Cells]:
    if not all(fold.shown.sum() for fold in cells):
        raise ValueError("the log has too few pages to judge one half of it by the other")
    return cells


def _target(target: Any, impressions: Impressions, seed: int, draws: int | None, progress: bool | None) -> Target:
    if isinstance(target, Mapping):
        return from_marginals(target, impressions)
    if is_policy(target):
        return from_policy(target, impressions, seed, draws, progress)
    if getattr(target, "ndim", 0) == 1 or (isinstance(target, Sequence) and not isinstance(target, (str, bytes))):
        return from_ranking(target, impressions)
    made = f"; bothworlds.policy({target!r}) makes a policy" if isinstance(target, str) else ""
    raise ValueError(f"target must be a list of items, a dictionary of marginals, or a policy; got {target!r}{made}")


def _judge(
    impressions: Impressions,
    cells: tuple[Cells, Cells],
    models: tuple[Rates, Rates],
    target: Target,
    clip_weights: float | None,
) -> Evaluation:
    weighable = (cells[0].weighable + cells[1].weighable).sum(axis=0)
    fewest = weighable.min(initial=np.inf, where=weighable > 0.0) if impressions.weighable else 1.0
    clip = float(np.sqrt(fewest)) if clip_weights is None else float(clip_weights)
    # Residuals of a fold are taken from the model of the other one: they would be too small from its own.
    weighed, support = weigh(impressions, target, np.stack([models[1].rate, models[0].rate]), clip)
    direct = _direct(impressions, cells, models, target)
    unknown = (
        share_of_folds(cells) * [(x * ~model.known).sum(axis=0) for x, model in zip(target.marginals, models)]
    ).sum(0)
    warnings = doubts_about_model(impressions, unknown + target.unknown)
    if impressions.weighable:
        estimates = [estimate for estimate in weighed if estimate.estimator != "dr"] + direct + weighed[-len(direct) :]
        warnings = [
            *doubts_about_support(support),
            *warnings,
            *doubts_about_fit(direct, estimates[-len(direct) :], support),
        ]
    else:
        estimates, support = [estimate for estimate in weighed if estimate.estimator == "logged"] + direct, ()
        warnings.append("The log has no propensities: there is only the direct method, which is as good as its model.")
    return Evaluation(
        target=target.label,
        positions=impressions.positions,
        estimates=tuple(estimates),
        support=support,
        clip_weights=clip if impressions.weighable else None,
        pages=impressions.pages,
        notes=(*notes_on_log(impressions), *target.notes),
        warnings=tuple(warnings),
    )


def _direct(
    impressions: Impressions, cells: tuple[Cells, Cells], models: tuple[Rates, Rates], target: Target
) -> list[Estimate]:
    """The direct method: the sum of fitted rates over the target.

    What a policy learned from one fold is judged by the model of the other one.
    """
    reach, m = impressions.reach, len(impressions.positions)
    shares = (share_of_folds(cells) * reach)[:, None, :]
    value, variance = np.zeros(m), np.zeros(m + 1)
    for model, weight in zip(models, shares * target.marginals):
        value += (weight * model.rate).sum(axis=0)
        variance += variances(model, _sums(weight))
    error = np.sqrt(variance + spread_of_lengths(impressions, value / reach))
    unseen = np.where(value > 0.0, 0.0, reach * _rule_of_three(cells, target))
    values, silent = (np.append(part, part.sum()).tolist() for part in (value, unseen))
    return [interval("direct", *row) for row in zip((*impressions.positions, None), values, error.tolist(), silent)]


def _rule_of_three(cells: tuple[Cells, Cells], target: Target) -> Floats:
    """(m,) the click rate that may have gone unseen at each position: 3 in as many impressions as the target has."""
    x = (share_of_folds(cells)[:, None, :] * target.marginals).sum(axis=0)
    shown = cells[0].shown + cells[1].shown
    parts = np.divide(x**2, shown, out=np.where(x > 0.0, np.inf, 0.0), where=shown > 0.0).sum(axis=0)
    return np.asarray(np.where(parts > 0.0, np.minimum(3.0 * parts, 1.0), 1.0))


def _sums(weight: Floats) -> Floats:
    """(m + 1, n, m) the weights of the sum over each position alone, and over all."""
    m = weight.shape[1]
    alone = np.zeros((m + 1, *weight.shape))
    alone[-1] = weight
    for j in range(m):
        alone[j, :, j] = weight[:, j]
    return alone
