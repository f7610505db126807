"""What users are told to do ends as a sentence: a front end may add a full stop, which must not stand in a command."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "jupyter_gpu_kernel"
ENDS = (".", "”", ")", "?")


def remedies(tree: ast.AST) -> Iterator[ast.expr]:
    """The values of `remedy=…` in calls, and of variables of that name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "remedy":
            yield node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _assigned(target, node.value)


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its_value in zip(target.elts, value.elts, strict=False):
            yield from _assigned(one, its_value)
    elif isinstance(target, ast.Name) and target.id == "remedy":
        yield value


def endings(text: ast.expr) -> Iterator[str]:
    """How a text ends, in each branch; “{…}” if that is not known. Nothing for what is no text here, goes on elsewhere
    (it ends with a space), or is a constant, which is a sentence."""
    if isinstance(text, ast.IfExp):
        yield from endings(text.body)
        yield from endings(text.orelse)
    elif isinstance(text, ast.BinOp):
        yield from endings(text.right)
    elif isinstance(text, ast.JoinedStr):
        yield from endings(text.values[-1])
    elif isinstance(text, ast.FormattedValue):
        if not (isinstance(text.value, ast.Name) and text.value.id.isupper()):
            yield "{…}"
    elif isinstance(text, ast.Constant) and text.value and not text.value.endswith(" "):
        yield text.value


def faults(source: str) -> list[str]:
    found = [(one.lineno, end) for one in remedies(ast.parse(source)) for end in endings(one)]
    return [f"line {line}: …{end[-60:]}" for line, end in found if not end.endswith(ENDS)]


def test_remedies_end_as_sentences() -> None:
    paths = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "labextension"]
    found = {path.relative_to(PACKAGE).as_posix(): faults(path.read_text(encoding="utf-8")) for path in paths}
    assert len(found) > 100 and {path: lines for path, lines in found.items() if lines} == {}


def test_a_remedy_that_ends_with_a_command_is_found() -> None:
    assert len(faults("E(remedy=f'Run: chmod 600 {path}')\nremedy = 'Run it: ls' if a else 'Wait.'")) == 2
    assert faults("cause, remedy = f'x {y}', f'Run “{z}” again.'") == []
