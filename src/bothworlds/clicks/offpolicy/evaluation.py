"""Off-policy evaluation: the clicks that rankings and policies would have had, estimated on a log of other rankings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from ...checks import whole
from ...kernels import Floats
from ..model.model import ClickModel
from ..reading.database import report_progress
from .direct_method import Rates, fit_cell_rates, rate_variances
from .importance_weighting import weighted_estimates
from .impressions import CellCounts, Impressions, cell_counts, fold_shares, open_impressions, page_length_variance
from .list_dependence import list_dependence
from .policy_training import from_policy, is_policy
from .result import Estimate, Evaluation, make_estimate
from .targets import Target, from_marginals, from_ranking
from .warnings import (
    dependence_warnings,
    disagreement_warnings,
    log_notes,
    model_warnings,
    rest_of_page_notes,
    rest_of_page_warnings,
    support_warnings,
)


def evaluate(
    log: Any,
    target: Any,
    *,
    clip_weights: float | None = None,
    seed: int = 0,
    draws: int | None = None,
    label: str = "",
    model: ClickModel | Mapping[str, ClickModel] | None = None,
    progress: bool | None = None,
) -> Evaluation:
    r"""Estimate the clicks per page that a ranking, a random ranking or a policy would have had.

    Estimates weight single placements, and assume that a click depends on its own item and position only. If it also
    depends on the rest of the page, as in the models ``ubm``, ``cascade``, ``dcm``, ``sdbn``, ``dbn`` and ``ccm``, they
    are biased, by an amount that their intervals do not include. If the log groups impressions into pages, it is tested
    whether clicks depend on the items above, and there is a warning if they do, or a note if pages vary too little;
    :func:`bothworlds.clicks.compare` says which model fits.

    Parameters
    ----------
    log
        A log from :func:`bothworlds.clicks.read`, or a path or table that :func:`bothworlds.clicks.read` accepts. If
        its pages differ in length, a position counts in proportion to the pages that have it.
    target
        A list or an array of item names, one for every position of the log; or marginals, a dictionary of the
        probabilities of each item at every position; or a policy. A policy is trained on one half of the log and
        evaluated, without learning, on the other half, and vice versa.
    clip_weights
        The largest weight of the clipped estimate; by default the square root of the number of impressions, so that
        the bias vanishes as logs grow.
    seed, draws
        The seed of a policy's decisions, and how many decisions are averaged.
    label
        The name of the target.
    model
        A click model that was fitted to the log. It does not change the estimates; if clicks depend on each other in
        it, there is a warning, and the log itself is not tested.
    progress
        Whether to show progress bars on standard error; by default if it is a terminal.

    Returns
    -------
    Evaluation
        Estimates named ``logged`` (of the logged rankings), ``ips``, ``snips``, ``clipped``, ``direct`` and ``dr``, per
        position and for the whole page, each with a 95% interval, but for ``clipped`` where weights were cut; how well
        the log supports the target; warnings. Their
        formulas and references are in :mod:`bothworlds.clicks.offpolicy.importance_weighting`.

    Examples
    --------
    A log of random lists in which "a" is clicked half of the time and "b" never:

    >>> from bothworlds.clicks import from_obp
    >>> import numpy as np
    >>> action = np.arange(4000) % 2
    >>> reward = (action == 0) & (np.arange(4000) % 4 == 0)
    >>> log = from_obp({"action": action, "reward": reward, "pscore": np.full(4000, 0.5)}, names=["a", "b"])
    >>> evaluation = evaluate(log, ["a"])
    >>> evaluation
    <Evaluation of 'a' on 4,000 pages: clicks per page, 95% interval
      the log itself      0.2500  0.2366 to 0.2634
      inverse propensity  0.5000  0.4732 to 0.5268
      self-normalised     0.5000  0.4781 to 0.5219
      clipped             0.5000  0.4732 to 0.5268
      direct method       0.5...  0.4... to 0.5...
      doubly robust       0.5...  0.4... to 0.5...>
    >>> evaluation.estimate("snips").value, evaluation.estimate("logged").value
    (0.5, 0.25)
    >>> evaluation.warnings
    ()
    """
    options: dict[str, Any] = {"clip_weights": clip_weights, "seed": seed, "draws": draws, "progress": progress}
    return compare_targets(log, [target], labels=[label], model=model, **options)[0]


def compare_targets(
    log: Any,
    targets: Iterable[Any],
    *,
    clip_weights: float | None = None,
    seed: int = 0,
    draws: int | None = None,
    labels: Sequence[str] | None = None,
    model: ClickModel | Mapping[str, ClickModel] | None = None,
    progress: bool | None = None,
) -> list[Evaluation]:
    """Evaluate several targets on one log, which is read once; the other arguments are those of :func:`evaluate`."""
    cap: Any = clip_weights
    if cap is not None and not (isinstance(cap, Real) and 0.0 < float(cap) < np.inf):
        raise ValueError(
            f"clip_weights must be above 0 and finite (the estimate ips does not clip); got {clip_weights!r}"
        )
    whole(seed, "seed", 0)
    if draws is not None:
        draws = whole(draws, "draws", 1)
    if model is not None and not isinstance(model, (ClickModel, Mapping)):
        raise ValueError(f"model must be a fitted click model, as fit and load_model return it; got {model!r}")
    given = list(targets)
    if labels is not None and len(labels) != len(given):
        raise ValueError(f"{len(given)} targets need as many labels; got {len(labels)}")
    with open_impressions(log, progress) as impressions:
        cells = cell_counts(impressions, 0), cell_counts(impressions, 1)
        if not all(fold.shown.sum() for fold in cells):
            raise ValueError("the log has too few pages to split it into two halves")
        models = fit_cell_rates(cells[0]), fit_cell_rates(cells[1])
        dependence, untested = dependence_warnings(model), list[str]()
        if not dependence:
            found = list_dependence(impressions)
            dependence, untested = rest_of_page_warnings(found), rest_of_page_notes(impressions, found)
        notes = [*log_notes(impressions), *untested]
        evaluations: list[Evaluation] = []
        for one, label in zip(given, labels or [""] * len(given)):
            target = _target(one, impressions, seed, draws, progress)
            target = replace(target, label=label or target.label)
            with report_progress(
                impressions.connection, f"evaluating {len(evaluations) + 1} of {len(given)}", progress
            ):
                evaluations.append(
                    _evaluate_target(impressions, cells, models, target, clip_weights, notes, dependence)
                )
        return evaluations


def _target(target: Any, impressions: Impressions, seed: int, draws: int | None, progress: bool | None) -> Target:
    if isinstance(target, Mapping):
        return from_marginals(target, impressions)
    if is_policy(target):
        return from_policy(target, impressions, seed, draws, progress)
    if getattr(target, "ndim", 0) == 1 or (isinstance(target, Sequence) and not isinstance(target, (str, bytes))):
        return from_ranking(target, impressions)
    made = f"; bothworlds.policy({target!r}) makes a policy" if isinstance(target, str) else ""
    raise ValueError(f"target must be a list of items, a dictionary of marginals, or a policy; got {target!r}{made}")


def _evaluate_target(
    impressions: Impressions,
    cells: tuple[CellCounts, CellCounts],
    models: tuple[Rates, Rates],
    target: Target,
    clip_weights: float | None,
    notes: list[str],
    dependence: list[str],
) -> Evaluation:
    weighable = (cells[0].weighable + cells[1].weighable).sum(axis=0)
    fewest = weighable.min(initial=np.inf, where=weighable > 0.0) if impressions.weighable else 1.0
    clip = float(np.sqrt(fewest)) if clip_weights is None else float(clip_weights)
    # Residuals of a fold use the model of the other fold; those of its own model would be too small.
    weighed, support = weighted_estimates(impressions, target, np.stack([models[1].rate, models[0].rate]), clip)
    direct = _direct(impressions, cells, models, target)
    unknown = (fold_shares(cells) * [(x * ~model.known).sum(axis=0) for x, model in zip(target.marginals, models)]).sum(
        0
    )
    warnings = model_warnings(impressions, unknown + target.unknown)
    if impressions.weighable:
        estimates = [estimate for estimate in weighed if estimate.estimator != "dr"] + direct + weighed[-len(direct) :]
        warnings = [
            *support_warnings(support),
            *warnings,
            *disagreement_warnings(direct, estimates[-len(direct) :], support),
        ]
    else:
        estimates, support = [estimate for estimate in weighed if estimate.estimator == "logged"] + direct, ()
        warnings.append(
            "The log has no propensities: only the direct method is available, which is as good as its model."
        )
    return Evaluation(
        target=target.label,
        positions=impressions.positions,
        estimates=tuple(estimates),
        support=support,
        clip_weights=clip if impressions.weighable else None,
        pages=impressions.pages,
        notes=(*notes, *target.notes),
        warnings=(*dependence, *warnings),
    )


def _direct(
    impressions: Impressions, cells: tuple[CellCounts, CellCounts], models: tuple[Rates, Rates], target: Target
) -> list[Estimate]:
    """The direct method: the sum of fitted rates over the target.

    A policy that was trained on one fold is evaluated with the model of the other fold.
    """
    reach, m = impressions.reach, len(impressions.positions)
    shares = (fold_shares(cells) * reach)[:, None, :]
    value, variance = np.zeros(m), np.zeros(m + 1)
    for model, weight in zip(models, shares * target.marginals):
        value += (weight * model.rate).sum(axis=0)
        variance += rate_variances(model, _sums(weight))
    error = np.sqrt(variance + page_length_variance(impressions, value / reach))
    unseen = np.where(value > 0.0, 0.0, reach * _rule_of_three(cells, target))
    values, unseen_all = (np.append(part, part.sum()).tolist() for part in (value, unseen))
    return [
        make_estimate("direct", *row) for row in zip((*impressions.positions, None), values, error.tolist(), unseen_all)
    ]


def _rule_of_three(cells: tuple[CellCounts, CellCounts], target: Target) -> Floats:
    """(m,) an upper bound on the click rate at positions without clicks: 3 per effective impression of the target."""
    x = (fold_shares(cells)[:, None, :] * target.marginals).sum(axis=0)
    shown = cells[0].shown + cells[1].shown
    parts = np.divide(x**2, shown, out=np.where(x > 0.0, np.inf, 0.0), where=shown > 0.0).sum(axis=0)
    return np.asarray(np.where(parts > 0.0, np.minimum(3.0 * parts, 1.0), 1.0))


def _sums(weight: Floats) -> Floats:
    """(m + 1, n, m) the weights of the sums over each position, and over all positions."""
    m = weight.shape[1]
    alone = np.zeros((m + 1, *weight.shape))
    alone[-1] = weight
    for j in range(m):
        alone[j, :, j] = weight[:, j]
    return alone
