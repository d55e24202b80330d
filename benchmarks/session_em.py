"""EM for the position-based model as click-model libraries implement it: session by session, with objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


class Result:
    """A result on a page."""

    def __init__(self, id: str, click: int) -> None:
        self.id, self.click = id, click


class Session:
    """A page of results for a query."""

    def __init__(self, query: str, results: list[Result]) -> None:
        self.query, self.results = query, results


class Parameter:
    """A probability, estimated as a share of sessions; it starts at one half."""

    def __init__(self) -> None:
        self.numerator, self.denominator = 1.0, 2.0

    def value(self) -> float:
        """Return the share so far, capped below 1."""
        return min(self.numerator / self.denominator, 1.0 - 1e-6)

    def update(self, session: Session, rank: int, before: dict[str, Parameter]) -> None:
        """Add a session: 1 if it was clicked, else the posterior probability under the previous parameters."""
        self.numerator += 1.0 if session.results[rank].click else self.posterior_without_click(before)
        self.denominator += 1.0

    def posterior_without_click(self, before: dict[str, Parameter]) -> float:
        """Return the probability of the event, given that there was no click."""
        raise NotImplementedError


class Attraction(Parameter):
    """The attraction of a result for a query."""

    def posterior_without_click(self, before: dict[str, Parameter]) -> float:
        """Return the probability that the result attracts and was not examined."""
        attraction, examination = before["attraction"].value(), before["examination"].value()
        return attraction * (1.0 - examination) / (1.0 - attraction * examination)


class Examination(Parameter):
    """The examination of a rank."""

    def posterior_without_click(self, before: dict[str, Parameter]) -> float:
        """Return the probability that the rank was examined and the result does not attract."""
        attraction, examination = before["attraction"].value(), before["examination"].value()
        return examination * (1.0 - attraction) / (1.0 - attraction * examination)


class SessionModel:
    """The position-based model in dictionaries of parameters."""

    def __init__(self) -> None:
        self.attraction: dict[str, dict[str, Parameter]] = defaultdict(lambda: defaultdict(Attraction))
        self.examination: dict[int, Parameter] = defaultdict(Examination)

    def parameters(self, session: Session) -> list[dict[str, Parameter]]:
        """Return the parameters that each result of a session depends on."""
        return [
            {"attraction": self.attraction[session.query][result.id], "examination": self.examination[rank]}
            for rank, result in enumerate(session.results)
        ]

    def train(self, sessions: Iterable[Session], passes: int) -> None:
        """Run passes of expectation and maximisation over all sessions."""
        for _ in range(passes):
            new = SessionModel()
            for session in sessions:
                pairs = zip(self.parameters(session), new.parameters(session))
                for rank, (before, after) in enumerate(pairs):
                    for parameter in after.values():
                        parameter.update(session, rank, before)
            self.attraction, self.examination = new.attraction, new.examination
