"""The sentences and numbers of the pages: a report in plain words.

A missing, NaN or infinite number is shown as a dash. An uplift is shown only if the report marks it as ``enough``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeGuard

from ..schemas import (
    DetectedChange,
    FeedbackEnds,
    Headline,
    Learning,
    Pages,
    RecentWindow,
    ReportView,
    RetentionView,
    SampleRatio,
    Shift,
    Uplift,
)

DASH = "\N{EN DASH}"
CLICKS = "clicks"
NOT_USED = "neither learned from nor compared"
DAY_MS = 86_400_000
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


class Verdict(NamedTuple):
    """A sentence, an explanation, and the tone of both: "good", "bad" or "none"."""

    tone: str
    sentence: str
    meaning: str = ""


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number.

    >>> is_number(0.5), is_number(None), is_number(float("nan"))
    (True, False, False)
    """
    return isinstance(value, (int, float)) and math.isfinite(value)


def count(value: Any) -> str:
    """Format a whole number.

    >>> count(12345), count(None) == DASH
    ('12,345', True)
    """
    return f"{value:,.0f}" if is_number(value) else DASH


def plural(value: Any, singular: str, plural: str = "") -> str:
    """Format a whole number of things; the plural is the singular with an s unless given.

    >>> plural(1, "page"), plural(1200, "page"), plural(None, "page") == f"{DASH} pages"
    ('1 page', '1,200 pages', True)
    """
    return f"{count(value)} {singular if value == 1 else plural or singular + 's'}"


def number(value: Any, digits: int = 3) -> str:
    """Format a number with this many significant digits, without exponent.

    >>> number(0.41234), number(1234.5), number(0.0), number(float("inf")) == DASH
    ('0.412', '1,234', '0', True)
    """
    if not is_number(value):
        return DASH
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 6)}f}"


def percent(value: Any, digits: int = 1, signed: bool = False) -> str:
    """Format a fraction as a percentage.

    >>> percent(0.0412), percent(0.0412, signed=True), percent(-0.02, signed=True), percent(None) == DASH
    ('4.1%', '+4.1%', '-2.0%', True)
    >>> percent(-1e-9, 0)
    '0%'
    """
    return f"{100 * value:{'+' if signed else ''}z,.{digits}f}%" if is_number(value) else DASH


def duration(seconds: Any) -> str:
    """Format a length of time in its largest unit.

    >>> duration(0.25), duration(59), duration(7200), duration(200000)
    ('0.2 s', '59 s', '2 h', '2 d')
    """
    if not is_number(seconds):
        return DASH
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    return f"{seconds / size:.0f} {unit}"


def timestamp(time: Any, with_day: bool = True, with_seconds: bool = False) -> str:
    """Format a time in UTC, given in milliseconds since 1970 or in ISO 8601.

    >>> timestamp(1700000000000), timestamp(1700000000000, with_day=False), timestamp("2023-11-14T22:13:20.123Z")
    ('14 Nov 22:13', '22:13', '14 Nov 22:13')
    """
    if isinstance(time, str):
        with suppress(ValueError):
            time = datetime.fromisoformat(time).timestamp() * 1000
    if not is_number(time) or not 0 <= time < 4e12:
        return DASH
    in_utc = datetime.fromtimestamp(time / 1000, UTC)
    return in_utc.strftime(("%-d %b " if with_day else "") + ("%H:%M:%S" if with_seconds else "%H:%M"))


def starting(since: Any, until: Any) -> str:
    """Format the start of a range that ends at ``until``, in UTC; without the day if that is the same.

    >>> starting(1700000000000, 1700000900000), starting(1700000000000, 1700100000000)
    ('since 22:13 UTC', 'since 14 Nov 22:13 UTC')
    """
    same_day = is_number(since) and is_number(until) and since // DAY_MS == until // DAY_MS
    return f"since {timestamp(since, with_day=not same_day)} UTC"


def counted(report: ReportView | Headline) -> str:
    """Return what a surface counts, in a word.

    >>> counted({}), counted({"objective": "rewards"})
    ('clicks', 'reward')
    """
    return "reward" if report.get("objective") == "rewards" else CLICKS


def _fewer(counted: str) -> str:
    return f"fewer {CLICKS}" if counted == CLICKS else f"less {counted}"


def surface_verdict(report: ReportView) -> Verdict:
    """Return the first sentence of a surface's page: its uplift now, or that it is still learning."""
    headline, holdout, learning = report["headline"], report["holdout"], report["learning"]
    recent, uplift = report["recent"], report["recent"]["uplift"]
    if not headline["pages"] and not (holdout and holdout["pages"]):
        return _without_pages(learning["outstanding"], counted(report))
    if holdout is None or recent["holdout"] is None or uplift is None:
        return Verdict("none", arm_rate(headline, counted(report)), _NO_HOLDOUT)
    guard, arms = report["guard"], report["arms"]
    guarded = guard is not None and guard["active"] and all(line["guarded_since"] is not None for line in arms)
    too_few = f"{not_compared(uplift)} {starting(recent['since'], recent['until'])}"
    meaning = "A difference now would mostly be due to chance."
    guarded_since = guard["active_since"] if guard is not None and guarded else None
    return _verdict(report, learning, guarded_since, Verdict("none", too_few, meaning))


def headline_verdict(headline: Headline) -> Verdict:
    """Return the sentence of a surface in the list of surfaces."""
    if not headline["pages"]:
        return Verdict("none", "No settled pages in the last 24 hours")
    if headline["recent"]["uplift"] is None:
        return Verdict("none", "No holdout to compare with", _NO_HOLDOUT)
    too_few = Verdict("none", "Not enough data yet to compare with the holdout")
    return _verdict(headline, headline, headline["guard_since"], too_few)


def _verdict(
    found: ReportView | Headline, progress: Learning | Headline, guarded_since: int | None, too_few: Verdict
) -> Verdict:
    recent, what = found["recent"], counted(found)
    if _is_mismatched(found["sample_ratio"]):
        return _MISMATCH
    if guarded_since is not None:
        return _guarded(guarded_since, recent["until"], what)
    if not progress["settled"]:
        return _still_learning(progress, recent, what)
    return too_few if figures(recent["uplift"]) is None else _compared(recent, progress["exploration"], what)


def _is_mismatched(ratio: SampleRatio | None) -> bool:
    return ratio is not None and ratio["alarm"]


def _guarded(since: int | None, until: int, counted: str) -> Verdict:
    sentence = f"The guard shows the page's own order {starting(since, until)}"
    meaning = (
        f"The learned order got {_fewer(counted)}. It is still shown on a small share of pages. To show it again, "
        "restart the comparison (POST /v1/surfaces/{surface}/restart-comparison)."
    )
    return Verdict("bad", sentence, meaning)


_MISMATCH = Verdict(
    "bad",
    "The figures cannot be trusted: pages or feedback of the learned order or of the holdout are missing",
    "They do not come in the proportion of their shares. Check that the page sends the feedback of both, then restart "
    "the comparison (POST /v1/surfaces/{surface}/restart-comparison).",
)


def _still_learning(progress: Learning | Headline, recent: RecentWindow, counted: str) -> Verdict:
    cost, found = progress["exploration"], figures(recent["uplift"])
    exploring = "The service still tries out other orders"
    exploring += f", which costs about {percent(cost, 0)} of the {counted} now" if is_number(cost) else ""
    if found and found[1] > 0:
        span = starting(recent["since"], recent["until"])
        sentence = f"Still learning; already {compared(recent['uplift'], counted)} {span}"
        return Verdict("good", sentence, f"{exploring}.")
    meaning = f"{exploring}. The uplift is shown once the order has settled. It has not: {progress['unsettled']}."
    return Verdict("none", f"Still learning: {plural(progress['rounds'], 'page')} so far", meaning)


def _compared(recent: RecentWindow, exploration: float | None, counted: str) -> Verdict:
    sentence = f"{compared(recent['uplift'], counted)} {starting(recent['since'], recent['until'])}"
    _, low, high = figures(recent["uplift"]) or (0.0, 0.0, 0.0)
    if low > 0:
        return Verdict("good", sentence, f"The learned order gets more {counted} than the page's own order.")
    if high >= 0:
        return Verdict("none", sentence, "No clear difference: the interval includes zero.")
    if high >= -(exploration or 0.0):
        share = percent(exploration, 0)
        meaning = f"Exploration costs about {share} of the {counted}, which may explain the whole difference."
        return Verdict("none", sentence, meaning)
    return Verdict("bad", sentence, f"The learned order gets {_fewer(counted)} than the page's own order.")


def comparisons(report: ReportView) -> list[tuple[str, str]]:
    """Return the uplift in the recent window, if it is not the whole time, and since the start, each with a label.

    Nothing without a holdout.
    """
    recent, whole = report["recent"], report["uplift"]
    if recent["uplift"] is None or whole is None or _is_mismatched(report["sample_ratio"]):
        return []
    what = counted(report)
    lines = [(f"From the start, {starting(whole['since'], report['until'])}", compared(whole, what))]
    if recent["since"] > whole["since"]:
        lines.insert(0, (f"Recently, {starting(recent['since'], recent['until'])}", compared(recent["uplift"], what)))
    return lines


def figures(uplift: Uplift | None) -> tuple[float, float, float] | None:
    """Return a relative uplift and the ends of its interval; None if that is not known well enough."""
    relative, low, high = (uplift["relative"], uplift["low"], uplift["high"]) if uplift else (None, None, None)
    known = is_number(relative) and is_number(low) and is_number(high)
    return (relative, low, high) if known and uplift and uplift["enough"] else None  # type: ignore[return-value]


def _without_pages(outstanding: int, counted: str) -> Verdict:
    if outstanding:
        meaning = "A page is counted when its final feedback arrives or its attribution time ends."
        return Verdict("none", f"{plural(outstanding, 'page is', 'pages are')} waiting for {counted}", meaning)
    return Verdict("none", "No pages in this time range", "Send a rank request, or choose a longer range.")


_NO_HOLDOUT = (
    "There is no holdout, so the effect of learning cannot be measured. Set holdout to 0.05 to show the page's own "
    "order on one page in twenty."
)


def not_compared(uplift: Uplift | None, words: str = "Not enough data yet") -> str:
    """Say why two arms are not compared.

    >>> not_compared({"missing": "arm new has 9 of the 30 clicks needed"})
    'Not enough data yet: arm new has 9 of the 30 clicks needed'
    """
    return f"{words}: {uplift['missing']}" if uplift and uplift["missing"] else words


def compared(uplift: Uplift | None, counted: str = CLICKS, other: str = "the holdout") -> str:
    """Format an uplift with its interval, or what is missing for one."""
    if (found := figures(uplift)) is None:
        return not_compared(uplift, "not enough data yet")
    relative, low, high = found
    interval = f"95% interval {percent(low)} to {percent(high)}"
    return f"{percent(relative, signed=True)} {counted} compared with {other} ({interval})"


def arm_rate(arm: Pages, counted: str = CLICKS) -> str:
    """Format the clicks or the reward per page of an arm with their interval.

    >>> arm_rate({"pages": 9, "clicks_per_page": 0.5, "interval": (0.4, 0.6)})
    '0.500 clicks per page (95% interval 0.400 to 0.600) over 9 pages'
    """
    if not arm["pages"]:
        return "no settled pages yet"
    rate, interval = f"{number(arm['clicks_per_page'])} {counted} per page", arm["interval"]
    if interval and all(map(is_number, interval)):
        rate += f" (95% interval {number(interval[0])} to {number(interval[1])})"
    return f"{rate} over {plural(arm['pages'], 'page')}"


def learning_verdict(learning: Learning, counted: str = CLICKS) -> Verdict:
    """Return whether the order has settled, and the cost of exploration."""
    rounds, cost = learning["rounds"], learning["exploration"]
    if not rounds:
        meaning = "The service learns from a page when its final feedback arrives or its attribution time ends."
        return Verdict("none", "Nothing learned yet", meaning)
    sentence = "The order has settled" if learning["settled"] else "The order has not settled"
    sentence += f" after {plural(rounds, 'page')}"
    if is_number(cost):
        sentence += f"; exploration costs about {percent(cost, 0)} of the {counted}"
    if learning["settled"]:
        return Verdict("good", sentence, "The best items are shown most of the time; the others are tried rarely.")
    return Verdict("none", sentence, f"Not settled, because {learning['unsettled']}.")


def shift_verdict(shift: Shift, counted: str = CLICKS) -> Verdict:
    """Return whether visitors click as before, or pages earn as before."""
    note = sentence(shift["note"])
    if not is_number(shift["z"]):
        return Verdict("none", "Too early to tell whether visitors have changed", note)
    rates = f"{number(shift['recent'])} {counted} per page in the last one to two hours, "
    rates += f"{number(shift['long_run'])} at the same hours of earlier days"
    if shift["alarm"]:
        return Verdict("bad", f"Visitors have changed: {rates}", note)
    usual = "Visitors click as usual" if counted == CLICKS else "Pages earn as usual"
    return Verdict("good", f"{usual}: {rates}", note)


def change_sentence(change: DetectedChange) -> str:
    """Return when a change of visitors began and when it was detected, in words."""
    at, later = f"{timestamp(change['changed_at'], True)} UTC", change["detected_at"] - change["changed_at"]
    when = f"{at}. This was detected {duration(later / 1000.0)} later" if later > 0 else f"about {at}"
    return f"Visitors click differently since {when}, and the policy does not use what it had learned before."


STRENGTHS = ((0.6, "strongly"), (0.3, "visibly"), (0.1, "a little"), (0.0, "not visibly"))  # from this sd on
KNOWN_PAGES = 1000  # before, nothing is said of a label


def what_matters(pairs: Sequence[Any]) -> list[tuple[str, str, int]]:
    """Return which labels matter, in words, and the number of pages behind it; what matters most comes first.

    A label of visitors that matters in no pair has one line.

    >>> pairs = [{"visitor_label": "device", "item_label": label, "sd": sd, "values": 9, "pages": 5000}
    ...     for label, sd in (("category", 0.8), ("slot", 0.02))]
    >>> what_matters(pairs), what_matters([{**pairs[1], "visitor_label": "age", "pages": 20}])
    ([('device x category', 'strongly', 5000)], [('age', 'not known yet', 20)])
    """
    lines: list[tuple[float, tuple[str, str, int]]] = []
    for label in dict.fromkeys(pair["visitor_label"] for pair in pairs):
        own = [pair for pair in pairs if pair["visitor_label"] == label]
        if label == "all":  # what is the same for all visitors, but for items and slots themselves
            own = [pair for pair in own if not pair["item_label"].startswith("item")]
        known = [pair for pair in own if pair["pages"] >= KNOWN_PAGES]
        mattering = [pair for pair in known if pair["sd"] >= STRENGTHS[-2][0]]
        for pair in mattering or own[:1]:
            strength = next(word for least, word in STRENGTHS if pair["sd"] >= least) if known else "not known yet"
            item = pair["item_label"]
            names = f"{label} x {item}" if mattering and item != "all" else label
            names = item if label == "all" else names
            lines.append((-pair["sd"] if known else 0.0, (names, strength, pair["pages"])))
    return [line for _, line in sorted(lines, key=lambda line: line[0])]


def feedback_lines(ends: FeedbackEnds) -> list[tuple[str, str]]:
    """Return how many pages of the last day were not confirmed, or do not count for another reason."""
    unconfirmed, pages = ends["unconfirmed"], ends["pages"]
    rest = f", {count(ends['unconfirmed_with_clicks'])} of them with clicks; {NOT_USED}" if unconfirmed else ""
    lines = [
        ("Unconfirmed pages, last day", _of(unconfirmed, pages + unconfirmed) + rest),
        ("Ended by their deadline", _of(ends["by_deadline"], pages)),
        ("Reported as not shown", count(ends["void"]) if ends["void"] else ""),
        ("Too many of one visitor or address", count(ends["not_counted"]) if ends["not_counted"] else ""),
    ]
    return [(label, value) for label, value in lines if value]


def _of(some: int, all: int) -> str:
    return f"{count(some)} of {count(all)}" + (f" ({percent(some / all, 0)})" if all else "")


def retention_text(retention: RetentionView) -> str:
    """Return how long events are kept, and how many were deleted.

    >>> retention_text({"days": 90.0, "deleted": 1200, "until": 1_700_000_000_000})
    'kept for 90 days; 1,200 deleted, all until 14 Nov 22:13'
    >>> retention_text({"days": None, "deleted": 0, "until": None, "events": 4100})
    '4,100 settled, kept for ever'
    """
    days = retention["days"]
    kept = "kept for ever" if days is None else f"kept for {days:g} {'day' if days == 1 else 'days'}"
    kept = f"{count(retention['events'])} settled, {kept}" if "events" in retention else kept
    if not retention["deleted"]:
        return kept
    until = "" if retention["until"] is None else f", all until {timestamp(retention['until'])}"
    return f"{kept}; {count(retention['deleted'])} deleted{until}"


def sentence(text: str) -> str:
    """Capitalise a text and end it with a full stop.

    >>> sentence("there is no event"), sentence("")
    ('There is no event.', '')
    """
    return text[:1].upper() + text[1:] + ("" if not text or text.endswith(".") else ".")


def audit_text(entry: Mapping[str, Any]) -> str:
    """Format the action and the detail of an audit log entry.

    >>> audit_text({"at": 1, "actor": "ann", "action": "pause", "detail": "lamp"})
    'pause: lamp'
    """
    return ": ".join(str(entry[key]) for key in ("action", "detail") if entry.get(key))


def health_lines(health: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return labels and values of the health of the service.

    >>> health_lines({"ready": True, "reasons": [], "commit_lag_ms": 0.94, "policy_age_seconds": 61})[:2]
    [('Problems', '\u2013'), ('Commit lag', '0.94 ms')]
    """
    return [
        ("Problems", "; ".join(health["reasons"]) or DASH),
        ("Commit lag", f"{number(health.get('commit_lag_ms'), 2)} ms"),
        ("Waiting to be written", count(health.get("queue_length"))),
        ("Policy age", duration(health.get("policy_age_seconds"))),
        # Counted over all surfaces and from time to time: without this label, the number would seem to contradict the
        # pages waiting of the surface on the same page.
        ("Pages waiting on all surfaces (counted every 5 s)", count(health.get("open_events"))),
    ]
