"""What the documents mention exists, errors included; the tables of ssh_config are complete; the changelog is in
order: `make check`."""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from jupyter_gpu_kernel.cli.app import VERBS
from jupyter_gpu_kernel.errors import GpuKernelError
from jupyter_gpu_kernel.hub.ssh.config import directives

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jupyter_gpu_kernel"
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
FILE = re.compile(r"`([\w./-]+\.(?:py|sh|tsx?))(?:: (\w+)[^`]*)?`")
HEADINGS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
ELSEWHERE = {"jupyter_server_config.py", "kernel.py"}
LINK = re.compile(r"\]\(([^)\s]+)\)|<\w+ [^>]*(?:src|srcset)=\"([^\"]+)\"")
COMMAND = re.compile(r"jupyter gpu-kernel ([a-z]+)((?: [^`\n#|&<;]+)?)")
MOST_LINES = {"README.md": 150, "CONTRIBUTING.md": 120}
DIRECTIVES = {
    "Honoured": directives.HONOURED,
    "Refused by name": directives.NEEDS_SSH,
    "No effect with paramiko, but ssh uses them": directives.ONLY_SSH_USES,
    "No effect": directives.NO_EFFECT,
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_names_that_a_document_names_exist(document: Path) -> None:
    for name, within in FILE.findall(document.read_text(encoding="utf-8")):
        if name in ELSEWHERE or document.name == "CHANGELOG.md":
            continue
        found = [*ROOT.glob(name), *PACKAGE.rglob(name), *ROOT.glob(f"labextension/[!n]*/**/{name}")]
        assert found, f"there is no {name}"
        assert any(within in path.read_text(encoding="utf-8") for path in found), f"no {within} in {name}"


def test_the_changelog_has_known_headings_and_no_line_twice() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for release in text.split("\n## ")[1:]:
        headings = re.findall(r"^### (.+)$", release, re.MULTILINE)
        assert headings == [name for name in HEADINGS if name in headings]
        lines = Counter(line for line in release.splitlines() if line.startswith("- "))
        assert [line for line, count in lines.items() if count > 1] == []


def test_files_and_folders_that_security_names_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/.]+(?:/|\.py))`", text)
    named = [name for name in named if name != "jupyter_server_config.py"]
    missing = [
        name
        for name in named
        if not any((base / name).exists() for base in (ROOT, ROOT / "jupyter_gpu_kernel"))
    ]
    assert len(named) > 15 and missing == []


def test_the_documentation_has_every_directive_in_its_section() -> None:
    text = (ROOT / "docs/ssh-config.md").read_text(encoding="utf-8")
    for title, names in DIRECTIVES.items():
        section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        found = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
        assert sorted(found) == sorted(names), title


def anchors(document: Path) -> set[str]:
    """The anchors of the headings, as the hosts of repositories make them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in map("".join, LINK.findall(document.read_text(encoding="utf-8"))):
        if ":" in link:  # another site
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"there is no {name}"
        assert not anchor or anchor in anchors(target), f"there is no heading {link}"


def test_messages_that_troubleshooting_explains_are_messages_of_the_package() -> None:
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    nodes = (node for source in sources for node in ast.walk(ast.parse(source)))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    page = (
        (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8").split("\n## What no error tells\n")[0]
    )
    rows = re.findall(r"^\| (?!message)([^|-][^|]*) \|", page, re.MULTILINE)
    parts = [part.strip(" :,.)") for row in rows for part in re.split(r"[…;“”*(]", row)]
    assert len(parts) > 50
    assert [part for part in parts if not any(part in text for text in texts)] == []


def test_troubleshooting_has_a_section_for_each_kind_of_error() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    kinds = re.findall(r"^## (\w+Error)$", page, re.MULTILINE)
    assert [type(GpuKernelError.from_json({"kind": kind})).__name__ for kind in kinds] == kinds
    assert len(kinds) == 8


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_their_options_exist(document: Path) -> None:
    for verb, words in COMMAND.findall(document.read_text(encoding="utf-8")):
        assert verb in VERBS, f"there is no verb {verb}"
        parser = argparse.ArgumentParser()
        VERBS[verb]().add_arguments(parser)
        known = set(re.findall(r"(?<!\w)--[a-z-]+", parser.format_help())) | {"--json"}
        assert set(re.findall(r"(?<=\s)--[a-z-]+", words)) <= known, f"{verb}{words}"


@pytest.mark.parametrize("name", MOST_LINES)
def test_short_documents_stay_short(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= MOST_LINES[name]
