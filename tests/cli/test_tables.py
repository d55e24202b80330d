"""The printer of rows: every table fits the width, with all of its cells."""

from __future__ import annotations

import pytest

from bothworlds.cli.tables import WIDTH, print_rows


def printed(capsys, *arguments, **options):
    print_rows(*arguments, **options)
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [1, 5, 12, 40])
def test_a_table_fits_the_width_and_shows_every_cell(capsys, columns):
    headings = ["item", *(f"at position {k}" for k in range(columns))]
    rows = [[f"tea {r}", *(f"{r}.{k:04d}" for k in range(columns))] for r in range(3)]
    text = printed(capsys, "a title", headings, rows, names=("item",))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert all(text.count(cell) == 1 for row in rows for cell in row[1:])
    assert (text.count("tea 1") > 1) is (columns > 5)
    assert "…" not in text


def test_sentences_are_wrapped_and_brackets_are_no_markup(capsys):
    text = printed(capsys, "", ("name", "what"), [("[bold]", "word " * 60)], names=("name",), sentences=("what",))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert (text.count("word"), text.count("[bold]")) == (60, 1)
