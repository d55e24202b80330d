"""From games to report at a tiny size: complete, without a network, and reproducible."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser

import pytest

from bothworlds import __version__
from bothworlds.arena import UnchangedWorldWarning
from bothworlds.arena.storage import commit
from bothworlds.experiments import QUESTIONS, SIZES, Size, findings, reproduce
from bothworlds.experiments.reproduce import _draw, _without_repeats
from bothworlds.experiments.result_lookup import game_key
from tests.serve.browser import Browser, needs_browser

TINY = Size("tiny", 300, 100, 2, 2, 2, 300, 40)
DRAWN = ("all-weather", "shapes")  # in every run of the tests: drawing takes most of the time


def answered(folder, jobs=None, drawn=tuple(QUESTIONS)):
    def draw(questions, *given):
        few = _draw([question for question in questions if question.name in drawn], *given)
        return {question.name: few.get(question.name, []) for question in questions}

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", TINY)
        patch.setattr(sys.modules[reproduce.__module__], "_draw", draw)
        with pytest.warns(UnchangedWorldWarning, match="adversarial/fraud do not change"):
            return reproduce("tiny", out=folder, jobs=jobs, progress=False)


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    return answered(tmp_path_factory.mktemp("report"), drawn=DRAWN)


@pytest.fixture(scope="module")
def complete_answer(tmp_path_factory):
    """With the figures of every question."""
    return answered(tmp_path_factory.mktemp("complete"))


class Page(HTMLParser):
    """Ids, links and everything a page would load."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.tags = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        if "id" in given:
            self.ids.append(given["id"])
        for name in ("href", "xlink:href"):
            if name in given:
                (self.links if tag == "a" else self.loads).append(given[name])
        if "src" in given:
            self.loads.append(given["src"])


@pytest.fixture(scope="module")
def page(answer):
    return Page(answer.report.read_text())


@pytest.mark.slow
@pytest.mark.nightly
def test_every_question_has_its_figures_in_both_formats(complete_answer):
    made = {path.name for path in (complete_answer.report.parent / "figures").iterdir()}
    for stem in ("figure-1", "figure-2", "baselines", "growth", "shapes", "leader-error"):
        assert {f"{stem}.svg", f"{stem}.png"} <= made


def test_the_report_opens_with_the_nine_panels_and_the_verdicts(answer):
    text = answer.report.read_text()
    first, second = [text.index("<figure"), text.index("<figure", text.index("<figure") + 1)]
    assert text[first:].startswith('<figure id="all-weather">')
    assert first < text.index(answer.verdicts[0].statement[:20]) < second
    assert text.count('<figure id="all-weather">') == 1
    for verdict in answer.verdicts:
        assert verdict.outcome in ("holds", "fails", "cannot be decided")


@pytest.mark.parametrize("width", [60, 80, 98])
def test_findings_fit_the_width_and_say_why_a_statement_fails(answer, width):
    text = findings(answer.verdicts, width)
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    assert all(" ".join(verdict.statement.split()) in words for verdict in answer.verdicts)
    outcomes = [title for title in ("Holds:", "Does not hold, and why:", "This run is too short") if title in words]
    assert outcomes == sorted(outcomes, key=words.index)
    for verdict in answer.verdicts:
        assert (verdict.outcome != "fails") or (verdict.because or verdict.remark or verdict.rule) in words


def test_the_report_says_that_the_number_of_statements_is_not_corrected_for(answer):
    sentence = f"No correction is made for the number of statements, {len(answer.verdicts)}:"
    assert sentence in answer.report.read_text()
    assert sentence in (answer.report.parent / "verdicts.md").read_text()


@pytest.mark.slow
def test_the_report_needs_no_network_and_no_script(page):
    assert "script" not in page.tags
    assert all(target.startswith("#") for target in page.loads + page.links)


@pytest.mark.slow
@pytest.mark.nightly
def test_links_lead_somewhere_and_ids_are_unique(complete_answer):
    page = Page(complete_answer.report.read_text())
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_styles_load_nothing(answer):
    assert not re.search(r"@import|url\((?!#)", answer.report.read_text())


def test_verdicts_are_written_as_json_and_markdown(answer):
    kept = json.loads((answer.report.parent / "verdicts.json").read_text())
    assert [one["statement"] for one in kept] == [verdict.statement for verdict in answer.verdicts]
    table = (answer.report.parent / "verdicts.md").read_text()
    assert all(verdict.statement in table for verdict in answer.verdicts)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_results(answer, tmp_path):
    again = answered(tmp_path, jobs=1, drawn=())
    one, other = (folder.parent / "results.parquet" for folder in (answer.report, again.report))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_one_question_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(SIZES, "tiny", TINY)
    found = reproduce("tiny", only="shapes", out=tmp_path, progress=False)
    assert {path.stem for path in (tmp_path / "shapes" / "figures").iterdir()} == {"shapes", "shapes-narrow"}
    assert len(found.verdicts) == 1


@pytest.mark.slow
def test_without_git_the_report_names_the_version(tmp_path, monkeypatch):
    monkeypatch.setitem(SIZES, "tiny", TINY)
    monkeypatch.setenv("PATH", "")
    commit.cache_clear()
    try:
        text = reproduce("tiny", only="shapes", out=tmp_path, progress=False).report.read_text()
    finally:
        commit.cache_clear()
    assert "Commit" not in text
    assert f"Version <code>{__version__}</code>, commit unknown" in text


# Pixels of the smallest letters that are shown, and how far they reach over the edge of the screen.
LETTERS = """(() => {
    const shown = [...document.querySelectorAll('.plot svg text')].filter((text) => text.getClientRects().length);
    const scale = (matrix) => Math.hypot(matrix.a, matrix.b); // of letters that may be turned
    const pixels = (text) => parseFloat(getComputedStyle(text).fontSize) * scale(text.getScreenCTM());
    return {
        smallest: Math.min(...shown.map(pixels)),
        beyond: Math.max(...shown.map((text) => text.getBoundingClientRect().right)) - innerWidth,
        figures: [...document.querySelectorAll('.plot')].filter((plot) => plot.getClientRects().length).length,
    };
})()"""


def check_figures(answer, figures):
    browser = Browser()
    try:
        for width, least in ((400, 10), (1200, 8)):
            browser.show(width)
            browser.open(answer.report.as_uri())
            letters = browser.run(LETTERS)
            assert letters["smallest"] >= least
            assert letters["beyond"] <= 0
            assert letters["figures"] == figures
            assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.close()


@pytest.mark.slow
@needs_browser
def test_figures_can_be_read_on_a_phone_and_on_a_desk(answer):
    check_figures(answer, len(DRAWN))


@pytest.mark.slow
@pytest.mark.nightly
@needs_browser
def test_all_figures_can_be_read_on_a_phone_and_on_a_desk(complete_answer):
    check_figures(complete_answer, len(QUESTIONS))


def test_unknown_sizes_and_questions_are_refused(tmp_path):
    with pytest.raises(ValueError, match="size must be one of quick, paper"):
        reproduce("huge", out=tmp_path)
    with pytest.raises(ValueError, match="no question named 'figure-3'; there are figure-1"):
        reproduce("quick", only="figure-3", out=tmp_path)


@pytest.mark.parametrize("size", SIZES)
def test_games_that_questions_share_are_merged(size):
    games = [game for question in QUESTIONS.values() for game in question.games(SIZES[size])]
    merged = _without_repeats(games)
    assert len({game_key(game.policy, game.world, game.rounds) for game in merged}) == len(merged) < len(games)


def test_the_report_warns_of_a_world_that_did_not_change(answer):
    for page in (answer.report, answer.report.parent / "verdicts.md"):
        text = page.read_text()
        assert "Warning: the users of adversarial/fraud do not change in 300 rounds" in text
        assert text.count("Warning:") == 1


@pytest.mark.parametrize("size", SIZES)
def test_every_changing_world_changes_at_the_published_sizes(size):
    games = [game for question in QUESTIONS.values() for game in question.games(SIZES[size])]
    changes = {(game.world.name, game.rounds): (game.world.first_change(), game.rounds) for game in games}
    assert sum(first is not None for first, _ in changes.values()) >= 9
    assert all(first is None or first < rounds for first, rounds in changes.values())
