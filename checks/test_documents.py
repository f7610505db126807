"""The files and names that the documents mention exist, and the changelog is in order. `make check` runs this."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jupyter_gpu_kernel"
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
FILE = re.compile(r"`([\w./-]+\.(?:py|sh|tsx?))(?:: (\w+)[^`]*)?`")
HEADINGS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
ELSEWHERE = {"jupyter_server_config.py", "kernel.py"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_names_that_a_document_names_exist(document: Path) -> None:
    for name, within in FILE.findall(document.read_text(encoding="utf-8")):
        if name in ELSEWHERE or document.name == "CHANGELOG.md":
            continue
        found = [*ROOT.glob(name), *PACKAGE.rglob(name), *ROOT.glob(f"labextension/[!n]*/**/{name}")]
        assert found, f"there is no {name}"
        assert any(within in path.read_text(encoding="utf-8") for path in found), f"no {within} in {name}"


def test_the_changelog_says_each_thing_once_and_below_a_known_heading() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for release in text.split("\n## ")[1:]:
        headings = re.findall(r"^### (.+)$", release, re.MULTILINE)
        assert headings == [name for name in HEADINGS if name in headings]
        lines = Counter(line for line in release.splitlines() if line.startswith("- "))
        assert [line for line, count in lines.items() if count > 1] == []
