"""Tables of average rewards: policies down, worlds across, the best of each world marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .result import Result, changes_not_shown

COMPARATORS = {"best of each round": "best_dynamic", "best fixed list": "best_fixed"}


class TableCell(NamedTuple):
    """The reward of a policy in a world as text, and whether it is the best of the policies that learn."""

    text: str
    best: bool


class TableRow(NamedTuple):
    """A policy or a comparator in all worlds; ``cost`` in microseconds per round; a ``reference`` does not compete."""

    name: str
    cells: list[TableCell | None]
    cost: float | None
    reference: bool


class Standings(NamedTuple):
    """A table of average expected rewards; ``warnings`` are sentences about worlds that did not change."""

    title: str
    worlds: list[str]
    rows: list[TableRow]
    warnings: list[str]


def standings(results: Sequence[Result]) -> Standings:
    """Return the average reward per round of every policy in every world, with standard errors over replications."""
    worlds = list(dict.fromkeys(result.world for result in results))
    rounds, replications = int(results[0].rounds[-1]), results[0].reward.shape[0]
    rows = []
    for name, comparator in COMPARATORS.items():
        firsts = [next(r for r in results if r.world == world) for world in worlds]
        rows.append(
            TableRow(name, [TableCell(f"{getattr(r, comparator)[-1] / rounds:.4f}", False) for r in firsts], None, True)
        )
    # Only policies that learn compete; if there is none, all do.
    competitors = [r for r in results if r.adaptive] or list(results)
    best = {world: max((r.final()[0] for r in competitors if r.world == world), default=None) for world in worlds}
    for policy in dict.fromkeys(result.policy for result in results):
        own = {result.world: result for result in results if result.policy == policy}
        cost = 1e6 * sum(r.cost() for r in own.values()) / len(own)
        cells = [_cell(own[world], best[world]) if world in own else None for world in worlds]
        rows.append(TableRow(policy, cells, cost, not next(iter(own.values())).adaptive))
    played = f"{rounds:,} rounds, {replications} replication{'s' if replications > 1 else ''}"
    return Standings(f"average expected reward per round, {played}", worlds, rows, changes_not_shown(results))


def _cell(result: Result, best: float | None) -> TableCell:
    mean, error = result.final()
    return TableCell(f"{mean:.4f}" if error != error else f"{mean:.4f} ±{error:.4f}", mean == best)


def save_table(table: Standings, path: str | Path) -> Path:
    """Write the table as Markdown and return the path: the best policy of each world in bold, references in italics."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [_line(["policy", *table.worlds, "µs per round"]), _line(["---", *["---:"] * (len(table.worlds) + 1)])]
    for row in table.rows:
        name = f"*{row.name}*" if row.reference else row.name
        cells = ["" if cell is None else f"**{cell.text}**" if cell.best else cell.text for cell in row.cells]
        lines.append(_line([name, *cells, "" if row.cost is None else f"{row.cost:.2f}"]))
    lines += [part for warning in table.warnings for part in ("", f"Warning: {warning}.")]
    path.write_text("\n".join([f"{table.title[0].upper()}{table.title[1:]}:", "", *lines, ""]))
    return path


def _line(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
