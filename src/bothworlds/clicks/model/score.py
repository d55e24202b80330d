r"""How well a model predicts pages: log-likelihood per page, and perplexity by rank.

With N pages, the perplexity of rank k is :math:`\exp(-\frac1N \sum_n \log P(c_{nk}))`, with the marginal probability of
what was observed, and conditional perplexity has :math:`P(c_{nk} \mid c_{n,<k})`. The overall figures are means over
ranks. An event of probability below one in a million counts as one in a million.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats, Ints
from ..log import as_pages
from .model import ClickModel
from .predict import RARE, predict


@dataclass(frozen=True, eq=False)
class Score:
    """The predictions of a model on some pages, scored."""

    log_likelihoods: Floats  # (P,) of every different page
    ranks: tuple[int, ...]
    perplexities: Floats  # (m,) by rank
    conditional_perplexities: Floats  # (m,)
    count: Ints  # (P,) how often each page occurred
    known: NDArray[np.bool_]  # (P,) whether the model has seen all items of the page
    impossible: int  # clicks and missing clicks with a probability below one in a million

    @property
    def log_likelihood(self) -> float:
        """The mean log-likelihood of a page, in nats."""
        return float(self.log_likelihoods @ self.count / self.count.sum())

    @property
    def perplexity(self) -> float:
        """The mean perplexity of ranks."""
        return float(self.perplexities.mean())

    @property
    def conditional_perplexity(self) -> float:
        """The mean conditional perplexity of ranks."""
        return float(self.conditional_perplexities.mean())

    def __repr__(self) -> str:
        return (
            f"<Score on {int(self.count.sum()):,} pages: log-likelihood {self.log_likelihood:.4f} per page, perplexity "
            f"{self.perplexity:.4f}, conditional {self.conditional_perplexity:.4f}>"
        )


def score(model: ClickModel, log: Any) -> Score:
    """Return how well a fitted click model predicts the pages of a log.

    ``log`` is pages, or a log or what :func:`read` accepts. Raises ValueError if its rows do not form pages, or if it
    has a position that the model lacks.

    >>> from bothworlds.clicks import Pages, fit
    >>> pages = Pages.from_arrays([["a", "b"], ["b", "a"]], [[1, 0], [0, 1]], count=[30, 10])
    >>> score(fit(pages, "rank-ctr"), pages)
    <Score on 40 pages: log-likelihood -1.1247 per page, perplexity 1.7548, conditional 1.7548>
    """
    pages = as_pages(log)
    prediction = predict(model, pages)
    page, m = pages.of_page(), len(pages.positions)
    hit, count = pages.click == 1, pages.count.astype(np.float64)
    shown = np.bincount(pages.position, count[page], m)
    means, per_page = [], np.zeros(len(pages))
    for p in (prediction.marginal, prediction.conditional):
        logs = np.log(np.maximum(np.where(hit, p, 1.0 - p), RARE))
        means.append(np.bincount(pages.position, count[page] * logs, m) / np.maximum(shown, 1.0))
        per_page = np.bincount(page, logs, len(pages)).astype(np.float64)
    observed = np.where(hit, prediction.conditional, 1.0 - prediction.conditional)
    return Score(
        log_likelihoods=per_page,
        ranks=pages.positions,
        perplexities=np.exp(-means[0]),
        conditional_perplexities=np.exp(-means[1]),
        count=pages.count,
        known=prediction.known,
        impossible=int(pages.count[page[observed < RARE]].sum()),
    )
