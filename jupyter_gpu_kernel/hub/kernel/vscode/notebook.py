"""Which notebook VS Code's messages are for."""

from __future__ import annotations

import ast
import base64
import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import unquote

from ....wire.messages import Channel, Message, MessageError

_STARTUP = re.compile(r"__vsc_ipynb_file__\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')")
_CELL = re.compile(r"^vscode-notebook-cell:(?://[^/]*)?([^#?]+)(?:\?[^#]*)?(?:#W\d+s(?P<scheme>[^#]*))?")


def is_file(notebook: str) -> bool:
    """Return whether this is the absolute path of a file; a folder (a session without a name) is none."""
    absolute = PurePosixPath(notebook).is_absolute() or PureWindowsPath(notebook).is_absolute()
    return absolute and not notebook.endswith(("/", "\\"))


def title_of(request: Message) -> str:
    """Return the notebook's name in a request of VS Code, a path or the name of an unsaved notebook; "" if the request
    contains none."""
    if request.channel is not Channel.SHELL or b"execute_request" not in request.parts[0]:
        return ""
    try:
        code = str(request.content().get("code", ""))
        return _name_in_code(code) or _name_in_cell_id(request.metadata())
    except MessageError:
        return ""


def _name_in_code(code: str) -> str:
    found = _STARTUP.search(code)
    if found is None:
        return ""
    try:
        return str(ast.literal_eval(found[1]))
    except (ValueError, SyntaxError):
        return ""


def _name_in_cell_id(metadata: dict[str, Any]) -> str:
    found = _CELL.match(str(metadata.get("cellId", "")))
    if found is None:
        return ""
    path = unquote(found[1])
    return PurePosixPath(path).name if _scheme(found["scheme"] or "") == "untitled" else path


def _scheme(encoded: str) -> str:
    """Return the scheme of the notebook's own URI, which VS Code adds to the id of each cell in base64."""
    try:
        return base64.b64decode(unquote(encoded)).decode()
    except ValueError:
        return ""
