"""The error for bad rows of a log, naming the options of :func:`bothworlds.clicks.read` that accept them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

MAX_EXAMPLES = 3  # bad rows that an error shows


def plural(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun.

    >>> plural(1, "row"), plural(1200, "row"), plural(2, "query", "queries")
    ('1 row', '1,200 rows', '2 queries')
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def skipped(number: int, noun: str) -> str:
    """Return the start of a note.

    >>> skipped(1, "row"), skipped(3, "bad record")
    ('1 row was skipped', '3 bad records were skipped')
    """
    return f"{plural(number, noun)} {'was' if number == 1 else 'were'} skipped"


class Example(NamedTuple):
    """One bad row: where it is and what is wrong with it."""

    file: str
    place: str  # "line 4"
    problem: str


class BadInput(ValueError):
    """Bad input, with the options that accept it: ``options`` maps their Python names to what they do."""

    def __init__(self, problem: str, options: Mapping[str, str]) -> None:
        advice = "; ".join(f"{name}=True {effect}" for name, effect in options.items())
        super().__init__(f"{problem}; {advice}")
        self.problem, self.options = problem, dict(options)

    def with_flags(self) -> str:
        """Return the message for the command line, with options named by their flags.

        >>> BadInput("line 4 is bad", {"skip_bad": "leaves it out"}).with_flags()
        'line 4 is bad; --skip-bad leaves it out'
        """
        advice = "; ".join(f"--{name.replace('_', '-')} {effect}" for name, effect in self.options.items())
        return f"{self.problem}; {advice}"


def bad_input_error(
    examples: Sequence[Example], number: int, noun: str, options: Mapping[str, str] | None = None, cure: str = ""
) -> ValueError:
    """Return the error for ``number`` bad rows, records or pages (``noun``), which shows the first examples.

    A ``cure`` is given instead of options, where leaving out rows would leave out what they have in common.

    >>> examples = [Example("log.csv", "line 4", "click is missing"), Example("log.csv", "line 9", "item is missing")]
    >>> str(bad_input_error(examples, 12, "rows"))
    'log.csv, line 4: click is missing; line 9: item is missing; 12 rows are bad; skip_bad=True leaves them out'
    """
    shown = list(examples[:MAX_EXAMPLES])
    parts = []
    for before, (file, place, problem) in zip([None, *shown], shown):
        parts.append(f"{'' if before and before.file == file else f'{file}, '}{place}: {problem}")
    if number > 1:
        parts.append(f"{number:,} {noun} are bad")
    if cure:
        return ValueError("; ".join([*parts, cure]))
    skip = {"skip_bad": f"leaves {'them' if number > 1 else 'it'} out"}
    return BadInput("; ".join(parts), {**(options or {}), **skip})
