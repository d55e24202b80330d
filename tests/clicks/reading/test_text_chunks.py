"""Engines: several machines count what one counts, to the last click."""

from __future__ import annotations

import pytest

from bothworlds.clicks.log import counts
from bothworlds.clicks.reading.layouts import LAYOUTS
from bothworlds.clicks.reading.text_chunks import ScanFilters, partial_counts, spans, sum_summaries
from tests.clicks.reading.test_counts import sessions


@pytest.mark.slow
@pytest.mark.parametrize("size", [50, 300, 5000, 10**9])
def test_spans_tile_a_log_and_count_alike(tmp_path, size):
    log = tmp_path / "log"
    log.write_text(sessions(4))
    layout = LAYOUTS["relpred"]
    cut = spans(log, None, layout.last_boundary, size)
    assert [span.start for span in cut[1:]] == [span.stop for span in cut[:-1]]
    assert len(cut) > 1 or size > log.stat().st_size
    parts = [partial_counts(span, layout, ScanFilters()) for span in cut]
    found = sum_summaries(part for part, _ in parts)
    whole = counts(log)
    assert found.pages == whole.pages
    assert sum(table[:, 3].sum() for _, tables in parts for table in tables) == whole.shown.sum()
    assert sum(table[:, 4].sum() for _, tables in parts for table in tables) == whole.clicked.sum()


def test_spans_that_cut_sessions_would_count_other_clicks(tmp_path):
    log = tmp_path / "log"
    log.write_text(sessions(4))
    layout = LAYOUTS["relpred"]
    careless = spans(log, None, lambda text: text.rfind(b"\n") + 1, 300)
    parts = [partial_counts(span, layout, ScanFilters()) for span in careless]
    assert (
        sum_summaries(part for part, _ in parts).early
        > sum_summaries([partial_counts(spans(log, None, len, 10**9)[0], layout, ScanFilters())[0]]).early
    )
