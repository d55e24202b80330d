"""States: learned from events as from pages, and continued from a snapshot as if it had never been saved."""

from __future__ import annotations

import zlib
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

import bothworlds
from bothworlds.core import Decision
from bothworlds.policies.logged_pages import LogState
from bothworlds.policies.pages import has_parts
from bothworlds.serve.engine import states
from bothworlds.serve.engine.states import Target, decode, encode, learn_events, page_of, same_bits, size_of
from bothworlds.serve.model import BASELINE_ARM, LOSS_UNIT
from tests.cases import case
from tests.policies.informed import informed, others_nightly
from tests.policies.logs import played
from tests.policies.plain import Divisible, EpsilonGreedy, Stranger, called
from tests.serve.engine.logs import cut, event_of, events_of

N, M, ADDED = 6, 3, 2
NAMES = sorted({*bothworlds.policies.names()} - {"oracle"})


def shape_for(policy):
    return (N + ADDED if has_parts(policy) else N), M


def policy_for(name):
    return informed(name, *shape_for(bothworlds.policy(name)), rounds=400)


def learned(policy, events, sizes=(10_000,), shape=None):
    state = LogState(policy, *(shape or shape_for(policy)))
    for batch in cut(events, sizes):
        learn_events(state, batch)
    return state


def parts_of(snapshot):
    """The header of a snapshot, known values of labels, and the arrays by path."""
    return msgspec.msgpack.decode(zlib.decompress(snapshot))


def restored(state, reset=0, policy=None, shape=None):
    return decode(encode(state, reset), Target(policy or state.policy, *(shape or state.shape)), reset)


@pytest.fixture(scope="module")
def events():
    """A log with excluded, pinned and added items."""
    return events_of(played(bothworlds.policy("all-weather"), N, M, 80, added=ADDED)[0])


@pytest.fixture(scope="module")
def whole_events():
    """A log of whole pages."""
    return events_of(played(EpsilonGreedy(), N, M, 40)[0])


# Events


def test_events_are_learned_as_pages():
    policy = bothworlds.policy("all-weather")
    pages, _ = played(policy, N, M, 80, added=ADDED)
    log = LogState(policy, N + ADDED, M)
    log.learn(pages)
    for sizes in ((1,), (7, 1, 30), (1000,)):
        with case(sizes=sizes):
            assert same_bits(learned(policy, events_of(pages), sizes), log)


@pytest.mark.parametrize(
    ("fields", "is_learned"),
    [
        ({}, True),
        ({"settled_by": "deadline"}, True),
        ({"settled_by": "import"}, True),
        ({"deleted": True}, True),  # its content is still there, and it was learned
        ({"late": 0b111}, True),
        ({"settled_by": "unconfirmed"}, False),
        ({"settled_by": "void"}, False),
        ({"counted": False}, False),
        ({"arm": BASELINE_ARM}, False),
    ],
    ids=str,
)
def test_what_is_not_learned_has_a_number_all_the_same(events, fields, is_learned):
    policy, changed = bothworlds.policy("comb-ucb"), [*events[:10]]
    changed[9] = msgspec.structs.replace(changed[9], **fields)
    state, without = learned(policy, changed), learned(policy, events[:9])
    assert state.number == 10
    assert state.pages == without.pages + is_learned
    assert (state.shown.sum() > without.shown.sum()) == is_learned


def test_rewards_are_learned_as_they_are(events):
    event = msgspec.structs.replace(events[0], rewards=(LOSS_UNIT // 4, 0, LOSS_UNIT), clicks=0b101, late=0b010)
    assert list(page_of(event).rewards) == [0.25, 0.0, 1.0]


def test_a_note_belongs_to_the_policy_that_is_named_before_the_colon(events):
    event = events[0]
    noted = msgspec.structs.replace(event.listed, note=(1.0, 2.0), policy_id="toprank:1f")
    assert page_of(msgspec.structs.replace(event, listed=noted)).policy == "toprank"


# Snapshots


@pytest.mark.slow
@pytest.mark.parametrize("name", others_nightly(NAMES))
def test_a_snapshot_is_continued_bit_for_bit(name):
    policy = policy_for(name)
    events = events_of(played(policy, N, M, 80, added=ADDED)[0])
    whole = learned(policy, events, (7, 1))
    for at in (0, 1, 39, 41, 80):
        with case(at=at):
            state = restored(learned(policy, events[:at]))
            assert state is not None
            learn_events(state, events[at:])
            assert same_bits(state, whole)


@pytest.mark.parametrize("policy", [EpsilonGreedy(), Divisible(), Stranger()], ids=called)
def test_arrays_and_numbers_of_a_policy_in_plain_python_have_snapshots(policy, whole_events):
    state = restored(learned(policy, whole_events[:20], shape=(N, M)))
    learn_events(state, whole_events[20:])
    assert same_bits(state, learned(policy, whole_events, shape=(N, M)))


class Bag:
    """A policy whose state is made of what no array holds, or cannot be restored from a new state."""

    label = name = "bag"

    def __init__(self, make):
        self.make = make

    def init(self, n_items, n_positions):
        return SimpleNamespace(kept=self.make(), rounds=0)

    def decide(self, state, rng):
        return Decision(np.arange(M), np.ones(M))

    def learn(self, state, decision, clicks):
        state.rounds += 1
        return state


@pytest.mark.parametrize(
    "make",
    [
        set,
        lambda: "word",
        lambda: np.random.default_rng(0),
        lambda: [1 << 70],
        lambda: [[1], "a"],
        lambda: [0.5, (1 << 60) + 1],
    ],
    ids=["set", "str", "generator", "int", "list", "mixed"],
)
def test_a_state_that_is_not_made_of_arrays_has_no_snapshot(whole_events, make):
    state = learned(Bag(make), whole_events[:3], shape=(N, M))
    assert state.pages == 3
    assert not same_bits(state, state)
    assert restored(state) is None


def test_numbers_that_change_their_type_are_restored(whole_events):
    class Half(Bag):
        def learn(self, state, decision, clicks):
            state.rounds = state.rounds + 0.5
            state.kept = [*state.kept, len(state.kept)]
            return state

    state = restored(learned(Half(list), whole_events[:3], shape=(N, M)))
    assert state.state == SimpleNamespace(kept=[0, 1, 2], rounds=1.5)


def test_a_snapshot_of_something_else_is_of_no_use(events, monkeypatch):
    policy = bothworlds.policy("all-weather")
    state = learned(policy, events)
    shape = n, m = state.shape
    assert restored(state) is not None
    assert restored(state, shape=(n + 1, m)) is not None  # an item was added since
    assert restored(state, reset=3) is not None
    assert decode(encode(state, 3), Target(policy, n, m), 4) is None
    assert restored(state, shape=(n, m - 1)) is None
    assert restored(state, policy=bothworlds.policy("all-weather", share=0.03)) is None
    assert restored(state, policy=bothworlds.policy("gibbs-ts")) is None
    counting = learned(policy_for("batchrank"), events_of(played(policy_for("batchrank"), N, M, 20)[0]))
    assert restored(counting) is not None
    assert restored(counting, shape=(N + 1, M)) is None  # a state without parts does not grow
    snapshot = encode(state)
    monkeypatch.setattr(states, "VERSIONS", ("0.0",))
    assert decode(snapshot, Target(policy, *shape)) is None


def test_a_damaged_snapshot_is_of_no_use(events):
    state = learned(bothworlds.policy("comb-ucb"), events)
    snapshot = encode(state)
    header, known, arrays = parts_of(snapshot)
    path, (kind, dtype, shape, content) = next(iter(arrays.items()))
    damaged = [b"", b"{}", snapshot[:-1], snapshot[:200], zlib.compress(b"123"), b"\n" + snapshot]
    damaged += [bytes([*snapshot[:-9], 0, *snapshot[-8:]])]
    damaged += [
        zlib.compress(msgspec.msgpack.encode((header, known, wrong)))
        for wrong in (
            {name: array for name, array in arrays.items() if name != path},
            arrays | {"x": (kind, dtype, shape, content)},
            arrays | {path: (kind, dtype, shape, content[:-8])},
        )
    ]
    for k, one in enumerate(damaged):
        with case(k=k):
            assert decode(one, Target(state.policy, *state.shape)) is None


def test_work_arrays_are_neither_saved_nor_compared(events):
    state = learned(bothworlds.policy("all-weather"), events)
    twin = restored(state)
    state.policy.decide(state.state, np.random.default_rng(0))
    assert same_bits(state, twin)
    assert not [path for path in parts_of(encode(state))[2] if ".work." in path]
    twin.state.loss[0, 0] = np.nextafter(twin.state.loss[0, 0], 9.0)
    assert not same_bits(state, twin)


def test_counts_are_compared_too(events):
    state = learned(bothworlds.policy("comb-ucb"), events)
    for name in ("shown", "clicked", "loss", "pages"):
        with case(name=name):
            twin = restored(state)
            assert same_bits(state, twin)
            setattr(twin, name, getattr(twin, name) + 1)
            assert not same_bits(state, twin)


def test_a_larger_state_is_larger(events):
    policy = bothworlds.policy("comb-ucb")
    small, large = learned(policy, events[:3]), LogState(policy, 1000, M)
    learn_events(large, [event_of(page_of(events[0])._replace(n_items=1000))])
    assert size_of(large) > 8 * 3 * 1000 * M > size_of(small)
