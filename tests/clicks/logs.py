"""The real logs, counted in a few lines, and generated ones for where there are none."""

from __future__ import annotations

import csv
from collections import Counter

import numpy as np

from bothworlds.clicks import Counts, fit
from tests.clicks.real import real_file

YANDEX = ("trainSample", "testSample", "oneQueryTrain", "oneQueryTest")
CHALLENGE = ("relpred_train.tsv", "relpred_test.tsv")
BANDIT = tuple(f"{policy}_{part}.csv" for policy in ("random", "bts") for part in ("all", "men", "women"))
ALL = (
    *(f"yandex/{name}" for name in YANDEX + CHALLENGE),
    *(f"obd/{name}" for name in BANDIT),
    "yandex_counts/counts.csv",
)


# The challenge's files hold the same pages as the samples.
WITH_QUERIES = ("yandex/trainSample", "yandex/testSample", "yandex_counts/counts.csv")


def real(name, **options):
    """Counts of a real log; the test is skipped where there is none."""
    path = real_file(name)
    if name.startswith("obd"):
        return _bandit(path)
    if name.endswith("counts.csv"):
        return _table(path)
    return _pages(_challenge(path) if name.endswith(".tsv") else _native(path), **options)


def from_triples(shown, clicked):
    """Counts from two mappings (query, item, position) -> number."""
    keys = sorted(shown)
    queries, items, positions = (sorted({key[k] for key in keys}) for k in range(3))
    codes = [{name: k for k, name in enumerate(names)} for names in (queries, items, positions)]
    columns = np.array([[code[part] for code, part in zip(codes, key)] for key in keys])
    numbers = ([counted[key] for key in keys] for counted in (shown, clicked))
    return Counts(tuple(items), tuple(queries), tuple(positions), *columns.T, *numbers)


def generated(queries=1, n=6, m=4, impressions=300, seed=0, low=0.05, high=0.9, examination=None, share=1.0):
    """Counts of users who follow the model; a share of all pairs is shown."""
    rng = np.random.default_rng(seed)
    beta = 1.0 / np.arange(1, m + 1) if examination is None else np.asarray(examination)
    alpha = rng.uniform(low, high, (queries, n))
    shown = rng.poisson(impressions, (queries, n, m)) * (rng.random((queries, n, m)) < share)
    clicked = rng.binomial(shown, alpha[:, :, None] * beta)
    q, i, j = np.nonzero(shown)
    names = [tuple(f"{word}{k}" for k in range(size)) for word, size in (("item", n), ("query", queries))]
    return Counts(*names, tuple(range(1, m + 1)), q, i, j, shown[q, i, j], clicked[q, i, j])


def fit_tables(shown, clicked, **options):
    """A fit to two tables, items by positions."""
    return fit(Counts.from_tables(shown, clicked), **options)


def _native(path):
    for record in path.read_text().replace("\n", ";").split(";"):
        if record.strip():
            query, _, rest = record.strip().partition("\t")
            urls, _, clicks = rest.partition(":")
            yield query, [url.strip() for url in urls.split(",")], {url.strip() for url in clicks.split(",")}


def _challenge(path):
    page = None
    for line in path.read_text().splitlines():
        parts = line.split("\t")
        if parts[2] == "Q":
            if page:
                yield page
            page = f"{parts[3]}_{parts[4]}", parts[5:], set()
        else:
            page[2].add(parts[3])
    yield page


def _pages(pages, query=None, positions=None):
    shown, clicked = Counter(), Counter()
    for name, urls, clicks in pages:
        if query in (None, name):
            for j, url in enumerate(urls[:positions], 1):
                shown[name, url, j] += 1
                clicked[name, url, j] += url in clicks
    return from_triples(shown, clicked)


def _bandit(path):
    shown, clicked = Counter(), Counter()
    with path.open() as file:
        for row in csv.DictReader(file):
            key = "", row["item_id"], int(row["position"])
            shown[key] += 1
            clicked[key] += int(row["click"])
    return from_triples(shown, clicked)


def _table(path):
    shown, clicked = Counter(), Counter()
    with path.open() as file:
        for row in csv.DictReader(file):
            key = row["query"], row["url"], int(row["pos"])
            shown[key] += int(float(row["Impression"]))
            clicked[key] += int(float(row["Click"]))
    return from_triples(shown, {key: min(number, shown[key]) for key, number in clicked.items()})
