"""Count the lines of code in each folder of the package; fail above the limit in setup.cfg. `make check` runs this.

Blank lines, comments and docstrings do not count, so that no limit makes a module worse to read.
"""

from __future__ import annotations

import ast
import configparser
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jupyter_gpu_kernel"


def code_lines(source: str) -> int:
    """The number of lines that are code."""
    docstrings = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = ((number, line.strip()) for number, line in enumerate(source.splitlines(), 1))
    return sum(1 for number, line in lines if line and not line.startswith("#") and number not in docstrings)


def main() -> int:
    lines, modules = Counter[str](), Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        folder = str(path.parent.relative_to(ROOT))
        lines[folder] += code_lines(path.read_text(encoding="utf-8"))
        modules[folder] += 1
    for folder in sorted(lines):
        print(f"{folder:48}{lines[folder]:7} lines in {modules[folder]} modules")
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    limit = settings.getint("lines_of_code", "limit")
    print(f"{PACKAGE.name}: {lines.total()} lines of code, at most {limit}")
    return int(lines.total() > limit)


if __name__ == "__main__":
    sys.exit(main())
