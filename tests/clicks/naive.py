"""Counting as one would do it by hand: the slow twin of every reader."""

from __future__ import annotations

from collections import Counter

from bothworlds.clicks import Counts


def count_sessions(text):
    """Impressions and clicks per (query, item, position) of a Relevance Prediction log, and clicks without a page:
    those on what the pages of their session do not show, by the query of the page before them, and those before any
    page of it.
    """
    shown, clicked, stray, early, pages, session = Counter(), set(), Counter(), 0, [], None
    for number, line in enumerate(text.splitlines()):
        who, _, kind, *rest = line.split("\t")
        if who != session:
            session, pages = who, []
        if kind == "Q":
            pages.append((number, f"{rest[0]}_{rest[1]}", rest[2:]))
            for position, url in enumerate(rest[2:], start=1):
                shown[pages[-1][1], url, position] += 1
            continue
        page = next((page for page in reversed(pages) if rest[0] in page[2]), None)
        if not pages:
            early += 1
        elif page is None:
            stray[pages[-1][1]] += 1
        else:
            clicked.add((page[0], page[1], rest[0], page[2].index(rest[0]) + 1))
    return shown, Counter(key[1:] for key in clicked), (stray, early)


def as_dictionaries(counts: Counts):
    """Shown and clicked by (query, item, position), as counters have them."""
    keys = [
        (counts.queries[q], counts.items[i], counts.positions[p])
        for q, i, p in zip(counts.query, counts.item, counts.position)
    ]
    shown = dict(zip(keys, counts.shown.tolist()))
    return shown, {key: clicks for key, clicks in zip(keys, counts.clicked.tolist()) if clicks}


def same(one: Counts, other: Counts) -> bool:
    """Whether two counts are the same to the last click."""
    return as_dictionaries(one) == as_dictionaries(other) and one.pages == other.pages
