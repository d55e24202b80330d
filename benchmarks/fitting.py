"""Fitting the position-based model to counts: from one query to ten thousand, and against EM over sessions."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from bothworlds.clicks import Counts, fit

from .sessions_em import PlainModel, Result, Session

PAGES = 35_064  # of the sample that public click-model libraries are tried on
PASSES, TRIED = 50, 2  # of EM, and how many of them are run before the time is scaled
REPEATS = 5
SAMPLE = Path(os.environ.get("BOTHWORLDS_DATA", "../shared/data")) / "yandex" / "trainSample"
CASES = {  # name: queries, impressions per pair, one curve per query
    "1 query": (1, 350, False),
    "60 queries, one curve": (60, 350, False),
    "60 queries, 1,000 times the pages": (60, 350_000, False),
    "1,000 queries, one curve": (1_000, 35, False),
    "10,000 queries, one curve": (10_000, 35, False),
    "10,000 queries, a curve each": (10_000, 350, True),
}


def made(queries: int, impressions: int) -> Counts:
    """Ten items at ten positions for every query, clicked as the model has it."""
    rng = np.random.default_rng(0)
    alpha, beta = rng.uniform(0.02, 0.8, (queries, 10)), 1.0 / np.arange(1, 11)
    shown = rng.poisson(impressions, (queries, 10, 10))
    clicked = rng.binomial(shown, alpha[:, :, None] * beta)
    q, i, j = np.nonzero(shown)
    names = tuple(map(str, range(10))), tuple(map(str, range(queries)))
    return Counts(*names, tuple(range(1, 11)), q, i, j, shown[q, i, j], clicked[q, i, j])


def best_time(counts: Counts, per_query: bool = False) -> float:
    """Processor seconds for a fit with its standard errors, the best of a few, after compilation."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        fit(counts, per_query=per_query)
        times.append(time.process_time() - started)
    return min(times)


def pages() -> tuple[str, list[Session]]:
    """The real sample where it is, pages like it where it is not."""
    if SAMPLE.exists():
        records = (record.strip() for record in SAMPLE.read_text().replace("\n", ";").split(";"))
        return "real pages", [_page(record) for record in records if record]
    rng, found = np.random.default_rng(0), []
    for query in rng.integers(0, 20, PAGES).tolist():
        order = rng.permutation(50)[:10]
        clicks = rng.random(10) < 0.9 / (1 + order % 10) / np.arange(1, 11)
        found.append(Session(str(query), [Result(str(i), int(c)) for i, c in zip(order, clicks)]))
    return "generated pages", found


def _page(record: str) -> Session:
    query, _, rest = record.partition("\t")
    urls, _, clicks = rest.partition(":")
    clicked = {url.strip() for url in clicks.split(",")}
    return Session(query, [Result(url.strip(), int(url.strip() in clicked)) for url in urls.split(",")])


def counted(sessions: list[Session]) -> Counts:
    """Counts of pages, without any haste."""
    keys: dict[tuple[str, str, int], list[int]] = {}
    for session in sessions:
        for rank, result in enumerate(session.results, 1):
            cell = keys.setdefault((session.query, result.id, rank), [0, 0])
            cell[0] += 1
            cell[1] += result.click
    names = [sorted({key[k] for key in keys}) for k in range(3)]
    codes = [{name: k for k, name in enumerate(part)} for part in names]
    columns = np.array([[code[part] for code, part in zip(codes, key)] for key in keys]).T
    shown, clicked = np.array(list(keys.values())).T
    queries, items, positions = (tuple(part) for part in names)
    return Counts(items, queries, positions, *columns, shown, clicked)


def against_sessions() -> list[str]:
    """Fifty EM passes over sessions in plain Python, and one fit of the same counts."""
    what, sessions = pages()
    counts = counted(sessions)
    started = time.process_time()
    PlainModel().train(sessions, TRIED)
    plain = (time.process_time() - started) / TRIED * PASSES
    ours = best_time(counts)
    em = fit(counts, method="em", iterations=PASSES)
    return [
        f"{PASSES} EM passes over {len(sessions):,} {what} in plain Python: {plain:,.0f} s ({TRIED} passes, scaled); "
        f"the fit of their counts takes {ours * 1e3:.1f} ms, {plain / ours:,.0f} times less, counting not included.",
        f"It is at the maximum of the likelihood; {PASSES} passes of EM from its usual start are "
        f"{fit(counts).log_likelihood - em.log_likelihood:,.1f} nats short of it.",
    ]


def measure() -> tuple[str, list[dict[str, Any]], list[str]]:
    """One row for every number of queries."""
    fit(made(1, 100), per_query=True)
    fit(made(1, 100), method="em", iterations=1)
    rows = []
    for name, (queries, impressions, per_query) in CASES.items():
        counts = made(queries, impressions)
        seconds = best_time(counts, per_query)
        rows.append(
            {
                "counts of": name,
                "pages": f"{int(counts.shown.sum()) // 10:,}",
                "triples": len(counts),
                "ms": seconds * 1e3,
                "ns each": seconds * 1e9 / len(counts),
                "steps": fit(counts, per_query=per_query, standard_errors=None).iterations,
            }
        )
    remarks = ["Processor time. Cost per (query, item, position) stays level, whatever the pages."]
    return "Fitting the position-based model to counts", rows, [*remarks, *against_sessions()]
