"""Versions, dependencies and workflows of the repository: `make check` runs this."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import jupyter_gpu_kernel

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("folder", ["labextension", "vscode"])
def test_all_parts_have_one_version(folder: str) -> None:
    package = json.loads((ROOT / folder / "package.json").read_text())
    assert package["version"] == jupyter_gpu_kernel.__version__


@pytest.mark.parametrize("folder", ["labextension", "vscode"])
def test_the_lock_file_names_no_download_host(folder: str) -> None:
    lock = json.loads((ROOT / folder / "package-lock.json").read_text())
    assert [name for name, entry in lock["packages"].items() if "resolved" in entry] == []


def test_workflows_run_pinned_actions_with_the_least_rights() -> None:
    """A tag can be moved to other code by whoever owns the action; a commit cannot."""
    for workflow in ROOT.glob(".github/workflows/*.yml"):
        text = workflow.read_text()
        used = re.findall(r"^ *-? *uses: (.*)$", text, re.MULTILINE)
        assert used and all(
            re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one) for one in used
        ), used
        assert len(set(used)) == len({one.split("@")[0] for one in used}), "one version of each"
        assert re.search(r"^permissions: \{\}", text, re.MULTILINE)
        rights = re.findall(r"^    permissions:\n((?:      .*\n)+)", text, re.MULTILINE)
        assert rights and set(rights) == {"      contents: read\n"}


def test_every_dependency_has_a_lower_bound() -> None:
    """`make test-lowest` installs the lower bounds."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for needed in (*project["dependencies"], *project["optional-dependencies"]["test"]):
        assert ">=" in needed, needed
