"""Settled events of a learner, as the store returns them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from bothworlds.core import copy_state
from bothworlds.policies.logged_pages import LoggedPage, LogState
from bothworlds.serve.events import Event, Listed
from bothworlds.serve.model import LEARNER_ARM, LOSS_UNIT

HOUR = 3_600_000


def event_of(page: LoggedPage, learner_id: int = 1, surface_id: int = 1, **fields: Any) -> Event:
    """Return the settled event of a page; its rewards are rounded to units of 1 / ``LOSS_UNIT``."""
    at = 1_700_000_000_000 + page.number * 1000
    fractions = any(reward not in (0, 1) for reward in page.rewards)
    event = Event(
        id=page.number.to_bytes(8) + learner_id.to_bytes(8),
        surface_id=surface_id,
        learner_id=learner_id,
        arm=LEARNER_ARM,
        created_at=at,
        expires_at=at + HOUR,
        late_until=at + 24 * HOUR,
        n=page.n_items,
        listed=Listed(
            items=tuple(page.items),
            p=tuple(page.propensity),
            learn=page.learned,
            pinned=((1 << len(page.items)) - 1) & ~page.learned,
            absent=tuple(page.absent),
            note=tuple(page.note),
            policy_id=f"{page.policy}:test",
        ),
        context=dict(page.context),
        shown=True,
        clicks=sum(1 << slot for slot, reward in enumerate(page.rewards) if reward > 0),
        rewards=tuple(round(LOSS_UNIT * reward) for reward in page.rewards) if fractions else (),
        final=True,
        number=page.number,
        settled_at=at + HOUR,
        settled_by="final",
    )
    return msgspec.structs.replace(event, **fields)


def events_of(pages: Iterable[LoggedPage], **fields: Any) -> list[Event]:
    """Return the settled events of pages."""
    return [event_of(page, **fields) for page in pages]


def cut(events: Sequence[Event], sizes: Sequence[int]) -> Iterable[Sequence[Event]]:
    """Yield the events in batches of these sizes, again and again."""
    start = k = 0
    while start < len(events):
        yield events[start : start + sizes[k % len(sizes)]]
        start, k = start + sizes[k % len(sizes)], k + 1


def copied(state: LogState) -> LogState:
    """Return an independent copy of a state."""
    twin = copy.copy(state)
    twin.state = copy_state(state.state)
    twin.shown, twin.clicked, twin.loss = state.shown.copy(), state.clicked.copy(), state.loss.copy()
    return twin
