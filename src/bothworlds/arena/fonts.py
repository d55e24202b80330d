"""Glyphs for text in any script: from other installed fonts, or as escape codes where no font has them."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING

from ..warnings import BothworldsWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

MISSING_GLYPH = r"Glyph .* missing from"  # Matplotlib's warning for each character
PLACEHOLDERS = "Last Resort"  # a font that has a box for every character


class FigureWarning(BothworldsWarning):
    """A figure shows text in another form than requested."""


def supply_glyphs(figure: Figure, *, keeps_text: bool) -> None:
    """Make all texts of a figure readable, whatever their script.

    Characters missing from the font of a text are taken from other installed fonts. Characters that no font has are
    replaced by codes such as ``\\u82f9``, with one FigureWarning for the whole figure. A format that ``keeps_text``
    keeps them for the fonts of the viewer. Dollar signs do not start formulas.
    """
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if text.get_text()]
    missing: set[str] = set()
    for text in texts:
        if "\\mathdefault" not in text.get_text():  # tick labels with powers of ten are formulas
            text.set_parse_math(False)
        absent = {character for character in text.get_text() if character.isprintable()} - _characters_of(text)
        if absent:
            families, unknown = _fonts_with(frozenset(absent))
            text.set_fontfamily([*text.get_fontfamily(), *families])
            missing |= unknown
    if missing and not keeps_text:
        codes = {ord(character): _code(character) for character in missing}
        for text in texts:
            text.set_text(text.get_text().translate(codes))
        what = "1 character is" if len(missing) == 1 else f"{len(missing)} characters are"
        sentence = (
            f"{what} in no installed font, and the figure has codes such as {_code(min(missing))} instead; install a "
            "font that has them, or draw an .svg, which keeps the names"
        )
        warnings.warn(sentence, FigureWarning, stacklevel=2)


def _code(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode()


def _characters_of(text: Text) -> set[str]:
    """Return the characters that the fonts of a text have."""
    from matplotlib.font_manager import findfont

    characters: set[str] = set()
    for family in text.get_fontfamily():
        properties = text.get_fontproperties().copy()
        properties.set_family(family)
        characters |= _characters_in(str(findfont(properties)))
    return characters


@cache
def _characters_in(path: str) -> frozenset[str]:
    from matplotlib.font_manager import get_font

    try:
        return frozenset(map(chr, get_font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()  # listed, but unreadable


@cache
def _fonts_with(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the installed font families that have these characters, and the characters that none has."""
    from matplotlib.font_manager import fontManager

    families: list[str] = []
    for font in sorted(fontManager.ttflist, key=lambda font: (font.name, font.fname)):
        if not characters:
            break
        has = characters & _characters_in(font.fname)
        if has and PLACEHOLDERS not in font.name:
            families.append(font.name)
            characters -= has
    return tuple(families), characters
