"""Surfaces as people write them: what each setting means, items one per line, and settings as ``name = value``.

The dashboard and the command line share it. It needs the standard library only, and it validates nothing: the service
does. To add a setting to the forms and to the command line, add its sentence to ``SETTINGS``.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

SETTINGS: dict[str, str] = {
    "slots": "How many items a page shows.",
    "policy": "Which policy learns the order. all-weather suits most surfaces and needs no settings.",
    "policy_settings": "Settings of the policy that differ from its defaults, such as window = 100000 of gibbs-ts.",
    "holdout": "Share of requests that get the page's own order, from 0 to 0.99. 0.05 is one page in twenty. "
    "With 0, it cannot be measured what learning earns.",
    "arms": "Policies that are compared on this surface, each with a name, a policy, its settings and a share of "
    "requests.",
    "baseline": "The page's own order. Items that are not listed follow in the order in which they were added.",
    "baseline_rounds": "The surface starts from the page's own order and leaves it in this many rounds.",
    "objective": "What feedback reports: clicks, or rewards from 0 to 1. It cannot be changed.",
    "feedback": "What pages send. final: every page that was seen is confirmed and ends with final feedback, and is "
    "learned from as it comes. clicks: clicks only, and pages are learned from when their attribution_seconds end.",
    "guard": "Serve the page's own order if the learned order is shown to get fewer clicks. Needs a holdout.",
    "guard_after": "Pages of the learned order before the guard starts to compare.",
    "guard_margin": "Clicks per page by which the learned order may be worse.",
    "floor": "Share of uniform lists in every decision, from 0.001 to 1. It keeps every item on a few pages.",
    "minimum_exposure": "Smallest share of pages on which every active item is shown, from 0 to 1.",
    "attribution_seconds": "How long clicks on a page are expected. After that, a slot without a click counts as not "
    "clicked.",
    "late_seconds": "How long after that a click still counts.",
    "retention_days": "Events that are older are deleted. Empty: none are.",
    "labels": 'Labels of visitors that are learned, such as ["device", "country"]. Empty: the first request with a '
    "segment declares that label.",
    "item_labels": 'Labels of items that are learned, such as ["category"].',
}


def decoded(content: bytes, what: str) -> str:
    """Return the text of a file in UTF-8, with or without a byte order mark; raises ValueError that names it.

    >>> decoded(b"\\xef\\xbb\\xbflamp", "items.txt")
    'lamp'
    >>> decoded("lamp".encode("utf-16"), "items.txt")
    Traceback (most recent call last):
    ...
    ValueError: items.txt is not a text in UTF-8; save it as plain text in UTF-8, one item per line
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not a text in UTF-8; save it as plain text in UTF-8, one item per line") from None


def item_lines(text: str) -> list[tuple[int, str]]:
    """Return the items of a text with one item per line, each with the number of its line.

    White space around an item and empty lines are left out. Nothing else is checked.

    >>> item_lines("lamp\\n\\n  oak desk \\r\\n")
    [(1, 'lamp'), (3, 'oak desk')]
    """
    lines = enumerate(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").splitlines(), 1)
    return [(number, line.strip()) for number, line in lines if line.strip()]


def value_of(text: str) -> Any:
    """Return the value that a text denotes in JSON or as a Python literal, otherwise the text itself.

    >>> [value_of(text) for text in ("0.3", "true", "True", "[1, 0.5]", "(1, 2)", "lamp", "1e5", "{1}", "")]
    [0.3, True, True, [1, 0.5], (1, 2), 'lamp', 100000.0, '{1}', '']
    """
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text.strip())
            json.dumps(value, allow_nan=False)  # a set or an infinite number cannot be sent
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
        return value
    return text


def named_value(text: str) -> tuple[str, Any]:
    """Split ``name = value``; raises ValueError if there is no name.

    >>> named_value("rate=0.3"), named_value("examination = [1, 0.5]")
    (('rate', 0.3), ('examination', [1, 0.5]))
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"write settings like rate = 0.3; got {text.strip()[:60]!r}")
    return name.strip(), value_of(value.strip())


def named_values(text: str) -> dict[str, Any]:
    """Return the settings of a text with one ``name = value`` per line; raises ValueError for a wrong or double line.

    >>> named_values("rate = 0.3\\n\\ndetect = true")
    {'rate': 0.3, 'detect': True}
    """
    values: dict[str, Any] = {}
    for _, line in item_lines(text):
        name, value = named_value(line)
        if name in values:
            raise ValueError(f"{name} is set twice")
        values[name] = value
    return values


def written_values(settings: Mapping[str, Any]) -> str:
    """Return settings as ``named_values`` reads them.

    >>> written_values({"rate": 0.3, "detect": True})
    'rate = 0.3\\ndetect = true'
    """
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
