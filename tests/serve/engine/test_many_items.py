"""A surface of 20,000 items: ranking, learning, and answers that do not grow with the number of items."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import pytest

from bothworlds.serve.engine.learner import blocks_of
from bothworlds.serve.model import LISTED_ITEMS
from bothworlds.serve.time_blocks import TimeBlock, cells_from

from ..fakes import FakeStore
from ..running import refreshed, running, visit, written

N = 20_000
NAMES = [f"item {k}" for k in range(N)]


@pytest.mark.slow
def test_twenty_thousand_items_are_ranked_learned_and_reported_in_part():
    async def whole() -> None:
        store = FakeStore()
        async with running(store, refresh_ms=600_000, refresh_events=10**9) as engine:
            body = {"slots": 3, "items": NAMES, "policy": "ftrl-pbm", "holdout": 0.1}
            await engine.put_surface("home", body, actor="test")
            pages = [await visit(engine, f"r{k}", {"item 7"}) for k in range(40)]
            await written(engine)
            await refreshed(engine)
            await engine.pause_item("home", "item 9", actor="test")
            again = await engine.rank("home", "r0")
            assert again.slots == pages[0].slots
            assert max(len(page.token) for page in pages) < 1000
            state, whole_state = await engine.state("home"), await engine.state("home", limit=N)
            assert (len(state["items"]), state["items_total"], len(whole_state["items"])) == (LISTED_ITEMS, N, N)
            assert len(state["loss"]) == len(state["states"]) == len(state["marginals"]["x"]) == LISTED_ITEMS
            report = await engine.report("home")
            assert (len(report["items"]), report["items_total"]) == (LISTED_ITEMS, N)
            shown = {slot.item for page in pages for slot in page.slots}
            assert shown <= {line["name"] for line in report["items"]}  # those that were shown most
            assert len(report["marginals"]["items"]) == LISTED_ITEMS
            assert max(len(encoded) for *_, encoded in store.saved) < 100 * LISTED_ITEMS
            (row,) = {tuple(msgspec.msgpack.decode(encoded)["slots"]) for *_, encoded in store.saved}
            assert row == (0, 1, 2)
        assert store.totals() == store.rebuilt()

    asyncio.run(whole())


def test_the_marginals_of_a_state_are_those_of_its_largest_items():
    async def whole() -> None:
        async with running(FakeStore(), refresh_ms=600_000, refresh_events=10**9) as engine:
            await engine.put_surface("home", {"slots": 2, "items": NAMES[:50], "policy": "ftrl-pbm"}, actor="test")
            for k in range(30):
                await visit(engine, f"r{k}", {"item 7", "item 30"})
            await engine.pause_item("home", "item 30", actor="test")
            await refreshed(engine)
            most, every = await engine.state("home", limit=5), await engine.state("home")
            x = dict(zip(every["marginals"]["items"], np.sum(every["marginals"]["x"], axis=1)))
            largest = sorted(x, key=lambda name: -x[name])[:5]
            assert min(x[name] for name in most["items"]) >= min(x[name] for name in largest)
            assert most["items"] == most["marginals"]["items"]
            for name in most["items"]:
                row, all_rows = most["items"].index(name), every["items"].index(name)
                assert most["loss"][row] == every["loss"][all_rows]

    asyncio.run(whole())


def test_blocks_become_arrays_of_the_requested_items_and_slots():
    cells = {(i, j): (0, 10 * i + j + 1, i + j) for i in range(6) for j in range(3)}
    block = TimeBlock(0, 4, 9, cells_from(cells))
    (dense,) = blocks_of([block], [4, 1], [2, 0])
    assert dense.shown.tolist() == [[43.0, 41.0], [13.0, 11.0]]
    assert dense.clicked.tolist() == [[6.0, 4.0], [3.0, 1.0]]
    (wide,) = blocks_of([block], range(8), range(3))
    assert wide.shown[6:].sum() == 0.0
