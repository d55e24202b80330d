"""EM for the position-based model as click-model libraries do it: session by session, an object for every result."""

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

    def update(self, amount: float) -> None:
        """Another session."""
        self.numerator += amount
        self.denominator += 1.0


class PlainModel:
    """The position-based model in dictionaries."""

    def __init__(self) -> None:
        self.attraction: dict[str, dict[str, Parameter]] = defaultdict(lambda: defaultdict(Parameter))
        self.examination: dict[int, Parameter] = defaultdict(Parameter)

    def train(self, sessions: Iterable[Session], passes: int) -> None:
        """Expectation and maximisation, over all sessions in every pass."""
        for _ in range(passes):
            new = PlainModel()
            for session in sessions:
                for rank, result in enumerate(session.results):
                    self.learn(new, session.query, rank, result)
            self.attraction, self.examination = new.attraction, new.examination

    def learn(self, new: PlainModel, query: str, rank: int, result: Result) -> None:
        """What one result adds to the next pass."""
        attraction, examination = self.attraction[query][result.id].value(), self.examination[rank].value()
        if result.click:
            new.attraction[query][result.id].update(1.0)
            new.examination[rank].update(1.0)
        else:
            missed = 1.0 - attraction * examination
            new.attraction[query][result.id].update(attraction * (1.0 - examination) / missed)
            new.examination[rank].update(examination * (1.0 - attraction) / missed)
