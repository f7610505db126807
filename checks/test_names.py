"""Names in the package: no two classes share one, private ones of libraries are listed with a reason; and no module is
too long to be read at once."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from test_private_names import NAMES, SEARCHED

PACKAGE = Path(__file__).parents[1] / "jupyter_gpu_kernel"
TREES = {path: ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}
MOST_LINES = 400
OWN_OF_STDLIB = {"_exit", "_replace", "_asdict", "_fields", "_make", "_field_defaults"}
"""Private in their form only: they are documented."""


def defined_here(tree: ast.AST) -> set[str]:
    """The names that a module of the package defines, as attributes of its own objects too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls"):
            names |= {node.attr} if isinstance(node.ctx, ast.Store) else set()
    return names


def test_no_other_private_name_of_a_library_is_used() -> None:
    known = OWN_OF_STDLIB.union(
        *map(defined_here, TREES.values()), (name for _, name, _ in [*NAMES, *SEARCHED])
    )
    others = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.attr}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if node.attr not in known
    ]
    assert others == [], "list them above, with the reason and the upstream issue"


def test_no_two_classes_have_one_name() -> None:
    classes = Counter(
        node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_no_module_is_too_long() -> None:
    lengths = {path.name: len(path.read_text("utf-8").splitlines()) for path in TREES}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}
