"""Fitting the position-based model to counts: one to ten thousand queries, compared with EM over sessions."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from bothworlds.clicks import Counts, fit
from bothworlds.clicks.fitting.fit import fit_each_query

from .measurement import Measurement
from .session_em import Result, Session, SessionModel

PAGES = 35_064  # as many as the sample that click-model libraries ship
PASSES, TIMED_PASSES = 50, 2  # of EM; the time of all is extrapolated from the timed ones
REPEATS = 5
SAMPLE = Path(os.environ.get("BOTHWORLDS_DATA", "../shared/data")) / "yandex" / "trainSample"
CASES = {  # name: queries, impressions per pair, one curve per query
    "1 query": (1, 350, False),
    "60 queries, one curve": (60, 350, False),
    "60 queries, 1,000 times the pages": (60, 350_000, False),
    "1,000 queries, one curve": (1_000, 35, False),
    "10,000 queries, one curve": (10_000, 35, False),
    "1,000 queries, a curve each": (1_000, 350, True),
}


def simulated_counts(queries: int, impressions: int) -> Counts:
    """Return counts of ten items at ten positions for every query, clicked as the model predicts."""
    rng = np.random.default_rng(0)
    alpha, beta = rng.uniform(0.02, 0.8, (queries, 10)), 1.0 / np.arange(1, 11)
    shown = rng.poisson(impressions, (queries, 10, 10))
    clicked = rng.binomial(shown, alpha[:, :, None] * beta)
    q, i, j = np.nonzero(shown)
    names = tuple(map(str, range(10))), tuple(map(str, range(queries)))
    return Counts(*names, tuple(range(1, 11)), q, i, j, shown[q, i, j], clicked[q, i, j])


def best_time(counts: Counts, per_query: bool = False) -> float:
    """Return the processor seconds of a fit with standard errors: the best of ``REPEATS``, after compilation."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        (fit_each_query if per_query else fit)(counts)
        times.append(time.process_time() - started)
    return min(times)


def sample_sessions() -> tuple[str, list[Session]]:
    """Return the sample of real pages if it is installed, else generated pages of the same size."""
    if SAMPLE.exists():
        records = (record.strip() for record in SAMPLE.read_text().replace("\n", ";").split(";"))
        return "real pages", [_page(record) for record in records if record]
    rng, sessions = np.random.default_rng(0), []
    for query in rng.integers(0, 20, PAGES).tolist():
        order = rng.permutation(50)[:10]
        clicks = rng.random(10) < 0.9 / (1 + order % 10) / np.arange(1, 11)
        sessions.append(Session(str(query), [Result(str(i), int(c)) for i, c in zip(order, clicks)]))
    return "generated pages", sessions


def _page(record: str) -> Session:
    query, _, rest = record.partition("\t")
    urls, _, clicks = rest.partition(":")
    clicked = {url.strip() for url in clicks.split(",")}
    return Session(query, [Result(url.strip(), int(url.strip() in clicked)) for url in urls.split(",")])


def count_sessions(sessions: list[Session]) -> Counts:
    """Return the counts of sessions."""
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


def compare_with_session_em() -> list[str]:
    """Compare fifty EM passes over sessions in plain Python with one fit of the same counts."""
    kind, sessions = sample_sessions()
    counts = count_sessions(sessions)
    started = time.process_time()
    SessionModel().train(sessions, TIMED_PASSES)
    plain = (time.process_time() - started) / TIMED_PASSES * PASSES
    ours = best_time(counts)
    em = fit(counts, method="em", iterations=PASSES)
    return [
        f"{PASSES} EM passes over {len(sessions):,} {kind} in plain Python: {plain:,.0f} s "
        f"(extrapolated from {TIMED_PASSES} passes). "
        f"The fit of their counts takes {ours * 1e3:.1f} ms, {plain / ours:,.0f} times less, counting not included.",
        f"The fit is at the maximum of the likelihood; {PASSES} passes of EM from their usual start are "
        f"{fit(counts).log_likelihood - em.log_likelihood:,.1f} nats below it.",
    ]


def measure() -> Measurement:
    """Return one row per number of queries."""
    fit(simulated_counts(1, 100))
    fit(simulated_counts(1, 100), method="em", iterations=1)
    rows = []
    for name, (queries, impressions, per_query) in CASES.items():
        counts = simulated_counts(queries, impressions)
        seconds = best_time(counts, per_query)
        rows.append(
            {
                "case": name,
                "pages": f"{int(counts.shown.sum()) // 10:,}",
                "triples": len(counts),
                "ms": seconds * 1e3,
                "ns per triple": seconds * 1e9 / len(counts),
                "steps": fit(counts, intervals=False).iterations,
            }
        )
    notes = ["Processor time. The cost per (query, item, position) does not depend on the number of pages."]
    return Measurement("Fitting the position-based model to counts", rows, [*notes, *compare_with_session_em()])
