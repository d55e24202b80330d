"""Figures: names in any script, and versions for narrow screens."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from pathlib import Path

import matplotlib.font_manager
import pytest

from bothworlds import play
from bothworlds.arena import draw_gap_closed, draw_results, fonts
from bothworlds.arena.figures import drawing, spread_out
from bothworlds.arena.fonts import FigureWarning
from bothworlds.policies import one_for_all

CHINESE, EMOJI = "\u82f9\u679c", "\U0001fa94"
NAMES = f"{CHINESE} > lamp{EMOJI}"


def drawn(path, name, **options):
    """Draw a figure with a name in its title and in its legend; the texts that were drawn."""
    with drawing(path, **options) as panels:
        for panel in panels.flat:
            panel.plot([0, 1], [0, 1], label=name)
            panel.set_title(name)
            panel.legend()
    return [panel.get_title() for panel in panels.flat]


@pytest.fixture
def no_other_fonts(monkeypatch):
    """A machine with the fonts that come with Matplotlib, and no others."""
    own = [font for font in matplotlib.font_manager.fontManager.ttflist if "mpl-data" in font.fname]
    monkeypatch.setattr(matplotlib.font_manager.fontManager, "ttflist", own)
    fonts._fonts_with.cache_clear()
    yield
    fonts._fonts_with.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".png", ".pdf"])
def test_characters_without_a_font_are_written_as_codes_with_one_warning(tmp_path, no_other_fonts, ending):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (title,) = drawn(tmp_path / f"f{ending}", NAMES)
    assert title == r"\u82f9\u679c > lamp\U0001fa94"
    (warning,) = caught
    assert warning.category is FigureWarning
    assert re.fullmatch(r"3 characters are in no installed font, .* such as \\u679c instead; .*", str(warning.message))


def test_a_drawing_that_keeps_its_text_keeps_the_names_and_warns_of_nothing(tmp_path, no_other_fonts):
    assert drawn(tmp_path / "f.svg", NAMES) == [NAMES]
    assert NAMES.replace(">", "&gt;") in (tmp_path / "f.svg").read_text()


@pytest.mark.slow
def test_a_font_that_has_the_characters_is_used(tmp_path, no_other_fonts, monkeypatch):
    known = fonts._characters_in

    def characters_in(path):
        return known(path) | (set(NAMES) if Path(path).name == "STIXGeneral.ttf" else set())

    monkeypatch.setattr(fonts, "_characters_in", characters_in)
    with drawing(tmp_path / "f.png") as panels:
        panels[0, 0].set_title(NAMES)
        panels[0, 0].set_xlabel("plain")
    assert panels[0, 0].get_title() == NAMES
    assert panels[0, 0].title.get_fontfamily() == ["sans-serif", "STIXGeneral"]
    assert panels[0, 0].xaxis.label.get_fontfamily() == ["sans-serif"]


def test_latin_greek_and_cyrillic_are_drawn_as_they_are(tmp_path, no_other_fonts):
    name = "caf\u00e9, \u03b1\u03b2\u03b3, \u043b\u0430\u043c\u043f\u0430 \u2212"
    assert drawn(tmp_path / "f.png", name) == [name]


@pytest.mark.parametrize("name", ["$5 or $6", "$^^$", "50% $"])
def test_a_dollar_sign_in_a_name_is_no_formula(tmp_path, name):
    drawn(tmp_path / "f.svg", name)
    assert name in (tmp_path / "f.svg").read_text()


def test_all_figures_are_written_in_one_place():
    package = Path(fonts.__file__).parents[1]
    assert [path.name for path in package.rglob("*.py") if "savefig" in path.read_text()] == ["figures.py"]


def size_of(path):
    return [float(value) for value in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', path.read_text()).groups()]


@pytest.mark.slow
def test_a_narrow_figure_has_one_column_and_letters_that_a_phone_can_show(tmp_path):
    for narrow in (False, True):
        with drawing(tmp_path / f"{narrow}.svg", 3, 2, narrow=narrow) as panels:
            for panel in panels[:, 0]:
                panel.set_ylabel("regret")
        labels = [panel.get_ylabel() for panel in panels.flat]
        assert labels == (["regret"] * 6 if narrow else ["regret", "", ""] * 2)
    (wide, _), (narrow, high) = size_of(tmp_path / "False.svg"), size_of(tmp_path / "True.svg")
    assert narrow < wide / 2
    assert high > 6 * 2.6 * 72
    phone = 350  # pixels that the page leaves of 400
    assert 7 * phone / narrow >= 11 > 7 * phone / wide  # the smallest letters have 7 points


def test_labels_are_moved_apart_as_little_as_possible(rng):
    for _ in range(100):
        values = sorted(rng.uniform(0.0, 10.0, rng.integers(1, 8)))
        places = spread_out(values, 1.0, 0.0, 10.0)
        assert all(after - before >= 1.0 - 1e-9 for before, after in pairwise(places))
        assert places[0] >= -1e-9
        assert places[-1] <= 10.0 + 1e-9
        if all(after - before >= 1.0 for before, after in pairwise(values)):
            assert places == pytest.approx(values)
    assert spread_out([5.0, 5.0, 5.0], 1.0, 0.0, 10.0) == pytest.approx([4.0, 5.0, 6.0])
    assert spread_out([9.9, 9.9], 1.0, 0.0, 10.0) == pytest.approx([9.0, 10.0])
    assert spread_out([5.0] * 5, 4.0, 0.0, 10.0) == pytest.approx([0.0, 2.5, 5.0, 7.5, 10.0])  # not enough room
    assert spread_out([], 1.0, 0.0, 1.0) == []


@pytest.mark.slow
def test_a_figure_of_results_says_what_its_bands_are_and_has_line_styles(tmp_path):
    results = [
        play(name, "paper/stochastic", 100, replications=replications)
        for name, replications in (("uniform", 3), ("fixed", 3))
    ]
    text = draw_results(results, tmp_path / "f.svg").read_text()
    assert "lines: means of 3 replications; bands: plus and minus one standard error" in text
    assert "stroke-dasharray" in text
    alone = [play("uniform", "paper/stochastic", 100, replications=1)]
    assert "one replication" in draw_results(alone, tmp_path / "g.svg").read_text()


@pytest.mark.slow
def test_what_context_is_worth_is_drawn_against_one_learner_for_all(tmp_path):
    policies = "context-ts", one_for_all("context-ts")
    results = [play(one, "context/segments", 400, replications=2, checkpoints=4, jobs=1) for one in policies]
    blind = results[1].policy
    text = draw_gap_closed(results, tmp_path / "gap.svg", blind).read_text()
    assert "context-ts" in text
    assert "best list of each context" in text
    with pytest.raises(ValueError, match="rival must be a policy that was played"):
        draw_gap_closed(results, tmp_path / "gap.svg", "uniform")
    other = play("uniform", "context/segments", 300, replications=2, checkpoints=4, jobs=1)
    with pytest.raises(ValueError, match="rival must be a game with the same users"):
        other.gap_closed(results[1])
