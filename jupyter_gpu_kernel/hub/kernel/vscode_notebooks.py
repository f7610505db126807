"""Which notebook a front end works on, where only its messages tell (VS Code): start-up code, or a cell's id.

Only a file is a notebook that can be recognised again: VS Code calls the first unsaved notebook of every window
`Untitled-1.ipynb`.
"""

from __future__ import annotations

import ast
import base64
import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import unquote

from ...wire.messages import Channel, Message, MessageError

_STARTUP = re.compile(r"__vsc_ipynb_file__\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')")
_CELL = re.compile(r"^vscode-notebook-cell:(?://[^/]*)?([^#?]+)(?:\?[^#]*)?(?:#W\d+s(?P<scheme>[^#]*))?")


def is_file(notebook: str) -> bool:
    """Whether this is the whole path of a file; a folder (a session without a name) is none."""
    absolute = PurePosixPath(notebook).is_absolute() or PureWindowsPath(notebook).is_absolute()
    return absolute and not notebook.endswith(("/", "\\"))


def notebook_of(message: Message) -> str:
    """The notebook's path, or "" if this request does not tell."""
    path = _named_in(message)
    return path if is_file(path) else ""


def from_vs_code(message: Message) -> bool:
    """Whether VS Code sent this request, as far as the request tells."""
    return bool(_named_in(message))


def _named_in(message: Message) -> str:
    """The notebook's name as VS Code gives it: a path, or the name of an unsaved one."""
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
    if found is None:
        return ""
    path = unquote(found[1])
    return PurePosixPath(path).name if _scheme(found["scheme"] or "") == "untitled" else path


def _scheme(encoded: str) -> str:
    """The scheme of the notebook's own URI, which VS Code adds to the id of each cell in base64."""
    try:
        return base64.b64decode(unquote(encoded)).decode()
    except ValueError:
        return ""
