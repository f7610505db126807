"""VS Code's way through a hub: what its messages tell, returning, restarting."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fronts import Front
from runtimes import RUNTIME
from streams import LoopThread, Node, until, wait_for
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.background import DiskThread
from jupyter_gpu_kernel.hub.kernel.kernel_info import KernelInfoCache
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel.starter import LeftKernel
from jupyter_gpu_kernel.hub.kernel.vscode import sessions as vscode_sessions
from jupyter_gpu_kernel.hub.kernel.vscode.pending_stops import PendingStops
from jupyter_gpu_kernel.hub.kernel.vscode.sessions import _MAX_ENDED, VSCodeSession, VSCodeSessions
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.link import Link, LinkDown
from jupyter_gpu_kernel.hub.node.node_link import NoLink

pytestmark = pytest.mark.full


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

    def __init__(
        self,
        loop: LoopThread,
        link: Link,
        process: int = 1,
        sessions: VSCodeSessions | None = None,
        infos: KernelInfoCache | None = None,
    ) -> None:
        """`sessions`: the hub's; `infos`: the answers of kernels before."""
        self.time = 0.0
        self.sessions = sessions or VSCodeSessions(lambda: self.time)
        self._infos = infos
        self._open: dict[RemoteKernel, VSCodeSession] = {}
        self._loop = loop
        self._link = link
        self._process = process

    def start(self, age: float = 0.0) -> RemoteKernel:
        """A launcher, started `age` seconds ago, which does not say its notebook."""
        session = VSCodeSession(self.sessions, self._process, "cpu", age=age)
        remote = self._loop.kernel(self._link, session=session, infos=self._infos, name="cpu")
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
    """On a slow file system the launcher needs a minute, and the kernel another one to be told the notebook."""
    old = window.start()
    with Front(old.edge.connection) as front:
        name(front, "/slow.ipynb")
        front.run("treasure = 42")
    window.close(old)
    window.time = 60.0
    new = window.start(age=59.9)
    window.time = 120.0
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
    window.time = 0.5
    new = window.start()
    with Front(new.edge.connection) as front:
        name(front, "/later.ipynb")
        cell = front.run("treasure")
        assert "42" in str(cell.outputs) and f"Back on kernel {old.kernel_id}" in str(cell.outputs)
        assert "Back on kernel" not in str(cell.shown)


@posix
def test_a_window_is_opened_again_before_its_launcher_has_noticed_that_it_had_gone(
    loop: LoopThread, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher looks once a second whether its parent is there."""
    monkeypatch.setattr(vscode_sessions, "_LEAVING", DEADLINE)
    first = Window(loop, link)
    old = first.start()
    with Front(old.edge.connection) as front:
        name(front, "/reloaded.ipynb")
        front.run("treasure = 42")
    new = Window(loop, link, process=2, sessions=first.sessions).start()
    with Front(new.edge.connection) as front:
        named = front.client.execute("__vsc_ipynb_file__ = '/reloaded.ipynb'", store_history=False)
        wait_for(lambda: new.session is not None and new.session.notebook, "its notebook")
        for _ in range(2):  # answered behind what the hub asks without waiting
            loop.run(link.request("list"))
        first.close(old)
        front.finish(named)
        assert "42" in str(front.run("treasure").outputs)


@posix
def test_a_restart_of_an_unsaved_notebook(window: Window, node: Node) -> None:
    """Its kernel is not found again, but in its window the name is that of one notebook."""
    old = window.start()
    with Front(old.edge.connection) as front:
        name(front, "Untitled-1.ipynb")
        front.client.execute("import time; time.sleep(600)")
        wait_for(lambda: old.describe()["state"] == "busy", "the cell")
        new = window.start()
        window.close(old)
    with Front(new.edge.connection) as front:
        name(front, "Untitled-1.ipynb")
        wait_for(lambda: not (node.root / "k" / old.kernel_id).exists(), "the old kernel's end")
        printed = str(front.run("1").outputs)
        assert f"the previous one, {old.kernel_id}, has ended" in printed


@posix
def test_another_unsaved_notebook_of_the_same_name(loop: LoopThread, link: Link, node: Node) -> None:
    """The first one was closed, or belongs to another window: it keeps its kernel."""
    window = Window(loop, link)
    other = Window(loop, link, process=2, sessions=window.sessions)
    closed, elsewhere = window.start(), other.start()
    for remote in (closed, elsewhere):
        with Front(remote.edge.connection) as front:
            name(front, "Untitled-1.ipynb")
    window.close(closed)
    window.time = 1.5
    new = window.start()
    with Front(new.edge.connection) as front:
        name(front, "Untitled-1.ipynb")
        assert "previous" not in str(front.run("1").outputs)
    kernels = {closed.kernel_id, elsewhere.kernel_id, new.kernel_id}
    assert len(kernels) == 3 and all((node.root / "k" / one).exists() for one in kernels)


@posix
def test_a_restart_in_an_outage_outlives_its_window(
    loop: LoopThread, link: Link, node: Node, tmp_path: Path
) -> None:
    """What VS Code runs at the start is answered, and the window that is opened next does not get the old kernel."""
    infos = KernelInfoCache(tmp_path, DiskThread())
    first = Window(loop, link, infos=infos)
    old = first.start()
    with Front(old.edge.connection) as front:
        name(front, "/outage.ipynb")
        front.run("treasure = 42")
        node.pull()
        wait_for(lambda: old.link_state == "away", "the drop")
        first.close(old)
    new = first.start()
    with Front(new.edge.connection) as front:
        name(front, "/outage.ipynb")
        cell = front.client.execute("1")
        others = [front.ask("shell", "complete_request", code="1", cursor_pos=1)]
        others.append(front.ask("control", "debug_request", command="debugInfo"))
        wanted = {"execute_request", "complete_request", "debug_request"}  # what VS Code runs waits, too
        wait_for(lambda: wanted <= {one.msg_type for one in new.core.relay.table.waiting}, "the requests")
        loop.call(new.refuse, ConnectError("cannot be reached", hop="node"))
        assert "cannot be reached" in front.reply(cell)["evalue"]
        assert front.reply(others[0])["status"] == front.control_reply(others[1])["status"] == "error"
        first.close(new)
    second = Window(loop, link, process=2, sessions=first.sessions, infos=infos)
    again = second.start()
    with Front(again.edge.connection) as front:
        name(front, "/outage.ipynb")
        cell = front.client.execute("'treasure' in dir()")
        wait_for(lambda: again.core.relay.table.waiting[-1:], "the cell")
        node.plugged = True
        printed = str(front.finish(cell).outputs)
    assert "False" in printed and f"the previous one, {old.kernel_id}, has ended" in printed
    assert not (node.root / "k" / old.kernel_id).exists()
    assert not first.sessions.stops


@posix
def test_a_request_on_the_control_channel_that_waits_for_the_link_is_answered_when_the_kernel_is_refused(
    loop: LoopThread, link: Link, node: Node
) -> None:
    remote = loop.kernel(link)
    with Front(remote.edge.connection) as front:
        node.pull()
        wait_for(lambda: remote.link_state == "away", "the drop")
        asked = front.ask("control", "debug_request", command="debugInfo")
        wait_for(lambda: remote.endpoint.outbox.size, "the request")
        loop.call(remote.refuse, ConnectError("cannot be reached", hop="node"))
        assert "cannot be reached" in front.control_reply(asked)["evalue"]
    node.plugged = True


@posix
def test_code_that_was_sent_when_the_link_was_thought_to_be_up_is_answered_in_the_outage(
    loop: LoopThread, link: Link, node: Node, tmp_path: Path
) -> None:
    window = Window(loop, link, infos=KernelInfoCache(tmp_path, DiskThread()))
    old = window.start()
    with Front(old.edge.connection) as front:
        name(front, "/unnoticed.ipynb")
    window.close(old)
    node.streams[-1].stall()
    node.plugged = False
    new = window.start()
    with Front(new.edge.connection) as front:
        assert front.run("start_up = 1", store_history=False).reply["status"] == "ok"
        node.plugged = True
        cell = front.run("start_up")
        assert cell.reply["status"] == "ok" and "1" in str(cell.outputs), "the kernel has run the code"


def test_only_so_many_kernels_that_were_left_are_remembered(loop: LoopThread, tmp_path: Path) -> None:
    sessions = VSCodeSessions(RUNTIME.monotonic)
    remote = loop.kernel(NoLink("node"))  # type: ignore[arg-type]
    for number in range(_MAX_ENDED + 1):
        session = VSCodeSession(sessions, 1, "cpu", f"/{number}.ipynb")
        sessions.begin(session)
        sessions.end(session, remote)
    known = sessions._ended_sessions
    assert len(known) == _MAX_ENDED and (1, "cpu", "/0.ipynb") not in known
    assert sessions._current == {}


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
        printed = str(front.run("1").outputs)
    assert f"Back on kernel {ids[1]}" in printed and f"jupyter gpu-kernel stop {ids[0]}" in printed


@posix
@pytest.mark.parametrize("gap", [0.0, 30.0])
def test_two_restarts_in_one_outage(
    loop: LoopThread, link: Link, node: Node, tmp_path: Path, gap: float
) -> None:
    """The kernel that had been running ends, although the one that replaced it first was never started."""
    window = Window(loop, link, infos=KernelInfoCache(tmp_path, DiskThread()))
    old = window.start()
    with Front(old.edge.connection) as front:
        name(front, "/twice.ipynb")
        node.pull()
        wait_for(lambda: old.link_state == "away", "the drop")
        window.close(old)
    first = window.start()
    with Front(first.edge.connection) as front:
        name(front, "/twice.ipynb")
        window.close(first)
    window.time = gap
    second = window.start()
    with Front(second.edge.connection) as front:
        name(front, "/twice.ipynb")
        cell = front.client.execute("1")
        wait_for(lambda: second.core.relay.table.waiting[-1:], "the cell")
        node.plugged = True
        assert f"the previous one, {old.kernel_id}, has ended" in str(front.finish(cell).outputs)
    assert not (node.root / "k" / old.kernel_id).exists()
    wait_for(lambda: not window.sessions.stops, "all that was to end")


@posix
@pytest.mark.parametrize("notebook", ["Untitled-1.ipynb", "/closed.ipynb"])
def test_a_restart_in_an_outage_whose_window_is_closed_before_its_end(
    loop: LoopThread, link: Link, node: Node, tmp_path: Path, notebook: str
) -> None:
    window = Window(loop, link, infos=KernelInfoCache(tmp_path, DiskThread()))
    old = window.start()
    with Front(old.edge.connection) as front:
        name(front, notebook)
        front.client.execute("import time; time.sleep(600)")
        wait_for(lambda: old.describe()["state"] == "busy", "the cell")
        node.pull()
        wait_for(lambda: old.link_state == "away", "the drop")
        window.close(old)
    new = window.start()
    with Front(new.edge.connection) as front:
        name(front, notebook)
        window.close(new)
    wait_for(lambda: window.sessions.stops and link.in_use, "the link reconnects without a front end")
    node.plugged = True
    wait_for(lambda: not (node.root / "k" / old.kernel_id).exists(), "the old kernel's end")


@posix
def test_a_kernel_that_another_computer_has_taken_meanwhile_does_not_end(
    loop: LoopThread, link: Link, node: Node
) -> None:
    old = loop.kernel(link, name="cpu", notebook="/taken.ipynb")
    until(old, "idle")
    loop.call(old.close)
    node.pull()
    wait_for(lambda: link.state == "away", "the drop")
    stops = PendingStops(owner="this one")
    settings = KernelSettings(("node",))
    loop.call(stops.add, LeftKernel(old.kernel_id, link, settings), (0, "cpu", "/taken.ipynb"), None)
    taking = {"notebook": "/taken.ipynb", "name": "cpu", "owner": "another"}
    assert node.handlers.handle({"do": "take_detached", **taking})["kernel"] == old.kernel_id
    node.plugged = True
    wait_for(lambda: not stops, "it is not to end any more")
    assert (node.root / "k" / old.kernel_id).exists()


class LinkWithDrops(NoLink):
    """A link that goes down at the first request, and is up again at once."""

    def __init__(self) -> None:
        super().__init__("gpu2")
        self.state = "away"
        self.requests: list[dict[str, Any]] = []

    async def until_up(self) -> None:
        self.state = "up"

    async def request(self, do: str, timeout: float = 30.0, **more: Any) -> dict[str, Any]:
        self.requests.append({"do": do, **more})
        if len(self.requests) == 1:
            raise LinkDown("the link went down", hop=self.name)
        return {"ok": True}


def test_a_kernel_is_ended_again_where_the_node_has_not_answered(loop: LoopThread) -> None:
    link, stops = LinkWithDrops(), PendingStops(owner="this one")
    loop.call(stops.add, LeftKernel("k1", link, KernelSettings(("node",))), (0, "cpu", "/a.ipynb"), None)
    wait_for(lambda: not stops, "the answer")
    assert [(one["do"], one["owner"]) for one in link.requests] == [("stop", "this one")] * 2


@posix
def test_a_kernel_that_is_to_be_ended_is_known_after_its_notebook_was_saved(
    loop: LoopThread, link: Link, node: Node
) -> None:
    node.pull()
    wait_for(lambda: link.state == "away", "the drop")
    sessions = VSCodeSessions(RUNTIME.monotonic)
    session = VSCodeSession(sessions, 1, "cpu", "Untitled-1.ipynb")
    stop = loop.call(sessions.stops.add, LeftKernel("k1", link, KernelSettings()), session.lasting_key, None)
    sessions.renamed(session, "/saved.ipynb")
    another = VSCodeSession(sessions, 2, "cpu", "/saved.ipynb")
    assert sessions.stops.of(another.lasting_key) == [stop]
    node.plugged = True
    wait_for(lambda: not sessions.stops, "the node's answer")
