"""The notebook of VS Code's messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from runtimes import make

from jupyter_gpu_kernel.hub.kernel.vscode.notebook import title_of
from jupyter_gpu_kernel.wire.messages import Channel, Message


def request(code: str = "", msg_type: str = "execute_request", **metadata: Any) -> Message:
    return Message(Channel.SHELL, 1, make(msg_type, {"code": code}, metadata=metadata))


UNSAVED = "vscode-notebook-cell:Untitled-1.ipynb"


@pytest.mark.parametrize(
    ("message", "title"),
    [
        (request("if 1:\n    __vsc_ipynb_file__ = \"/home/me/a b.ipynb\""), "/home/me/a b.ipynb"),
        (request("__vsc_ipynb_file__ = " + json.dumps("C:\\Users\\me\\a.ipynb")), "C:\\Users\\me\\a.ipynb"),
        (request("1", cellId="vscode-notebook-cell:/home/me/a%20b.ipynb#W0sZmlsZQ%3D%3D"), "/home/me/a b.ipynb"),
        (request("1", cellId="vscode-notebook-cell://ssh-remote%2Bbox/home/me/a.ipynb#W1"), "/home/me/a.ipynb"),
        (request("1", cellId="vscode-notebook-cell:/home/me/a.ipynb?b#W0sZmlsZQ%3D%3D"), "/home/me/a.ipynb"),
        (request('__vsc_ipynb_file__ = "Untitled-1.ipynb"'), "Untitled-1.ipynb"),
        (request("1", cellId=UNSAVED + "?jupyter-notebook#W0sdW50aXRsZWQ%3D"), "Untitled-1.ipynb"),
        (request("1", cellId="vscode-notebook-cell:/home/me/Untitled-1.ipynb#W0sdW50aXRsZWQ%3D"), "Untitled-1.ipynb"),
        (request("1", cellId="vscode-notebook-cell:/home/me/a.ipynb#W0sno-base64"), "/home/me/a.ipynb"),
        (request("1", cellId="6f1c9a2e"), ""),
        (request("print('__vsc_ipynb_file__')"), ""),
        (request('__vsc_ipynb_file__ = "/a.ipynb"', "complete_request"), ""),
        (Message(Channel.SHELL, 1, (b'{"msg_type": "execute_request"}', b"{}", b"{}", b"torn")), ""),
    ],
)  # fmt: skip
def test_the_notebook_is_known_from_what_vs_code_sends(message: Message, title: str) -> None:
    assert title_of(message) == title
