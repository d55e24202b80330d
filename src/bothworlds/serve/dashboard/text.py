"""What a report means, in plain words: the sentences and numbers of the pages.

Whatever is missing, NaN or infinite is said as a dash; no figure is shown that the report does not vouch for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..schemas import Headline, Learning, Pages, RecentWindow, ReportView, Shift, Uplift

__all__ = [
    "DASH",
    "Verdict",
    "comparisons",
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
    "time_span",
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


def time_span(seconds: float) -> str:
    """The time up to now of this length, in words.

    >>> time_span(60), time_span(900), time_span(86400), time_span(7 * 86400)
    ('the last minute', 'the last 15 minutes', 'the last 24 hours', 'the last 7 days')
    """
    size, unit = (86400, "day") if seconds > 86400 else (3600, "hour") if seconds >= 3600 else (60, "minute")
    units = round(seconds / size)
    return f"the last {unit}" if units == 1 else f"the last {units} {unit}s"


def verdict(report: ReportView) -> Verdict:
    """The first sentence of a surface: what the learned order earns now, or that it is still being learned.

    >>> pages = {"pages": 340, "clicks_per_page": 0.4, "interval": (0.3, 0.5)}
    >>> uplift = {"relative": 0.041, "low": 0.012, "high": 0.07, "enough": True, "needed_pages": 2000}
    >>> recent = {"window_seconds": 3600, "headline": pages, "holdout": pages, "uplift": uplift}
    >>> learning = {"settled": True, "rounds": 5000, "exploration": 0.02}
    >>> report = {"headline": pages, "holdout": pages, "recent": recent, "learning": learning}
    >>> verdict(report).sentence
    '+4.1% clicks against the holdout, 95% interval 1.2% to 7.0%, in the last hour'
    >>> verdict(report | {"recent": recent | {"uplift": uplift | {"enough": False}}}).sentence
    'Not enough data yet: 340 of about 2,000 holdout pages in the last hour'
    >>> young = report | {"learning": {"settled": False, "rounds": 500, "exploration": 0.16}}
    >>> verdict(young).sentence
    'Still learning, and already +4.1% clicks against the holdout, 95% interval 1.2% to 7.0%, in the last hour'
    >>> verdict(young | {"recent": recent | {"uplift": uplift | {"low": -0.3}}}).sentence
    'Still learning, from 500 pages so far'
    """
    headline, holdout, learned = report["headline"], report["holdout"], report["learning"]
    recent, uplift = report["recent"], report["recent"]["uplift"]
    if not headline["pages"] and not (holdout and holdout["pages"]):
        return _quiet(learned["outstanding"])
    if holdout is None or recent["holdout"] is None or uplift is None:
        return Verdict("none", f"{rate_of(headline)}, over {many(headline['pages'], 'page')}", _NO_HOLDOUT)
    if not learned["settled"]:
        return _unsettled(learned, recent)
    if not _is_enough(uplift):
        pages, needed = count(recent["holdout"]["pages"]), count(uplift["needed_pages"])
        said = f"Not enough data yet: {pages} of about {needed} holdout pages in {time_span(recent['window_seconds'])}"
        return Verdict("none", said, "A comparison made now would mostly be chance.")
    return _compared(uplift, recent, learned["exploration"])


def in_short(headline: Headline) -> Verdict:
    """What the learned order earns now, as far as a headline says.

    >>> in_short({"pages": 340, "clicks_per_page": 0.4, "uplift": None}).sentence
    'No holdout to compare with'
    """
    if not headline["pages"]:
        return Verdict("none", "No visitors yet, or none whose clicks are known", "")
    if headline["uplift"] is None:
        return Verdict("none", "No holdout to compare with", _NO_HOLDOUT)
    if not headline["settled"]:
        return _unsettled(headline, headline["recent"])
    uplift = headline["recent"]["uplift"]
    if uplift is None or not _is_enough(uplift):
        return Verdict("none", "Not enough data yet to compare with the holdout", "")
    return _compared(uplift, headline["recent"], headline["exploration"])


def _unsettled(told: Learning | Headline, recent: RecentWindow) -> Verdict:
    cost, uplift = told["exploration"], recent["uplift"]
    trying = "It is still trying out other orders"
    trying += f", which costs about {percent(cost, 0)} of the clicks now" if known(cost) else ""
    if uplift and _is_enough(uplift) and (uplift["low"] or 0.0) > 0:
        ahead = f"Still learning, and already {against_holdout(uplift)}, in {time_span(recent['window_seconds'])}"
        return Verdict("good", ahead, f"{trying}.")
    meaning = f"{trying}. What the learned order earns is known once it has settled."
    return Verdict("none", f"Still learning, from {many(told['rounds'], 'page')} so far", meaning)


def _compared(uplift: Uplift, recent: RecentWindow, exploration: float | None) -> Verdict:
    sentence = f"{against_holdout(uplift)}, in {time_span(recent['window_seconds'])}"
    low, high = uplift["low"] or 0.0, uplift["high"] or 0.0
    if low > 0:
        return Verdict("good", sentence, "The learned order gets more clicks than the page's own order.")
    if high >= 0:
        return Verdict("none", sentence, "No clear difference: the interval includes zero.")
    if high >= -(exploration or 0.0):
        share = percent(exploration, 0)
        return Verdict("none", sentence, f"Exploration costs about {share} of the clicks, which may be all of it.")
    return Verdict("bad", sentence, "The learned order gets fewer clicks than the page's own order.")


def comparisons(report: ReportView, whole_range: str, created_at: int) -> list[tuple[str, str]]:
    """Learner against holdout, now and in the whole range: what each figure covers, and the figure.

    A range that goes back to when the surface was created includes the exploration at the start, and says so.

    >>> uplift = {"relative": -0.2, "low": -0.3, "high": -0.1, "enough": True, "needed_pages": 200}
    >>> recent = {"window_seconds": 60, "uplift": uplift | {"enough": False}}
    >>> for line in comparisons({"since": 0, "recent": recent, "uplift": uplift}, "all time", created_at=60_000):
    ...     print(*line, sep=": ")
    Now (the last minute): not enough data yet
    All time, with the exploration at the start: -20.0% clicks against the holdout, 95% interval -30.0% to -10.0%
    """
    now, whole = report["recent"]["uplift"], report["uplift"]
    if now is None or whole is None:
        return []
    start = ", with the exploration at the start" if report["since"] <= created_at else ""
    return [
        (f"Now ({time_span(report['recent']['window_seconds'])})", against_holdout(now)),
        (whole_range[:1].upper() + whole_range[1:] + start, against_holdout(whole)),
    ]


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


def against_holdout(uplift: Uplift) -> str:
    """By how much the learner is ahead of the holdout, with its interval."""
    if not _is_enough(uplift):
        return "not enough data yet"
    relative, low, high = percent(uplift["relative"], signed=True), percent(uplift["low"]), percent(uplift["high"])
    return f"{relative} clicks against the holdout, 95% interval {low} to {high}"


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


def learning(told: Learning) -> Verdict:
    """Is it learning? In a sentence.

    >>> learning({"rounds": 500, "exploration": 0.16, "settled": False}).sentence
    'The order has not settled yet, after 500 pages: exploration costs about 16% of the clicks'
    """
    rounds, cost = told["rounds"], told["exploration"]
    if not rounds:
        return Verdict("none", "Nothing learned yet", "It learns when feedback arrives or when deadlines pass.")
    sentence = "The order has settled" if told["settled"] else "The order has not settled yet"
    sentence += f", after {many(rounds, 'page')}"
    if known(cost):
        sentence += f": exploration costs about {percent(cost, 0)} of the clicks"
    if told["settled"]:
        return Verdict("good", sentence, "It has favourites, and keeps trying the others now and then.")
    return Verdict("none", sentence, "It is trying out which item does well at which slot.")


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
