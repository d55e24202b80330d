"""Commands in the documentation and in files for deployment exist, with their options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.commands import command_faults

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "research").glob("*.md")),
    *sorted((ROOT / "deploy").glob("*")),
]
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A command at the start of a line, in a comment, or in the container that runs it.
COMMAND = re.compile(r"^[#$ ]*(?:docker .* )?(?:\S*/)?(bothworlds (?!bothworlds)[a-z][^\n]*)$", re.MULTILINE)


def commands_in(text, suffix=".md"):
    """The words of every command in a file; of Markdown, in its code blocks. Comments after a command are left out."""
    code = "\n".join(FENCE.findall(text)) if suffix == ".md" else text
    joined = re.sub(r"\\\n[#\s]*", " ", code)
    return [shlex.split(re.split(r"\s#|\s[<>|&]", line)[0]) for line in COMMAND.findall(joined)]


def written_in(path):
    return commands_in(path.read_text(), path.suffix)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_written_commands_exist(path):
    assert [fault for words in written_in(path) for fault in command_faults(words)] == []


def test_commands_are_found_and_the_check_can_fail():
    found = [words for path in PAGES for words in written_in(path)]
    assert len(found) > 20
    assert {"serve", "demo", "keys", "surfaces", "verify"} <= {words[1] for words in found}
    wrong = [
        "bothworlds serve --prot 80   # no",
        "$ bothworlds surfaces creat home",
        "bothworlds keys \\",
        "  create --rol x",
    ]
    text = "\n".join(["```", *wrong, "```"])
    faults = [fault for words in commands_in(text) for fault in command_faults(words)]
    assert len(faults) == 3
    assert "--prot" in faults[0]
    assert "creat" in faults[1]
    assert "--rol" in faults[2]
