"""The log of a surface: export, import, and deletion of events that somebody asks for.

The format of an export is described in ``export_format``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from ...export_format import EXPORT_FORMAT
from ..events import Event, Learner
from ..model import (
    REQUEST_LENGTH,
    SEGMENT,
    VISITOR_LENGTH,
    Invalid,
    Surface,
    Unknown,
    checked_name,
    event_id_of,
    parse_event_id,
    rfc3339,
    visitor_hash,
)
from ..outcomes import is_learned, rewards_of
from ..reports.inputs import retention_view
from ..schemas import Imported, RetentionView
from ..stores import Store
from .log_import import LogImport
from .recorder import Recorder
from .served import Registry
from .store_calls import in_thread
from .tokens import SecretCache

BATCH = 500  # events in one transaction
MAX_NUMBER = 1 << 62  # later than every time


class Log:
    """Exports, imports and deletes events.

    Coroutines are called in the thread of the event loop and use the store in worker threads; what they have changed
    is durable when they return. They raise Unknown, Invalid and Unavailable.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        recorder: Recorder,
        clock: Callable[[], int],
        secrets: SecretCache,
    ) -> None:
        self._store, self._registry, self._recorder = store, registry, recorder
        self._clock, self._secrets = clock, secrets

    def export(self, surface: str) -> Iterator[dict[str, Any]]:
        """Yields the header of an export, then a row for every slot of every settled event that was not deleted.

        Blocks while it reads the store, and then raises StoreError; raises Unknown at once.
        """
        return _exported(self._store, self._registry.surface(surface).id)

    async def import_rows(self, surface: str, rows: Iterable[Mapping[str, Any]], *, actor: str) -> Imported:
        """Learns from the rows of an export, after everything that is settled; those of an event follow each other.

        Returns how many events were taken, how many were stored before, and why others were refused.
        """
        known, taken, made = self._registry.surface(surface), 0, 0
        read = await in_thread(LogImport, known, self._store, self._clock())
        events = read.events(rows)
        while batch := await in_thread(lambda: list(islice(events, BATCH))):
            taken += await in_thread(self._store.import_events, batch)
            made += len(batch)
        entry = {"at": self._clock(), "actor": actor, "action": "import", "surface_id": known.id}
        detail = f"{taken} events taken, {made - taken} known before"
        await in_thread(self._store.write_audit, [entry | {"detail": detail}])
        return Imported(taken, made - taken, read.refused.total(), dict(read.refused))

    # Deletion

    async def delete_event(self, event_id: str, *, actor: str) -> None:
        """Deletes one event; what was learned from it stays. Raises Unknown."""
        key = parse_event_id(event_id)
        if key is None or not await self._delete([key], actor, f"event {event_id}"):
            raise Unknown("there is no event with this id")

    async def delete_request(self, surface: str, request_id: str, *, actor: str) -> int:
        """Deletes the event of a request, if there is one; returns how many were deleted."""
        checked_name(request_id, "request_id", "/request_id", longest=REQUEST_LENGTH)
        key = event_id_of(self._registry.surface(surface).id, request_id, self._secrets.draw_key)
        return await self._delete([key], actor, f"event {key.hex()}")

    async def delete_visitor(self, visitor: str, *, actor: str) -> int:
        """Deletes all events of a visitor, on all surfaces; returns how many. The audit log does not name them."""
        checked_name(visitor, "visitor", "/visitor", longest=VISITOR_LENGTH)
        hashed, count = visitor_hash(visitor, self._secrets.draw_key), 0
        await self._recorder.flush()
        while ids := await in_thread(self._store.events_of_visitor, hashed, BATCH):
            count += await self._delete(ids, actor, "events of one visitor")
        return count

    async def delete_context(self, surface: str, context: Mapping[str, str], *, actor: str) -> int:
        """Deletes all events of a surface whose visitors had all of these labels; returns how many."""
        if not context or not all(isinstance(value, str) and value for value in context.values()):
            raise Invalid("context must map labels to texts, and have at least one", "?context")
        id, wanted, count = self._registry.surface(surface).id, context.items(), 0
        await self._recorder.flush()

        def find() -> list[bytes]:
            return [event.id for event in self._store.events(id, 0, MAX_NUMBER) if wanted <= event.context.items()]

        found = await in_thread(find)
        for start in range(0, len(found), BATCH):
            count += await self._delete(found[start : start + BATCH], actor, f"events with {dict(context)}")
        return count

    async def _delete(self, ids: Sequence[bytes], actor: str, detail: str) -> int:
        base = {"at": self._clock(), "actor": actor, "action": "delete events"}

        def entries(events: Sequence[Event]) -> list[dict[str, Any]]:
            counts = Counter(event.surface_id for event in events)
            return [{**base, "detail": f"{detail}: {n} deleted", "surface_id": id} for id, n in sorted(counts.items())]

        await self._recorder.flush()  # a decision that is written later would be refused, but not counted here
        return await in_thread(self._store.delete_events, ids, entries)

    async def retention_of(self, surface: str) -> RetentionView:
        """Returns how long events of a surface are kept, and how many were deleted."""
        known = self._registry.surface(surface)
        deleted, numbers = await in_thread(self._store.deleted, known.id), await in_thread(self._store.last_numbers)
        return retention_view(known.settings, deleted, numbers.get(known.id, 0))


# Export


def _exported(store: Store, surface_id: int) -> Iterator[dict[str, Any]]:
    events = store.settled(surface_id)
    first = list(islice(events, 1))
    # Read after the events, so that all items and learners of these are known.
    surface = next((one for one in store.surfaces() if one.id == surface_id), None)
    learners = {one.id: one for one in store.learners(surface_id)}
    if surface is not None:
        yield {"format": EXPORT_FORMAT, "surface": _header(surface, learners.values())}
        for event in chain(first, events):
            yield from _rows_of(event, surface, learners[event.learner_id])


def _header(surface: Surface, learners: Iterable[Learner]) -> dict[str, Any]:
    settings = surface.settings
    return {
        "name": surface.name,
        "objective": settings.objective,
        "slots": settings.slots,
        "floor": settings.floor,
        "policy": settings.policy,
        "policy_settings": settings.policy_settings,
        "learner": surface.learner,
        "labels": settings.labels,
        "item_labels": settings.item_labels,
        "arms": [
            {
                "name": arm.name,
                "policy": arm.policy,
                "policy_settings": arm.policy_settings,
                "share": arm.share,
                "learner": surface.arm_learners[arm.name],
            }
            for arm in settings.arms
        ],
        "items": [{"name": item.name, "state": item.state, "labels": item.labels} for item in surface.items],
        "reset": [{"learner": one.number, "number": one.reset_number} for one in learners if one.reset_number],
    }


def _rows_of(event: Event, surface: Surface, learner: Learner) -> Iterator[dict[str, Any]]:
    """Yields a row for every slot of an event."""
    listed, names = event.listed, [item.name for item in surface.items[: event.n]]
    rewards = rewards_of(event).tolist()
    learned = listed.learn if is_learned(event) else 0
    shared = {
        "event": event.id.hex(),
        "timestamp": rfc3339(event.created_at),
        "surface": surface.name,
        "segment": event.segment,
        **{f"context.{name}": event.context.get(name, "") for name in surface.labels if name != SEGMENT},
        "arm": event.arm,
        "own": bool(learned) and learner.number == surface.learner,
        "learner": learner.number,
        "policy_id": listed.policy_id,
        "number": event.number,
        "n": event.n,
        "settled": event.settled_by,
    }
    absent = set(listed.absent)
    column, kept = ("absent", True) if 2 * len(absent) <= event.n else ("eligible", False)
    named = [name for index, name in enumerate(names) if (index in absent) == kept] if absent else []
    once = ({column: named} if named else {}) | ({"note": list(listed.note)} if listed.note else {})
    for slot, (item, p) in enumerate(zip(listed.items, listed.p)):
        yield {
            **shared,
            "position": slot + 1,  # as in other click logs
            "item": surface.items[item].name,
            "click": event.clicks >> slot & 1,
            **({"reward": rewards[slot]} if surface.settings.objective == "rewards" else {}),
            "propensity": p,
            "pinned": bool(listed.pinned >> slot & 1),
            "learn": bool(learned >> slot & 1),
            **(once if slot == 0 else {}),
        }
