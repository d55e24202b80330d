"""Fonts for names in any script: what the font of a figure lacks comes from other installed fonts, or as codes."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING

from ..warnings import BothworldsWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

__all__ = ["MISSING_GLYPH", "FigureWarning", "supply_glyphs"]

MISSING_GLYPH = r"Glyph .* missing from"  # how Matplotlib warns of each character
PLACEHOLDERS = "Last Resort"  # a font that has a box for every character


class FigureWarning(BothworldsWarning):
    """A figure shows something in another way than it was given."""


def supply_glyphs(figure: Figure, *, keeps_text: bool) -> None:
    """Make all texts of a figure readable, whatever their script.

    Characters that the font of a text lacks are taken from other installed fonts. Those that no font has are written as
    codes such as ``\\u82f9``, with one warning for the whole figure; a format that ``keeps_text`` leaves them to the
    fonts of whoever looks at it. Dollar signs in names are no formulas.
    """
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if text.get_text()]
    nowhere: set[str] = set()
    for text in texts:
        if "\\mathdefault" not in text.get_text():  # powers of ten along an axis
            text.set_parse_math(False)
        lacking = {character for character in text.get_text() if character.isprintable()} - _characters_of(text)
        if lacking:
            families, unknown = _fonts_with(frozenset(lacking))
            text.set_fontfamily([*text.get_fontfamily(), *families])
            nowhere |= unknown
    if nowhere and not keeps_text:
        codes = {ord(character): _code(character) for character in nowhere}
        for text in texts:
            text.set_text(text.get_text().translate(codes))
        warnings.warn(_sentence(sorted(nowhere)), FigureWarning, stacklevel=2)


def _sentence(characters: list[str]) -> str:
    what = "1 character is" if len(characters) == 1 else f"{len(characters)} characters are"
    return (
        f"{what} in no installed font, and the figure has codes such as {_code(characters[0])} instead; install a font "
        "that has them, or draw an .svg, which keeps the names"
    )


def _code(character: str) -> str:
    r"""
    >>> print(_code("\u82f9"), _code("\U0001fa94"))
    \u82f9 \U0001fa94
    """
    return character.encode("ascii", "backslashreplace").decode()


def _characters_of(text: Text) -> set[str]:
    """The characters that the fonts of a text have."""
    from matplotlib.font_manager import findfont

    found: set[str] = set()
    for family in text.get_fontfamily():
        properties = text.get_fontproperties().copy()
        properties.set_family(family)
        found |= _characters_in(str(findfont(properties)))
    return found


@cache
def _characters_in(path: str) -> frozenset[str]:
    from matplotlib.font_manager import get_font

    try:
        return frozenset(map(chr, get_font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()  # listed, but not readable


@cache
def _fonts_with(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Families of installed fonts that have these characters, and the characters that none has."""
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
