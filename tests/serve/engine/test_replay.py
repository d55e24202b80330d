"""Replay: the state of a learner is that of its settled log, however it came to be held, and ``verify`` notices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

import bothworlds
from bothworlds.policies.logged_pages import LogState
from bothworlds.serve.engine.states import (
    SNAPSHOT_FORMAT,
    States,
    Target,
    decode,
    encode,
    learn_events,
    relearned,
    same_bits,
)
from bothworlds.serve.events import Feedback
from bothworlds.serve.ops.verify import verify_learner as verify
from bothworlds.serve.stores import Store, open_store
from tests.policies.logs import played
from tests.policies.plain import Divisible, EpsilonGreedy
from tests.serve.engine.logs import copied, event_of
from tests.serve.stores.samples import settle, started

N, M, ADDED = 5, 3, 2
POLICY = bothworlds.policy("all-weather")
TARGET = Target(POLICY, N + ADDED, M)
DEFAULT, PHONE = 1, 2  # ids of the learners that ``started`` makes
LATER = 1_800_000_000_000


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    opened = started(open_store(str(tmp_path / "store.db")))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def pages():
    """A log with excluded, pinned and added items."""
    return played(POLICY, N, M, 80, added=ADDED)[0]


def record(store, pages, learner_id=DEFAULT):
    """Write pages and their feedback, and settle them; return the settled events."""
    feedback = []
    for page in pages:
        event = event_of(page, learner_id)
        given = Feedback(event=event, clicks=event.clicks, rewards=event.rewards, shown=True, final=True)
        begun = {"clicks": 0, "rewards": (), "shown": None, "final": False, "late_until": LATER + 1}
        fresh = msgspec.structs.replace(event, number=None, settled_at=None, settled_by="", **begun)
        feedback.append(msgspec.structs.replace(given, event=fresh))
    assert {*store.write([one.event for one in feedback], feedback, LATER)} <= {"accepted"}
    return settle(store, LATER)


def learner(store, learner_id=DEFAULT):
    return next(one for one in store.learners() if one.id == learner_id)


def state_in(states, store, learner_id=DEFAULT, target=TARGET):
    return states.read(learner(store, learner_id), Target(*target), copied)


def log_of(events, target=TARGET):
    state = LogState(*target)
    learn_events(state, events)
    return state


def lease_of(store):
    return store.acquire("me", 60.0)


# States


def test_a_state_is_that_of_the_settled_log(store, pages):
    states = States(store)
    events = record(store, pages[:30])
    assert same_bits(state_in(states, store), log_of(events))
    for batch in (pages[30:31], pages[31:60], pages[60:]):
        new = record(store, batch)
        events += new
        assert states.learn(new) == {}
        assert same_bits(state_in(states, store), log_of(events))
        assert same_bits(state_in(States(store), store), log_of(events))
    assert events[-1].number == len(pages) == state_in(states, store).pages


def test_learners_have_states_of_their_own(store, pages):
    states = States(store)
    state_in(states, store, PHONE)
    first, second = record(store, pages[:20]), record(store, pages[20:50], PHONE)
    assert states.learn([*first, *second]) == {}
    assert same_bits(state_in(states, store, DEFAULT), log_of(first))
    assert same_bits(state_in(states, store, PHONE), log_of(second))


def test_a_learner_without_events_has_a_new_state(store):
    state = state_in(States(store), store)
    assert (state.state, state.pages, state.number) == (None, 0, 0)
    assert state.present(N).shape == (N, M)


def test_events_that_were_learned_are_not_learned_again(store, pages):
    states = States(store)
    events = record(store, pages)
    state_in(states, store)
    states.learn(events)
    states.learn(events[30:])
    assert same_bits(state_in(states, store), log_of(events))


@dataclass(frozen=True)
class Interrupted(Divisible):
    """Calls a function before it learns its first page."""

    called: Any = None

    def learn(self, state, decision, clicks):
        if self.called:
            self.called.pop()()
        return super().learn(state, decision, clicks)


def test_events_that_settle_while_a_state_is_loaded_are_learned(store, pages):
    """By ``learn``, which does not find the state yet; without the second look at the log they would be missing."""
    states, events = States(store), record(store, pages[:10])

    def settle_more():
        events.extend(more := record(store, pages[10:20]))
        states.learn(more)

    target = Interrupted(called=[settle_more]), N + ADDED, M
    assert same_bits(state_in(states, store, target=target), log_of(events, (Divisible(), *target[1:])))
    assert len(events) == 20


def test_states_that_were_dropped_are_made_again(store, pages):
    states = States(store, limit=1)
    events = record(store, pages[:20])
    assert same_bits(state_in(states, store, DEFAULT), log_of(events))
    one = states.size
    state_in(states, store, PHONE)
    assert 0 < states.size <= one  # one of them is held
    new = record(store, pages[20:40])
    assert states.learn(new) == {}
    assert same_bits(state_in(states, store, DEFAULT), log_of([*events, *new]))


def test_size_grows_with_the_state(store, pages):
    states = States(store)
    record(store, pages[:5])
    state_in(states, store)
    before = states.size
    states.learn(record(store, [page._replace(n_items=1000) for page in pages[5:6]]))
    assert states.size > before + 8 * 1000 * M


def test_learners_that_were_deleted_are_forgotten(store, pages):
    states = States(store)
    record(store, pages[:5])
    state_in(states, store)
    states.forget([DEFAULT, 99])
    assert states.size == 0


def test_a_reset_starts_again(store, pages):
    states = States(store)
    states.learn(record(store, pages[:20]))
    state_in(states, store)
    states.save(lease_of(store), DEFAULT)
    old = learner(store)
    store.reset_learners([DEFAULT], [])
    new = record(store, pages[20:50])
    states.learn(new)  # as a process that has not noticed yet
    assert same_bits(state_in(States(store), store), state_in(states, store))
    state = state_in(states, store)
    assert (state.pages, state.number) == (30, 50)
    assert same_bits(states.read(old, TARGET, copied), state)  # a record from before does not bring it back


def test_a_failing_policy_stops_no_other_learner(store, pages):
    @dataclass(frozen=True)
    class Failing(Divisible):
        def learn(self, state, decision, clicks):
            if state.shown.sum() > 30:
                raise ArithmeticError("too much")
            return super().learn(state, decision, clicks)

    states, broken = States(store), (Failing(), N + ADDED, M)
    state_in(states, store, DEFAULT, broken)
    state_in(states, store, PHONE)
    first, second = record(store, pages[:20]), record(store, pages[20:40], PHONE)
    learned = states.learn([*first, *second])
    assert [str(error) for error in learned.values()] == ["too much"]
    assert same_bits(state_in(states, store, PHONE), log_of(second))
    with pytest.raises(ArithmeticError):
        state_in(states, store, DEFAULT, broken)
    assert same_bits(state_in(states, store, DEFAULT), log_of(first))


def test_a_state_that_takes_long_to_make_keeps_nobody_else_waiting(store, pages):
    """While the log of one learner is learned, another learner's state is made in a second thread."""
    states, made = States(store), []
    record(store, pages[:20])

    def read_another():
        thread = threading.Thread(target=lambda: made.append(state_in(states, store, PHONE)), daemon=True)
        thread.start()
        thread.join(60.0)

    state_in(states, store, target=Target(Interrupted(called=[read_another]), N + ADDED, M))
    assert len(made) == 1


@pytest.mark.slow
def test_threads_that_read_and_learn_give_the_state_of_the_log(store, pages):
    """While one thread settles and learns, others load, drop and read states: no page is missed or learned twice."""
    states, done = States(store, limit=1), threading.Event()
    problems: list[BaseException] = []

    def check(state):
        if state.pages != state.number:  # every page of this log is learned
            raise AssertionError((state.pages, state.number))

    def read(learner_id):
        try:
            while not done.is_set():
                states.read(learner(store, learner_id), TARGET, check)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=read, args=(learner_id,)) for learner_id in (DEFAULT, DEFAULT, PHONE)]
    for thread in threads:
        thread.start()
    events = []
    for page in pages * 3:
        new = record(store, [page._replace(number=len(events) + 1, n_items=N + ADDED)])
        events += new
        states.learn(new)
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert same_bits(state_in(states, store), log_of(events))


# Another policy, other slots


@pytest.mark.parametrize(
    "target",
    [(bothworlds.policy("comb-ucb"), N + ADDED, M), (POLICY, N + ADDED, M + 1), (EpsilonGreedy(), N + ADDED, M)],
)
def test_the_log_is_learned_again_while_the_old_state_serves(store, pages, target):
    states = States(store)
    events = record(store, pages[:30])
    state_in(states, store)
    assert states.unfinished() == []
    assert same_bits(state_in(states, store, target=target), log_of(events))
    assert states.unfinished() == [DEFAULT]
    new = record(store, pages[30:])
    states.learn(new)
    events += new
    assert same_bits(state_in(states, store, target=target), log_of(events))
    assert states.rebuild(DEFAULT)
    assert states.unfinished() == []
    assert same_bits(state_in(states, store, target=target), log_of(events, target))
    assert not states.rebuild(DEFAULT)


def test_pages_that_settle_during_a_rebuild_are_learned(store, pages):
    states, events = States(store), record(store, pages[:10])
    state_in(states, store)

    def settle_more():
        events.extend(more := record(store, pages[10:20]))
        assert states.learn(more) == {}

    target = Interrupted(called=[settle_more]), N + ADDED, M
    state_in(states, store, target=target)
    assert states.rebuild(DEFAULT)
    assert same_bits(state_in(states, store, target=target), log_of(events, (Divisible(), *target[1:])))


def test_a_change_that_is_taken_back_needs_nothing(store, pages):
    states, events = States(store), record(store, pages[:10])
    state_in(states, store)
    state_in(states, store, target=(POLICY, N + ADDED, 2))
    state_in(states, store, target=(POLICY, N + ADDED + 5, M))  # items that were added are no other target
    assert states.unfinished() == []
    assert not states.rebuild(DEFAULT)
    assert same_bits(state_in(states, store), log_of(events))


def test_a_rebuild_that_is_overtaken_replaces_nothing(store, pages):
    states, events = States(store), record(store, pages[:10])
    state_in(states, store)
    target = Interrupted(called=[lambda: state_in(states, store)]), N + ADDED, M
    state_in(states, store, target=target)
    assert not states.rebuild(DEFAULT)
    assert same_bits(state_in(states, store), log_of(events))


def test_a_rebuild_that_fails_drops_the_state(store, pages):
    states = States(store)
    record(store, pages[:10])
    state_in(states, store)
    impossible = bothworlds.policy("pbm-ucb", examination=[0.9, 0.5]), N + ADDED, M
    state_in(states, store, target=impossible)
    for attempt in (lambda: states.rebuild(DEFAULT), lambda: state_in(states, store, target=impossible)):
        with pytest.raises(ValueError, match="examination"):
            attempt()


def test_after_a_restart_the_new_policy_has_learned_the_log(store, pages):
    states, events = States(store), record(store, pages)
    state_in(states, store)
    states.save(lease_of(store), DEFAULT)
    target = bothworlds.policy("comb-ucb"), N + ADDED, M
    assert same_bits(state_in(States(store), store, target=target), log_of(events, target))


# Snapshots


def test_a_snapshot_is_due_when_learning_again_takes_long(store, pages):
    states = States(store, due_seconds=0.0)
    assert states.due() == []
    record(store, pages[:10])
    state_in(states, store)
    assert states.due() == [DEFAULT]
    assert states.save(lease_of(store), DEFAULT) > 100
    assert states.due() == []
    states.learn(record(store, pages[10:12]))
    assert states.due() == [DEFAULT]
    patient = States(store, due_seconds=3600.0)
    state_in(patient, store)
    assert patient.due() == []
    assert states.save(lease_of(store), PHONE) == 0  # not held


def test_a_restart_begins_with_the_last_snapshot(store, pages):
    states, lease = States(store), lease_of(store)
    events = record(store, pages[:10])
    state_in(states, store)
    for batch in (pages[10:20], pages[20:30], pages[30:]):
        new = record(store, batch)
        states.learn(new)
        states.save(lease, DEFAULT)
        events += new
    assert (store.snapshot(DEFAULT, oldest=True).number, store.snapshot(DEFAULT).number) == (30, 80)
    assert same_bits(state_in(States(store), store), log_of(events))
    # A snapshot with one page less would be continued as well: it is the snapshot that is read.
    other = log_of(events[:79])
    other.number = 80
    store.save_snapshot(lease, DEFAULT, 80, SNAPSHOT_FORMAT, encode(other))
    assert state_in(States(store), store).pages == 79


def test_a_snapshot_of_another_version_is_replaced_by_the_log(store, pages, monkeypatch):
    states, events = States(store), record(store, pages)
    state_in(states, store)
    with monkeypatch.context() as changed:
        changed.setattr("bothworlds.serve.engine.states.VERSIONS", ("0.1",))
        states.save(lease_of(store), DEFAULT)
    assert same_bits(state_in(States(store), store), log_of(events))


def test_events_that_a_snapshot_covers_can_be_deleted(store, pages):
    states, lease = States(store), lease_of(store)
    events = prepared(store, pages)
    state_in(states, store)
    assert states.save(lease, DEFAULT, keep=1) > 100
    late = events[-1].late_until + 1
    assert store.delete_old_events(lease, 1, late, late, 100, []) == 80
    assert same_bits(state_in(States(store), store), log_of(events))
    new = record(store, [page._replace(number=page.number + 80, n_items=N + ADDED) for page in pages[:10]])
    states.learn(new)
    assert same_bits(state_in(states, store), log_of([*events, *new]))
    assert same_bits(state_in(States(store), store), log_of([*events, *new]))


@pytest.mark.parametrize("target", [None, (EpsilonGreedy(), N, M)], ids=["unused", "other policy"])
def test_without_a_state_what_is_left_is_learned(store, pages, target):
    """Of a learner that no arm uses, and after a change of policy, deleted events are not learned from."""
    states, lease = States(store), lease_of(store)
    events = record(store, pages[:40])
    if target is None:
        states.cover(lease, learner(store), 40)
    else:
        state_in(states, store, target=target)
        states.save(lease, DEFAULT, keep=1)
    late = events[-1].late_until + 1
    store.delete_old_events(lease, 1, late, late, 100, [])
    new = record(store, [page._replace(n_items=N + ADDED) for page in pages[40:]])
    state = state_in(States(store), store)
    assert (state.pages, state.number) == (40, 80)
    assert same_bits(state, log_of(new))


def test_the_newest_snapshot_stays_the_newest_when_the_last_events_are_erased(store, pages):
    """Otherwise the log would be learned again at every start."""
    states, lease = States(store), lease_of(store)
    events = record(store, pages)
    store.delete_events([event.id for event in events[40:]], lambda deleted: [])
    state_in(states, store)
    states.save(lease, DEFAULT, keep=1)
    store.erase(lease, LATER, 100)
    target = bothworlds.policy("comb-ucb"), N + ADDED, M
    again = States(store)
    state = state_in(again, store, target=target)
    again.save(lease, DEFAULT)
    newest = store.snapshot(DEFAULT)
    assert (state.pages, newest.number) == (40, 80)
    assert same_bits(decode(newest.state, Target(*target)), state)


# Verify


def prepared(store, pages, saves=(20, 60)):
    """A store whose learner has snapshots after so many pages; return its events."""
    states, lease, events = States(store), lease_of(store), []
    state_in(states, store)
    for k, page in enumerate(pages, 1):
        new = record(store, [page])
        states.learn(new)
        events += new
        if k in saves:
            states.save(lease, DEFAULT)
    return events


def test_verify_learns_the_log_again(store, pages):
    events = prepared(store, pages)
    found = verify(store, learner(store), TARGET)
    assert found[:-1] == (0, 80, (20, 60), (), ())
    assert same_bits(found.state, log_of(events))
    assert same_bits(relearned(store, learner(store), TARGET), found.state)


def test_verify_notices_one_bit(store, pages):
    events = prepared(store, pages)
    wrong = log_of(events[:60])
    wrong.state.loss[0, 0] = np.nextafter(wrong.state.loss[0, 0], 9.0)
    store.save_snapshot(lease_of(store), DEFAULT, 60, SNAPSHOT_FORMAT, encode(wrong))
    assert verify(store, learner(store), TARGET).different == (60,)


def test_verify_notices_events_in_another_order(store, pages):
    """The broken twin: a process that learns events as they arrive, not by their numbers."""
    events = prepared(store, pages)
    shuffled = [events[k] for k in np.random.default_rng(0).permutation(60)]
    arrived = [msgspec.structs.replace(event, number=k) for k, event in enumerate(shuffled, 1)]
    store.save_snapshot(lease_of(store), DEFAULT, 60, SNAPSHOT_FORMAT, encode(log_of(arrived)))
    assert verify(store, learner(store), TARGET).different == (60,)


def test_verify_begins_with_the_oldest_snapshot_if_events_are_erased(store, pages):
    events = prepared(store, pages)
    store.delete_events([events[3].id], lambda deleted: [])
    assert verify(store, learner(store), TARGET)[:-1] == (0, 80, (20, 60), (), ())  # its content is still there
    assert store.erase(lease_of(store), 0, 100) == 1
    found = verify(store, learner(store), TARGET)
    assert found[:-1] == (20, 60, (60,), (), ())
    assert same_bits(found.state, log_of(events))
    assert relearned(store, learner(store), TARGET).pages == 79


def test_verify_names_snapshots_that_it_cannot_read(store, pages):
    prepared(store, pages)
    found = verify(store, learner(store), Target(bothworlds.policy("comb-ucb"), N + ADDED, M))
    assert found[:-1] == (0, 80, (), (), (20, 60))


def test_verify_without_anything_to_begin_with(store, pages):
    events = record(store, pages[:20])
    lease = lease_of(store)
    States(store).cover(lease, learner(store), 20)
    late = events[-1].late_until + 1
    store.delete_old_events(lease, 1, late, late, 100, [])
    assert verify(store, learner(store), TARGET) == (20, 0, (), (), (20,), None)


def test_verify_begins_after_a_reset(store, pages):
    prepared(store, pages)
    store.reset_learners([DEFAULT], [])
    new = record(store, [page._replace(number=page.number + 80, n_items=N + ADDED) for page in pages[:10]])
    found = verify(store, learner(store), TARGET)
    assert found[:-1] == (0, 10, (), (), ())
    assert found.state.number == new[-1].number == 90
