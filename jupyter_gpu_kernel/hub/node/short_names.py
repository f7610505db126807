"""Shortens names in Python source for the way to a node: of local variables, of parameters, and of private constants.

A name is left as it is where another one might change what runs, or where its places in the source are not known: a
local one that is also bound outside of functions, or by `import`, `def`, `except`, `global` or `nonlocal`; a parameter
that a call may give by name. Functions and classes keep their names, for tracebacks. A module must not use a private
constant of another one, nor f-strings with `=`.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import keyword
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

_CONSTANT = re.compile("_[A-Z][A-Z0-9_]*")
_DYNAMIC = {"locals", "vars", "eval", "exec"}
_METHOD = {"self", "cls"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Place(NamedTuple):
    """A name in the source: its line and the first byte in it, counted from 0."""

    line: int
    start: int
    name: str
    bound: bool


def given_names(source: str) -> set[str]:
    """Return the names of parameters that calls in this source give."""
    keywords = (node.arg for node in ast.walk(ast.parse(source)) if isinstance(node, ast.keyword))
    return {name for name in keywords if name is not None}


def shorten(source: str, given: Collection[str], parameters: bool = True) -> str:
    """Return the source with short names, of the same lines. `given`: `given_names` of this source, and of all that use
    it; `parameters`: whether these have all calls, so that the names of other parameters are shortened."""
    tree = ast.parse(source)
    outside = {*dir(builtins), *_bound_outside(tree)}
    short = _short_constants(tree, outside)
    for function in _functions(tree):
        nodes = list(ast.walk(function))
        if not any(isinstance(one, ast.ClassDef) or _is_dynamic(one) for one in nodes):
            kept = outside.union(_METHOD, _kept(function, nodes, given if parameters else None))
            places = sorted(_places(nodes))
            names = {place.name for place in places if place.bound} - kept
            short.update(_short(places, names, kept, ascii_lowercase))
    lines = source.encode().split(b"\n")
    for place in sorted(short, reverse=True):
        line, end = lines[place.line], place.start + len(place.name.encode())
        lines[place.line] = line[: place.start] + short[place].encode() + line[end:]
    return b"\n".join(lines).decode()


def _short(
    places: list[_Place], names: Collection[str], taken: Collection[str], letters: str
) -> dict[_Place, str]:
    """The short names at these places for `names`, by their first places. None is `taken`, or there already."""
    avoided = {place.name for place in places if place.name not in names}.union(taken, keyword.kwlist)
    pairs = map("".join, itertools.product(letters, repeat=2))
    free = (one for one in (*letters, *pairs) if one not in avoided)
    new = {name: next(free) for name in dict.fromkeys(place.name for place in places) if name in names}
    return {place: new[place.name] for place in places if place.name in new}


def _short_constants(tree: ast.Module, taken: Collection[str]) -> dict[_Place, str]:
    """The same for private constants: names that the module binds once, at its top."""
    places = sorted(_places(ast.walk(tree)))
    others = {name for node in ast.walk(tree) for name in _bound_by_statement(node)}
    bound = Counter([*(place.name for place in places if place.bound), *others])
    top = _places(node for one in tree.body if isinstance(one, ast.Assign) for node in ast.walk(one))
    names = {place.name for place in top if bound[place.name] == 1 and _CONSTANT.fullmatch(place.name)}
    return _short(places, names, others.union(taken), ascii_uppercase)


def _functions(tree: ast.AST) -> Iterator[_Function]:
    """The functions that are in no other function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _Function):
            yield node
        else:
            yield from _functions(node)


def _is_dynamic(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in _DYNAMIC


def _bound_outside(tree: ast.AST) -> Iterator[str]:
    """The names that modules and classes bind, or functions in them declare global; all functions may use these."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        yield from _bound_by_statement(node)
        if isinstance(node, _Function):
            yield from (name for one in ast.walk(node) if isinstance(one, ast.Global) for name in one.names)
        else:
            yield from _bound_outside(node)


def _bound_by_statement(node: ast.AST) -> Iterator[str]:
    if isinstance(node, _Function | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.ExceptHandler) and node.name is not None:
        yield node.name
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names


def _kept(function: _Function, nodes: Sequence[ast.AST], given: Collection[str] | None) -> Iterator[str]:
    """The names that stay in this function. `given`: as for `shorten`; None if the names of all parameters stay."""
    for node in nodes:
        if node is not function:
            yield from _bound_by_statement(node)
        if isinstance(node, ast.arguments):
            names = [one.arg for one in ast.walk(node) if isinstance(one, ast.arg)]
            yield from (name for name in names if given is None or node.kwarg is not None or name in given)


def _places(nodes: Iterable[ast.AST]) -> Iterator[_Place]:
    for node in nodes:
        if isinstance(node, ast.Name):
            yield _Place(node.lineno - 1, node.col_offset, node.id, not isinstance(node.ctx, ast.Load))
        elif isinstance(node, ast.arg):
            yield _Place(node.lineno - 1, node.col_offset, node.arg, True)
