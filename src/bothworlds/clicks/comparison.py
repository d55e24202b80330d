"""Which click model describes the users of a log: fits to one part of its pages, scores on another."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..checks import is_number, whole
from ..files import save_text
from ..kernels import Ints
from ..progress import progress_bar
from .fitting.fit import fit_checked
from .fitting.options import Options
from .log import as_pages
from .model.model import MODELS, model_named
from .model.score import Score, score
from .pages import Pages

PRIORS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
SHARES = (0.2, 0.2)  # of validation and test pages
RESAMPLES = 1_000  # of queries
FEWEST_PAGES = 1_000  # of a log whose models can be compared: with fewer, chance and the priors decide


class Entry(NamedTuple):
    """One model of a comparison: the chosen prior, and its scores."""

    model: str
    prior: float
    validation: float  # log-likelihood per validation page
    score: Score  # on the test pages
    converged: bool


class Difference(NamedTuple):
    """How a model differs from the reference in log-likelihood, in nats per page, with 95% intervals."""

    mean: float
    pages: tuple[float, float]  # if other pages of the same queries had been seen; NaN with one test page
    queries: tuple[float, float]  # if other queries had been seen; NaN with one query


def compare(
    log: Any,
    models: str | Sequence[str] = "all",
    *,
    priors: Sequence[float] = PRIORS,
    seed: int = 0,
    reference: str = "pbm",
    progress: bool | None = None,
) -> Comparison:
    """Compare click models on pages of a log that they were not fitted to.

    The pages of every query are split at random into three parts. Every model is fitted to three fifths with each
    prior; the prior with the highest log-likelihood on the second part is chosen; the third part is used once, for the
    scores. Models are ranked by the log-likelihood per page. An event of probability below one in a million counts as
    one in a million. An item that the training pages of its query do not have gets the mean parameters of the training
    pages.

    Parameters
    ----------
    log
        A log, or a path or table in memory that :func:`read` accepts; or :class:`Pages`. Its rows must form pages.
    models
        Names of models, or ``"all"``.
    priors
        The strengths of the prior to choose from; see :func:`fit`.
    seed
        Of the split and the resamples.
    reference
        The model that the others are compared to; the best one if it is not among ``models``.
    progress
        Whether to show a progress bar on standard error; by default on a terminal.

    Raises
    ------
    ValueError
        If an option is invalid, the rows of the log do not form pages, or there are too few pages to split.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> lists = np.array([rng.permutation(5) for _ in range(2_000)])
    >>> clicks = rng.random(lists.shape) < 0.5 / (1 + lists)
    >>> compare(Pages.from_arrays(lists, clicks), ["item-ctr", "rank-ctr"]).best.model
    'item-ctr'
    """
    names = list(MODELS) if models == "all" else [models] if isinstance(models, str) else list(models)
    for name in (*names, reference):
        model_named(name)
    if not names:
        raise ValueError("models is empty; name at least one")
    if not len(priors) or not all(is_number(prior) and 0.0 <= prior < np.inf for prior in priors):
        raise ValueError(f"priors must be numbers, 0 or more; got {priors!r}")
    strengths, seed = tuple(map(float, priors)), whole(seed, "seed", 0)
    pages = as_pages(log)
    training, validation, test = split = split_pages(pages, seed)
    if not all(map(len, split)):
        raise ValueError(f"{pages.pages:,} pages are too few to split into training, validation and test pages")
    entries = _entries(list(dict.fromkeys(names)), strengths, split, progress)
    base = next((entry for entry in entries if entry.model == reference), entries[0])
    return Comparison(
        entries=tuple(entries),
        differences=_differences(entries, base, test, seed),
        reference=base.model,
        sizes=(training.pages, validation.pages, test.pages),
        priors=strengths,
        seed=seed,
        positions=pages.positions,
        origin=pages.origin,
        notes=pages.notes,
    )


def split_pages(pages: Pages, seed: int) -> tuple[Pages, Pages, Pages]:
    """Split every query at random into parts with three fifths, one fifth and one fifth of its pages.

    The last two shares are rounded down. Pages are in an order that depends only on the pages themselves, so that the
    same log and seed give the same parts.

    >>> pages = Pages.from_arrays([["a"], ["a"]], [[0], [1]], count=[60, 40])
    >>> [part.pages for part in split_pages(pages, seed=0)]
    [60, 20, 20]
    """
    rng = np.random.default_rng(seed)
    counts = np.zeros((3, len(pages)), np.int64)
    order = np.argsort(pages.query, kind="stable")
    first = 0
    for last in (np.flatnonzero(np.append(np.diff(pages.query[order]), 1)) + 1).tolist():
        own = order[first:last]
        counts[:, own] = _split_counts(rng, pages.count[own])
        first = last
    return pages.with_counts(counts[0]), pages.with_counts(counts[1]), pages.with_counts(counts[2])


def _split_counts(rng: np.random.Generator, count: Ints) -> Ints:
    """(3, P) the counts of three parts that are drawn without replacement."""
    validation, test = (int(share * int(count.sum()) + 1e-9) for share in SHARES)
    drawn = rng.multivariate_hypergeometric(count, test, method="marginals")
    left = count - drawn
    also = rng.multivariate_hypergeometric(left, validation, method="marginals")
    return np.array([left - also, also, drawn])


def _entries(
    names: list[str], priors: tuple[float, ...], split: tuple[Pages, Pages, Pages], progress: bool | None
) -> list[Entry]:
    """The models with their scores, the best first."""
    (training, validation, test), entries = split, []
    with progress_bar("fitting models", len(names) * len(priors), progress) as report:
        for name in names:
            fits = []
            for prior in priors:
                train = training if MODELS[name].dependent else training.counts()
                model = fit_checked(train, name, Options(prior=prior, intervals=False, starts=1))
                fits.append((score(model, validation).log_likelihood, prior, model))
                report(1)
            best, prior, model = max(fits, key=lambda one: one[0])
            entries.append(Entry(name, prior, best, score(model, test), model.converged))
    return sorted(entries, key=lambda entry: -entry.score.log_likelihood)


def _differences(entries: list[Entry], base: Entry, test: Pages, seed: int) -> dict[str, Difference]:
    """How each model differs from the base: normal intervals paired by page, and those of resampled queries."""
    rng, queries = np.random.default_rng([seed, 1]), np.unique(test.query)
    clusters = rng.multinomial(queries.size, np.full(queries.size, 1.0 / queries.size), size=RESAMPLES)
    result = {}
    for entry in entries:
        mean, error = _paired(entry.score, base.score)
        gap = entry.score.log_likelihoods - base.score.log_likelihoods
        sums, sizes = (np.bincount(test.query, test.count * part)[queries] for part in (gap, np.ones(gap.size)))
        low, high = np.quantile((clusters @ sums) / (clusters @ sizes), (0.025, 0.975)).tolist()
        by_query = (low, high) if queries.size > 1 else (np.nan, np.nan)
        result[entry.model] = Difference(mean, (mean - 1.96 * error, mean + 1.96 * error), by_query)
    return result


def _paired(one: Score, other: Score) -> tuple[float, float]:
    """The mean difference of log-likelihoods per page, and its standard error; NaN for one page."""
    gap, total = one.log_likelihoods - other.log_likelihoods, float(one.count.sum())
    mean = float(gap @ one.count / total)
    return mean, float(np.sqrt((gap - mean) ** 2 @ one.count / total / total)) if total > 1.0 else np.nan


@dataclass(frozen=True, eq=False)
class Comparison:
    """Click models, the best first, on the test pages of a log."""

    entries: tuple[Entry, ...]
    differences: Mapping[str, Difference]  # from the reference
    reference: str
    sizes: tuple[int, int, int]  # pages for training, validation and test
    priors: tuple[float, ...]
    seed: int
    positions: tuple[int, ...]
    origin: str
    notes: tuple[str, ...]

    @property
    def best(self) -> Entry:
        """The model with the highest log-likelihood of the test pages."""
        return self.entries[0]

    def __getitem__(self, model: str) -> Entry:
        for entry in self.entries:
            if entry.model == model:
                return entry
        raise KeyError(model)

    def table(self) -> list[dict[str, Any]]:
        """Return one entry for every model, the best first."""
        rows = []
        for entry in self.entries:
            gap, score = self.differences[entry.model], entry.score
            row = {"model": entry.model, "prior": entry.prior, "log_likelihood": score.log_likelihood}
            row |= {"perplexity": score.perplexity, "conditional_perplexity": score.conditional_perplexity}
            row |= {"impossible": score.impossible, "converged": entry.converged, "difference": gap.mean}
            row |= dict(zip(("low", "high", "low_queries", "high_queries"), (*gap.pages, *gap.queries)))
            rows.append(row)
        return rows

    def rules(self) -> str:
        """Return how the figures came about, so that they can be reproduced."""
        train, validation, test = self.sizes
        unknown = int(self.best.score.count[~self.best.score.known].sum())
        return (
            f"Split: the pages of every query at random, seed {self.seed}: {train:,} for training, {validation:,} for "
            f"validation, {test:,} for the test. Prior: of {', '.join(f'{prior:g}' for prior in self.priors)}, the one "
            "that is best on validation pages. Events of probability below one in a million count as one in a million. "
            f"{unknown:,} test pages have an item that the training pages of its query lack, or that they do not "
            "compare with its position; it gets the mean parameters of the training pages."
        )

    def sentence(self) -> str:
        """Return which model describes these users, by how much, and what the reference misses."""
        best, base, total = self.best, self[self.reference], sum(self.sizes)
        if total < FEWEST_PAGES:
            return (
                f"{total:,} pages are too few to say which model describes these users; it takes about "
                f"{FEWEST_PAGES:,}."
            )
        apart = {entry.model: _paired(best.score, entry.score) for entry in self.entries[1:]}
        ties = [name for name, (mean, error) in apart.items() if mean < 1.96 * error]
        gap, tied = self.differences[best.model], f"; {', '.join(ties)} cannot be distinguished from it" if ties else ""
        if best.model != base.model and base.model in ties:
            return (
                f"No model describes these users better than {base.model} beyond what chance explains; the best of the "
                f"others is {best.model}, by {gap.mean:.4f} nats per page (95% interval {_interval(gap.pages)})."
            )
        first = f"The {MODELS[best.model].title} ({best.model}) describes these users best"
        if best.model == base.model:
            return f"{first}{tied or ('' if apart else '; no other model was compared')}."
        others = f"; {_interval(gap.queries)} if other queries had been seen" if np.isfinite(gap.queries[0]) else ""
        start = "These users are not quite position-based. " if base.model == "pbm" else ""
        return (
            f"{start}{first}: {gap.mean:.4f} nats per page more than {base.model} (95% interval {_interval(gap.pages)}"
            f"{others}){tied}. What {base.model} misses: given the clicks above, perplexity is "
            f"{best.score.conditional_perplexity:.4f} instead of {base.score.conditional_perplexity:.4f}; without them "
            f"it is {best.score.perplexity:.4f} instead of {base.score.perplexity:.4f}."
        )

    def save(self, path: str | Path) -> Path:
        """Write the comparison as JSON and return the path; the file is replaced as a whole or left unchanged."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        pages = dict(zip(("train", "validation", "test"), self.sizes))
        known: dict[str, Any] = {
            "origin": self.origin,
            "sentence": self.sentence(),
            "reference": self.reference,
            "pages": pages,
        }
        known |= {"seed": self.seed, "priors": list(self.priors)}
        models = [
            {name: None if value != value else value for name, value in row.items()}
            | {"perplexities": entry.score.perplexities.tolist()}
            | {"conditional_perplexities": entry.score.conditional_perplexities.tolist()}
            for row, entry in zip(self.table(), self.entries)
        ]
        save_text(target, json.dumps({**known, "models": models}, indent=2, allow_nan=False) + "\n")
        return target

    def __repr__(self) -> str:
        width = max(len(entry.model) for entry in self.entries)
        rows = [
            f"  {entry.model:{width}}  {entry.score.log_likelihood:8.4f}  {entry.score.perplexity:7.4f}  "
            f"{entry.score.conditional_perplexity:7.4f}"
            for entry in self.entries
        ]
        figures = "log-likelihood per page, perplexity, conditional perplexity"
        return "\n".join([f"<Comparison on {self.sizes[2]:,} test pages: {figures}", *rows]) + ">"


def _interval(limits: tuple[float, float]) -> str:
    return f"{limits[0]:z.4f} to {limits[1]:z.4f}"
