"""A setting that no solver can cope with: it is refused and changes nothing, and a store that has it can be served."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from bothworlds.geometry.leader import ConvergenceError
from bothworlds.serve.engine import served
from bothworlds.serve.model import Invalid
from bothworlds.serve.stores import open_store
from tests.serve.running import temporary_store

from .kill_service import ServiceProcess
from .load_clients import piece_of
from .running import ITEMS, answer, refreshed, running, visit

HOME = "/v1/surfaces/home"
TOO_FAST = {"policy": "ftrl-pbm", "policy_settings": {"rate": 3.0}}


@pytest.fixture(autouse=True)
def no_convergence(monkeypatch):
    """Stands for a solver that fails with a rate above 2, once something was learned."""
    make = served.make_lists

    def made(policy, state, *arguments, **options):
        if getattr(policy, "rate", 0.0) > 2.0 and state.epochs.rounds[0] > 0:
            raise ConvergenceError("not within 100 iterations")
        return make(policy, state, *arguments, **options)

    monkeypatch.setattr(served, "make_lists", made)


def with_settings(store, name, **settings):
    """Store a surface with other settings, as a service without the check has stored it."""
    surface = next(one for one in store.surfaces() if one.name == name)
    changed = msgspec.structs.replace(surface.settings, **settings)
    after = msgspec.structs.replace(surface, version=surface.version + 1, settings=changed)
    store.save_surface(after, [{"at": 1, "actor": "test", "action": "change settings", "detail": ""}])


@pytest.mark.parametrize("settings", [TOO_FAST, {"policy": "of a later version", "policy_settings": {}}])
def test_a_stored_surface_that_cannot_be_solved_does_not_stop_the_others(settings):
    async def whole():
        store = temporary_store()
        async with running(store) as engine:
            for name in ("home", "other"):
                await engine.administration.put_surface(
                    name, {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm"}, actor="test"
                )
            for k in range(20):
                await visit(engine, f"v{k}", {"a"})
            waiting = await engine.rank("home", "waiting")
        with_settings(store, "home", **settings)

        async with running(store) as engine:
            assert engine.health()["ready"]
            assert len((await engine.rank("other", "r")).slots) == 3
            page = await engine.rank("home", "r")
            assert (page.policy_id, [slot.item for slot in page.slots]) == ("baseline", ITEMS[:3])
            said = [
                reason for reason in engine.health()["reasons"] if "surface 'home' shows the page's own order" in reason
            ]
            assert len(said) == 1
            assert (await answer(engine, waiting, [0])).status == "accepted"
            await refreshed(engine)
            with pytest.raises(Invalid):  # another change does not help
                await engine.administration.patch_surface("home", {"floor": 0.02, **settings}, actor="ann")
            await engine.administration.patch_surface(
                "home", {"policy": "ftrl-pbm", "policy_settings": {}}, actor="ann"
            )
            assert (await engine.rank("home", "s")).policy_id.startswith("ftrl-pbm:")
            assert engine.health()["reasons"] == []
            assert (await engine.reports.state("home"))["rounds"] == 21
            assert (await engine.rank("home", "waiting")).slots == waiting.slots

    asyncio.run(whole())


@pytest.mark.slow
@pytest.mark.nightly
def test_a_service_with_an_absurd_setting_answers_stops_and_starts_again(tmp_path: Path) -> None:
    place = str(tmp_path / "absurd.db")
    service = ServiceProcess(place, tmp_path)
    try:
        for name in ("home", "other"):
            body = {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm", "holdout": 0.0}
            assert service.call("PUT", f"/v1/surfaces/{name}", body)[0] == 201
        pages = [service.call("POST", f"{HOME}/rank", {"request_id": f"r{k}"})[1] for k in range(60)]
        feedback = {"events": [piece_of(page, [k % 3], True) for k, page in enumerate(pages)]}
        assert service.call("POST", "/v1/feedback", feedback)[0] == 200
        for rate in (1e308, 1e300, -1.0):
            change = {"policy": "ftrl-pbm", "policy_settings": {"rate": rate}}
            status, problem, _ = service.call("PATCH", HOME, change)
            assert (status, problem["errors"][0]["pointer"]) == (422, "/policy_settings")
        assert service.call("PATCH", HOME, {"floor": 0.02})[0] == 200
        assert service.stop() == 0
        service.end()

        with closing(open_store(place)) as store:
            with_settings(store, "home", policy_settings={"rate": 1e308})
        service.start()
        status, health, _ = service.call("GET", "/readyz")
        assert (status, health["ready"]) == (200, True)
        assert "surface 'home' shows the page's own order" in health["reasons"][0]
        status, page, _ = service.call("POST", f"{HOME}/rank", {"request_id": "r"})
        assert (status, page["policy_id"]) == (200, "baseline")
        assert service.call("POST", "/v1/surfaces/other/rank", {"request_id": "r"})[0] == 200
        assert service.call("GET", HOME)[0] == 200
        assert service.call("PATCH", HOME, {"policy_settings": {}})[0] == 200
        assert service.call("POST", f"{HOME}/rank", {"request_id": "r"})[0] == 200
        assert service.stop() == 0
    finally:
        service.end()
