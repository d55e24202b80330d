"""A strict HTML checker: it reports faults that a browser would repair silently."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br", "hr", "img"}


class Markup(HTMLParser):
    """Parses a page; ``text`` has its words, ``faults`` its errors."""

    def __init__(self, text):
        super().__init__()
        self.open, self.faults, self.tags, self.words, self.ids = [], [], [], [], set()
        self.feed(text)
        self.close()
        self.faults += [f"<{tag}> is never closed" for tag in self.open]
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)
        self.faults += [f"inline {name}" for name in attributes if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and not attributes.get("src")):
            self.faults.append(f"inline <{tag}>")
        for name in ("src", "href", "action"):
            if re.match(r"(?:[a-z]+:)?//|javascript:|data:", attributes.get(name) or "", re.I):
                self.faults.append(f"{name} points to another host: {attributes[name]}")
        if attributes.get("id") in self.ids:
            self.faults.append(f"id {attributes['id']} occurs twice")
        self.ids |= {attributes["id"]} if attributes.get("id") else set()
        if tag == "th" and "scope" not in attributes:
            self.faults.append("a table header without scope")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.words.append(data)

    def count(self, tag, **attributes):
        return sum(name == tag and attributes.items() <= has.items() for name, has in self.tags)


def drawings(text):
    """Return every SVG of a page, parsed as XML."""
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.S)]
