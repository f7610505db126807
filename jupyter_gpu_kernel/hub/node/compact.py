"""Shortens Python source for the way to a node: without docstrings, comments, annotations, and the imports of what only
annotations use.

Every line keeps its number, so tracebacks tell the line in the original. Nothing else changes: what runs is the same.
A module must not import from another what that one has only imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple


class _Span(NamedTuple):
    """A part of the source: from a line and a byte in it up to others, counted from 0. `text` replaces it."""

    line: int
    start: int
    end_line: int
    end: int
    text: bytes = b""


def compact(source: str, docstrings: bool = False) -> str:
    """Return the shortened source. `docstrings`: whether these stay, and annotations with them."""
    tree = ast.parse(source)
    lines = source.encode().split(b"\n")
    strings = [_span(node) for node in ast.walk(tree) if _is_string(node)]
    spans = [*_comments(lines, strings)]
    if not docstrings:
        spans += [*_docstrings(tree), *_annotations(tree, lines), *_imports(tree)]
    in_string = {line for one in strings for line in range(one.line + 1, one.end_line + 1)}
    for span in sorted(spans, reverse=True):
        rest = lines[span.end_line][span.end :]
        lines[span.line] = (
            lines[span.line][: span.start] + span.text + (rest if span.line == span.end_line else b"")
        )
        for line in range(span.line + 1, span.end_line + 1):
            lines[line] = b""
            in_string.discard(line)
    return b"\n".join(
        line if number in in_string else _indent_less(line, number + 1 in in_string)
        for number, line in enumerate(lines)
    ).decode()


def _span(node: ast.AST, text: bytes = b"") -> _Span:
    assert isinstance(node, (ast.expr, ast.stmt))
    assert node.end_lineno is not None and node.end_col_offset is not None
    return _Span(node.lineno - 1, node.col_offset, node.end_lineno - 1, node.end_col_offset, text)


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def _docstrings(tree: ast.Module) -> Iterator[_Span]:
    """The docstrings of modules, classes and functions, and of the names before them."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        texts = [one for one in node.body if isinstance(one, ast.Expr) and _is_string(one.value)]
        needed = 0 if isinstance(node, ast.Module) else 1
        kept = texts[:needed] if len(texts) == len(node.body) else []  # a body must have one statement
        yield from (_span(one, b"0" if one in kept else b"") for one in texts)


def _annotations(tree: ast.Module, lines: list[bytes]) -> Iterator[_Span]:
    """The annotations of functions and assignments; those of one line. Fields of classes keep that they have one."""
    fields = {one for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for one in node.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and node in fields:
            if node.annotation.lineno == node.annotation.end_lineno:
                yield _span(node.annotation, b"0")
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
            returns = _span(node.returns)
            arrow = lines[returns.line].rindex(b"->", 0, returns.start)
            start = len(lines[returns.line][:arrow].rstrip())
        elif isinstance(node, ast.arg) and node.annotation is not None:
            returns = _span(node.annotation)
            start = node.col_offset + len(node.arg.encode()) if node.lineno == node.annotation.lineno else -1
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            returns = _span(node.annotation)
            start = _span(node.target).end if _span(node.target).end_line == returns.line else -1
        else:
            continue
        if returns.line == returns.end_line and start >= 0:
            yield _Span(returns.line, start, returns.line, returns.end)


def _imports(tree: ast.Module) -> Iterator[_Span]:
    """The imports at the top of names that only annotations use, without these names."""
    annotations = {one for node in ast.walk(tree) for given in _annotation(node) for one in ast.walk(given)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in annotations}
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom) or getattr(node, "module", "") == "__future__":
            continue
        names = [one for one in node.names if (one.asname or one.name).partition(".")[0] in used]
        if len(names) < len(node.names):
            node.names = names
            yield _span(node, ast.unparse(node).encode() if names else b"")


def _annotation(node: ast.AST) -> Iterator[ast.expr]:
    for name in ("annotation", "returns"):
        if isinstance(given := getattr(node, name, None), ast.expr):
            yield given


def _comments(lines: list[bytes], strings: list[_Span]) -> Iterator[_Span]:
    within = [(one.line, one.start, one.end_line, one.end) for one in strings]
    for number, line in enumerate(lines):
        at = line.find(b"#")
        here = [one for one in within if one[0] <= number <= one[2]] if at >= 0 else []
        while at >= 0 and any(one[:2] <= (number, at) < one[2:] for one in here):
            at = line.find(b"#", at + 1)
        if at >= 0:
            yield _Span(number, len(line[:at].rstrip()), number, len(line))


def _indent_less(line: bytes, string_goes_on: bool) -> bytes:
    """One space per level instead of four. A string that goes on in the next line keeps the spaces at its end."""
    text = line.lstrip(b" ") if string_goes_on else line.strip(b" ")
    spaces = len(line) - len(line.lstrip(b" "))
    return b" " * (spaces // 4 if spaces % 4 == 0 else 1) + text if text else b""
