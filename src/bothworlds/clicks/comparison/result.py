"""The result of a comparison of click models: a table, differences with intervals, and a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...files import save_text
from ..model.click_model import ClickModel
from ..model.model import Model
from ..model.names import MODELS
from ..model.scores import Score
from .item_order import ItemOrder

FEWEST_PAGES = 1_000  # of a log whose models can be compared: with fewer, chance and the priors decide


class Entry(NamedTuple):
    """One model of a comparison: the chosen prior, and its scores."""

    model: str
    prior: float
    validation: float  # log-likelihood per validation page
    score: Score  # on the test pages
    training: float  # log-likelihood per training page
    converged: bool
    fitted: Model | ClickModel


class Difference(NamedTuple):
    """How a model differs from the reference, with 95% intervals. Log-likelihoods are nats per page."""

    mean: float
    pages: tuple[float, float]  # if other pages of the same queries had been seen; NaN with one test page
    queries: tuple[float, float]  # if other queries had been seen; NaN with one query
    perplexity: tuple[float, float]
    conditional_perplexity: tuple[float, float]


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
    order: ItemOrder | None  # of the best model and the reference; None if they are one model, or one has no items

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
        return [
            {
                "model": entry.model,
                "prior": entry.prior,
                "log_likelihood": entry.score.log_likelihood,
                "log_likelihood_known": entry.score.known_log_likelihood,
                "perplexity": entry.score.perplexity,
                "conditional_perplexity": entry.score.conditional_perplexity,
                "pooled_perplexity": entry.score.pooled_perplexity,
                "impossible": entry.score.impossible,
                "training_log_likelihood": entry.training,
                "validation_log_likelihood": entry.validation,
                "converged": entry.converged,
                "difference": self.differences[entry.model].mean,
                "low": self.differences[entry.model].pages[0],
                "high": self.differences[entry.model].pages[1],
                "low_queries": self.differences[entry.model].queries[0],
                "high_queries": self.differences[entry.model].queries[1],
                "low_perplexity": self.differences[entry.model].perplexity[0],
                "high_perplexity": self.differences[entry.model].perplexity[1],
                "low_conditional_perplexity": self.differences[entry.model].conditional_perplexity[0],
                "high_conditional_perplexity": self.differences[entry.model].conditional_perplexity[1],
            }
            for entry in self.entries
        ]

    def by_rank(self) -> list[dict[str, Any]]:
        """Return one entry for every model and position, with both perplexities."""
        return [
            {"model": entry.model, "position": position, "perplexity": one, "conditional_perplexity": other}
            for entry in self.entries
            for position, one, other in zip(
                self.positions, entry.score.perplexities.tolist(), entry.score.conditional_perplexities.tolist()
            )
        ]

    def rules(self) -> str:
        """Return how the figures came about, so that they can be reproduced."""
        train, validation, test = self.sizes
        unknown = int(self.best.score.count[~self.best.score.known].sum())
        return (
            f"Split: the pages of every query at random, seed {self.seed}: {train:,} for training, {validation:,} for "
            f"validation, {test:,} for the test. Prior: of {', '.join(f'{prior:g}' for prior in self.priors)}, the one "
            "that is best on validation pages. Log-likelihood: nats per test page. Perplexity: the mean over positions "
            "of exp(-mean log-probability), with marginal probabilities; conditional perplexity with those given the "
            "clicks above. Events of probability below one in a million count as one in a million. "
            f"{unknown:,} test pages have an item that the training pages of its query lack, or that they do not "
            "compare with its position; it gets the mean parameters of the training pages."
        )

    def sentence(self) -> str:
        """Return which model describes these users, by how much, what the reference misses, and what it matters."""
        return " ".join(self.findings())

    def findings(self) -> list[str]:
        """Return the parts of the sentence: the best model, what the reference misses, and the order of items."""
        if sum(self.sizes) < FEWEST_PAGES:
            return [
                f"{sum(self.sizes):,} pages are too few to say which model describes these users; it takes about "
                f"{FEWEST_PAGES:,}."
            ]
        best, base = self.best, self[self.reference]
        if best.model == base.model:
            return [self._nothing_better()]
        gap = self.differences[best.model]
        if gap.pages[0] <= 0.0:
            return [
                f"No model describes these users better than {base.model} beyond what chance explains; the best of the "
                f"others is {best.model}, by {gap.mean:.4f} nats per page (95% interval {_interval(gap.pages)})."
            ]
        others = f"; {_interval(gap.queries)} if other queries had been seen" if np.isfinite(gap.queries[0]) else ""
        ties = self._ties()
        fall = base.score.conditional_perplexity - best.score.conditional_perplexity
        level = base.score.perplexity - best.score.perplexity
        return [
            f"{'These users are not quite position-based. ' if base.model == 'pbm' else ''}"
            f"The {MODELS[best.model].title} ({best.model}) describes these users best: {gap.mean:.4f} nats per page "
            f"more than {base.model} (95% interval {_interval(gap.pages)}{others})"
            f"{f'; {_listed(ties)} cannot be distinguished' if ties else ''}.",
            f"What {base.model} misses: given the clicks above, perplexity is "
            f"{best.score.conditional_perplexity:.4f} instead of "
            f"{base.score.conditional_perplexity:.4f} ({_change(fall)}); without them it is "
            f"{best.score.perplexity:.4f} instead of {base.score.perplexity:.4f} ({_change(level)}).",
            *([self.order.sentence()] if self.order is not None else []),
        ]

    def _nothing_better(self) -> str:
        start = f"The {MODELS[self.best.model].title} ({self.best.model}) describes these users best"
        if len(self.entries) == 1:
            return f"{start}; no other model was compared."
        ties = self._ties()
        if ties:
            return f"{start}; {_listed(ties)} cannot be distinguished from it on these pages."
        second = self.entries[1]
        gap = self.differences[second.model]
        limits = -gap.pages[1], -gap.pages[0]
        return f"{start}: {-gap.mean:.4f} nats per page more than {second.model} (95% interval {_interval(limits)})."

    def _ties(self) -> list[str]:
        """Models whose difference to the best is within what chance explains, by pages."""
        best, ties = self.best.score, []
        total = float(best.count.sum())
        for entry in self.entries[1:]:
            gap = best.log_likelihoods - entry.score.log_likelihoods
            mean = float(gap @ best.count / total)
            error = float(np.sqrt((gap - mean) ** 2 @ best.count / total / total))
            if entry.model != self.reference and mean < 1.96 * error:
                ties.append(entry.model)
        return ties

    def document(self) -> dict[str, Any]:
        """Return the comparison as a dictionary of JSON values; unknown numbers are None."""
        return {
            "format": "bothworlds click model comparison",
            "version": 1,
            "origin": self.origin,
            "sentence": self.sentence(),
            "rules": self.rules(),
            "reference": self.reference,
            "pages": dict(zip(("train", "validation", "test"), self.sizes)),
            "seed": self.seed,
            "priors": list(self.priors),
            "models": [_without_nan(row) for row in self.table()],
            "by_rank": [_without_nan(row) for row in self.by_rank()],
            "item_order": None if self.order is None else _without_nan(self.order._asdict()),
        }

    def save(self, path: str | Path) -> Path:
        """Write the comparison as JSON and return the path; the file is replaced as a whole or left unchanged."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        save_text(target, json.dumps(self.document(), indent=2, allow_nan=False) + "\n")
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


def _without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and not np.isfinite(value) else value for name, value in row.items()}


def _interval(limits: tuple[float, float]) -> str:
    return f"{limits[0]:z.4f} to {limits[1]:z.4f}"


def _change(fall: float) -> str:
    return f"{'lower' if fall >= 0.0 else 'higher'} by {abs(fall):.4f}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
