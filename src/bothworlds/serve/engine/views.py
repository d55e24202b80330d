"""What is said about surfaces: events, states, effects of labels, and what reports need of a state."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec
import numpy as np

from ...kernels import Floats
from ...policies.effects import effects_of, pairs_of
from ...policies.logged_pages import LogState
from ...policies.marginals import most_shown_rows
from ..events import Event
from ..model import (
    BASELINE_ARM,
    LEARNER_ARM,
    LISTED_ITEMS,
    SEGMENT,
    Arm,
    BrokenSurface,
    Invalid,
    Surface,
    Unknown,
    parse_event_id,
    rfc3339,
)
from ..outcomes import feedback_notice, is_learned, rewards_of
from ..reports import report as reports
from ..reports.exploration_cost import shrunk_rates
from ..reports.inputs import DAY, LearnedState, ReportRequest
from ..schemas import EffectsView, EventView, FeedbackEnds, Headline, ReportView, StateView
from ..stores import Store, StoreError
from .lists import Lists
from .recorder import Recorder
from .served import NOBODY, Constraints, Registry, Served, ServedLearner, Visitor
from .store_calls import in_thread
from .surface_rules import exposure_problem

P = ParamSpec("P")
T = TypeVar("T")


class Counts(NamedTuple):
    """What a learner has learned from: pages, and sums by item and slot."""

    number: int  # of the last event
    rounds: int
    shown: Floats
    clicked: Floats  # sums of rewards
    loss: Floats


def read_state(served: Served, one: ServedLearner, registry: Registry, function: Callable[[LogState], T]) -> T:
    """Returns the result of a function of the state of a learner, of which it must keep nothing. Blocks.

    Raises StoreError, and BrokenSurface if the policy cannot learn the log.
    """
    try:
        return registry.states.read(one.learner, served.target(one), function)
    except StoreError:
        raise
    except Exception as error:  # a policy of another package may raise anything
        detail = f"what surface {served.surface.name!r} has learned cannot be computed: {error}"
        raise BrokenSurface(detail) from error


def read_counts(served: Served, one: ServedLearner, registry: Registry) -> Counts:
    """Returns a copy of the counts of a learner, with a row for every item. Blocks; raises as ``read_state``."""
    n, m = len(served.surface.items), served.shape.n_positions

    def copied(state: LogState) -> Counts:
        known, columns = min(n, len(state.shown)), min(m, state.loss.shape[1])
        tables = np.zeros((3, n, m))
        for table, counted in zip(tables, (state.shown, state.clicked, state.loss)):
            table[:known, :columns] = counted[:known, :columns]
        if known:
            tables[2, known:, :columns] = np.median(state.loss[:, :columns], axis=0)  # where a new item starts
        return Counts(state.number, state.pages, *tables)

    return read_state(served, one, registry, copied)


def changes_key(learner_id: int) -> str:
    """Returns the key of the fact in which the store keeps what ``read_changes`` returns."""
    return f"changes of {learner_id}"


def read_changes(store: Store, learner_id: int) -> list[int]:
    """Returns when the changes of visitors were noticed that a learner has detected since its last reset; blocks."""
    fact = store.get(changes_key(learner_id))
    return [] if fact is None else msgspec.msgpack.decode(fact, type=list[int])


def drawn_from(served: Served, one: ServedLearner, now: int, visitor: Visitor = NOBODY) -> Lists:
    """Returns the lists of a learner; makes them if they were not used here. Blocks.

    Raises StoreError, BrokenSurface if they cannot be made, and for a visitor with labels what the policy raises.
    """
    if one.lists is None:
        served.publish(one, now)
    if (lists := one.lists) is None:
        raise BrokenSurface(f"what surface {served.surface.name!r} shows cannot be computed: {one.fault}")
    return served.make(one, Constraints(context=visitor.learned), now) if visitor.learned else lists


def _in_thread(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Returns a coroutine method that calls a method in a worker thread."""

    @wraps(method)
    async def call(*arguments: P.args, **options: P.kwargs) -> T:
        return await in_thread(partial(method, *arguments, **options))

    return call


class Reports:
    """Tells about events, states and surfaces.

    Coroutines are called in the thread of the event loop, and read the store in worker threads. They raise Unknown,
    Invalid and Unavailable. ``duplicates`` returns how often feedback on a surface was repeated, ``warnings`` what is
    wrong with the service as a whole.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        recorder: Recorder,
        clock: Callable[[], int],
        duplicates: Callable[[int], int] = lambda surface_id: 0,
        warnings: Callable[[], list[str]] = list,
    ) -> None:
        self._store, self._registry, self._recorder, self._clock = store, registry, recorder, clock
        self._duplicates, self._warnings = duplicates, warnings
        self.cache = reports.ReportCache()

    async def event(self, event_id: str) -> EventView:
        """Returns one decision and its outcome."""
        key = parse_event_id(event_id)
        if key is not None:
            await self._recorder.flush()
            event = (await in_thread(self._store.find_events, [key])).get(key)
            if event is not None and not event.deleted:
                return await in_thread(self._event, event)
        raise Unknown(f"there is no event {event_id!r}")

    def _event(self, event: Event) -> EventView:
        served = self._registry.by_id.get(event.surface_id)
        if served is None or event.n > served.shape.n_items:
            self._registry.refresh()
            served = self._registry.by_id.get(event.surface_id)
        if served is None:
            raise Unknown(f"the surface of event {event.id.hex()!r} is not known here")
        return event_view(event, served.surface)

    @_in_thread
    def state(
        self,
        surface: str,
        context: Mapping[str, Any] | None = None,
        arm: Arm = LEARNER_ARM,
        limit: int = LISTED_ITEMS,
    ) -> StateView:
        """Returns the counts of everything that is settled, and the probabilities that are served for a context.

        Of one arm; if there are more items than ``limit``, those that are shown with the largest probability.
        """
        served, one = self._learner(surface, arm)
        visitor, now = served.visitor(context or {}, grow=False), self._clock()
        counts, lists = read_counts(served, one, self._registry), drawn_from(served, one, now, visitor)
        changes = read_changes(self._store, one.learner.id)
        items, whole = served.surface.items, served.surface.settings.objective == "clicks"
        served_rows = most_shown_rows(lists.marginals, limit)
        exposure = np.zeros((len(items), 1))
        exposure[lists.items, 0] = lists.marginals.sum(axis=1)
        rows = most_shown_rows(exposure, limit)
        view: StateView = {
            "surface": surface,
            "context": {name: dict(visitor.learned).get(name, "") for name in served.surface.labels},
            "items": [items[row].name for row in rows],
            "items_total": len(items),
            "states": [items[row].state for row in rows],
            "rounds": counts.rounds,
            "loss": counts.loss[rows].tolist(),
            "shown": counts.shown[rows].astype(np.int64).tolist(),
            "clicked": counts.clicked[rows].astype(np.int64 if whole else np.float64).tolist(),
            "marginals": {
                "items": [items[lists.items[row]].name for row in served_rows],
                "x": lists.marginals[served_rows].tolist(),
            },
            "policy_id": lists.id,
            "policy_age_seconds": max(0.0, (now - lists.source.made_at) / 1000.0),
            "entropy": lists.entropy,
            "revision": counts.number,
            "changed_at": rfc3339(changes[-1]) if changes else None,
            "baseline_share": served.baseline_share(lists.source.rounds),
        }
        return view

    def _learner(self, surface: str, arm: Arm) -> tuple[Served, ServedLearner]:
        served = self._registry.served(surface)
        if arm == BASELINE_ARM or arm not in served.numbers:
            raise Unknown(f"surface {surface!r} has no arm {arm!r}")
        return served, served.learner(arm)

    @_in_thread
    def effects(
        self, surface: str, visitor: str | None = None, item: str | None = None, arm: Arm = LEARNER_ARM
    ) -> EffectsView:
        """Returns which pairs of labels matter, or, for one pair, what visitors with a value like; see ``Ranker``.

        Raises Invalid for labels that are not declared.
        """
        served, one = self._learner(surface, arm)
        if (visitor is None) != (item is None):
            raise Invalid("effects need a label of visitors and one of items, or neither", "?visitor")
        names = {k: one.name for k, one in enumerate(served.surface.items) if one.state != "removed"}

        def rows(state: LogState) -> list[Any]:
            learned = None if state.state is None else getattr(state.state, "effects", None)
            if learned is None or state.visitor is None or state.labels is None:
                return []
            tables = state.visitor, state.labels.item_table
            if visitor is None or item is None:
                return [row._asdict() for row in pairs_of(learned, *tables)]
            return [row._asdict() for row in effects_of(learned, *tables, names, visitor, item)]

        known = {"all", *served.surface.labels}, {"all", "item", "slot", *served.surface.item_labels}
        for given, field, names_of in zip((visitor, item), ("visitor", "item"), known):
            if given is not None and given not in names_of:
                raise Invalid(f"{field} must be one of {', '.join(sorted(names_of))}; got {given!r}", f"?{field}")
        return {
            "surface": surface,
            "arm": arm,
            "effects": read_state(served, one, self._registry, rows),
            "unknown": dict(served.unknown),
        }

    # Reports

    @_in_thread
    def report(
        self,
        surface: str,
        *,
        since: int | None = None,
        until: int | None = None,
        segment: str | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> ReportView:
        """Returns the report on a time range; the last day by default.

        Of the visitors whose label ``segment`` has this value, or of all; probabilities are those for a ``context``.
        """
        now = self._clock()
        since, until = since if since is not None else now - DAY, until or now
        if since >= until:
            raise Invalid("since must be before until", "?until")
        served = self._registry.served(surface)
        visitor = served.visitor(({SEGMENT: segment} if segment else {}) | dict(context or {}), grow=False)
        id, endings = served.surface.id, self._store.endings(served.surface.id, now - DAY, now)
        ends: FeedbackEnds = {"since": now - DAY, **endings._asdict()}  # type: ignore[typeddict-item]
        notice = feedback_notice(served.surface.settings.feedback, endings)
        request = ReportRequest(
            served.surface,
            self._learned_state(served, now, visitor),
            segment,
            since,
            until,
            now,
            duplicates=self._duplicates(id),
            warnings=[*_surface_warnings(served), *([notice] if notice else []), *self._warnings()],
            outstanding=self._store.open_events(id),
            settled=self._store.last_numbers().get(id, 0),
            feedback=ends,
            changes=read_changes(self._store, served.learner(served.surface.first_arm).learner.id),
        )
        return reports.surface_report(self._store, request, self.cache)

    @_in_thread
    def headline(self, surface: str) -> Headline:
        """Returns pages, clicks per page and uplift of the last day and of the recent window; reads no events.

        What was learned is there if the surface is in use here: a list of many surfaces must not load all states.
        """
        served, now = self._registry.served(surface), self._clock()
        in_use = served.learner(served.surface.first_arm).lists is not None
        learned = self._learned_state(served, now) if in_use else None
        return reports.headline(self._store, served.surface, learned, now)

    def _learned_state(self, served: Served, now: int, visitor: Visitor = NOBODY) -> LearnedState | None:
        """Returns the state of the first policy, with the counts of all; None if it cannot be computed."""
        first = served.learner(served.surface.first_arm)
        try:
            if (counts := self._counts(served, first)) is None:
                return None
            lists = drawn_from(served, first, now, visitor)
        except BrokenSurface:
            return None
        known = list(served.by_learner_id.values())
        others = [read for one in known if one is not first and (read := self._counts(served, one)) is not None]
        shown = counts.shown + sum(other.shown for other in others)
        clicked = counts.clicked + sum(other.clicked for other in others)
        cells = np.ix_(lists.items, lists.free)
        return LearnedState(
            rounds=counts.rounds,
            shown=shown,
            clicked=clicked,
            items=tuple(served.surface.items[index].name for index in lists.items),
            rates=shrunk_rates(shown[cells], clicked[cells]),
            marginals=lists.marginals,
            policy_id=lists.id,
            made_at=lists.source.made_at,
            other_rounds=sum(other.rounds for other in others),
            context=dict(visitor.learned),
        )

    def _counts(self, served: Served, one: ServedLearner) -> Counts | None:
        """Returns the counts of a learner; None if its policy cannot learn the log."""
        try:
            return None if served.fault else read_counts(served, one, self._registry)
        except BrokenSurface:
            return None


def _surface_warnings(served: Served) -> list[str]:
    surface, warnings = served.surface, []
    if reason := exposure_problem(surface):
        warnings.append(f"{reason}; lists are uniform now, and nothing that was learned is used")
    if surface.settings.holdout == 0.0 and not surface.settings.arms:
        warnings.append("without a holdout the uplift cannot be measured; a holdout of 0.05 is a good start")
    faults = {one.fault for one in list(served.by_learner_id.values()) if one.fault} | {served.fault} - {""}
    return warnings + [
        f"the page's own order is shown, because the policy cannot be computed: {f}" for f in faults if f
    ]


# Events


def event_view(event: Event, surface: Surface) -> EventView:
    """Returns one decision and its outcome."""
    listed = event.listed
    return {
        "event_id": event.id.hex(),
        "surface": surface.name,
        "segment": event.segment,
        "context": event.context,
        "arm": event.arm,
        "policy_id": listed.policy_id,
        "created_at": rfc3339(event.created_at),
        "expires_at": rfc3339(event.expires_at),
        "late_until": rfc3339(event.late_until),
        "slots": [
            {
                "slot": slot,
                "item": surface.items[item].name,
                "p": p,
                "learn": bool(listed.learn >> slot & 1),
                "pinned": bool(listed.pinned >> slot & 1),
                "clicked": bool((event.clicks | event.late) >> slot & 1),
                "late": bool(event.late >> slot & 1),
                **({"reward": reward} if surface.settings.objective == "rewards" else {}),  # type: ignore[typeddict-item]
            }
            for slot, (item, p, reward) in enumerate(zip(listed.items, listed.p, rewards_of(event).tolist()))
        ],
        "absent": [surface.items[index].name for index in listed.absent],
        "settled": event.number is not None,
        "settled_at": rfc3339(event.settled_at) if event.settled_at is not None else None,
        "settled_by": event.settled_by,
        "shown": event.shown,
        "number": event.number,
        "learned": is_learned(event),
        "why": _explanation(event),
    }


NOT_LEARNED: Mapping[str, str] = {
    "unconfirmed": "it is not learned from, because nothing has confirmed that the page was shown",
    "void": "it is not learned from, because the page was not shown",
}


def _explanation(event: Event) -> str:
    if event.arm == BASELINE_ARM:
        return "this visitor was in the holdout and saw the baseline order"
    pinned = "; the request pinned some slots" if event.listed.pinned else ""
    learner = "the learner" if event.arm == LEARNER_ARM else f"arm {event.arm!r}"
    reason = NOT_LEARNED.get(event.settled_by, "")
    if not reason and not event.counted:
        reason = "it is not learned from, because there were too many pages of this visitor or address"
    return f"drawn with the probabilities p of {learner}{pinned}" + (f"; {reason}" if reason else "")
