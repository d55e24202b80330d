"""Which click model describes the users of a log: fits to one part of its pages, scores on another."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from ...checks import whole
from ...kernels import Floats, kernel
from ...progress import progress_bar
from ..fitting.click_model_fit import fit_any
from ..log import as_pages
from ..model.names import MODELS, model_named
from ..model.scores import score
from ..pages import Pages
from .item_order import compare_orders
from .result import Comparison, Difference, Entry
from .split import Split, split_pages

PRIORS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
SHARES = (0.6, 0.2, 0.2)
RESAMPLES = 1_000
MOST_DRAWS = 20_000_000  # different pages times resamples


def compare_models(
    log: Any,
    models: str | Sequence[str] = "all",
    *,
    shares: tuple[float, float, float] = SHARES,
    priors: Sequence[float] = PRIORS,
    seed: int = 0,
    reference: str = "pbm",
    progress: bool | None = None,
) -> Comparison:
    """Compare click models on pages of a log that they were not fitted to.

    The pages of every query are split at random into three parts. Every model is fitted to the first with each prior;
    the prior with the highest log-likelihood on the second part is chosen; the third part is used once, for the scores.
    Models are ranked by the log-likelihood per page. An event of probability below one in a million counts as one in a
    million. An item that the training pages of its query do not have gets the mean parameters of the training pages.

    Parameters
    ----------
    log
        A log, its path or paths, a table in memory, or pages. Its rows must form pages.
    models
        Names of models, or ``"all"``.
    shares
        The shares of training, validation and test pages.
    priors
        The strengths of the prior to choose from; see :func:`fit`.
    seed
        Of the split and the resamples.
    reference
        The model that the others are compared to; the best one if it is not among ``models``.
    progress
        Whether to show a progress bar on standard error; by default if it is a terminal.

    Raises
    ------
    ValueError
        If an option is invalid, the rows of the log do not form pages, or there are too few pages to split.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> lists = np.array([rng.permutation(5) for _ in range(2_000)])
    >>> clicks = rng.random(lists.shape) < 0.5 / (1 + lists)
    >>> compare_models(Pages.from_arrays(lists, clicks), ["item-ctr", "rank-ctr"]).best.model
    'item-ctr'
    """
    names = list(MODELS) if models == "all" else [models] if isinstance(models, str) else list(models)
    for name in (*names, reference):
        model_named(name)
    if not names:
        raise ValueError("models is empty; name at least one")
    strengths, parts, seed = _checked_priors(priors), _checked_shares(shares), whole(seed, "seed", 0)
    pages = as_pages(log)
    split = split_pages(pages, parts, seed)
    if not all(len(part) for part in split):
        raise ValueError(f"{pages.pages:,} pages are too few to split into training, validation and test pages")
    entries = _entries(list(dict.fromkeys(names)), strengths, split, progress)
    base = next((entry for entry in entries if entry.model == reference), entries[0])
    return Comparison(
        entries=tuple(entries),
        differences=_differences(entries, base, split.test, seed),
        reference=base.model,
        sizes=(split.train.pages, split.validation.pages, split.test.pages),
        priors=strengths,
        seed=seed,
        positions=pages.positions,
        origin=pages.origin,
        notes=pages.notes,
        order=compare_orders(base.fitted, entries[0].fitted, (base.model, entries[0].model), split.test, seed),
    )


def _checked_priors(priors: Sequence[Any]) -> tuple[float, ...]:
    if not len(priors) or not all(isinstance(prior, Real) and 0.0 <= float(prior) < np.inf for prior in priors):
        raise ValueError(f"priors must be numbers, 0 or more; got {priors!r}")
    return tuple(float(prior) for prior in priors)


def _checked_shares(shares: tuple[float, float, float]) -> tuple[float, float, float]:
    if len(shares) != 3 or not all(0.0 < share < 1.0 for share in shares) or abs(sum(shares) - 1.0) > 1e-9:
        raise ValueError(f"shares must be three numbers above 0 that add up to 1; got {shares!r}")
    first, second, third = map(float, shares)
    return first, second, third


def _entries(names: list[str], priors: tuple[float, ...], split: Split, progress: bool | None) -> list[Entry]:
    """The models with their scores, the best first."""
    entries = []
    with progress_bar("fitting models", len(names) * len(priors), progress) as report:
        for name in names:
            fits = []
            for prior in priors:
                model = fit_any(split.train, name, prior)
                fits.append((score(model, split.validation).log_likelihood, prior, model))
                report(1)
            validation, prior, model = max(fits, key=lambda one: one[0])
            entries.append(
                Entry(
                    model=name,
                    prior=prior,
                    validation=validation,
                    score=score(model, split.test),
                    training=float(model.log_likelihood) / split.train.pages,
                    converged=model.converged,
                    fitted=model,
                )
            )
    return sorted(entries, key=lambda entry: -entry.score.log_likelihood)


def _differences(entries: list[Entry], base: Entry, test: Pages, seed: int) -> dict[str, Difference]:
    """How each model differs from the base, with intervals that are paired by page.

    The interval of the log-likelihood is normal, and another one is of resampled queries. Those of perplexities are
    percentiles over resampled pages. All models have the same resamples.
    """
    rng = np.random.default_rng([seed, 1])
    queries = np.unique(test.query)
    clusters = rng.multinomial(queries.size, np.full(queries.size, 1.0 / queries.size), size=RESAMPLES)
    perplexities = _resampled_perplexities(rng, entries, test)
    of_base = perplexities[:, :, entries.index(base)]
    result = {}
    for k, entry in enumerate(entries):
        gap = entry.score.log_likelihoods - base.score.log_likelihoods
        total = float(test.count.sum())
        mean = float(gap @ test.count / total)
        error = float(np.sqrt((gap - mean) ** 2 @ test.count / total / total))
        sums, sizes = (np.bincount(test.query, test.count * part)[queries] for part in (gap, np.ones(gap.size)))
        by_query = np.quantile((clusters @ sums) / (clusters @ sizes), (0.025, 0.975))
        limits = np.quantile(perplexities[:, :, k] - of_base, (0.025, 0.975), axis=0)
        if total < 2.0:  # one page has no spread
            error, limits = np.nan, np.full_like(limits, np.nan)
        result[entry.model] = Difference(
            mean=mean,
            pages=(mean - 1.96 * error, mean + 1.96 * error),
            queries=_pair(by_query) if queries.size > 1 else (np.nan, np.nan),
            perplexity=_pair(limits[:, 0]),
            conditional_perplexity=_pair(limits[:, 1]),
        )
    return result


def _resampled_perplexities(rng: np.random.Generator, entries: list[Entry], test: Pages) -> Floats:
    """(resamples, 2, models) perplexity and conditional perplexity of all models on resampled pages."""
    total, m = int(test.count.sum()), len(test.positions)
    shown = np.zeros((len(test), m))
    shown[test.of_page(), test.position] = 1.0
    # (P, 2, models, m), so that one product gives all sums of a resample.
    logs = np.stack([entry.score.log_probabilities for entry in entries], axis=2).transpose(1, 0, 2, 3)
    flat = np.ascontiguousarray(logs).reshape(len(test), -1)
    resamples = int(np.clip(MOST_DRAWS // len(test), 100, RESAMPLES))
    result = np.empty((resamples, 2, len(entries)))
    for k in range(resamples):
        weight = rng.multinomial(total, test.count / total).astype(float)
        sums, impressions = np.zeros(flat.shape[1]), np.zeros(m)
        _add_weighted(weight, flat, sums)
        _add_weighted(weight, shown, impressions)
        means = sums.reshape(2, len(entries), m) / np.maximum(impressions, 1.0)
        result[k] = np.exp(-means).mean(axis=2)
    return result


@kernel
def _add_weighted(weight: Floats, rows: Floats, total: Floats) -> None:
    for p in range(weight.size):
        if weight[p] > 0.0:
            for k in range(total.size):
                total[k] += weight[p] * rows[p, k]


def _pair(values: Any) -> tuple[float, float]:
    return float(values[0]), float(values[1])
