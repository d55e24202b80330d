"""The report: one HTML page that needs no network, with the nine panels and the verdicts first; Markdown; text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from .question import Figure, Question, Size, figure_files
from .verdict import Verdict

OPENING = "all-weather"  # the figure of all nine panels, above everything else

STYLE = Path(__file__).with_suffix(".css")
CLASSES = {"holds": "holds", "fails": "fails", "cannot be decided": "open"}
PAPER = """
This page puts <i>Simultaneously Learning Stochastic and Adversarial Bandits under the Position-Based Model</i>
(Chen, Zhao, Li; AAAI 2022) to the test.
"""
ABOUT = """
Every statement below is measured in simulation, with expected rewards, the
same users for every policy and shuffled item labels. What counts as true is written beside each statement; intervals
are 95%, over replications; a statement about several policies or panels fails only if one of them violates it with an
interval that allows for their number. A verdict is about the runs of this report, and about nothing else.
"""


def write_report(
    folder: Path,
    size: Size,
    questions: Sequence[Question],
    figures: Mapping[str, Sequence[Figure]],
    verdicts: Sequence[Verdict],
    costs: Mapping[str, float],
    provenance: Mapping[str, Any],
    warnings: Sequence[str] = (),
) -> Path:
    """Write ``report.html`` into a folder and return its path; the SVG files of all figures are in that folder.

    ``figures`` are those of each question by its name, ``costs`` microseconds per round of every policy by name, and
    ``provenance`` what ``arena.storage.provenance`` returned.
    """
    of_paper = any(question.of_paper for question in questions)
    title = "What holds of the paper" if of_paper else questions[0].title
    fitted = size.fitted
    parts = [
        f"<h1>{escape(title + _fitted_world_suffix(size))}</h1>",
        f"<p>{PAPER if of_paper else ''}{ABOUT}</p>",
        f"<p>The world <b>{escape(fitted.name)}</b> ({fitted.n_items} items, {fitted.n_positions} positions) takes the "
        "place of the values that the paper fitted to the Yandex log: in Figure 2, in the baselines and in how regret "
        "grows.</p>"
        if fitted
        else "",
        *(_figure(figure, folder) for own in figures.values() for figure in own if figure.stem == OPENING),
        *(f'<p class="warning">Warning: {escape(warning)}.</p>' for warning in warnings),
        f"<p>{_uncorrected(verdicts)}</p>",
        _counts(verdicts),
        *map(_verdict, verdicts),
        *(_question(question, figures[question.name], folder) for question in questions),
        _cost_table(costs),
        _provenance(size, questions, provenance),
    ]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>bothworlds: {escape(title)}</title><style>{STYLE.read_text()}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _fitted_world_suffix(size: Size) -> str:
    return f", with {size.fitted.name}" if size.fitted else ""


def write_verdicts(
    folder: Path, size: Size, questions: Sequence[Question], verdicts: Sequence[Verdict], warnings: Sequence[str] = ()
) -> Path:
    """Write the verdicts as a Markdown table, ``verdicts.md``, into a folder and return its path."""
    lines = ["| statement | verdict | measured |", "| --- | --- | --- |"]
    lines += [f"| {v.statement} | **{v.outcome}** | {v.measured.replace('|', ',')} |" for v in verdicts]
    about = f"Size `{size.name}`{_fitted_world_suffix(size)}: {questions[0].played(size)}"
    lines += [part for warning in warnings for part in ("", f"Warning: {warning}.")]
    path = folder / "verdicts.md"
    path.write_text("\n".join([f"{about}. {_uncorrected(verdicts)}", "", *lines, ""]))
    return path


def _uncorrected(verdicts: Sequence[Verdict]) -> str:
    return (
        f"No correction is made for the number of statements, {len(verdicts)}: at 95% each, one or two of so many may "
        "be wrong by chance."
    )


def findings(verdicts: Sequence[Verdict], width: int) -> str:
    """Return what was found, without numbers, in lines of at most ``width`` columns.

    First what holds, then what does not and why, then what the run cannot decide; in each part the statements of the
    paper come first, and those that are not in the paper are marked.
    """
    titles = {
        "holds": "Holds:",
        "fails": "Does not hold, and why:",
        "cannot be decided": "This run is too short to decide:",
    }
    parts = []
    for outcome, title in titles.items():
        own = sorted((v for v in verdicts if v.outcome == outcome), key=lambda v: v.source.startswith("ours"))
        lines = [title]
        for verdict in own:
            mark = " (ours)" if verdict.source.startswith("ours") else ""
            lines += _indented(verdict.statement + mark, width, "  - ")
            if outcome == "fails":
                why = verdict.because or verdict.remark or f"It is not so that {verdict.rule}."
                lines += _indented(why, width, "    ")
        parts += ["\n".join(lines)] if own else []
    return "\n\n".join(parts)


def _indented(text: str, width: int, first: str) -> list[str]:
    return wrap(text, width, break_on_hyphens=False, initial_indent=first, subsequent_indent="    ")


def _counts(verdicts: Sequence[Verdict]) -> str:
    of_paper = [verdict for verdict in verdicts if not verdict.source.startswith("ours")]
    if not of_paper:
        return ""
    entries = [
        f'<li class="{CLASSES[outcome]}"><b>{sum(v.outcome == outcome for v in of_paper)}</b>'
        f'<span class="outcome">{words}</span></li>'
        for outcome, words in (("holds", "hold"), ("fails", "fail"), ("cannot be decided", "cannot be decided"))
    ]
    counted = f"Of {len(of_paper)} statements of the paper (those with the source \u201cours\u201d are not counted):"
    return f'<p>{counted}</p><ul class="count">{"".join(entries)}</ul>'


def _verdict(verdict: Verdict) -> str:
    link = f' &middot; <a href="#{escape(verdict.figure)}">figure</a>' if verdict.figure else ""
    measured = verdict.measured[:1].upper() + verdict.measured[1:]
    remark = f"<p><i>{escape(verdict.remark)}</i></p>" if verdict.remark else ""
    return (
        f'<section class="verdict {CLASSES[verdict.outcome]}"><span class="outcome">{verdict.outcome}</span>'
        f"<h3>{escape(verdict.statement)}</h3><p>{escape(measured)}.</p>{remark}"
        f'<p class="quiet"><small>Source: {escape(verdict.source)}. '
        f"Counts as true if {escape(verdict.rule)}.{link}</small></p>"
        "</section>"
    )


def _question(question: Question, figures: Sequence[Figure], folder: Path) -> str:
    shown = "".join(_figure(figure, folder) for figure in figures if figure.stem != OPENING)
    return f"<h2>{escape(question.title)}</h2><p>{escape(question.about)}</p>{shown}"


def _figure(figure: Figure, folder: Path) -> str:
    """All drawings of a figure; the style sheet shows the one that fits the screen."""
    drawn = (item for item in figure_files(folder / "figures", figure.stem).items() if item[0].suffix == ".svg")
    plots = "".join(f'<div class="plot {"narrow" if narrow else "wide"}">{_svg(path)}</div>' for path, narrow in drawn)
    return f'<figure id="{escape(figure.stem)}">{plots}<figcaption>{escape(figure.caption)}</figcaption></figure>'


def _svg(path: Path) -> str:
    """An SVG drawing with its ids made unique: several drawings on one page must not share ids."""
    text = path.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    prefix = re.sub(r"\W", "", path.stem)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(href="#|url\(#)([^")]+)', rf"\1{prefix}-\2", text)
    return re.sub(r'<svg([^>]*?) width="[^"]*" height="[^"]*"|<svg([^>]*?) height="[^"]*"', r"<svg\1\2", text, count=1)


def _cost_table(costs: Mapping[str, float]) -> str:
    if not costs:
        return ""
    base = costs.get("ftrl-pbm")
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{cost:,.2f}</td><td>{f'{cost / base:,.2f}' if base else ''}</td></tr>"
        for name, cost in sorted(costs.items(), key=lambda entry: entry[1])
    )
    return (
        "<h2>What a round costs</h2>"
        "<p>Processor time per round with ten items and five positions, in the runs above.</p>"
        '<div class="scroll"><table><tr><th>policy</th><th>µs per round</th><th>over FTRL-PBM</th></tr>'
        f"{rows}</table></div>"
    )


def _provenance(size: Size, questions: Sequence[Question], provenance: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in provenance["versions"].items() if version)
    settings = {play["policy"]: play["settings"] for play in provenance["plays"]}
    listed = "\n".join(f"{name}: {given}" for name, given in sorted(settings.items()))
    source = f"Version <code>{escape(provenance['versions']['bothworlds'])}</code>, commit unknown"
    if provenance["commit"]:
        source = f"Commit <code>{escape(provenance['commit'])}</code>"
    unstated = (
        "The paper states phases of 100,000 rounds, and neither the horizon nor the settings of the policies it "
        "compares with; those used here are below. "
    )
    return (
        "<h2>How this was made</h2>"
        f"<p>Size <code>{escape(size.name)}</code>: {escape(questions[0].played(size))}. "
        f"{unstated if questions[0].of_paper else ''}{source}; {escape(versions)}.</p>"
        "<p>All numbers are in <code>results.parquet</code>, one row for every policy, world, replication and "
        f"checkpoint.</p><pre>{escape(listed)}</pre>"
    )
