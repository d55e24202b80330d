"""Labels of visitors and of items: what is declared, what values are allowed, and the numbers that a learner gets.

``Ranker`` and the service share these rules. A *declaration* names labels and says what values they have:

>>> visitor = LabelTable({"device": None, "plan": ["free", "paid"], "age": [18, 30, 50]}, "labels")
>>> row, unknown = visitor.row({"device": "mobile", "age": 34}, "context")
>>> row, unknown
((1, 0, 3), ())
>>> visitor.texts(row)
{'device': 'mobile', 'plan': '', 'age': '30..50'}

A list of names declares open labels. For each name, a dictionary has

- None: *open*. Any text or boolean; at most 200 different ones, further ones are unknown.
- A list of texts: *closed*. Any other text is unknown.
- A list of 1 to 64 increasing numbers: *edges*. A value is a number, and stands for the range that contains it.

The value 0 of every label is "", unknown; a label that is missing has it. Wrong types, labels that are not declared and
NaN raise LabelError, a ValueError that names the field and what is allowed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .checks import is_number

UNKNOWN = ""
MAX_LABELS = 8  # of visitors, and of items
MAX_VALUES = 200  # of a label, without the unknown one
MAX_EDGES = 64
MAX_LENGTH = 64  # characters of a name and of a value
RESERVED = frozenset({"all", "item", "slot", "item x slot"})  # what the learner calls its own labellings

Declaration = Mapping[str, Sequence[str | float] | None]


class LabelError(ValueError):
    """A declaration or a value that is not allowed; ``path`` are the keys that lead to it from the given field."""

    def __init__(self, sentence: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.path = path


class Row(NamedTuple):
    """The number of the value of every label, and the names of the labels whose value was given but is not known."""

    values: tuple[int, ...]
    unknown: tuple[str, ...]


class LabelTable:
    """The declared labels of visitors or items, and the values that open labels have had so far.

    Not thread-safe: ``row`` adds new values of open labels.

    ``field`` is what errors call the declaration, ``"labels"`` or ``"item_labels"``. ``known`` are the values of open
    labels so far, as the property ``known`` returns them. Raises LabelError if the declaration is not allowed.

    >>> LabelTable(["device", "country"], "labels").declaration
    {'device': None, 'country': None}
    >>> LabelTable({"age": [30, 18]}, "labels")
    Traceback (most recent call last):
    ...
    bothworlds.labels.LabelError: labels.age must be edges that increase; got [30, 18]
    """

    __slots__ = ("_edges", "_index", "_open", "_values", "field")

    def __init__(
        self, declared: Sequence[str] | Declaration | None, field: str, known: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.field = field
        self._values: dict[str, list[str]] = {}
        self._edges: dict[str, list[float]] = {}
        self._open: set[str] = set()
        for name, values in _named(declared, field).items():
            if not is_word(name) or name in RESERVED:
                other = f", and not {', '.join(sorted(RESERVED))}" if name in RESERVED else ""
                raise LabelError(f"names of {field} must be {_WORDS}{other}; got {name!r}", (str(name),))
            self._declare(name, values)
        self._index = {name: {value: k for k, value in enumerate(values)} for name, values in self._values.items()}
        for name, seen in (known or {}).items():
            for value in seen if name in self._open else ():
                self._add(name, value)

    def _declare(self, name: str, values: Any) -> None:
        field, path = f"{self.field}.{name}", (name,)
        self._values[name] = [UNKNOWN]
        if values is None:
            self._open.add(name)
            return
        listed = values.tolist() if isinstance(values, np.ndarray) else values
        given = [] if isinstance(listed, (str, bytes)) or not isinstance(listed, Sequence) else list(listed)
        if given and all(isinstance(value, str) for value in given):
            wrong = next((value for value in given if not is_word(value)), None)
            if wrong is not None:
                raise LabelError(f"values of {field} must be {_WORDS}; got {wrong!r}", path)
            if len(given) > MAX_VALUES or len(set(given)) < len(given):
                raise LabelError(f"{field} must be at most {MAX_VALUES} different values; got {len(given)}", path)
            self._values[name] += given
        elif given and all(is_number(value) and math.isfinite(value) for value in given):
            if len(given) > MAX_EDGES:
                raise LabelError(f"{field} must be at most {MAX_EDGES} edges; got {len(given)}", path)
            if any(low >= high for low, high in pairwise(given)):
                raise LabelError(f"{field} must be edges that increase; got {given}", path)
            self._edges[name] = [float(edge) for edge in given]
            ends = [_short(edge) for edge in self._edges[name]]
            self._values[name] += [f"{low}..{high}" for low, high in zip(["", *ends], [*ends, ""])]
        else:
            raise LabelError(f"{field} must be None, a list of texts, or a list of numbers; got {values!r}", path)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the labels, in the order of their declaration."""
        return tuple(self._values)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of every label, with the unknown one; those of open labels grow."""
        return tuple(map(len, self._values.values()))

    @property
    def declaration(self) -> dict[str, list[str] | list[float] | None]:
        """The declaration as a dictionary, which declares the same labels again."""
        closed = {name: values[1:] for name, values in self._values.items()}
        return {
            name: None if name in self._open else list(self._edges[name]) if name in self._edges else closed[name]
            for name in self._values
        }

    @property
    def known(self) -> dict[str, list[str]]:
        """The values of open labels so far, in the order of their numbers."""
        return {name: values[1:] for name, values in self._values.items() if name in self._open}

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of a label in the order of their numbers; the first is "". Raises LabelError."""
        if name not in self._values:
            raise LabelError(self._undeclared(self.field, name), (str(name),))
        return tuple(self._values[name])

    def row(self, given: object, field: str, *, grow: bool = True) -> Row:
        """Return the numbers of given values, {label: value}; labels that are missing are unknown.

        New values of open labels are added, at most 200 of each label; with ``grow=False`` they are unknown. Raises
        LabelError, and adds nothing, if a label is not declared or a value has the wrong type; ``field`` is what it
        calls the values.
        """
        if not isinstance(given, Mapping):
            raise LabelError(f"{field} must map labels to values; got {given!r}")
        texts = {}
        for name, value in given.items():
            if name not in self._values:
                raise LabelError(self._undeclared(field, name), (str(name),))
            texts[name] = self._text(name, value, field)
        numbers = self.numbers(texts, grow=grow)
        return Row(numbers, tuple(name for name in self._index if texts.get(name, UNKNOWN) not in self._index[name]))

    def numbers(self, texts: Mapping[str, str], *, grow: bool = True) -> tuple[int, ...]:
        """Return the numbers of values that are given as ``texts`` returns them; other labels are left out.

        New values of open labels are added as by ``row``; all others are unknown.

        >>> table = LabelTable({"device": None, "age": [18]}, "labels")
        >>> table.numbers({"device": "phone", "age": "18..", "country": "de"}), table.numbers({"age": "18..30"})
        ((1, 2), (0, 0))
        """
        row = []
        for name, index in self._index.items():
            text = texts.get(name, UNKNOWN)
            if text not in index and grow and name in self._open and len(index) <= MAX_VALUES:
                self._add(name, text)
            row.append(index.get(text, 0))
        return tuple(row)

    def texts(self, row: Sequence[int]) -> dict[str, str]:
        """Return the value of every label, from its numbers."""
        return {name: values[k] for (name, values), k in zip(self._values.items(), row)}

    def _add(self, name: str, value: str) -> None:
        self._index[name][value] = len(self._values[name])
        self._values[name].append(value)

    def _text(self, name: str, value: object, field: str) -> str:
        """Return what a value stands for; raises LabelError for one of the wrong type."""
        if isinstance(value, str) and value == UNKNOWN:
            return UNKNOWN
        if name in self._edges:
            if isinstance(value, str) and value in self._index[name]:  # a range, as ``texts`` returns it
                return value
            number: Any = value
            if not is_number(number) or not math.isfinite(number):
                raise LabelError(f"{field}.{name} must be a finite number; got {value!r}", (name,))
            return self._values[name][1 + bisect_right(self._edges[name], number)]
        text = str(bool(value)).lower() if isinstance(value, (bool, np.bool_)) else value
        if not isinstance(text, str):
            hint = "; numbers need edges in the declaration" if is_number(value) else ""
            raise LabelError(f"{field}.{name} must be a text or a boolean{hint}; got {value!r}", (name,))
        if not is_word(text):
            raise LabelError(f"{field}.{name} must be {_WORDS}; got {value!r}", (name,))
        return text

    def _undeclared(self, field: str, name: object) -> str:
        known = ", ".join(self._values) or "none"
        return f"{field} has a label {name!r} that is not declared; {self.field} declares {known}"


_WORDS = f"texts of 1 to {MAX_LENGTH} printable characters"


def is_word(value: object) -> bool:
    """Return whether a value can be the name or the value of a label."""
    return isinstance(value, str) and 1 <= len(value) <= MAX_LENGTH and value.isprintable()


def _named(declared: Any, field: str) -> dict[Any, Any]:
    """Return a declaration as a dictionary; raises LabelError."""
    if declared is None:
        return {}
    if isinstance(declared, Mapping):
        named = dict(declared)
    elif isinstance(declared, (str, bytes)) or not isinstance(declared, Sequence):
        raise LabelError(f"{field} must be a list of names, or a dictionary from names to values; got {declared!r}")
    else:
        wrong = next((name for name in declared if not isinstance(name, str)), None)
        if wrong is not None:
            raise LabelError(f"names of {field} must be {_WORDS}; got {wrong!r}")
        named = dict.fromkeys(declared)
        if len(named) < len(declared):
            raise LabelError(f"names of {field} must be different; got {list(declared)}")
    if len(named) > MAX_LABELS:
        raise LabelError(f"{field} must be at most {MAX_LABELS} labels; got {len(named)}")
    return named


def _short(edge: float) -> str:
    """Return a number in few characters.

    >>> _short(18.0), _short(0.25)
    ('18', '0.25')
    """
    return str(int(edge)) if edge == int(edge) and abs(edge) < 1e15 else repr(edge)
