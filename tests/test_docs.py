"""The documentation names files that exist, and the page on the layout of the package names every room."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "bothworlds"
HOUSE = ROOT / "docs" / "house.md"
# Every page but those that `make docs` writes from the registry.
DOCS = sorted({*ROOT.glob("docs/*.md"), *ROOT.glob("docs/research/*.md")})
# A path in code style or in a figure: letters, slashes, and a known ending or a slash at the end.
PATH = re.compile(r"(?:[\w.-]+/)*[\w.-]+(?:\.(?:py|md|sql|html|js|css|svg|toml|txt|yaml)|/)|[\w.-]+/")


def paths_in(text: str) -> set[str]:
    """Every path in code style in a Markdown page, outside code blocks."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {code for code in re.findall(r"`([^`\s]+)`", prose) if PATH.fullmatch(code)}


def tree_in(text: str) -> list[str]:
    """The paths of the tree on the page, which shows folders by indentation."""
    block = re.search(r"^```text\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert block, "there is no tree, a code block of the language text"
    paths: list[str] = []
    folders: list[str] = []
    for line in block[1].splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders[depth:] = [name]
        paths.append("".join(folders))
    return paths


def missing(paths: set[str] | list[str], *places: Path) -> list[str]:
    """The paths that are in none of the places."""
    return sorted(path for path in paths if not any((place / path).exists() for place in places))


def test_every_path_on_the_page_about_the_layout_exists() -> None:
    text = HOUSE.read_text()
    assert len(paths_in(text)) > 20
    assert not (gone := missing(paths_in(text), PACKAGE, ROOT)), f"docs/house.md names paths that do not exist: {gone}"
    assert not (gone := missing(tree_in(text), ROOT)), f"the tree in docs/house.md has paths that do not exist: {gone}"


def test_the_tree_shows_every_package() -> None:
    shown = {(ROOT / path).resolve() for path in tree_in(HOUSE.read_text())}
    packages = {path.parent for path in PACKAGE.rglob("__init__.py")}
    modules = set(PACKAGE.glob("[a-z]*.py"))
    hidden = sorted(str(path.relative_to(PACKAGE)) for path in (packages | modules) - shown)
    assert not hidden, f"the tree in docs/house.md leaves out packages or modules: {hidden}"


def test_the_tree_is_shown_once() -> None:
    tree = re.compile(r"^```\w*\nsrc/bothworlds/", re.MULTILINE)
    assert [path for path in DOCS if tree.search(path.read_text())] == [HOUSE]


@pytest.mark.parametrize("name", ["flow-simulation", "flow-service"])
def test_every_path_in_a_figure_exists(name: str) -> None:
    drawing = (ROOT / "docs" / "figures" / f"{name}.svg").read_text()
    words = {word.rstrip(":,;") for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawing) for word in text.split()}
    paths = {word for word in words if PATH.fullmatch(word)}
    assert len(paths) >= 5
    assert not (gone := missing(paths, PACKAGE)), f"docs/figures/{name}.svg names paths that do not exist: {gone}"


PAGES = ["README.md", "CONTRIBUTING.md", "benchmarks/README.md", *(str(path.relative_to(ROOT)) for path in DOCS)]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
    links += re.findall(r'<(?:img|source)\s[^>]*?(?:src|srcset)="([^"]+)"', path.read_text())
    local = {link for link in links if not link.startswith(("http", "policies/", "../policies/"))}
    assert not (gone := missing(local, path.parent)), f"{page} links to files that do not exist: {gone}"


def test_the_page_of_the_service_shows_the_items_of_the_surface_that_it_creates() -> None:
    text = (ROOT / "docs" / "service.md").read_text()
    section = text[text.index("## Your page") : text.index("## Five minutes")]
    created = json.loads(re.search(r"-d '(\{.*\})'", section)[1])  # type: ignore[index]
    assert re.findall(r'data-bw-item="(.*?)"', section) == created["items"]
    assert len(created["items"]) > created["slots"]


def test_the_checks_of_paths_can_fail() -> None:
    text = "See `serve/http/auth.py` and `serve/doors.py`.\n\n```text\nsrc/\n  bothworlds/\n    attic/   nothing\n```\n"
    assert missing(paths_in(text), PACKAGE) == ["serve/doors.py"]
    assert missing(tree_in(text), ROOT) == ["src/bothworlds/attic/"]


# A package index has no bothworlds: it is installed from a checkout.
FROM_AN_INDEX = re.compile(r"pip install\s+(?:-\S+\s+)*[\"'`]*bothworlds\b")


def from_an_index(text: str) -> list[str]:
    """Commands that would install this package from a package index, and its extras by their name there."""
    return [*FROM_AN_INDEX.findall(text), *re.findall(r"bothworlds\[\w", text)]


def test_nothing_claims_that_a_package_index_has_this_package() -> None:
    """In documents, notebooks and messages; extras that name others in pyproject.toml are resolved by pip itself."""
    files = [*ROOT.glob("*.md"), *(ROOT / "deploy").iterdir()]
    files += [file for folder in ("docs", "examples", "benchmarks") for file in (ROOT / folder).rglob("*.md")]
    files += [*(ROOT / "examples").rglob("*.ipynb"), *PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.html")]
    claims = {str(file.relative_to(ROOT)) for file in files if file.is_file() and from_an_index(file.read_text())}
    assert len(files) > 100
    assert not claims
    for claim in ("pip install bothworlds", "pip install -U 'bothworlds[gym]'", "with `bothworlds[ray]` installed"):
        assert from_an_index(claim)
