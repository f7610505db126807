"""The documents name files and names that exist, each source file has its row, and the changelog its order."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "jupyter_gpu_kernel"
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
FILE = re.compile(r"`([\w./-]+\.(?:py|sh|tsx?))(?:: (\w+)[^`]*)?`")
FOLDER = re.compile(r"\|? ?`((?:[\w]+/)+)`")
HEADINGS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
ELSEWHERE = {"jupyter_server_config.py", "kernel.py"}


def rows() -> Counter[str]:
    """How often the section with the tables of files names each of them in its first column."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.split("## The modules")[1].split("\n## ")[0]
    folder, named = PACKAGE, Counter[str]()
    for line in section.splitlines():
        begins = FOLDER.match(line)
        if begins and not line.startswith("|"):
            folder = (ROOT if begins[1].startswith("labextension") else PACKAGE) / begins[1]
        elif line.startswith("|"):
            cells = line if begins else line.split("|")[1]
            here = PACKAGE / begins[1] if begins else folder
            named.update(str((here / name).relative_to(ROOT)) for name, _ in FILE.findall(cells))
    return named


def test_every_source_file_has_one_row() -> None:
    browser = ROOT.glob("labextension/src/**/*.ts*")
    files = [*PACKAGE.rglob("*.py"), *(PACKAGE / "agent").glob("*.sh"), *browser]
    wanted = {str(file.relative_to(ROOT)) for file in files if not file.name.startswith("__")}
    named = {name: count for name, count in rows().items() if not Path(name).name.startswith("__")}
    assert wanted - named.keys() == set(), "without a row"
    assert named.keys() - wanted == set(), "rows of files that are gone"
    assert {name for name, count in named.items() if count > 1} == set(), "more than one row"


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
        order = [
            name
            for name in ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
            if name in headings
        ]
        assert headings == order
        lines = Counter(line for line in release.splitlines() if line.startswith("- "))
        assert [line for line, count in lines.items() if count > 1] == []
