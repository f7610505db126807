"""Which notebook a front end works on, where only its messages tell (VS Code): start-up code, or a cell's id."""

from __future__ import annotations

import ast
import re
from typing import Any
from urllib.parse import unquote

from ..wire.messages import Channel, Message, MessageError

_STARTUP = re.compile(r"__vsc_ipynb_file__\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')")
_CELL = re.compile(r"^vscode-notebook-cell:(?://[^/]*)?(/[^#?]+)")


def notebook_of(message: Message) -> str:
    """The notebook's path, or "" if this request does not tell."""
    if message.channel is not Channel.SHELL or b"execute_request" not in message.parts[0]:
        return ""
    try:
        content = message.content()
        return _from_code(str(content.get("code", ""))) or _from_cell(message.metadata())
    except MessageError:
        return ""


def _from_code(code: str) -> str:
    found = _STARTUP.search(code)
    if found is None:
        return ""
    try:
        return str(ast.literal_eval(found[1]))
    except (ValueError, SyntaxError):
        return ""


def _from_cell(metadata: dict[str, Any]) -> str:
    found = _CELL.match(str(metadata.get("cellId", "")))
    return unquote(found[1]) if found else ""
