"""VS Code's way through a hub: what its messages tell, returning, restarting."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from fronts import Front
from runtimes import RUNTIME, make
from streams import LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel.vscode_sessions import VSCodeSession, VSCodeSessions, notebook_of
from jupyter_gpu_kernel.hub.node.link import Link
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


posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")


@posix
def test_a_window_that_closes_while_its_notebooks_kernel_is_looked_for(
    loop: LoopThread, link: Link, node: Node
) -> None:
    """It is given none: nobody would ever let go of that."""
    before = link.kernel_ids
    left = loop.kernel(link, notebook="/a.ipynb", name="cpu")
    until(left, "idle")
    loop.call(left.close)
    sessions = VSCodeSessions(RUNTIME.monotonic)
    session = VSCodeSession(sessions, 1, "cpu")
    remote = loop.kernel(link, session=session, name="cpu")
    until(remote, "idle")
    loop.call(sessions.begin, session)
    with Front(remote.edge.connection) as front:
        node.streams[-1].stall()
        front.client.execute("__vsc_ipynb_file__ = '/a.ipynb'", store_history=False)
        wait_for(lambda: session._tasks, "the question to the node")
        loop.call(remote.close)
        node.streams[-1].resume()
        wait_for(lambda: not session._tasks, "its answer")
    assert link.kernel_ids == before


class Window:
    """A window of VS Code, whose clock is the test's: notebooks are opened and closed there."""

    def __init__(self, loop: LoopThread, link: Link, process: int = 1) -> None:
        self.time = 0.0
        self.sessions = VSCodeSessions(lambda: self.time)
        self._open: dict[RemoteKernel, VSCodeSession] = {}
        self._loop = loop
        self._link = link
        self._process = process

    def start(self) -> RemoteKernel:
        """A launcher, which does not say its notebook."""
        session = VSCodeSession(self.sessions, self._process, "cpu")
        remote = self._loop.kernel(self._link, session=session, name="cpu")
        self._loop.call(self.sessions.begin, session)
        self._open[remote] = session
        return remote

    def close(self, remote: RemoteKernel) -> None:
        """The launcher gets SIGTERM."""
        session = self._open.pop(remote)

        def left() -> (
            None
        ):  # in one turn of the loop, as the hub does: what is asked of the node comes after the close
            self.sessions.end(session, remote)
            remote.close()

        self._loop.call(left)


@pytest.fixture
def window(loop: LoopThread, link: Link) -> Window:
    return Window(loop, link)


def name(front: Front, notebook: str) -> None:
    """VS Code's start-up code."""
    assert front.run(f"__vsc_ipynb_file__ = {notebook!r}", store_history=False).reply["status"] == "ok"


@posix
def test_a_restart_counts_from_the_launchers_start(window: Window, node: Node) -> None:
    """Python may need half a minute on a slow file system before it can be told the notebook."""
    old = window.start()
    with Front(old.edge.connection) as front:
        name(front, "/slow.ipynb")
        front.run("treasure = 42")
    window.close(old)
    window.time = 4.0
    new = window.start()
    window.time = 30.0
    with Front(new.edge.connection) as front:
        name(front, "/slow.ipynb")
        assert not (node.root / "k" / old.kernel_id).exists(), (
            "the old kernel ends as soon as this is a restart"
        )
        cell = front.run("'treasure' in dir()")
        assert "False" in str(cell.outputs) and f"the previous one, {old.kernel_id}, has ended" in str(
            cell.outputs
        )
        assert "has ended" not in str(cell.shown), "what is said of the kernel stays in the notebook"
        assert "new kernel" not in str(front.run("1").outputs), "said once"


@posix
def test_who_comes_later_returns(window: Window) -> None:
    old = window.start()
    with Front(old.edge.connection) as front:
        name(front, "/later.ipynb")
        front.run("treasure = 42")
    window.close(old)
    window.time = 5.5
    new = window.start()
    with Front(new.edge.connection) as front:
        name(front, "/later.ipynb")
        cell = front.run("treasure")
        assert "42" in str(cell.outputs) and f"Back on kernel {old.kernel_id}" in str(cell.outputs)
        assert "Back on kernel" not in str(cell.shown)


COUNTING = (
    "import itertools, time\nfor i in itertools.count(): open({path!r}, 'w').write(str(i)); time.sleep(0.01)"
)


@posix
@pytest.mark.parametrize("restart", [True, False])
def test_a_running_cell_stands_still_until_it_is_known_what_its_window_wants(
    window: Window, node: Node, tmp_path: Path, restart: bool
) -> None:
    """If it is a restart, the cell does not go on. If the window has opened another notebook, it does."""
    path, notebook = tmp_path / "count", f"/paused-{restart}.ipynb"
    old = window.start()
    with Front(old.edge.connection) as front:
        name(front, notebook)
        front.client.execute(COUNTING.format(path=str(path)))
        wait_for(path.exists, "the cell")
        process = psutil.Process(old.status["pid"])
        new = window.start()
        window.close(old)
    wait_for(lambda: process.status() == psutil.STATUS_STOPPED, "the pause")
    with Front(new.edge.connection) as front:
        assert process.status() == psutil.STATUS_STOPPED
        name(front, notebook if restart else "/another.ipynb")
    if restart:
        wait_for(lambda: not process.is_running(), "the old kernel's end")
        return
    before = path.read_text()
    wait_for(lambda: path.read_text() not in ("", before), "the cell to go on")
    window.close(new)


@posix
def test_a_restart_at_the_moment_the_link_is_down(window: Window, node: Node, link: Link) -> None:
    """The kernel before does not come back later."""
    old = window.start()
    with Front(old.edge.connection) as front:
        name(front, "/down.ipynb")
        front.run("treasure = 42")
    window.close(old)
    new = window.start()
    until(new, "idle")
    with Front(new.edge.connection) as front:
        node.pull()
        wait_for(lambda: new.link_state == "away", "the drop")
        named = front.client.execute("__vsc_ipynb_file__ = '/down.ipynb'", store_history=False)
        cell = front.client.execute("'treasure' in dir()")
        wait_for(lambda: new.session is not None and new.session.notebook, "its notebook")
        node.plugged = True
        assert front.finish(named).reply["status"] == "ok"
        assert "False" in str(front.finish(cell).outputs)
        assert not (node.root / "k" / old.kernel_id).exists()


@posix
def test_a_notebook_that_is_saved_later_keeps_its_kernel(window: Window) -> None:
    """Its first cells were run while it was unsaved; a kernel that a file of that name left is not its own."""
    old = window.start()
    with Front(old.edge.connection) as front:
        name(front, "/saved.ipynb")
    window.close(old)
    window.time = 60.0
    new = window.start()
    until(new, "idle")
    with Front(new.edge.connection) as front:
        name(front, "Untitled-1.ipynb")
        front.run("treasure = 42")
        name(front, "/saved.ipynb")
        assert "42" in str(front.run("treasure").outputs)
    wait_for(lambda: new.status["notebook"] == "/saved.ipynb", "the name")


@posix
def test_the_newest_of_several_kernels_comes_back_and_names_the_others(loop: LoopThread, link: Link) -> None:
    both: list[RemoteKernel] = []
    for _ in range(2):
        both.append(loop.kernel(link, notebook="/several.ipynb", name="cpu"))
        until(both[-1], "idle")
    for remote in both:
        loop.call(remote.close)
    ids = [remote.kernel_id for remote in both]
    listed = lambda: loop.run(link.request("list"))["kernels"]  # noqa: E731
    wait_for(lambda: not any(one["attached"] for one in listed() if one["id"] in ids), "their leaving")
    again = loop.kernel(link, notebook="/several.ipynb", name="cpu")
    until(again, "idle")
    assert again.kernel_id == ids[1]
    with Front(again.edge.connection) as front:
        said = str(front.run("1").outputs)
    assert f"Back on kernel {ids[1]}" in said and f"jupyter gpu-kernel stop {ids[0]}" in said
