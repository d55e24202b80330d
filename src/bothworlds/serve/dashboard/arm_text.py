"""The comparison of arms in words."""

from __future__ import annotations

from collections.abc import Sequence

from ..schemas import ArmLine, ReportView
from .text import CLICKS, Verdict, compared, counted, figures, percent, starting, timestamp

OWN = "learner"  # the arm of the surface's own policy


def arm_name(name: str) -> str:
    """Return the name of an arm as pages show it.

    >>> arm_name("new"), arm_name("learner")
    ('new', "the surface's own policy")
    """
    return "the surface's own policy" if name == OWN else name


def compared_with_first(line: ArmLine, what: str = CLICKS) -> str:
    """Format the comparison of an arm, and that the guard has replaced it; ``what`` is what the surface counts.

    >>> comparison = {"relative": 0.041, "low": 0.012, "high": 0.07, "enough": True, "compared_with": "old"}
    >>> line = {"comparison": comparison, "guarded_since": None}
    >>> compared_with_first(line)
    '+4.1% clicks compared with old (95% interval 1.2% to 7.0%)'
    >>> compared_with_first(line | {"comparison": None})
    'the others are compared with it'
    """
    comparison = line["comparison"]
    if comparison is None:
        said = "the others are compared with it"
    else:
        said = compared(comparison, what, arm_name(comparison["compared_with"]))
    if line["guarded_since"] is not None:
        said += f"; the guard shows the page's own order instead since {timestamp(line['guarded_since'])} UTC"
    return said


def arm_verdict(report: ReportView) -> Verdict:
    """Return which arm gets the most clicks, or the most reward, as far as that is known."""
    ratio = report["sample_ratio"]
    if ratio is not None and ratio["alarm"]:
        return Verdict("bad", "The arms cannot be compared: pages or feedback of some of them are missing")
    what = counted(report)
    first, *others = report["arms"]
    known = {line["name"]: found for line in others if (found := figures(line["comparison"]))}
    ahead = [line for line in others if line["name"] in known and known[line["name"]][1] > 0.0]
    if len(ahead) == 1:
        return _winner(ahead[0], first, report)
    if ahead:
        meaning = "They are not compared with each other. To find out which is better, keep only these as arms."
        return Verdict("good", f"{_listed(ahead)} get more {what} than {arm_name(first['name'])}", meaning)
    if not others or len(known) < len(others):
        return Verdict("none", "Not enough data yet to compare all arms", "The table says what each still needs.")
    if all(high < 0.0 for _, _, high in known.values()):
        sentence = f"{_capitalised(arm_name(first['name']))} gets more {what} than {_listed(others)}"
        return Verdict("good", sentence, _how_to_promote(first, report))
    return Verdict("none", "No clear difference between the arms so far: some intervals include zero")


def _winner(best: ArmLine, first: ArmLine, report: ReportView) -> Verdict:
    comparison = best["comparison"]
    relative, low, high = figures(comparison) or (0.0, 0.0, 0.0)
    since = starting(comparison["since"] if comparison else None, report["until"])
    sentence = f"{_capitalised(arm_name(best['name']))} gets more {counted(report)} than {arm_name(first['name'])}: "
    sentence += f"{percent(relative, signed=True)} (95% interval {percent(low)} to {percent(high)}) {since}"
    return Verdict("good", sentence, _how_to_promote(best, report))


def _how_to_promote(line: ArmLine, report: ReportView) -> str:
    call = f'POST /v1/surfaces/{report["surface"]}/promote {{"arm": "{line["name"]}"}}'
    return f"To serve it to all visitors, with everything that it has learned: {call}."


def _listed(lines: Sequence[ArmLine]) -> str:
    *some, last = (arm_name(line["name"]) for line in lines)
    return f"{', '.join(some)} and {last}" if some else last


def _capitalised(name: str) -> str:
    return name[:1].upper() + name[1:] if name == arm_name(OWN) else name
