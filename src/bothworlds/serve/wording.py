"""What a report means, in plain words: the sentences and numbers of the pages.

Whatever is missing, NaN or infinite is said as a dash; no figure is shown that the report does not vouch for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .report_types import Headline, Learning, Pages, Shift, SurfaceReport, Uplift

__all__ = [
    "DASH",
    "Verdict",
    "count",
    "duration",
    "in_short",
    "learning",
    "many",
    "moment",
    "number",
    "percent",
    "sentence",
    "shift",
    "verdict",
]

DASH = "\N{EN DASH}"
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


class Verdict(NamedTuple):
    """A sentence, what it means, and whether that is good, bad or neither."""

    tone: str
    sentence: str
    meaning: str = ""


def known(value: Any) -> bool:
    """Whether this is a number that can be shown.

    >>> known(0.5), known(None), known(float("nan"))
    (True, False, False)
    """
    return isinstance(value, (int, float)) and math.isfinite(value)


def count(value: Any) -> str:
    """A whole number.

    >>> count(12345), count(None) == DASH
    ('12,345', True)
    """
    return f"{value:,.0f}" if known(value) else DASH


def many(value: Any, one: str, more: str = "") -> str:
    """A whole number of things.

    >>> many(1, "page"), many(1200, "page"), many(None, "page") == f"{DASH} pages"
    ('1 page', '1,200 pages', True)
    """
    return f"{count(value)} {one if value == 1 else more or one + 's'}"


def number(value: Any, digits: int = 3) -> str:
    """A number with so many significant digits, without exponent.

    >>> number(0.41234), number(1234.5), number(0.0), number(float("inf")) == DASH
    ('0.412', '1,234', '0', True)
    """
    if not known(value):
        return DASH
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 6)}f}"


def percent(value: Any, digits: int = 1, signed: bool = False) -> str:
    """A share as a percentage.

    >>> percent(0.0412), percent(0.0412, signed=True), percent(-0.02, signed=True), percent(None) == DASH
    ('4.1%', '+4.1%', '-2.0%', True)
    """
    return f"{100 * value:{'+' if signed else ''},.{digits}f}%" if known(value) else DASH


def duration(seconds: Any) -> str:
    """A length of time in its largest unit.

    >>> duration(0.25), duration(59), duration(7200), duration(200000)
    ('0.2 s', '59 s', '2 h', '2 d')
    """
    if not known(seconds):
        return DASH
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    return f"{seconds / size:.0f} {unit}"


def moment(milliseconds: Any, with_day: bool = True, with_seconds: bool = False) -> str:
    """A point in time, in UTC, given as milliseconds or written out.

    >>> moment(1700000000000), moment(1700000000000, with_day=False), moment("2023-11-14T22:13:20.123Z")
    ('14 Nov 22:13', '22:13', '14 Nov 22:13')
    """
    if isinstance(milliseconds, str):
        with suppress(ValueError):
            milliseconds = datetime.fromisoformat(milliseconds).timestamp() * 1000
    if not known(milliseconds) or not 0 <= milliseconds < 4e12:
        return DASH
    said = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return said.strftime(("%-d %b " if with_day else "") + ("%H:%M:%S" if with_seconds else "%H:%M"))


def verdict(report: SurfaceReport) -> Verdict:
    """The first sentence of a surface: does learning pay?

    >>> pages = {"pages": 340, "clicks_per_page": 0.4, "interval": (0.3, 0.5)}
    >>> uplift = {"relative": 0.041, "low": 0.012, "high": 0.07, "enough": True, "needed_pages": 2000}
    >>> verdict({"headline": pages, "holdout": pages, "uplift": uplift}).sentence
    '+4.1% clicks against the holdout, 95% interval 1.2% to 7.0%'
    >>> verdict({"headline": pages, "holdout": pages, "uplift": uplift | {"enough": False}}).sentence
    'Not enough data yet: 340 of about 2,000 holdout pages'
    """
    headline, holdout, uplift = report["headline"], report["holdout"], report["uplift"]
    if not headline["pages"] and not (holdout and holdout["pages"]):
        return _quiet(report["learning"]["outstanding"])
    if holdout is None or uplift is None:
        return Verdict("none", f"{rate_of(headline)}, over {many(headline['pages'], 'page')}", _NO_HOLDOUT)
    if not _is_enough(uplift):
        said = f"Not enough data yet: {count(holdout['pages'])} of about {count(uplift['needed_pages'])} holdout pages"
        return Verdict("none", said, "A comparison made now would mostly be chance.")
    return _compared(uplift)


def in_short(headline: Headline) -> Verdict:
    """Does learning pay, as far as a headline tells?

    >>> in_short({"pages": 340, "clicks_per_page": 0.4, "uplift": None}).sentence
    'No holdout to compare with'
    """
    uplift = headline["uplift"]
    if not headline["pages"]:
        return Verdict("none", "No visitors yet, or none whose clicks are known", "")
    if uplift is None:
        return Verdict("none", "No holdout to compare with", _NO_HOLDOUT)
    if not _is_enough(uplift):
        return Verdict("none", "Not enough data yet to compare with the holdout", "")
    return _compared(uplift)


def _is_enough(uplift: Uplift) -> bool:
    return uplift["enough"] and all(map(known, (uplift["relative"], uplift["low"], uplift["high"])))


def _quiet(waiting: int) -> Verdict:
    if waiting:
        meaning = "A page counts once its feedback is final, or once the time for clicks has passed."
        return Verdict("none", f"{many(waiting, 'page is', 'pages are')} waiting for clicks", meaning)
    return Verdict("none", "No visitors in this time range", "Send a rank request, or choose a longer range.")


_NO_HOLDOUT = (
    "No holdout is kept, so nobody can tell how much of this is due to learning. Set holdout to 0.05 to keep the "
    "page's own order for one visitor in twenty."
)


def _compared(uplift: Uplift) -> Verdict:
    low, high = uplift["low"], uplift["high"]
    assert low is not None
    assert high is not None
    sentence = (
        f"{percent(uplift['relative'], signed=True)} clicks against the holdout, "
        f"95% interval {percent(low)} to {percent(high)}"
    )
    if low > 0:
        return Verdict("good", sentence, "The learned order gets more clicks than the page's own order.")
    if high < 0:
        return Verdict("bad", sentence, "The learned order gets fewer clicks than the page's own order.")
    return Verdict("none", sentence, "No clear difference: the interval includes zero.")


def rate_of(pages: Pages) -> str:
    """Clicks per page with their interval.

    >>> rate_of({"pages": 9, "clicks_per_page": 0.5, "interval": (0.4, 0.6)})
    '0.500 clicks per page (95% interval 0.400 to 0.600)'
    """
    if not pages["pages"]:
        return "no clicks counted yet"
    said = f"{number(pages['clicks_per_page'])} clicks per page"
    interval = pages["interval"]
    if interval and all(map(known, interval)):
        said += f" (95% interval {number(interval[0])} to {number(interval[1])})"
    return said


def settledness(told: Learning) -> float | None:
    """How far the order has settled: 0 for uniform lists, 1 for a single list."""
    now, start = told["entropy"], told["entropy_start"]
    if not known(now) or not known(start) or not start:
        return None
    return min(1.0, max(0.0, 1.0 - now / start))  # type: ignore[operator]


def learning(told: Learning) -> Verdict:
    """Is it learning? In a sentence.

    >>> learning({"entropy": 1.0, "entropy_start": 4.0, "rounds": 500}).sentence
    'The order is 75% settled after 500 pages'
    """
    settled, rounds = settledness(told), told["rounds"]
    if not rounds:
        return Verdict("none", "Nothing learned yet", "It learns when feedback arrives or when deadlines pass.")
    if settled is None:
        return Verdict("none", f"Learned from {many(rounds, 'page')}")
    sentence = f"The order is {percent(settled, 0)} settled after {many(rounds, 'page')}"
    if settled < 0.05:
        return Verdict("none", sentence, "All orders are still about equally likely: it is trying everything out.")
    if settled < 0.5:
        return Verdict("none", sentence, "Some items are shown more than others; most are still being tried.")
    return Verdict("good", sentence, "It has favourites, and keeps trying the others now and then.")


def shift(told: Shift) -> Verdict:
    """Do visitors click as they used to?

    >>> shift({"alarm": True, "recent": 0.2, "long_run": 0.4, "z": -6.0, "note": ""}).tone
    'bad'
    """
    lately, before, note = number(told["recent"]), number(told["long_run"]), sentence(told["note"])
    if not known(told["recent"]) or not known(told["long_run"]):
        return Verdict("none", "Too early to tell whether visitors have changed", note)
    if told["alarm"]:
        return Verdict("bad", f"Visitors have changed: {lately} clicks per page lately, {before} before", note)
    return Verdict("good", f"Visitors click as usual: {lately} clicks per page lately, {before} before", note)


def sentence(text: str) -> str:
    """A text as a sentence.

    >>> sentence("there is no event"), sentence("")
    ('There is no event.', '')
    """
    return text[:1].upper() + text[1:] + ("" if not text or text.endswith(".") else ".")


def change(entry: Mapping[str, Any]) -> str:
    """What an entry of the audit log says was done.

    >>> change({"at": 1, "actor": "ann", "action": "pause", "detail": "lamp"})
    'pause: lamp'
    """
    return ": ".join(str(entry[key]) for key in ("action", "detail") if entry.get(key))


def plain(key: str, value: Any) -> tuple[str, str]:
    """A label and a text for any figure, by the unit at the end of its name.

    >>> plain("commit_lag_ms", 3.2), plain("policy_age_seconds", 61), plain("ready", True)
    (('commit lag', '3.2 ms'), ('policy age', '1 min'), ('ready', 'yes'))
    """
    if key in _NAMED:
        return _NAMED[key], _text(value)
    for ending, said in _SAID.items():
        if key.endswith(ending) and not isinstance(value, bool):
            label = key if ending == "_until" else key.removesuffix(ending)
            return label.replace("_", " "), said(value)
    return key.replace("_", " "), _text(value)


# All surfaces are counted together, now and then: on the page of one of them that would look like a contradiction.
_NAMED = {"open_events": "pages waiting, all surfaces, every 5 s"}
_SAID: dict[str, Callable[[Any], str]] = {
    "_ms": lambda value: f"{number(value, 2)} ms" if known(value) else DASH,
    "_seconds": duration,
    "_at": lambda value: moment(value, with_seconds=True),
    "_until": lambda value: moment(value, with_seconds=True),
}


def _text(value: Any) -> str:
    if value is None or value == "" or value == []:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number(value) if isinstance(value, float) else count(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')}: {_text(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value))
    return str(value)
