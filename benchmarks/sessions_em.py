"""EM for the position-based model as click-model libraries do it: session by session, an object for everything."""

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
    """A probability that is estimated by a share of sessions; it starts at one half."""

    def __init__(self) -> None:
        self.numerator, self.denominator = 1.0, 2.0

    def value(self) -> float:
        """The share so far, capped below 1."""
        return min(self.numerator / self.denominator, 1.0 - 1e-6)

    def update(self, session: Session, rank: int, before: dict[str, Parameter]) -> None:
        """Another session: whether it was so, or how probable it is under the parameters before."""
        self.numerator += 1.0 if session.results[rank].click else self.missed(before)
        self.denominator += 1.0

    def missed(self, before: dict[str, Parameter]) -> float:
        """The probability that it was so although there is no click."""
        raise NotImplementedError


class Attraction(Parameter):
    """Of a result for a query."""

    def missed(self, before: dict[str, Parameter]) -> float:
        """It attracts and was not examined."""
        attraction, examination = before["attraction"].value(), before["examination"].value()
        return attraction * (1.0 - examination) / (1.0 - attraction * examination)


class Examination(Parameter):
    """Of a rank."""

    def missed(self, before: dict[str, Parameter]) -> float:
        """It was examined and does not attract."""
        attraction, examination = before["attraction"].value(), before["examination"].value()
        return examination * (1.0 - attraction) / (1.0 - attraction * examination)


class PlainModel:
    """The position-based model in dictionaries of parameters."""

    def __init__(self) -> None:
        self.attraction: dict[str, dict[str, Parameter]] = defaultdict(lambda: defaultdict(Attraction))
        self.examination: dict[int, Parameter] = defaultdict(Examination)

    def parameters(self, session: Session) -> list[dict[str, Parameter]]:
        """Those that each result of a session depends on."""
        return [
            {"attraction": self.attraction[session.query][result.id], "examination": self.examination[rank]}
            for rank, result in enumerate(session.results)
        ]

    def train(self, sessions: Iterable[Session], passes: int) -> None:
        """Expectation and maximisation, over all sessions in every pass."""
        for _ in range(passes):
            new = PlainModel()
            for session in sessions:
                pairs = zip(self.parameters(session), new.parameters(session))
                for rank, (before, after) in enumerate(pairs):
                    for parameter in after.values():
                        parameter.update(session, rank, before)
            self.attraction, self.examination = new.attraction, new.examination
