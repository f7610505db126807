"""Writes the version that jupyter_gpu_kernel/__init__.py has into the other files that name it: `make version`."""

from __future__ import annotations

import re
from pathlib import Path

FILES = {
    "labextension/package.json": 1,
    "labextension/package-lock.json": 2,
    "vscode/package.json": 1,
    "vscode/package-lock.json": 2,
    "packaging/conda-forge/recipe.yaml": 1,
}
"""How often the version comes first in each file, before the versions of other packages."""


def write(root: Path) -> str:
    """Write the version into the files below `root`, and return it."""
    module = (root / "jupyter_gpu_kernel" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "([^"]+)"$', module, re.MULTILINE)
    for name, times in FILES.items():
        text = (root / name).read_text(encoding="utf-8")
        text = re.sub(r'(\bversion"?: ")[^"]+', rf"\g<1>{version}", text, count=times)
        (root / name).write_text(text, encoding="utf-8")
    return str(version)


if __name__ == "__main__":
    print(write(Path(__file__).parents[1]))
