"""Feedback with rewards: checked against the objective of the surface, and converted to fixed point."""

from __future__ import annotations

from ..model import Event, Surface, VerifiedFeedback
from ..rewards import slot_rewards
from ..schemas import FeedbackEvent
from .tokens import InvalidToken

__all__ = ["verified_rewards"]


def verified_rewards(surface: Surface, event: Event, given: FeedbackEvent) -> VerifiedFeedback:
    """Returns the feedback of an event whose token is valid; raises InvalidToken if it does not fit the surface."""
    objective = surface.settings.objective
    if objective == "clicks":
        raise InvalidToken(f"surface {surface.name!r} counts clicks: send clicks instead of rewards")
    if given.clicks:
        raise InvalidToken(f"surface {surface.name!r} counts rewards: send rewards instead of clicks")
    try:
        rewards = slot_rewards(given.rewards, len(event.items)) if given.rewards else ()
    except ValueError as error:
        raise InvalidToken(str(error)) from error
    return VerifiedFeedback(event=event, clicks=0, final=given.final, rewards=rewards)
