"""VS Code's way through a hub: what its messages tell, returning, restarting."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from fronts import Front
from streams import LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.hub.link import Link
from jupyter_gpu_kernel.hub.notebooks import notebook_of
from jupyter_gpu_kernel.hub.visits import Visit, Visits
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
        (request("1", cellId="vscode-notebook-cell:/home/me/a.ipynb?b#W0sZmlsZQ%3D%3D"), "/home/me/a.ipynb"),
        (request('__vsc_ipynb_file__ = "Untitled-1.ipynb"'), ""),
        (request("1", cellId="vscode-notebook-cell:Untitled-1.ipynb?jupyter-notebook#W0sdW50aXRsZWQ%3D"), ""),
        (request("1", cellId="vscode-notebook-cell:/home/me/Untitled-1.ipynb#W0sdW50aXRsZWQ%3D"), ""),
        (request("1", cellId="vscode-notebook-cell:/home/me/a.ipynb#W0sno-base64"), "/home/me/a.ipynb"),
        (request("1", cellId="6f1c9a2e"), ""),
        (request("print('__vsc_ipynb_file__')"), ""),
        (request('__vsc_ipynb_file__ = "/a.ipynb"', "complete_request"), ""),
        (Message(Channel.SHELL, 1, (b'{"msg_type": "execute_request"}', b"{}", b"{}", b"torn")), ""),
    ],
)  # fmt: skip
def test_the_notebook_is_known_from_what_vs_code_sends(message: Message, notebook: str) -> None:
    assert notebook_of(message) == notebook


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")
def test_a_window_that_closes_while_its_notebooks_kernel_is_looked_for(
    loop: LoopThread, link: Link, node: Node
) -> None:
    """It is given none: nobody would ever let go of that."""
    left = loop.kernel(link, notebook="/a.ipynb", name="cpu")
    until(left, "idle")
    loop.call(left.close)
    remote = loop.kernel(link, name="cpu")
    until(remote, "idle")
    visit = remote.visit = Visit(Visits(), 1, "cpu")
    with Front(remote.edge.connection) as front:
        node.streams[-1].stall()
        front.client.execute("__vsc_ipynb_file__ = '/a.ipynb'", store_history=False)
        wait_for(lambda: visit._tasks, "the question to the node")
        loop.call(remote.close)
        node.streams[-1].resume()
        wait_for(lambda: not visit._tasks, "its answer")
    assert not link.in_use
