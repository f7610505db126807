"""Prints the changelog's section of a release: `release_notes.py v1.2.3`. Fails if the tag is not the version that the
package has, or if the changelog has no such section."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(tag: str, changelog: str, package: str) -> str:
    """Return the section of the release. `package`: the text of the module that has the version."""
    version = tag.removeprefix("v")
    if f'__version__ = "{version}"' not in package:
        sys.exit(f"the tag {tag} is not the package's version: change jupyter_gpu_kernel/__init__.py first")
    for section in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        if re.fullmatch(rf"\[?{re.escape(version)}\]?( .*)?", title):
            return text.strip() + "\n"
    sys.exit(f"CHANGELOG.md has no section “## {version}”: rename “Unreleased”")


if __name__ == "__main__":
    texts = [ROOT / "CHANGELOG.md", ROOT / "jupyter_gpu_kernel" / "__init__.py"]
    sys.stdout.write(notes(sys.argv[1], *(path.read_text(encoding="utf-8") for path in texts)))
