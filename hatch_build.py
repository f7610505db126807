"""Build hooks: one compiles labextension/ and vscode/ into the package before a wheel or an sdist is packed; the other
one names the repository in the metadata of a release.

An editable install does without (no Node needed); so does a build whose compiled files are there and not
older than their sources, which is what an sdist carries.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

MISSING_NPM = """
The extensions for JupyterLab and VS Code are not built, and npm is not on PATH to build them.
Install Node.js (20.19 or newer), or install a released wheel: it carries the built files.
"""


PAGES = {
    "Homepage": "",
    "Documentation": "/tree/main/docs",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
    "Source": "",
}
"""The pages of a repository, by their names in a package's metadata."""


class RepositoryHook(MetadataHookInterface):
    """hatchling calls `update` for the metadata. Only the workflow that builds a release knows the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
        urls = {title: f"{server}/{name}{path}" for title, path in PAGES.items()}
        metadata["urls"] = urls if server and name else {}


class ExtensionsHook(BuildHookInterface):  # type: ignore[type-arg]
    """hatchling calls `initialize` before it collects files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        lab, vscode, built = root / "labextension", root / "vscode", root / "jupyter_gpu_kernel"
        if not is_fresh(built / "labextension" / "package.json", lab):
            self._build(lab, ["ci", "--ignore-scripts"], ["run", "build"])
        if not is_fresh(built / "vscode_extension" / "remote-gpu.vsix", vscode, lab):  # it shares modules
            self._build(vscode, ["ci", "--ignore-scripts"], ["run", "package"])
        for left in (built / "labextension").rglob("*.orig"):  # JupyterLab's builder leaves one
            left.unlink()

    def _build(self, source: Path, *calls: list[str]) -> None:
        npm = shutil.which("npm")
        if npm is None:
            sys.exit(MISSING_NPM)
        for words in calls:
            subprocess.run([npm, *words], cwd=source, check=True)


def is_fresh(built: Path, *folders: Path) -> bool:
    """Whether `built` exists and no source file in these folders is newer."""
    if not built.exists():
        return False
    patterns = ("*.json", "src/**/*", "style/**/*", "schema/*.json", "media/*")
    sources = [path for folder in folders for pattern in patterns for path in folder.glob(pattern)]
    return all(path.stat().st_mtime <= built.stat().st_mtime for path in sources)
