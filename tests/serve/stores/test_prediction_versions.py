"""Versions of predicted losses in a real store: counted once, in any order, removed by a reset, and verified."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import numpy as np
import pytest

from bothworlds.serve.checkpoints import checkpoint_key
from bothworlds.serve.engine.prediction_renewal import folded_predictions
from bothworlds.serve.engine.surface_rules import medians_of, reset_adjustments
from bothworlds.serve.model import DRAW_KEY, PREDICTION_SCALE, EventPrediction, VerifiedFeedback, counter_key
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.prediction_versions import PredictionVersion
from bothworlds.serve.stores import sql_deletion
from bothworlds.serve.stores.sql_store import SqlStore
from tests.serve.stores.samples import ITEMS, NOON, SLOTS, WINDOW, a_surface, an_event

USED = np.arange(ITEMS * SLOTS, dtype=np.uint8).reshape(ITEMS, SLOTS)
NUMBERS = (NOON, NOON + 1)


def a_version(number: int) -> PredictionVersion:
    return PredictionVersion(number, 10, 11, None, "ftrl-va", SLOTS, zlib.compress((USED + number % 2).tobytes()))


def feedback(number: int, clicks: int = 0, version: int | None = None, **changes: Any) -> VerifiedFeedback:
    chosen = NUMBERS[number % 3 % 2] if version is None else version
    event = an_event(number, learn=(1 << SLOTS) - 1, **{"arm": "learner", "segment": "phone"} | changes)
    used = bytes((USED + chosen % 2)[item, slot] for slot, item in enumerate(event.items))
    prediction = EventPrediction(chosen, used, bytes(SLOTS), 0.25)
    return VerifiedFeedback(event=msgspec.structs.replace(event, prediction=prediction), clicks=clicks, final=True)


@pytest.fixture
def predicting(store: SqlStore) -> SqlStore:
    store.save_surface(a_surface(), [], [])
    for expected, number in zip((None, *NUMBERS), NUMBERS):
        assert store.save_prediction_version(1, "phone", a_version(number), expected=expected, unused_before=0)
    return store


def state_of(store: SqlStore) -> tuple[Any, ...]:
    (segment,) = store.segments(1)
    return segment.rounds, segment.loss, segment.predicted, segment.settled, sorted(map(str, store.blocks(1, "phone")))


@pytest.mark.slow
def test_settled_events_are_counted_once_and_in_any_order(predicting: SqlStore) -> None:
    given = [feedback(number, number % 8) for number in range(1, 40)]
    for one in (given[::-1], given, given[5:9]):
        predicting.apply_feedback(one, NOON + WINDOW)
    (segment,) = predicting.segments(1)
    counts = [sum(one.event.prediction.version == number for one in given) for number in NUMBERS]
    assert segment.settled == dict(zip(NUMBERS, counts))
    expected = sum(count * PREDICTION_SCALE * (USED.astype(int) + number % 2) for count, number in zip(counts, NUMBERS))
    assert {key: int(loss) for key, loss in np.ndenumerate(expected) if loss} == segment.predicted
    assert segment.estimated_loss(4, 2) == segment.loss[4, 2] + expected[4, 2]
    (surface,) = predicting.surfaces()
    median = sorted(segment.loss.get((item, 0), 0) + int(expected[item, 0]) for item in range(ITEMS))[ITEMS // 2]
    assert medians_of(surface, [segment])["phone"][0] == median
    assert verify(predicting).clean


@pytest.mark.slow
def test_a_version_is_written_only_after_the_expected_one(predicting: SqlStore) -> None:
    newest = predicting.prediction_version(1, "phone")
    assert newest == a_version(NUMBERS[1])
    assert newest.used().tolist() == (USED + NUMBERS[1] % 2).tolist()
    late = a_version(NOON + 5)
    assert not predicting.save_prediction_version(1, "phone", late, expected=NUMBERS[0], unused_before=0)
    assert predicting.prediction_version(1, "phone") == newest
    assert predicting.prediction_version(1, "") is None


@pytest.mark.slow
def test_a_reset_removes_what_was_predicted(predicting: SqlStore) -> None:
    predicting.apply_feedback([feedback(number) for number in range(1, 20)], NOON + WINDOW)
    (surface,) = predicting.surfaces()
    predicting.adjust_by(1, lambda segments: reset_adjustments(surface, segments, NOON + 2 * WINDOW, "test"), [])
    (segment,) = predicting.segments(1)
    assert (segment.rounds, segment.predicted, segment.settled) == (0, {}, {})
    assert not any(segment.loss.values())
    assert verify(predicting).clean
    predicting.apply_feedback([feedback(50)], NOON + 3 * WINDOW)
    assert sum(predicting.segments(1)[0].settled.values()) == 1
    assert verify(predicting).clean


@pytest.mark.slow
def test_folding_keeps_estimated_losses_and_later_events_count_again(predicting: SqlStore) -> None:
    predicting.apply_feedback([feedback(number) for number in range(1, 20)], NOON + WINDOW)
    (before,) = predicting.segments(1)
    predicting.adjust_by(1, lambda segments: [folded_predictions(one, NOON + WINDOW) for one in segments], [])
    (after,) = predicting.segments(1)
    assert (after.rounds, after.predicted, after.settled) == (19, {}, {})
    cells = [(item, slot) for item in range(ITEMS) for slot in range(SLOTS)]
    assert [after.estimated_loss(*cell) for cell in cells] == [before.estimated_loss(*cell) for cell in cells]
    assert verify(predicting).clean
    predicting.apply_feedback([feedback(50), feedback(7, 0b111)], NOON + WINDOW + 50)
    assert sum(predicting.segments(1)[0].settled.values()) == 1
    assert verify(predicting).clean


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["settled = settled + 1", "settled = 0"])
def test_a_wrong_number_of_settled_events_is_reported(predicting: SqlStore, damage: str) -> None:
    predicting.apply_feedback([feedback(number) for number in range(1, 20)], NOON + WINDOW)
    sql = f"UPDATE prediction_versions SET {damage} WHERE number = {NUMBERS[0]}"
    predicting.database.write(lambda session: session.run(sql))
    (difference,) = verify(predicting).differences
    assert str(NUMBERS[0]) in difference.counter


@pytest.mark.slow
def test_a_token_with_a_version_that_is_not_stored_is_counted_without_predictions(predicting: SqlStore) -> None:
    predicting.apply_feedback([feedback(1, version=NOON - 1), feedback(2)], NOON + WINDOW)
    stored = predicting.find_events([feedback(1).event.id, feedback(2).event.id])
    assert [stored[feedback(number).event.id].prediction is None for number in (1, 2)] == [True, False]
    assert sum(predicting.segments(1)[0].settled.values()) == 1
    assert verify(predicting).clean


@pytest.mark.slow
def test_old_versions_without_settled_events_are_deleted(predicting: SqlStore) -> None:
    predicting.apply_feedback([feedback(3, version=NUMBERS[0])], NOON + WINDOW)
    for segment in ("phone", "deleted"):
        expected = NUMBERS[1] if segment == "phone" else None
        newer = a_version(NOON + 2)
        assert predicting.save_prediction_version(1, segment, newer, expected=expected, unused_before=0)
    newest = a_version(NOON + 9)
    assert predicting.save_prediction_version(1, "phone", newest, expected=NOON + 2, unused_before=NOON + 9)
    rows = predicting.rows("prediction_versions", ("segment", "number"))
    # The third of them was in force until the fourth replaced it at NOON + 9.
    assert sorted(map(tuple, rows)) == [("phone", NUMBERS[0]), ("phone", NOON + 2), ("phone", NOON + 9)]


@pytest.mark.slow
def test_a_version_that_was_in_force_until_now_is_kept_for_its_open_events(predicting: SqlStore) -> None:
    """It is old, and after it was folded no settled event counts for it."""
    open_page = feedback(3, version=NUMBERS[1])
    predicting.apply_feedback([feedback(6, version=NUMBERS[1])], NOON + WINDOW)
    predicting.save_events([open_page.event])
    predicting.adjust_by(1, lambda segments: [folded_predictions(one, NOON + WINDOW) for one in segments], [])
    later = NOON + 10**10
    assert predicting.save_prediction_version(
        1, "phone", a_version(later), expected=NUMBERS[1], unused_before=later - 1000
    )
    predicting.apply_feedback([open_page], NOON + WINDOW)
    assert predicting.segments(1)[0].settled == {NUMBERS[1]: 1}
    assert verify(predicting).clean


@pytest.mark.slow
def test_deleted_events_still_count_for_their_versions(predicting: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint has the settled events of every version; one without them is found by ``verify``."""
    predicting.put(DRAW_KEY, bytes(32))
    predicting.apply_feedback([feedback(number, number % 8) for number in range(1, 40)], NOON + WINDOW)
    before, key = state_of(predicting), checkpoint_key(bytes(32))
    assert predicting.delete_events([n.to_bytes(16, "big") for n in range(1, 10)], NOON, key, lambda found: []) == 9
    assert (state_of(predicting), verify(predicting).clean) == (before, True)
    right = sql_deletion.merged_checkpoints
    monkeypatch.setattr(sql_deletion, "merged_checkpoints", lambda *given: right(*given)._replace(settled=()))
    assert predicting.delete_events([n.to_bytes(16, "big") for n in range(10, 15)], NOON, key, lambda found: []) == 5
    found = {one.counter for one in verify(predicting).differences}
    assert found == {f"settled with predictions {number}" for number in NUMBERS}


@pytest.mark.slow
def test_every_learner_of_a_segment_has_versions_of_its_own(predicting: SqlStore) -> None:
    key = counter_key("phone", 1)
    assert predicting.save_prediction_version(1, key, a_version(NOON), expected=None, unused_before=0)
    given = [feedback(number, 1, NOON, learner=number % 2) for number in range(1, 12)]
    predicting.apply_feedback(given, NOON + WINDOW)
    assert {one.name: one.settled for one in predicting.segments(1)} == {"phone": {NOON: 5}, key: {NOON: 6}}
    assert verify(predicting).clean
