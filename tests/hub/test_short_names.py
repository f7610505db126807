"""Short names for the way to a node: each name still means the same."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_gpu_kernel.hub.node import agent_file
from jupyter_gpu_kernel.hub.node.compact import compact
from jupyter_gpu_kernel.hub.node.short_names import given_names, shorten

SOURCES = agent_file._read_sources()
GIVEN = set().union(*map(given_names, SOURCES.values()))
Names = dict[str, str]
Functions = dict[tuple[str, int], Names]
"""By name and line of a function's scope."""
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def pairs(old: ast.AST, new: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    return zip(ast.walk(old), ast.walk(new), strict=True)


def plain_fields(node: ast.AST) -> list[Any]:
    """What the node says, but for a name that may be another one; with its line."""
    hidden = "id" if isinstance(node, ast.Name) else "arg" if isinstance(node, ast.arg) else ""
    fields = [value for key, value in ast.iter_fields(node) if key != hidden]
    return [
        type(node),
        getattr(node, "lineno", 0),
        *(one for one in fields if not isinstance(one, (ast.AST, list))),
    ]


def renamed(old: ast.AST, new: ast.AST) -> Names:
    """The new names in a function by the old ones: one for each, and each for one."""
    names: Names = {}
    for before, after in pairs(old, new):
        if isinstance(before, ast.Name) and isinstance(after, ast.Name):
            assert names.setdefault(before.id, after.id) == after.id
        elif isinstance(before, ast.arg) and isinstance(after, ast.arg):
            assert names.setdefault(before.arg, after.arg) == after.arg
    assert len(set(names.values())) == len(names)
    return names


def outermost(old: ast.AST, new: ast.AST) -> Iterator[tuple[Any, Any]]:
    for before, after in zip(ast.iter_child_nodes(old), ast.iter_child_nodes(new), strict=True):
        if isinstance(before, FUNCTION):
            yield before, after
        else:
            yield from outermost(before, after)


def scopes(function: Any) -> Iterator[tuple[str, int]]:
    """Name and line of a function's scope, and of lambdas in it or in its default values."""
    lines = [function.lineno, *(one.lineno for one in function.decorator_list[:1])]
    yield from ((function.name, line) for line in lines)
    yield from (("lambda", one.lineno) for one in ast.walk(function) if isinstance(one, ast.Lambda))


def meaning(table: symtable.SymbolTable, constants: Names, functions: Functions, names: Names) -> Any:
    """What each name is in each scope. Those of a function are replaced by what `functions` has, and private constants
    by `constants`: no other name of the module, or of Python, may be another one."""
    names = functions.get((table.get_name(), table.get_lineno()), names)
    symbols = {
        (constants if one.is_global() else names).get(one.get_name(), one.get_name()): (
            *(one.is_global(), one.is_local(), one.is_free(), one.is_parameter()),
            *(one.is_assigned(), one.is_imported(), one.is_declared_global(), one.is_nonlocal()),
        )
        for one in table.get_symbols()
    }
    return (
        table.get_type(),
        symbols,
        [meaning(child, constants, functions, names) for child in table.get_children()],
    )


def check(small: str, short: str) -> None:
    """Both sources do the same, in the same lines."""
    old, new = ast.parse(small), ast.parse(short)
    for before, after in pairs(old, new):
        assert plain_fields(before) == plain_fields(after)
    constants = {
        before.id: after.id
        for before, after in pairs(old, new)
        if isinstance(before, ast.Name)
        and isinstance(after, ast.Name)
        and re.fullmatch("_[A-Z0-9_]+", before.id)
    }
    functions = {
        place: renamed(before, after) for before, after in outermost(old, new) for place in scopes(before)
    }
    tables = [symtable.symtable(source, "source", "exec") for source in (small, short)]
    assert meaning(tables[0], constants, functions, constants) == meaning(tables[1], {}, {}, {})


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.removeprefix("jupyter_gpu_kernel/"))
def test_every_module_does_the_same(path: str) -> None:
    small = compact(SOURCES[path])
    check(small, shorten(small, GIVEN))
    check(small, shorten(small, GIVEN, parameters=False))


def test_no_module_uses_a_private_constant_of_another() -> None:
    trees = {path: ast.parse(source) for path, source in SOURCES.items()}
    private = {
        one.id
        for tree in trees.values()
        for node in tree.body
        for one in ast.walk(node)
        if isinstance(node, ast.Assign) and isinstance(one, ast.Name) and re.fullmatch("_[A-Z0-9_]+", one.id)
    }
    assert private
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert not private & {one.name for one in node.names}, path
            if isinstance(node, ast.Attribute) and node.attr in private:
                assert isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"), path


SAMPLE = """
_LIMIT = 3
_FIRST, SECOND = 1, 2
_CHANGES = 0
a = "the module's"


class Shape:
    size = _LIMIT

    def area(self, width, height=size, *others, **named):
        product = width * height
        for other in others:
            product *= other
        return product + sum(named.values())

    def told(self, longer, given=_FIRST):
        return f"{longer} {given!r} {a}"


def outer(count, start=_LIMIT):
    total = start

    def inner(step):
        nonlocal total
        found = [step * factor for factor in range(count)]
        total += sum(found)
        return total

    try:
        later = lambda value: inner(value) + start
        return later(a_b := 2), a_b
    except ValueError as error:
        return error


def with_a_global(step):
    def inner(a):
        return a + step

    return inner("my "), a


def change():
    global _CHANGES
    _CHANGES += 1
    return _CHANGES


def class_inside(value):
    class Inner:
        field = value

    return Inner.field


def seen(value):
    other = value
    return sorted(locals())
"""
RESULTS = {
    "Shape().area(2)": 6,
    "Shape().area(2, 5, 7, wide=1)": 71,
    "Shape().told(5, given=6)": "5 6 the module's",
    "outer(3)": ((12, 2)),
    "with_a_global('own')": ("my own", "the module's"),
    "change() + change()": 3,
    "class_inside(4)": 4,
    "seen(1)": ["other", "value"],
}


def test_what_is_shortened_and_what_is_not() -> None:
    short = shorten(SAMPLE, given_names("f(given=1)"))
    check(SAMPLE, short)
    names: dict[str, Any] = {}
    exec(compile(short, "sample", "exec", dont_inherit=True), names)
    assert {call: eval(call, names) for call in RESULTS} == RESULTS
    assert "_LIMIT" not in names and {"a", "SECOND", "Shape", "outer"} < set(names)
    for word in ("product", "longer", "found", "factor", "later", "a_b"):
        assert word in SAMPLE and not re.search(rf"\b{word}\b", short)
    assert "width" in short, "a call with ** may give it"
    assert "given" in short and "total" in short and "error" in short


def test_parameters_stay_where_calls_are_not_known() -> None:
    short = shorten(SAMPLE, (), parameters=False)
    assert all(re.search(rf"\b{word}\b", short) for word in ("longer", "count", "step", "value"))
    assert not re.search(r"\b(found|factor|product)\b", short)


OTHER_BINDINGS = """
_LIMIT, _TAG = 3, 4


def set_up():
    global shared
    shared = 1


def with_a_global_of_functions():
    return [shared for shared in range(2)], shared


def with_an_import():
    import math as _TAG

    def A():
        return _LIMIT

    return _TAG.floor(2.5)
"""


def test_names_that_statements_in_functions_bind() -> None:
    short = shorten(OTHER_BINDINGS, ())
    check(OTHER_BINDINGS, short)
    names: dict[str, Any] = {}
    exec(compile(short, "sample", "exec", dont_inherit=True), names)
    names["set_up"]()
    assert names["with_a_global_of_functions"]() == ([0, 1], 1)
    assert names["with_an_import"]() == 2 and "A" not in names
