"""The error for input that is bad in places, and that an option of :func:`bothworlds.clicks.read` would accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["FEW", "BadInput", "Example", "refusal"]

FEW = 3  # examples that an error shows


class Example(NamedTuple):
    """One place where input is bad, and what is wrong there."""

    file: str
    place: str  # "line 4"
    wrong: str


class BadInput(ValueError):
    """Bad input, with the options that would accept it: their names in Python, and what each of them does."""

    def __init__(self, complaint: str, options: Mapping[str, str]) -> None:
        advice = "; ".join(f"{name}=True {effect}" for name, effect in options.items())
        super().__init__(f"{complaint}; {advice}")
        self.complaint, self.options = complaint, dict(options)

    def with_flags(self) -> str:
        """The message for the command line, which calls the options by their flags.

        >>> BadInput("line 4 is bad", {"skip_bad": "leaves it out"}).with_flags()
        'line 4 is bad; --skip-bad leaves it out'
        """
        advice = "; ".join(f"--{name.replace('_', '-')} {effect}" for name, effect in self.options.items())
        return f"{self.complaint}; {advice}"


def refusal(examples: Sequence[Example], number: int, noun: str, options: Mapping[str, str] | None = None) -> BadInput:
    """The error for bad rows, records or pages: where the first are, how many there are, what to do about them.

    >>> examples = [Example("log.csv", "line 4", "click is missing"), Example("log.csv", "line 9", "item is missing")]
    >>> str(refusal(examples, 12, "rows"))
    'log.csv, line 4: click is missing; line 9: item is missing; 12 rows are bad; skip_bad=True leaves them out'
    """
    shown = list(examples[:FEW])
    parts = []
    for before, (file, place, wrong) in zip([None, *shown], shown):
        parts.append(f"{'' if before and before.file == file else f'{file}, '}{place}: {wrong}")
    if number > 1:
        parts.append(f"{number:,} {noun} are bad")
    skip = {"skip_bad": f"leaves {'them' if number > 1 else 'it'} out"}
    return BadInput("; ".join(parts), {**(options or {}), **skip})
