"""Sources for the way to a node: shorter, and otherwise the same, line by line."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from jupyter_gpu_kernel.hub.node import agent_file
from jupyter_gpu_kernel.hub.node.compact import compact

SOURCES = agent_file._read_sources()


class Plain(ast.NodeTransformer):
    """Removes from a tree what need not be sent."""

    def visit(self, node: Any) -> Any:
        body = getattr(node, "body", None)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(0)
        elif isinstance(node, ast.Module):
            node.body = [one for one in node.body if not is_import(one)]
            body = node.body
        if isinstance(body, list):
            node.body = [
                self.statement(one, isinstance(node, ast.ClassDef)) for one in body if not is_text(one)
            ]
        self.generic_visit(node)
        return node

    def statement(self, node: ast.stmt, is_field: bool) -> ast.stmt:
        if isinstance(node, ast.AnnAssign) and node.value is not None and not is_field:
            return ast.copy_location(ast.Assign([node.target], node.value), node)
        return node


def is_text(node: ast.stmt) -> bool:
    """A docstring, or what is in its place."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_import(node: ast.stmt) -> bool:
    """Of names that may be in annotations only."""
    return isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__")


def imported(source: str) -> dict[str, int]:
    """The names that the source imports at its top, and the lines."""
    imports = [one for one in ast.parse(source).body if isinstance(one, (ast.Import, ast.ImportFrom))]
    return {(one.asname or one.name).split(".")[0]: node.lineno for node in imports for one in node.names}


def used(source: str) -> set[str]:
    """The names that it uses when it runs."""
    tree = Plain().visit(ast.parse(source))
    return {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)} | {"annotations"}


def statements(source: str) -> tuple[str, list[tuple[str, int]]]:
    """What the source does, and the line of each statement, function and class."""
    tree = Plain().visit(ast.parse(source))
    lines = [(type(one).__name__, one.lineno) for one in ast.walk(tree) if isinstance(one, ast.stmt)]
    return ast.dump(tree), lines


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.removeprefix("jupyter_gpu_kernel/"))
def test_every_module_does_the_same_in_the_same_lines(path: str) -> None:
    small = compact(SOURCES[path])
    assert len(small) <= len(SOURCES[path])
    compile(small, path, "exec", dont_inherit=True)
    assert statements(small) == statements(SOURCES[path])
    before, after = imported(SOURCES[path]), imported(small)
    assert after == {name: line for name, line in before.items() if name in used(small)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.removeprefix("jupyter_gpu_kernel/"))
def test_what_a_module_imports_from_another_is_still_there(path: str) -> None:
    """Also if that one has only imported it."""
    for node in ast.walk(ast.parse(compact(SOURCES[path]))):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.split("/")[: -node.level]
            module = "/".join([*folder, *(node.module or "").split(".")]).rstrip("/")
            for name in (one.name for one in node.names):
                parts = {f"{module}/{name}.py", f"{module}/{name}/__init__.py"} & set(SOURCES)
                source = SOURCES.get(f"{module}.py", SOURCES.get(f"{module}/__init__.py", ""))
                assert parts or name in bound(compact(source)), f"{name} of {module}"


def bound(source: str) -> set[str]:
    found = set(imported(source))
    for node in ast.parse(source).body:
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                found.add(one.id)
            elif isinstance(one, (ast.FunctionDef, ast.ClassDef)):
                found.add(one.name)
    return found


SAMPLE = '''"""A module."""
from __future__ import annotations

import io, os as system
from typing import (
    Any,  # a comment
    NamedTuple,
)

NAMES: dict[str, int] = {"a": 1}  # a comment


class Thing:
    """A class, of which nothing else is there."""


class Point(NamedTuple):
    x: Any
    y: io.StringIO = system.sep


class Pair(tuple):
    first: int = 1  # a field
    """What it is."""
    text = """
    kept    # as it is
  """
    spaces = """at the end\x20\x20
  and at the beginning"""

    def get(self, key: str, *rest: int, more: str = "# no comment") -> list[
        int
    ]:
        """A function."""
        # an own line
        found: int = len(key)
        return [
            found,  # one
            ord(f"{key!r:>3}#"[0]),
        ]
'''


def test_what_goes_and_what_stays() -> None:
    small = compact(SAMPLE)
    names: dict[str, Any] = {}
    exec(compile(small, "sample", "exec", dont_inherit=True), names)
    pair = names["Pair"]
    assert pair.text == "\n    kept    # as it is\n  "
    assert pair.spaces == "at the end  \n  and at the beginning"
    assert pair().get("x") == [1, ord("'")]
    assert names["Point"](1) == (1, names["system"].sep)
    assert not {"io", "Any"} & set(names) and "NamedTuple" in names
    assert "A class" not in small and "comment" not in small.replace("# no comment", "")
    assert small.count("\n") == SAMPLE.count("\n")


def test_docstrings_that_users_read_stay() -> None:
    small = compact(SAMPLE, docstrings=True)
    names: dict[str, Any] = {}
    exec(compile(small, "sample", "exec", dont_inherit=True), names)
    assert names["Thing"].__doc__ == "A class, of which nothing else is there."
    assert "a comment" not in small


def test_the_module_for_cells_keeps_its_help() -> None:
    """`help(gpu_kernel)` in a cell."""
    stream = agent_file._compacted(SOURCES).decode().split("\0")
    shown = stream[stream.index("jupyter_gpu_kernel/agent/in_kernel/gpu_kernel.py") + 1]
    before = ast.parse(SOURCES["jupyter_gpu_kernel/agent/in_kernel/gpu_kernel.py"])
    assert ast.get_docstring(ast.parse(shown)) == ast.get_docstring(before)
