"""VS Code's way through a hub: what its messages tell, returning, restarting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_gpu_kernel.hub.notebooks import notebook_of
from jupyter_gpu_kernel.wire.jupyter import make
from jupyter_gpu_kernel.wire.messages import Channel, Message


def request(code: str = "", msg_type: str = "execute_request", **metadata: Any) -> Message:
    return Message(Channel.SHELL, 1, make(msg_type, {"code": code}, metadata=metadata))


@pytest.mark.parametrize(
    ("message", "notebook"),
    [
        (request("if 1:\n    __vsc_ipynb_file__ = \"/home/me/a b.ipynb\""), "/home/me/a b.ipynb"),
        (request("__vsc_ipynb_file__ = " + json.dumps("C:\\Users\\me\\a.ipynb")), "C:\\Users\\me\\a.ipynb"),
        (request("1", cellId="vscode-notebook-cell:/home/me/a%20b.ipynb#W0sZmlsZQ%3D%3D"), "/home/me/a b.ipynb"),
        (request("1", cellId="vscode-notebook-cell://ssh-remote%2Bbox/home/me/a.ipynb#W1"), "/home/me/a.ipynb"),
        (request("1", cellId="6f1c9a2e"), ""),
        (request("print('__vsc_ipynb_file__')"), ""),
        (request('__vsc_ipynb_file__ = "/a.ipynb"', "complete_request"), ""),
        (Message(Channel.SHELL, 1, (b'{"msg_type": "execute_request"}', b"{}", b"{}", b"torn")), ""),
    ],
)  # fmt: skip
def test_the_notebook_is_known_from_what_vs_code_sends(message: Message, notebook: str) -> None:
    assert notebook_of(message) == notebook
