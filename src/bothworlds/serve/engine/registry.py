"""What this process knows: surfaces, as they are served, and their learners."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from ..events import Learner
from ..model import Surface, Unknown
from .served import Served, ServedLearner

if TYPE_CHECKING:
    from ..stores import Store
    from .replay import States


class Registry:
    """Surfaces and learners that this process knows.

    ``surfaces`` and ``by_id`` map names and ids to served surfaces; any thread may read them at any time. Methods that
    change something block, raise StoreError, and can be called in any thread but that of the event loop. A request that
    still uses what they replace is answered correctly: it logs the probabilities that its list was drawn with.
    """

    def __init__(self, store: Store, states: States, clock: Callable[[], int], *, shared: bool = False) -> None:
        self.store, self.states, self.clock, self.shared = store, states, clock, shared
        self.surfaces: dict[str, Served] = {}
        self.by_id: dict[int, Served] = {}
        self._removed: set[int] = set()  # ids of surfaces that were deleted
        self._lock = threading.RLock()  # of changes
        self._revision = -1

    # Reading: any thread, at once

    def served(self, name: str) -> Served:
        """Returns a surface as it is served; raises Unknown."""
        served = self.surfaces.get(name)
        if served is None:
            raise Unknown(f"there is no surface {name!r}")
        return served

    def surface(self, name: str) -> Surface:
        """Returns a surface; raises Unknown."""
        return self.served(name).surface

    def all_surfaces(self) -> list[Surface]:
        """Returns all surfaces by name."""
        return [served.surface for _, served in sorted(self.surfaces.items())]

    def learner(self, surface_id: int, learner_id: int) -> ServedLearner | None:
        """Returns a learner; None if it is not known here, or belongs to an arm that is not served any more."""
        served = self.by_id.get(surface_id)
        return None if served is None else served.by_learner_id.get(learner_id)

    # Changes: they block

    def refresh(self) -> None:
        """Reads the surfaces and learners that any process has changed since the last call."""
        revision = self.store.revision()
        with self._lock:
            if revision == self._revision:
                return
            stored = self.store.surfaces()
            for surface_id in self.by_id.keys() - {surface.id for surface in stored}:
                self.remove(surface_id)
            learners: dict[int, list[Learner]] = {}
            for learner in self.store.learners():
                learners.setdefault(learner.surface_id, []).append(learner)
            for surface in stored:
                self._install(surface, learners.get(surface.id, ()))
            self._revision = revision

    def replace(self, surface: Surface) -> Served:
        """Serves this version of a surface from now on; returns the version in force, which may be a later one.

        Learners are read again; the default segment has one for every arm when this returns. Lists that are in use are
        made again before.
        """
        with self._lock:
            return self._install(surface, self.store.learners(surface.id))

    def _install(self, surface: Surface, learners: Iterable[Learner]) -> Served:
        old = self.by_id.get(surface.id)
        if old is not None and (surface.id in self._removed or old.surface.version > surface.version):
            return old
        served = old if old is not None and old.surface.version == surface.version else Served(surface, self.states)
        known = {(one.segment, one.number): one for one in learners}
        for number in set(served.numbers.values()):
            if ("", number) not in known:
                admitted = self.store.admit_learner(surface.id, "", number, surface.settings.max_segments)
                known |= {} if admitted is None else {("", number): admitted}
        for learner in known.values():
            one = served.by_learner_id.get(learner.id)
            was_reset = one is not None and one.learner.reset_number != learner.reset_number
            one = served.add(learner)
            before = None if old is None else old.by_learner_id.get(learner.id)
            if one is not None and before is not None:
                one.used_at = before.used_at
                if before.lists is not None and (served is not old or was_reset):
                    served.publish(one, self.clock())
        served.drop(served.by_learner_id.keys() - {learner.id for learner in known.values()})
        if served is not old and surface.id not in self._removed:
            self.surfaces[surface.name] = self.by_id[surface.id] = served
        return served

    def check(self, surface: Surface) -> None:
        """Makes the lists of a version of a surface, for new learners and for those in use, and discards them.

        Raises ValueError, ConvergenceError or another error of a policy if one cannot be made.
        """
        served, old = Served(surface, self.states), self.by_id.get(surface.id)
        if served.fault:
            raise ValueError(served.fault)
        served.check()
        for one in [] if old is None else list(old.by_learner_id.values()):
            tried = served.add(one.learner)
            if tried is not None and one.lists is not None:
                served.make(tried)

    def renew(self, ids: Collection[int]) -> None:
        """Makes the lists in use of these learners again, from states that have changed otherwise than by learning."""
        with self._lock:
            for served in list(self.by_id.values()):
                for id in served.by_learner_id.keys() & set(ids):
                    one = served.by_learner_id[id]
                    if one.lists is not None or one.fault:
                        served.publish(one, self.clock())
                    served.cache = type(served.cache)()

    def remove(self, surface_id: int) -> None:
        """Stops serving a surface that was deleted from the store."""
        with self._lock:
            self._removed.add(surface_id)
            served = self.by_id.pop(surface_id, None)
            if served is not None:
                if self.surfaces.get(served.surface.name) is served:  # the name may be in use again
                    del self.surfaces[served.surface.name]
                self.states.forget(list(served.by_learner_id))

    def add_learner(self, learner: Learner) -> ServedLearner | None:
        """Serves a learner that was admitted to the store; None if its surface or its arm is not served here."""
        with self._lock:
            served = self.by_id.get(learner.surface_id)
            return None if served is None else served.add(learner)

    def drop_learners(self, surface_id: int, ids: Collection[int]) -> None:
        """Stops serving learners that were deleted from the store."""
        with self._lock:
            if (served := self.by_id.get(surface_id)) is not None:
                served.drop(ids)
            self.states.forget(ids)
