"""The version is stated once in the source; the citation and the changelog agree with it."""

from __future__ import annotations

import pytest

import bothworlds
from tests.packaging import release


def test_package_citation_and_changelog_state_the_same_version():
    assert set(release.versions().values()) == {bothworlds.__version__}


def test_a_citation_of_another_version_is_refused(tmp_path, monkeypatch):
    for name in release.versions():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((release.ROOT / name).read_text())
    (tmp_path / "CITATION.cff").write_text("version: 9.9.9\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"differ.*9\.9\.9"):
        release.main()
