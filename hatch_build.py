"""Build hook: compiles labextension/ into the package before a wheel or an sdist is packed.

An editable install does without (no Node needed); so does a build whose compiled files are there and not
older than their sources, which is what an sdist carries.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MISSING_NPM = """
The JupyterLab extension is not built, and npm is not on PATH to build it.
Install Node.js (20.19 or newer), or install a released wheel: it carries the built files.
"""


class LabextensionHook(BuildHookInterface):  # type: ignore[type-arg]
    """hatchling calls `initialize` before it collects files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root, "labextension")
        built = Path(self.root, "jupyter_gpu_kernel", "labextension", "package.json")
        if version == "editable":
            return
        if not is_fresh(built, source):
            self._build(source)
        for left in built.parent.rglob("*.orig"):  # JupyterLab's builder leaves one
            left.unlink()

    def _build(self, source: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            sys.exit(MISSING_NPM)
        for words in (["ci"], ["run", "build"]):
            subprocess.run([npm, *words], cwd=source, check=True)


def is_fresh(built: Path, source: Path) -> bool:
    """Whether `built` exists and no source file is newer."""
    if not built.exists():
        return False
    patterns = ("*.json", "src/**/*", "style/**/*", "schema/*.json")
    sources = [path for pattern in patterns for path in source.glob(pattern)]
    return all(path.stat().st_mtime <= built.stat().st_mtime for path in sources)
