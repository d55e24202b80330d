"""The pages and bothworlds.js in Chromium."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from bothworlds.serve.client.client import Client
from bothworlds.serve.config import Config
from bothworlds.serve.dashboard import routes as pages_module
from bothworlds.serve.dashboard.routes import HEADERS, Sources, routes
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.operations import OPERATIONS
from tests.serve.app_server import listening
from tests.serve.browser import Browser, needs_browser
from tests.serve.recorded_service import RecordedService
from tests.serve.running import temporary_store
from tests.serve.samples import showing

pytestmark = [pytest.mark.slow, needs_browser]

EXAMPLE = Path(__file__).parents[3] / "examples" / "page"
LIST = "".join(f'<li data-bw-item="{name}"><a href="#{name}">{name}</a></li>' for name in "abcd")
PAGE = f'<!doctype html><script src="/static/bothworlds.js"></script><ul id="list">{LIST}</ul>'

VISIBLE = (
    "[...document.querySelectorAll('[data-bw-item]')].filter((li) => li.offsetParent).map((li) => li.dataset.bwItem)"
)


@pytest.fixture(scope="module")
def browser():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def dashboard(browser):
    """The address of pages with made-up figures, and of a page that is broken."""

    async def broken(request):
        return HTMLResponse("<p>" + "w" * 3000 + "</p><script>1</script>", headers=HEADERS)

    engine = showing()
    pages = [Route("/broken", broken), *routes(Sources(engine, operations=OPERATIONS))]
    with listening(Starlette(routes=pages)) as address, watched(browser):
        yield address


@pytest.fixture
def service():
    async def page(request):
        return HTMLResponse(PAGE)

    async def patient(request):
        return Response((EXAMPLE / "shop.js").read_text().replace("timeoutMs: 500", "timeoutMs: 60000"))

    example = Mount("/example", StaticFiles(directory=EXAMPLE, html=True))
    own = [Route("/page", page), Route("/other", page), Route("/example/shop.js", patient), example]
    return RecordedService(more_routes=own)


@pytest.fixture
def address(service, browser):
    with listening(service, started=True) as address, watched(browser):
        yield address


@contextmanager
def watched(browser):
    """The browser, with what it has noted before forgotten; it leaves the page at the end."""
    browser.errors.clear()
    browser.requests.clear()
    browser.show()
    yield
    browser.open("about:blank#done")


@pytest.fixture
def shop(address, browser):
    """A page with the client on it; a service that ranks d, c, b."""
    browser.open(f"{address}/page")
    browser.run(
        f"globalThis.bw = new Bothworlds({{url: '{address}', surface: 'home', timeoutMs: 60000, flushMs: 3600000}}); 0"
    )
    return browser


def leave(browser, address, service, kept=False):
    """Go to another page, and wait for the feedback of the first one; ``kept``: it may be restored by "back"."""
    if not kept:
        browser.run("addEventListener('unload', () => 0); 0")  # such pages are not cached
    browser.open(f"{address}/other")
    end = time.monotonic() + 60.0
    while not service.batches and time.monotonic() < end:
        time.sleep(0.05)


def ranked(browser, options="{fallback: ['a', 'b', 'c']}"):
    return browser.run(f"bw.rank({options})")


@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/surfaces/home", "/event?id=" + "ab" * 16])
def test_pages_fit_the_screen_and_load_nothing_from_other_hosts(browser, dashboard, path, width, scheme):
    browser.show(width, 900, scheme)
    browser.open(dashboard + path)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.errors == []
    assert all(url.startswith(dashboard) for url in browser.requests)
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (int(background[4:].split(",")[0]) < 128) == (scheme == "dark")


def test_on_a_phone_figures_have_room_beside_their_labels(browser, dashboard):
    browser.show(400)
    browser.open(dashboard + "/surfaces/home")
    narrowest = browser.run("Math.min(...[...document.querySelectorAll('dd')].map(e => e.clientWidth / innerWidth))")
    assert narrowest > 0.25


REFRESHED = "Number(document.querySelector('#live').dataset.refreshed || 0)"
SCROLLED = """[...document.querySelectorAll('.scroll')].map((region) => ({
    wide: region.scrollWidth > region.clientWidth + 1,
    hint: getComputedStyle(region, '::before').content.includes('Scroll sideways'),
    faded: getComputedStyle(region).maskImage.includes('gradient'),
    reachable: region.tabIndex === 0 && region.getAttribute('role') === 'region'
        && Boolean(region.getAttribute('aria-label') || region.getAttribute('aria-labelledby')),
}))"""


@pytest.mark.parametrize("path", ["/surfaces/home", "/event?id=" + "ab" * 16, "/api"])
def test_a_table_that_overflows_shows_a_scroll_hint(browser, dashboard, path):
    for width in (390, 1200):
        browser.show(width)
        browser.open(dashboard + path)
        browser.until("document.querySelectorAll('.scroll').length > 0")
        for region in browser.run(SCROLLED):
            assert region["hint"] == region["faded"] == region["wide"]
            assert region["reachable"]
    browser.show(390)
    browser.open(dashboard + "/surfaces/home")
    assert any(region["wide"] for region in browser.run(SCROLLED))


@pytest.fixture
def refreshing(monkeypatch):
    """The page of a surface refreshes itself all the time."""
    monkeypatch.setattr(pages_module, "REFRESH_SECONDS", 0.2)


def test_a_table_scrolled_to_its_end_is_not_faded_after_a_refresh(browser, dashboard, refreshing):
    browser.show(390)
    browser.open(dashboard + "/surfaces/home")
    fades = "document.querySelector('#items-t').matches('.more')"
    assert browser.run(fades)
    browser.run("document.querySelector('#items-t').scrollLeft = 10000")
    browser.until(f"!{fades}")
    seen = browser.run(REFRESHED)
    browser.until(f"{REFRESHED} >= {seen + 2}")
    assert not browser.run(fades)
    assert browser.run("document.querySelector('#items-t').matches('.overflows')")


def test_a_table_scrolls_by_keyboard(browser, dashboard):
    browser.show(390)
    browser.open(dashboard + "/surfaces/home")
    browser.run("document.querySelector('#items-t').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
    browser.until("document.querySelector('#items-t').scrollLeft > 0")


def test_without_scripts_small_screens_show_the_scroll_hint(browser, dashboard):
    browser.show(390)
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(dashboard + "/surfaces/home")
        assert all(region["hint"] for region in browser.run(SCROLLED))
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_the_browser_reports_overflow_and_policy_violations(browser, dashboard):
    browser.show(400)
    browser.open(dashboard + "/broken")
    assert browser.run("document.documentElement.scrollWidth > innerWidth")
    assert any("Content Security Policy" in error for error in browser.errors)


def test_the_dashboard_refreshes_itself_and_keeps_sections_closed(browser, dashboard, refreshing):
    browser.open(dashboard + "/surfaces/home")
    browser.run("document.querySelector('#over-time').open = false")
    seen = browser.run(REFRESHED)
    browser.until(f"{REFRESHED} >= {seen + 2}")
    assert browser.run("document.querySelector('#over-time').open") is False
    assert browser.run("document.querySelectorAll('#live svg.rates').length") == 2
    assert browser.errors == []


def test_the_dashboard_shows_that_the_service_does_not_respond(browser, dashboard, refreshing):
    browser.open(dashboard + "/surfaces/home")
    browser.run("document.querySelector('#live').dataset.live = '/surfaces/nowhere'")
    browser.until("document.querySelector('[data-status]').textContent.includes('does not respond')")
    assert browser.run("document.querySelectorAll('#live svg').length") > 0


def test_selecting_a_range_loads_it(browser, dashboard):
    browser.open(dashboard + "/surfaces/home")
    browser.run("select = document.querySelector('select[name=range]'); select.value = '7d';"
                "select.dispatchEvent(new Event('change', {bubbles: true}))")  # fmt: skip
    browser.until("location.search.includes('range=7d') && document.readyState === 'complete'")
    assert browser.run("document.querySelector('select[name=range]').value") == "7d"


def test_commands_can_be_copied(browser):
    with listening(Starlette(routes=routes(Sources(showing([]))))) as fresh:
        browser.open(fresh + "/")
        assert browser.run("document.querySelectorAll('button.copier').length") == 3
        assert f"{fresh}/v1/surfaces/home" in browser.run("document.querySelector('pre').textContent")


def test_a_page_is_ranked(shop, service):
    labels = "segment: 'mobile', context: {segment: 'mobile'}"
    page = ranked(shop, f"{{{labels}, exclude: ['d'], pins: [{{slot: 0, item: 'c'}}], visitor: 'v1'}}")
    assert page["items"] == ["c", "b", "a"]
    assert page["learned"]
    request = service.ranks[0]
    assert len(request.pop("request_id")) >= 32
    assert (request.pop("context"), request.pop("visitor")) == ({"segment": "mobile"}, "v1")
    assert request == {"segment": "mobile", "exclude": ["d"], "pins": [{"slot": 0, "item": "c"}]}


@pytest.mark.parametrize("failure", [503, 422, 0])
def test_a_failed_rank_request_falls_back_to_the_page_order(shop, service, failure):
    service.failing = [failure]
    shop.run(f"bw.timeoutMs = {60000 if failure else 100}")
    page = ranked(shop, "{fallback: ['a', 'b', 'c'], exclude: ['b']}")
    assert (page["items"], page["learned"]) == (["a", "c"], False)
    shop.run("bw.click(0); bw.flush()")
    assert service.batches == []


def test_a_refused_connection_falls_back_to_the_page_order(shop):
    shop.run("bw.url = 'http://127.0.0.1:9'; 0")
    assert ranked(shop)["items"] == ["a", "b", "c"]


def test_clicks_are_merged_and_sent_once(shop, service):
    event = ranked(shop)["event_id"]
    assert shop.run("bw.click(2); bw.click(0); bw.click(2); bw.flush()") is True
    assert shop.run("bw.flush()") is True
    assert [[(e["event_id"], sorted(e["clicks"]), e["final"]) for e in batch] for batch in service.batches] == [
        [(event, [0, 2], False)]
    ]


def test_rewards_are_merged_by_the_maximum(shop, service):
    ranked(shop)
    assert shop.run("bw.reward(2, 0.25); bw.reward(0, 1); bw.reward(2, 0.5); bw.reward(2, 0.1); bw.flush()") is True
    ((event,),) = service.batches
    assert (event["rewards"], event["clicks"]) == ({"0": 1, "2": 0.5}, [])
    refused = "try { bw.reward(0, NaN); 'sent' } catch (error) { error.name }"
    assert shop.run(refused) == "RangeError"


def test_failed_feedback_is_retried(shop, service):
    event = ranked(shop)["event_id"]
    service.failing = [503]
    assert shop.run("bw.click(1); bw.flush()") is False
    assert shop.run("bw.done(); bw.flush()") is True
    assert service.clicks == {event: ({1}, True)}


def test_feedback_with_a_permanent_error_is_not_retried(shop, service):
    ranked(shop)
    service.failing = [422]
    assert shop.run("bw.click(1); bw.flush()") is False
    assert shop.run("bw.flush()") is True
    assert service.batches == []


def test_clicks_are_sent_automatically_after_flush_ms(shop, service):
    shop.run("bw.flushMs = 20; 0")
    ranked(shop)
    shop.run("bw.click(1); 0")
    shop.until("bw._waiting.size === 0")
    assert len(service.clicks) == 1


def test_leaving_the_page_sends_waiting_clicks(shop, service, address):
    event = ranked(shop)["event_id"]
    shop.run("bw.click(1)")
    leave(shop, address, service)
    assert service.clicks == {event: ({1}, True)}
    assert service.headers[-1]["content-type"].startswith("text/plain")


def test_with_a_key_leaving_the_page_sends_a_keepalive_request(shop, service, address):
    event = ranked(shop)["event_id"]
    shop.run("bw.key = 'bw_1_secret'; bw.click(1)")
    leave(shop, address, service)
    assert service.clicks == {event: ({1}, True)}
    assert service.headers[-1]["authorization"] == "Bearer bw_1_secret"


def test_leaving_a_page_without_a_click_sends_final_feedback(shop, service, address):
    event = ranked(shop)["event_id"]
    leave(shop, address, service)
    assert service.clicks == {event: (set(), True)}


def test_without_final_on_leave_the_event_stays_open(shop, service, address):
    event = ranked(shop)["event_id"]
    shop.run("bw.finalOnLeave = false; bw.click(1)")
    leave(shop, address, service)
    assert service.clicks == {event: ({1}, False)}


def test_a_page_that_may_be_restored_is_not_final(shop, service, address):
    event = ranked(shop)["event_id"]
    leave(shop, address, service, kept=True)
    assert service.clicks == {event: (set(), False)}
    assert service.batches[0][0]["shown"]


def test_a_list_that_the_page_cannot_show_is_reported_as_not_shown_on_leaving(shop, service, address):
    service.show(["a", "b", "not on this page"])
    shop.run("bw.attach(document.querySelector('#list'))")
    leave(shop, address, service)
    assert [(event["shown"], event["final"]) for event in service.batches[0]] == [(False, False)]


def test_a_list_that_comes_too_late_is_reported_as_not_shown(shop, service):
    service.delay = 0.2
    shop.run("bw.timeoutMs = 10; bw.flushMs = 60000; 0")
    assert ranked(shop)["items"] == ["a", "b", "c"]
    shop.until("bw._waiting.size === 1")
    assert shop.run("bw.flush()") is True
    assert [(event["shown"], event["clicks"]) for event in service.batches[0]] == [(False, [])]


def test_attach_orders_the_list_and_reports_clicks(shop, service):
    page = shop.run("bw.attach(document.querySelector('#list'))")
    shown = shop.run("[...document.querySelectorAll('#list li:not([hidden])')].map((li) => li.textContent)")
    assert shown == page["items"] == ["d", "c", "b"]
    shop.run("document.querySelector('[data-bw-item=c] a').click()")
    assert shop.run("bw.flush()") is True
    assert service.clicks == {page["event_id"]: ({1}, False)}


def test_attaching_again_reports_clicks_on_the_new_list_only(shop, service):
    first = shop.run("bw.attach(document.querySelector('#list'))")
    service.show(["d", "c", "b", "a"])
    second = shop.run("bw.attach(document.querySelector('#list'))")
    assert second["items"] == shop.run(VISIBLE) == ["a", "b", "c"]
    shop.run("document.querySelector('[data-bw-item=c] a').click()")
    assert shop.run("bw.flush()") is True
    assert service.clicks == {first["event_id"]: (set(), False), second["event_id"]: ({2}, False)}
    service.failing = [503]  # the second list stays, and so do reports of clicks on it
    shop.run("bw.attach(document.querySelector('#list'))")
    shop.run("document.querySelector('[data-bw-item=a] a').click()")
    assert shop.run("bw.flush()") is True
    assert service.clicks[second["event_id"]] == ({0, 2}, False)
    assert first["event_id"] != second["event_id"]


def test_with_rewards_attach_orders_the_list_and_reports_no_clicks(shop, service):
    shop.run("bw.objective = 'rewards'; bw.attach(document.querySelector('ul'))")
    slots = "[...document.querySelectorAll('li:not([hidden])')].map((child) => child.dataset.bwSlot).join()"
    assert shop.run(slots) == "0,1,2"
    shop.run("document.querySelector('li:not([hidden])').click(); bw.flush()")
    assert [(event["shown"], event["clicks"]) for event in service.batches[0]] == [(True, [])]


def test_attach_keeps_the_page_order_if_the_service_fails(shop, service):
    service.failing = [503]
    shop.run("bw.attach(document.querySelector('#list'))")
    shown = shop.run("[...document.querySelectorAll('#list li:not([hidden])')].map((li) => li.textContent)")
    assert shown == ["a", "b", "c", "d"]
    shop.run("document.querySelector('[data-bw-item=c] a').click()")
    assert shop.run("bw.flush()") is True
    assert service.batches == []


def test_clicks_on_a_list_that_the_page_cannot_show_are_not_reported(shop, service):
    service.show(["a", "b", "not on this page"])
    shop.run("bw.attach(document.querySelector('#list'))")
    shop.run("document.querySelector('[data-bw-item=a] a').click(); bw.flush()")
    assert [(event["shown"], event["clicks"]) for event in service.batches[0]] == [(False, [])]


def test_the_client_stores_nothing_in_the_browser(shop):
    ranked(shop)
    assert shop.run("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})") == "{}"


def test_the_example_page_is_ranked_and_reports_clicks(browser, address, service):
    service.show(["desk", "lamp", "sofa", "plant", "mirror", "chair"], 4, "shop-carousel")
    source = (EXAMPLE / "index.html").read_text().replace("http://127.0.0.1:8080", address)
    browser.show(400)
    browser.open(f"{address}/example/?service={address}")
    browser.run(f"document.open(); document.write({json.dumps(source)}); document.close()")
    browser.until("(document.querySelector('[data-note]') || {}).textContent?.includes('Ranked by the service')")
    assert browser.run(VISIBLE) == ["chair", "mirror", "plant", "sofa"]
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    browser.run("document.querySelector('[data-bw-item=mirror] a').click()")
    leave(browser, address, service)
    assert list(service.clicks.values()) == [({1}, True)]


def test_the_example_page_without_the_service_shows_its_own_order(browser, address):
    browser.open(f"{address}/example/?service=http://127.0.0.1:9")
    assert browser.run(VISIBLE) == ["desk", "lamp", "sofa", "plant"]


# Forms of surfaces


@pytest.fixture
def editing(browser):
    """The address of a service without surfaces and keys, and its engine; pages run no scripts of their own."""
    store = temporary_store()
    engine = Engine(store)
    service = Service(engine, store, Config(request_log=False))
    with listening(service, started=True) as address:
        browser.errors.clear()
        browser.show()
        browser.call("Emulation.setScriptExecutionDisabled", value=True)
        yield address, engine
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
        browser.open("about:blank#done")


def press(browser, selector, then):
    """Press a button, and wait until the next page shows what is expected."""
    browser.run(f'document.querySelector("{selector}").click()')
    browser.until(f"document.readyState === 'complete' && {then}")


def test_a_surface_is_created_and_edited_without_scripts(browser, editing):
    address, engine = editing
    browser.open(address)
    press(browser, "a[href='/new-surface']", "document.querySelector('#field-name') !== null")
    for field, text in {"name": "shop <b>", "slots": "2", "items": 'lamp\\n\\n"sofa"\\ndesk'}.items():
        browser.run(f"document.querySelector('#field-{field}').value = '{text}'")
    press(browser, "form.edit button", "location.pathname.startsWith('/edit/')")
    surface = engine.registry.surface("shop <b>")
    assert [item.name for item in surface.items] == ["lamp", '"sofa"', "desk"]
    assert browser.run("document.querySelector('h1').textContent") == "Edit shop <b>"
    press(browser, "button[name=pause][aria-label*=sofa]", "document.querySelector('button[name=resume]') !== null")
    assert {item.name: item.state for item in engine.registry.surface("shop <b>").items}['"sofa"'] == "paused"
    browser.run("document.querySelector('#field-floor').value = '0.25'")
    press(browser, "button[value=settings]", "document.body.textContent.includes('Version 3')")
    assert engine.registry.surface("shop <b>").settings.floor == 0.25
    assert browser.errors == []


@pytest.mark.parametrize("path", ["/new-surface", "/edit/home"])
def test_forms_fit_a_phone(browser, editing, path):
    address, _ = editing
    long = [f"{k} {'very-' * 20}long" for k in range(5)]
    with Client(address, timeout=60.0) as client:
        client.call("PUT", "/v1/surfaces/home", {"slots": 2, "items": long})
    browser.show(400)
    browser.open(address + path)
    browser.run("for (const group of document.querySelectorAll('details')) group.open = true; 0")
    assert browser.run("document.documentElement.scrollWidth") <= 400
    narrow = "[...document.querySelectorAll('.field input, .field textarea')].every((e) => e.clientWidth > 150)"
    assert browser.run(narrow)
