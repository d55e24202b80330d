"""The pages show the report, whatever it contains, in valid markup."""

from __future__ import annotations

import asyncio
import math
import re

import httpx
import msgspec
import pytest
from starlette.applications import Starlette

from bothworlds.serve.dashboard import routes
from bothworlds.serve.http.forms import error_page
from bothworlds.serve.http.operations import OPERATIONS
from bothworlds.serve.model import ServiceError, Unavailable
from tests.serve.markup import Markup, drawings
from tests.serve.samples import NAMES, NOW, event_of, item_line, report_of, showing, surface_of

UNSURE = {"relative": 0.205, "low": None, "high": None, "enough": False, "needed_pages": 2000, "missing": ""}
LOSS = {"relative": -0.2, "low": -0.3, "high": -0.1, "enough": True}
EVIL = '<script>alert("1")</script>'


class PageClient:
    """Requests pages of the dashboard without a server."""

    def __init__(self, engine, **options):
        pages = routes.routes(routes.Sources(engine, operations=OPERATIONS, **options))
        self._app = Starlette(routes=pages, exception_handlers={ServiceError: error_page})

    def get(self, path, **options):
        return asyncio.run(self._get(path, **options))

    async def _get(self, path, **options):
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            return await client.get(path, **options)


def read(client, path, status=200):
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    page = Markup(answer.text)
    assert page.faults == []
    page.source = answer.text
    drawings(answer.text)
    return page


def dashboard(path="/surfaces/home", **changes):
    return read(PageClient(showing(**changes)), path)


def test_without_a_surface_the_first_page_shows_how_to_create_one():
    page = read(PageClient(showing([])), "/")
    assert "curl -X PUT http://127.0.0.1:8080/v1/surfaces/home" in page.text
    assert "http://127.0.0.1:8080/v1/surfaces/home/rank" in page.text
    assert "http://127.0.0.1:8080/v1/feedback" in page.text


def test_a_forged_host_does_not_get_into_the_commands():
    answer = PageClient(showing([])).get("/", headers={"Host": "evil;rm -rf"})
    assert "evil" not in answer.text


def shown_on_a_page(surface):
    """The HTML to copy from the page of a surface, as a page of its own."""
    page = read(PageClient(showing([surface])), f"/surfaces/{surface.name}")
    html = Markup(page.text[page.text.index('<ul id="ranked">') : page.text.index("2. Allow the page's origin")])
    html.items = [attributes["data-bw-item"] for tag, attributes in html.tags if tag == "li"]
    return html


def test_the_page_of_a_surface_has_its_html_and_says_which_origin_to_allow():
    page = dashboard()
    assert "BOTHWORLDS_ALLOWED_ORIGINS=" in page.text
    html = shown_on_a_page(surface_of(states={NAMES[1]: "paused"}))
    assert html.items == [NAMES[0], *NAMES[2:]]
    assert 'url: "http://127.0.0.1:8080", surface: "home"' in html.text
    # The page to copy to may have what the dashboard may not: the script of the service, and one of its own.
    assert html.faults == ["src points to another host: http://127.0.0.1:8080/static/bothworlds.js", "inline <script>"]


def test_names_in_the_html_to_copy_are_escaped_for_it():
    html = shown_on_a_page(surface_of(names=(EVIL, "a & b", "c", "d")))
    assert html.items == [EVIL, "a & b", "c", "d"]
    assert html.count("script") == 2


def test_the_html_to_copy_of_a_surface_with_rewards_reports_no_clicks():
    surface = surface_of()
    settings = msgspec.structs.replace(surface.settings, objective="rewards")
    html = shown_on_a_page(msgspec.structs.replace(surface, settings=settings))
    assert 'surface: "home", objective: "rewards"' in html.text


def test_the_html_to_copy_lists_fifty_items_and_counts_the_others():
    html = shown_on_a_page(surface_of(names=tuple(f"item {i}" for i in range(60))))
    assert len(html.items) == 50


def test_the_first_page_lists_surfaces_with_their_headline():
    page = read(PageClient(showing([surface_of(), surface_of(name="menu")])), "/")
    assert page.count("a", href="/surfaces/menu") == 1
    assert page.text.count("+20.5% clicks compared with the holdout (95% interval 17.0% to 24.0%)") == 2
    assert page.text.count("81,000 pages, 0.675 clicks per page") == 2


def test_the_first_page_requests_no_whole_report():
    engine = showing([surface_of(), surface_of(name="menu")])
    read(PageClient(engine), "/")
    assert engine.asked == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"holdout": False}, "No holdout to compare with"),
        ({"headline": {"pages": 0, "clicks_per_page": None}}, "No settled pages in the last 24 hours"),
        ({"uplift": UNSURE}, "Not enough data yet to compare with the holdout"),
    ],
)
def test_a_headline_without_enough_data_shows_no_uplift(changes, sentence):
    page = read(PageClient(showing(**changes)), "/")
    assert sentence in page.text
    assert "+20.5%" not in page.text


def test_a_surface_whose_headline_fails_does_not_hide_the_others():
    engine = showing([surface_of(), surface_of(name="menu")])
    headline = engine.reports.headline

    async def half(surface):
        if surface == "menu":
            raise Unavailable("away")
        return await headline(surface)

    engine.reports.headline = half
    page = read(PageClient(engine), "/")
    assert "The figures are not available now" in page.text
    assert "+20.5%" in page.text


def test_the_page_of_a_surface_starts_with_the_uplift_in_words():
    page = dashboard()
    assert "+20.5% clicks compared with the holdout (95% interval 17.0% to 24.0%)" in page.text
    assert "The learned order gets more clicks than the page's own order." in page.text


@pytest.mark.parametrize(
    ("uplift", "expected"),
    [
        ({"relative": 0.01, "low": -0.02, "high": 0.04, "enough": True}, "No clear difference"),
        ({"relative": -0.1, "low": -0.2, "high": -0.04, "enough": True}, "gets fewer clicks"),
        ({"relative": 9.0, "low": 1.0, "high": 20.0, "enough": False, "missing": "the holdout has 9 of the 30 needed"},
         "Not enough data yet: the holdout has 9 of the 30 needed since 21:13 UTC"),
        ({"relative": None, "low": None, "high": None, "enough": True}, "Not enough data yet"),
    ],
)  # fmt: skip
def test_an_uplift_is_not_overstated(uplift, expected):
    page = dashboard(uplift={"needed_pages": 2000, "missing": ""} | uplift)
    assert expected in page.text
    assert "+900" not in page.text


UNSETTLED = {"rounds": 500, "exploration": 0.16, "settled": False, "unsettled": "it costs 16%"}
BEHIND = {"relative": -0.201, "low": -0.25, "high": -0.15, "enough": True, "needed_pages": 2000, "missing": ""}


def unsettled():
    return report_of(surface_of())["learning"] | UNSETTLED


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/surfaces/home"])
def test_no_loss_is_shown_before_the_order_has_settled(path):
    page = dashboard(path, uplift=BEHIND, learning=unsettled())
    assert "Still learning: 500 pages so far" in page.text
    assert "fewer clicks" not in page.text
    settled = dashboard(path, uplift=BEHIND)  # the same figures, of an order that has settled
    assert "-20.1% clicks compared with the holdout (95% interval -25.0% to -15.0%) since 21:13 UTC" in settled.text
    assert "Still learning" not in settled.text


@pytest.mark.parametrize("path", ["/", "/surfaces/home"])
def test_a_gain_is_shown_before_the_order_has_settled(path):
    page = dashboard(path, learning=unsettled())
    assert "Still learning; already +20.5% clicks compared with the holdout" in page.text


@pytest.mark.parametrize("path", ["/", "/surfaces/home"])
def test_a_surface_that_counts_rewards_is_told_in_those_words(path):
    page = dashboard(path, objective="rewards")
    assert "+20.5% reward compared with the holdout (95% interval 17.0% to 24.0%)" in page.text
    assert "0.675 reward per page" in page.text
    assert "0.675 clicks" not in page.text
    if path != "/":
        assert "Reward per page over time" in page.text
        assert "The learned order gets more reward than the page's own order." in page.text
        worse = dashboard(path, objective="rewards", uplift=UNSURE | LOSS)
        assert "gets less reward than the page's own order" in worse.text


def test_the_recent_uplift_is_shown_beside_that_from_the_start():
    page = dashboard(uplift=BEHIND, recent=report_of(surface_of())["recent"])
    assert "+20.5% clicks compared with the holdout (95% interval 17.0% to 24.0%) since 21:13 UTC" in page.text
    for label in ("Recently, since 21:13 UTC", "From the start, since 3 Nov 08:26 UTC"):
        assert label in page.text
    assert "-20.1% clicks compared with the holdout (95% interval -25.0% to -15.0%)" in page.text
    assert "fewer clicks" not in page.text


@pytest.mark.parametrize("path", ["/", "/surfaces/home"])
def test_a_sample_ratio_mismatch_replaces_the_uplift(path):
    ratio = report_of(surface_of())["sample_ratio"] | {"alarm": True, "evidence": 1e6, "alarm_at": NOW}
    page = dashboard(path, sample_ratio=ratio)
    assert "The figures cannot be trusted" in page.text
    assert "compared with the holdout" not in page.text


@pytest.mark.parametrize("path", ["/", "/surfaces/home"])
def test_an_active_guard_is_the_first_sentence(path):
    guard = report_of(surface_of())["guard"] | {"active": True, "active_since": NOW - 60 * 60_000}
    page = dashboard(path, guard=guard)
    assert "The guard shows the page's own order since 21:13 UTC" in page.text


@pytest.mark.slow
def test_a_loss_that_exploration_explains_is_not_blamed_on_the_learned_order():
    for exploration, blamed in ((0.2, False), (0.1, True)):
        learning = report_of(surface_of())["learning"] | {"exploration": exploration}
        page = dashboard(uplift=BEHIND, learning=learning)
        assert ("gets fewer clicks" in page.text) == blamed
        assert ("Exploration costs about 20% of the clicks, which may explain the whole difference." in page.text) == (
            not blamed
        )


def test_without_a_holdout_no_uplift_is_shown():
    page = dashboard(holdout=False)
    assert "There is no holdout" in page.text
    assert "0.675 clicks per page (95% interval 0.669 to 0.681) over 81,000 pages" in page.text
    assert 'class="line holdout"' not in page.source


def test_every_part_of_the_report_is_on_the_page():
    page = dashboard()
    for expected in (*NAMES, "30.0%", "29.7% to 30.3%", "27,000", "2.90 of at most 8.10 nats", "6b1f0c9a2e4d", "240",
                 "The order has settled after 810,000 pages; exploration costs about 1% of the clicks",
                 "Visitors click as usual", "pause: Bar stool", "key 3f", "pages waiting on all surfaces"):  # fmt: skip
        assert expected.lower() in page.text.lower()


def test_an_order_that_has_not_settled_says_why():
    unsettled = "640 pages were learned from before the recent ones, and 1,000 are needed"
    learning = report_of(surface_of())["learning"] | {"rounds": 1500, "exploration": 0.02, "settled": False}
    page = dashboard(learning=learning | {"unsettled": unsettled}, uplift=UNSURE)
    assert "exploration costs about 2% of the clicks" in page.text
    assert page.text.count(unsettled) == 2  # in the first sentences, and under "Is it learning?"


def test_the_heat_table_has_a_row_per_item_and_a_column_per_slot():
    page = dashboard()
    table = page.source.split('<table class="heat">')[1].split("</table>")[0]
    assert len(re.findall("<td", table)) == 8 * 4
    assert 'class="h16">80%' in table


def test_there_are_charts_for_wide_and_narrow_screens_and_one_per_slot():
    kinds = [drawing.get("class") for drawing in drawings(dashboard().source)]
    assert kinds == ["rates", "rates", "strip", "strip", "strip", "strip"]


@pytest.mark.slow
def test_a_detected_change_is_told_in_words_and_marked_on_the_time_axis():
    at = NOW - 30 * 60_000
    page = dashboard(changes=[{"changed_at": at, "detected_at": at + 120_000}])
    assert "Visitors click differently since" in page.text
    assert "This was detected 2 min later" in page.text
    assert page.source.count('class="change"') == 3  # a paragraph, and a line in the wide and in the narrow chart
    assert "detected change of visitors" in page.text
    assert "click differently" not in dashboard().text


@pytest.mark.slow
def test_a_shift_and_warnings_are_shown_as_alerts():
    shift = {"alarm": True, "recent": 0.2, "long_run": 0.5, "z": -9.0, "note": "z = -9.0"}
    page = dashboard(shift=shift, warnings=["Feedback is missing."])
    assert page.count("p", role="alert") == 1
    assert "Feedback is missing." in page.text


def test_names_are_escaped():
    surface = surface_of([EVIL, "b & c", "'d'", '"e"', "f" * 128], slots=3, name=EVIL)
    client = PageClient(showing([surface], segments=[EVIL], warnings=[EVIL]))
    for path in ("/", "/surfaces/" + EVIL.replace("/", "%2F"), "/live/" + EVIL, "/event?id=" + EVIL):
        page = read(client, path, 404 if "event" in path else 200)
        assert "alert(" in page.text
        assert "<script>alert" not in page.source


@pytest.mark.slow
def test_a_thousand_items_are_shown_in_part_unless_all_are_requested():
    surface = surface_of([f"item {i}" for i in range(1000)], slots=10)
    client = PageClient(showing([surface]))
    few = read(client, "/surfaces/home")
    assert few.count("tr") < 100
    assert "Show all 1,000 items" in few.text
    assert read(client, "/surfaces/home?items=all").count("tr") > 1000
    assert len(few.source) < 400_000


def test_an_empty_report_is_explained():
    empty = {
        "headline": {"pages": 0, "clicks_per_page": None, "interval": None}, "holdout": None, "uplift": None,
        "items": [], "series": [], "marginals": {"items": [], "slots": 4, "x": []}, "marginals_history": [],
        "learning": {"entropy": None, "entropy_start": None, "policy_id": "", "policy_age_seconds": None, "rounds": 0,
                     "exploration": None, "settled": False, "unsettled": "", "outstanding": 0, "late": 0,
                     "duplicates": 0},
        "shift": {"alarm": False, "recent": None, "long_run": None, "z": None, "note": ""},
    }  # fmt: skip
    page = dashboard(**empty)
    for expected in ("No pages in this time range", "No data to draw yet", "Nothing learned yet", "Too early to tell"):
        assert expected in page.text


def test_pages_that_wait_for_clicks_are_shown_when_none_is_settled():
    none = {"pages": 0, "clicks_per_page": None, "interval": None}
    page = dashboard(headline=none, holdout=False, series=[])
    assert "37 pages are waiting for clicks" in page.text
    assert "No pages" not in page.text


def test_nan_and_infinity_are_shown_as_a_dash():
    nan, inf = math.nan, math.inf
    report = report_of(surface_of())
    odd = {
        "items": [item_line("a", 0, 0) | {"rate": nan, "low": None, "high": inf, "share": nan, "age_seconds": nan}],
        "marginals": report["marginals"] | {"x": [[nan, inf, -1.0, 2.0]] * 8},
        "marginals_history": [{"at": NOW, "x": [None] * 8}, {"at": NOW, "x": []}],
        "learning": report["learning"] | {"entropy": nan, "policy_age_seconds": nan},
        "shift": {"alarm": False, "recent": nan, "long_run": 0.0, "z": nan, "note": ""},
        "headline": {"pages": 3, "clicks_per_page": nan, "interval": (nan, nan)},
        "series": [{"at": NOW, "arm": "learner", "pages": 0, "clicks": 0, "design_effect": 1.0},
                   {"at": NOW, "arm": "learner", "pages": 5, "clicks": 0, "design_effect": 1.0}],
    }  # fmt: skip
    page = dashboard(**odd)
    assert "nan" not in re.sub("[^a-z]", " ", page.text.lower()).split()
    assert "inf" not in page.text.replace("info", "").split()


@pytest.mark.slow
def test_range_and_segment_reach_the_engine_and_stay_selected():
    engine = showing()
    page = read(PageClient(engine), "/surfaces/home?range=7d&segment=s%3Amobile")
    name, _, until, segment = engine.asked[-1]
    assert (name, until, segment) == ("home", None, "mobile")
    assert page.count("option", value="7d", selected=None) == 1
    assert page.count("option", value="s:mobile", selected=None) == 1
    read(PageClient(engine), "/surfaces/home?range=all&segment=s%3A")
    assert engine.asked[-1][1:] == (surface_of().created_at - 60_000, None, "")
    read(PageClient(engine), "/surfaces/home?range=nonsense")
    assert engine.asked[-1][3] is None


@pytest.mark.slow
def test_the_live_part_is_the_same_as_on_the_page():
    client = PageClient(showing())
    page, live = read(client, "/surfaces/home"), read(client, "/live/home")
    assert live.source.strip() in page.source
    assert "<html" not in live.source


def test_an_event_is_explained():
    page = read(PageClient(showing()), "/event?id=" + "ab" * 16)
    for expected in ("Drawn with the probabilities", "settled by final feedback", "Oak desk", "41.0%",
                 "pinned by the request", "late click", "from 0 in the API"):  # fmt: skip
        assert expected in page.text
    assert "Every response to a rank request has an event id." in read(PageClient(showing()), "/event").text


def test_an_event_with_rewards_shows_them():
    slots = [{**slot, "reward": 0.25 * (1 + slot["slot"])} for slot in event_of("ab" * 16)["slots"]]
    page = read(PageClient(showing(event={"slots": slots})), "/event?id=" + "ab" * 16)
    assert "0.250" in page.text
    assert "0.500" in page.text
    assert "late reward" in page.text
    assert "Clicked" not in page.text


def test_many_surfaces_are_listed_a_page_at_a_time():
    names = [f"s{k:03d}" for k in range(2 * routes.LISTED_SURFACES + 3)]
    client, seen, path = PageClient(showing([surface_of(name=name) for name in names])), [], "/"
    for last in (False, False, True):
        shown = read(client, path)
        found = [name for name in names if f"/surfaces/{name}" in shown.source]
        assert len(found) <= routes.LISTED_SURFACES
        seen += found
        assert ('rel="next"' in shown.source) != last
        path = f"/?from=s{len(seen):03d}"
    assert seen == names
    assert f"Surfaces 1 to {routes.LISTED_SURFACES} of {len(names)}" in " ".join(read(client, "/").text.split())


def test_pages_that_are_not_learned_from_are_figures_of_the_surface():
    ends = {"since": 0, "pages": 900, "by_deadline": 90, "unconfirmed": 100, "unconfirmed_with_clicks": 40}
    page = dashboard(feedback={**ends, "void": 7, "not_counted": 3}, warnings=["set feedback to clicks"]).text
    assert "100 of 1,000 (10%), 40 of them with clicks; neither learned from nor compared" in page
    assert "Reported as not shown 7 Too many of one visitor or address 3" in page
    assert "Set feedback to clicks." in page
    assert "Unconfirmed" not in dashboard().text


def test_a_mistyped_event_id_can_be_corrected():
    page = read(PageClient(showing()), "/event?id=abab+", 404)
    assert page.count("input", name="id", value="abab") == 1
    assert "There is no event 'abab'. An event id has 32 hexadecimal digits" in page.text


def test_the_api_page_lists_every_call():
    page = read(PageClient(showing()), "/api")
    assert page.count("tr") == len(OPERATIONS) + 1
    assert "POST /v1/surfaces/{surface}/rank" in page.text
    assert 'href="/openapi.json"' in page.source
    assert 'href="/api"' in read(PageClient(showing()), "/").source


def test_one_page_is_singular():
    one = {"pages": 1, "clicks_per_page": 2.0, "interval": None}
    page = dashboard(headline=one, holdout=False, learning=report_of(surface_of())["learning"] | {"rounds": 1})
    assert "over 1 page" in page.text
    assert "after 1 page" in page.text
    assert "1 pages" not in page.text


@pytest.mark.slow
def test_the_page_states_what_it_leaves_out_and_how_slots_count():
    page = dashboard(surfaces=[surface_of([f"item {i}" for i in range(12)])])
    assert "The charts have the 10 most likely of 12 items." in page.text
    many = dashboard(surfaces=[surface_of([f"item {i}" for i in range(30)])])
    assert "The table has the 25 most likely of 30 items." in many.text
    assert "Slots count from 1 here and from 0 in the API." in page.text
    assert "Duplicate feedback since the service started" in page.text
    assert "Pages waiting on all surfaces (counted every 5 s)" in page.text
    assert "most likely of" not in dashboard().text


def test_the_first_page_shows_the_latest_changes_of_all_surfaces():
    page = read(PageClient(showing()), "/")
    assert "home, pause: Bar stool" in page.text
    assert "key 3f" in page.text


@pytest.mark.parametrize("path", ["/surfaces/nowhere", "/live/nowhere", "/event?id=nothing"])
def test_an_unknown_surface_or_event_is_a_404_page(path):
    assert "there is no" in read(PageClient(showing()), path, 404).text.lower()


def test_an_unavailable_store_is_a_503_page():
    async def report(surface, **asked):
        raise Unavailable("the database does not answer")

    engine = showing()
    engine.reports.report = report
    assert (
        "The store cannot be read" in read(PageClient(engine), "/surfaces/home", 503).text
    )  # its address is in the log


def test_the_content_security_policy_is_strict():
    headers = PageClient(showing()).get("/").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize("name", ["style.css", "pages.js", "bothworlds.js", "icon.svg"])
def test_static_files_exist_and_load_nothing_from_other_hosts(name):
    answer = PageClient(showing()).get(f"/static/{name}")
    assert answer.status_code == 200
    found = set(re.findall(r"https?://[^\s\"']+", answer.text)) - {"http://www.w3.org/2000/svg", "https://rank.example"}
    assert not found


def test_the_markup_checker_finds_faults():
    for broken in ("<p>", "</p>", "<a href='//cdn.example/x'></a>", "<p onclick='x'></p>", "<script>1</script>",
                   "<p id='a'></p><p id='a'></p>", "<p style='x'></p>", "<table><th></th></table>"):  # fmt: skip
        assert Markup(broken).faults, broken


def _luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def mixed(one, other, share):
    pairs = ((int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_has_enough_contrast(scheme):
    style = PageClient(showing()).get("/static/style.css").text
    block = re.findall(r":root \{(.*?)\}", style, re.S)[scheme]
    colours = {name: value if len(value) == 7 else "#" + "".join(2 * c for c in value[1:])
               for name, value in re.findall(r"--([\w-]+): (#\w+)", block)}  # fmt: skip
    for ink in ("ink", "quiet", "link", "good", "bad"):
        for paper in ("card", "ground"):
            assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
    for curve in ("learner", "holdout"):
        assert contrast(colours[curve], colours["card"]) >= 3.0
    for alarm in ("alarm", "mild"):
        assert contrast(colours["ink"], colours[alarm]) >= 4.5
    for shade, ink in re.findall(r"\.h(\d+) \{.*?color: var\(--([\w-]+)\)", style):
        behind = mixed(colours["heat"], colours["paper"], int(shade) / 20)
        assert contrast(colours[ink], behind) >= 4.5, f"shade {shade}"
