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

STYLE = """
:root { --ink: #1a1a1a; --quiet: #5c5c5c; --paper: #fdfdfc; --card: #fff; --line: #dcdcd8;
        --holds: #00694c; --fails: #b04000; --open: #5c5c5c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e6; --quiet: #a8a8a4; --paper: #161617; --card: #202022; --line: #3a3a3c;
          --holds: #4cc9a0; --fails: #ff9a5c; --open: #a8a8a4; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0 .3rem; }
h2 { font-size: 1.25rem; margin: 3rem 0 .5rem; border-top: 1px solid var(--line); padding-top: 1.5rem; }
p, figcaption { max-width: 44rem; }
.quiet, figcaption, small { color: var(--quiet); }
.count { display: flex; gap: 1rem; flex-wrap: wrap; margin: 1.2rem 0; padding: 0; list-style: none; }
.count li { flex: 1 1 8rem; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
            padding: .7rem 1rem; }
.count b { display: block; font-size: 1.8rem; line-height: 1.1; }
.verdict { background: var(--card); border: 1px solid var(--line); border-left: 5px solid var(--mark);
           border-radius: 6px; padding: .7rem 1rem; margin: .7rem 0; }
.verdict h3 { font-size: 1rem; margin: 0; font-weight: 600; }
.verdict p { margin: .3rem 0 0; font-size: .9rem; max-width: none; overflow-wrap: anywhere; }
.outcome { color: var(--mark); font-weight: 700; text-transform: uppercase; font-size: .75rem; letter-spacing: .04em; }
.holds { --mark: var(--holds); } .fails { --mark: var(--fails); } .open { --mark: var(--open); }
figure { margin: 1rem 0; }
.plot { background: #fff; border: 1px solid var(--line); border-radius: 6px; padding: .5rem; overflow-x: auto; }
.plot svg { display: block; width: 100%; height: auto; }
.narrow { display: none; }
@media (max-width: 40rem) { .wide { display: none; } .narrow { display: block; } .plot { padding: .2rem; } }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .7rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
code { font-size: .85em; } pre { overflow-x: auto; background: var(--card); border: 1px solid var(--line);
      border-radius: 6px; padding: .7rem 1rem; font-size: .8rem; }
a { color: inherit; }
.warning { color: var(--fails); font-weight: 600; }
"""
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
    """Write ``report.html`` into a folder and return its path.

    Parameters
    ----------
    folder
        Must contain the SVG files of all figures in ``figures``; they are copied into the page.
    size, questions, figures, verdicts
        What was played; the questions in their order, the figures of each by its name, and all verdicts.
    costs
        Microseconds per round of every policy, by name; the table is left out if there are none.
    provenance
        What ``arena.storage.provenance`` returned.
    warnings
        Sentences that are shown above the verdicts.
    """
    of_paper = any(question.of_paper for question in questions)
    title = "What holds of the paper" if of_paper else questions[0].title
    parts = [
        f"<h1>{escape(title + _fitted_world_suffix(size))}</h1>",
        f"<p>{PAPER if of_paper else ''}{ABOUT}</p>",
        _fitted_world_note(size),
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
        f"<title>bothworlds: {escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _fitted_world_suffix(size: Size) -> str:
    return f", with {size.fitted.name}" if size.fitted else ""


def _fitted_world_note(size: Size) -> str:
    if size.fitted is None:
        return ""
    n, m = size.fitted.n_items, size.fitted.n_positions
    return (
        f"<p>The world <b>{escape(size.fitted.name)}</b> ({n} items, {m} positions) takes the place of the "
        "values that the paper fitted to the Yandex log: in Figure 2, in the baselines and in how regret grows.</p>"
    )


def write_verdicts(
    folder: Path, size: Size, questions: Sequence[Question], verdicts: Sequence[Verdict], warnings: Sequence[str] = ()
) -> Path:
    """Write the verdicts as a Markdown table, ``verdicts.md``, into a folder and return its path."""
    lines = ["| statement | verdict | measured |", "| --- | --- | --- |"]
    lines += [f"| {one.statement} | **{one.outcome}** | {one.measured.replace('|', ',')} |" for one in verdicts]
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
        own = sorted((one for one in verdicts if one.outcome == outcome), key=lambda one: one.source.startswith("ours"))
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
    return (
        f'<figure id="{escape(figure.stem)}">{_plots(folder / "figures", figure.stem)}'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def _plots(folder: Path, stem: str) -> str:
    """All drawings of a figure; the style sheet shows the one that fits the screen."""
    drawings = {path: narrow for path, narrow in figure_files(folder, stem).items() if path.suffix == ".svg"}
    return "".join(
        f'<div class="plot {"narrow" if narrow else "wide"}">{_svg(path)}</div>' for path, narrow in drawings.items()
    )


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


def _source(provenance: Mapping[str, Any]) -> str:
    """The commit of the code that was run, or its version if git has none."""
    if provenance["commit"]:
        return f"Commit <code>{escape(provenance['commit'])}</code>"
    return f"Version <code>{escape(provenance['versions']['bothworlds'])}</code>, commit unknown"


def _provenance(size: Size, questions: Sequence[Question], provenance: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in provenance["versions"].items() if version)
    settings = {play["policy"]: play["settings"] for play in provenance["plays"]}
    listed = "\n".join(f"{name}: {given}" for name, given in sorted(settings.items()))
    unstated = (
        "The paper states phases of 100,000 rounds, and neither the horizon nor the settings of the policies it "
        "compares with; those used here are below. "
    )
    return (
        "<h2>How this was made</h2>"
        f"<p>Size <code>{escape(size.name)}</code>: {escape(questions[0].played(size))}. "
        f"{unstated if questions[0].of_paper else ''}{_source(provenance)}; {escape(versions)}.</p>"
        "<p>All numbers are in <code>results.parquet</code>, one row for every policy, world, replication and "
        f"checkpoint.</p><pre>{escape(listed)}</pre>"
    )
