"""Check that the commit can be released as the version it says, and print the commands that release it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, text=True, capture_output=True).stdout.strip()


def versions() -> dict[str, str]:
    """Return the version by the file that states it: the package, the citation, the newest entry of the changelog."""
    stated = {
        "src/bothworlds/__init__.py": r'^__version__ = "(.+)"',
        "CITATION.cff": r"^version: (.+)",
        "CHANGELOG.md": r"^## \[?([\d.]+\w*)\]?",
    }
    return {name: re.search(rule, (ROOT / name).read_text(), re.M)[1] for name, rule in stated.items()}  # type: ignore[index]


def main() -> None:
    """Raise SystemExit with the reason if the commit cannot be released."""
    stated = versions()
    if len(set(stated.values())) > 1:
        raise SystemExit(f"the versions differ: {stated}")
    if changed := git("status", "--porcelain"):
        raise SystemExit(f"not committed:\n{changed}")
    version = stated["src/bothworlds/__init__.py"]
    if f"v{version}" in git("tag").split():
        raise SystemExit(f"v{version} exists; choose the next version")
    print(f"dist/ has version {version}. To release it:")
    print(f"  git tag v{version} && git push origin v{version}   # the workflow `release` publishes what it builds")


if __name__ == "__main__":
    main()
