"""Versions, dependencies and workflows of the repository: `make check` runs this."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
import yaml

import jupyter_gpu_kernel

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("version", [jupyter_gpu_kernel.__version__, "1.2.3"])
def test_all_parts_get_their_version_from_one_place(version: str, tmp_path: Path) -> None:
    """The files are as `make version` writes them, and it writes each place of the version."""
    script = runpy.run_path(str(ROOT / ".ci" / "version.py"))
    before = {name: (ROOT / name).read_text() for name in script["FILES"]}
    module = tmp_path / "jupyter_gpu_kernel" / "__init__.py"
    for name, text in {str(module): f'__version__ = "{version}"\n', **before}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert script["write"](tmp_path) == version
    written = {name: (tmp_path / name).read_text() for name in before}
    assert (written == before) == (version == jupyter_gpu_kernel.__version__)
    for folder in ("labextension", "vscode"):
        assert json.loads(written[f"{folder}/package.json"])["version"] == version
        lock = json.loads(written[f"{folder}/package-lock.json"])
        assert lock["version"] == lock["packages"][""]["version"] == version


@pytest.mark.parametrize("folder", ["labextension", "vscode"])
def test_the_lock_file_names_no_download_host(folder: str) -> None:
    lock = json.loads((ROOT / folder / "package-lock.json").read_text())
    assert [name for name, entry in lock["packages"].items() if "resolved" in entry] == []


ITSELF = re.compile(r"pip install (\$\{\{ env.CONSTRAINT \}\} )?(--editable )?[\"'.]")
MORE_RIGHTS = {
    "audit.yml": {"security-events: write"},  # CodeQL writes what it finds
    "release.yml": {"attestations: write", "contents: write", "id-token: write"},
}


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
        blocks = re.findall(r"^    permissions:\n((?:      .*\n)+)", text, re.MULTILINE)
        rights = {line.strip() for block in blocks for line in block.splitlines()}
        assert rights - {"contents: read"} == MORE_RIGHTS.get(workflow.name, set())


def test_workflows_install_only_pinned_packages() -> None:
    """npm by its lock file, without its packages' scripts; pip by hashes, or by the constraints of the workflow."""
    for workflow in ROOT.glob(".github/workflows/*.yml"):
        for command in re.findall(r"^ *(?:- )?run: (.*)$", workflow.read_text(), re.MULTILINE):
            assert "npm install" not in command
            assert "npm ci" not in command or "--ignore-scripts" in command
            if "pip install" in command and not ITSELF.search(command):
                assert "--require-hashes" in command
    for file in ROOT.glob(".ci/*.txt"):
        assert not re.search(r"^-|://", file.read_text(), re.MULTILINE), f"{file} names a package index"


def test_the_site_has_every_page() -> None:
    listed = set(re.findall(r"[\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))}
    assert pages <= listed and all((ROOT / one).exists() for one in listed)


def test_the_notes_of_a_release_are_the_section_of_the_changelog() -> None:
    namespace = runpy.run_path(str(ROOT / ".ci" / "release_notes.py"))
    changelog = (
        "# Changelog\n\n## Unreleased\n\n## 1.2.3 (2027-01-01)\n\n### Added\n\n- One.\n\n## 1.2.2\n\n- Old.\n"
    )
    package = '__version__ = "1.2.3"\n'
    assert namespace["notes"]("v1.2.3", changelog, package) == "### Added\n\n- One.\n"
    for tag, text in (("v1.2.4", changelog), ("v1.2.3", "# Changelog\n\n## Unreleased\n")):
        with pytest.raises(SystemExit):
            namespace["notes"](tag, text, package)


@pytest.mark.parametrize("file", sorted(ROOT.glob(".github/**/*.yml")), ids=lambda path: path.name)
def test_what_the_host_of_the_repository_reads_is_yaml(file: Path) -> None:
    assert isinstance(yaml.safe_load(file.read_text()), dict)


def test_the_recipe_for_conda_is_that_of_the_package() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = yaml.safe_load((ROOT / "packaging" / "conda-forge" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == jupyter_gpu_kernel.__version__
    needed = [f"python {project['requires-python']}", *project["dependencies"]]
    assert [one.replace(" ", "") for one in recipe["requirements"]["run"]] == [
        one.replace(" ", "") for one in needed
    ]
    scripts = [f"{name} = {target}" for name, target in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts


def test_every_dependency_has_a_lower_bound() -> None:
    """`make test-lowest` installs the lower bounds."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for needed in (*project["dependencies"], *project["optional-dependencies"]["test"]):
        assert ">=" in needed, needed
