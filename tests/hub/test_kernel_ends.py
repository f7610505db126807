"""A real kernel is restarted, killed and shut down, and its keeper meets trouble."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
import zmq
from fronts import Front
from keepers import keeper_of
from processes import has_ended
from shared_kernel import *  # noqa: F403 (for this file)
from streams import LoopThread, Node, until, wait_for
from waiting import DEADLINE

from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")


def test_restart_gives_fresh_variables(loop: LoopThread, remote: RemoteKernel, front: Front) -> None:
    front.run("old = 1")
    loop.call(remote.command, "restart")
    until(remote, "idle")
    assert front.run("'old' in globals()").outputs[-2] == ("execute_result", {"text/plain": "False"})


def test_restarts_in_a_row(loop: LoopThread, remote: RemoteKernel, front: Front) -> None:
    """Also while it is starting."""
    pid = remote.status["pid"]
    for _ in range(3):
        loop.call(remote.command, "restart")
        wait_for(lambda old=pid: remote.status["pid"] not in (0, old), "another process")  # type: ignore[misc]
        pid = remote.status["pid"]
    until(remote, "idle")
    assert front.run("print('alive')").text == "alive\n"


def test_interrupt_while_it_starts(loop: LoopThread, remote: RemoteKernel, front: Front) -> None:
    loop.call(remote.command, "restart")
    request = front.client.execute("import time; time.sleep(600)")
    assert front.control("interrupt_request")["status"] == "ok"
    assert front.finish(request).reply["ename"] == "KeyboardInterrupt"
    assert front.run("print('alive')").text == "alive\n"


def test_the_kernel_is_killed_in_mid_cell(loop: LoopThread, remote: RemoteKernel, front: Front) -> None:
    """The cell ends with the cause, what is asked next is answered, and a restart brings it back."""
    request = front.client.execute("import time; print('last words', flush=True); time.sleep(600)")
    assert front.until_text(request, "last words")
    os.kill(remote.status["pid"], signal.SIGKILL)
    cell = front.finish(request)
    assert "SIGKILL" in cell.reply["evalue"]
    until(remote, "ended")
    assert "SIGKILL" in remote.status["cause"]
    assert "restart" in front.run("1").reply["evalue"]
    loop.call(remote.command, "restart")
    until(remote, "idle")
    assert front.run("print('back')").text == "back\n"


def asleep(pid: int) -> bool:
    """Tell whether no thread of a process runs, or could."""
    try:
        stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):  # a thread has just ended
        return False
    return {stat.rpartition(")")[2].split()[0] for stat in stats} == {"S"}


def test_what_a_killed_kernel_printed_last(
    front: Front, remote: RemoteKernel, loop: LoopThread, node: Node, tmp_path: Path
) -> None:
    """It is still in the socket when the keeper hears of the end. A second subscriber reads when the kernel has sent
    all; then its threads sleep when ZeroMQ has written the same to the keeper's socket, too. 50 lines: 100 can exceed
    what a socket takes (net.core.wmem_default, of which each small write uses more than its bytes)."""
    go = tmp_path / "go"
    kernel = psutil.Process(remote.status["pid"])
    keeper = psutil.Process(keeper_of(kernel.pid))
    with zmq.Context() as context, context.socket(zmq.SUB) as received:
        received.subscribe(b"")
        received.connect(f"ipc://{node.handlers.root.kernel(remote.kernel_id)}/z-2")
        while not received.poll(10):
            front.run("pass")
        request = front.client.execute(
            f"""
            import pathlib, time
            print('begin', flush=True)
            while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)
            for i in range(50): print(i, 'z' * 100, flush=True)
            print('all', 'said', flush=True)  # not as it stands in this code, which is published, too
            time.sleep(600)
            """
        )
        front.until_text(request, "begin")
        keeper.suspend()
        go.touch()
        received.rcvtimeo = int(1000 * DEADLINE)
        while b"all said" not in received.recv_multipart()[-1]:
            pass
    wait_for(lambda: asleep(kernel.pid), "an end of its writing")
    kernel.kill()
    wait_for(lambda: has_ended(kernel.pid), "its end")
    keeper.resume()
    cell = front.finish(request)
    assert cell.text.startswith("".join(f"{i} {'z' * 100}\n" for i in range(50)))
    assert "SIGKILL" in cell.reply["evalue"]
    loop.call(remote.command, "restart")
    until(remote, "idle")


SLOW = """
def slow():
    import sys, threading, time
    class Thread:
        ended = False
        def __init__(self, thread): self.thread = thread
        def __getattr__(self, name): return getattr(self.thread, name)
        def is_alive(self):
            if threading.current_thread().name == 'Control': self.thread.join(0.05)
            return not self.ended
        def join(self, timeout):
            self.thread.join(timeout)
            time.sleep(0.5)
            self.ended = True
    sys.stdout.pub_thread.thread = Thread(sys.stdout.pub_thread.thread)
slow()  # IPython clears its variables before all is closed
"""
"""As on a busy machine: the thread that sends output has done its last work, but has not ended yet."""


def test_shutdown_while_output_is_flushed(loop: LoopThread, link: Link) -> None:
    """ipykernel's threads wait for each other then; it would be killed seconds later, and restarts be late."""
    remote = loop.kernel(link)
    with Front(remote.edge.connection) as front:
        front.run(SLOW)
        assert front.control("shutdown_request", restart=False)["status"] == "ok"
        until(remote, "ended")
    assert remote.status["returncode"] == 0


def test_shutdown_leaves_nothing(loop: LoopThread, link: Link, node: Node) -> None:
    remote = loop.kernel(link)
    with Front(remote.edge.connection) as front:
        code = "import os, subprocess; child = subprocess.Popen(['sleep', '600'])\n"
        code += "import threading; threading.Thread(target=child.wait).start(); print(os.getpid(), child.pid)"
        kernel, child = map(int, front.run(code).text.split())
        folder = Path(node.root / "k" / remote.kernel_id)
        keeper = keeper_of(kernel)
        assert folder.is_dir()
        assert front.control("shutdown_request", restart=False)["status"] == "ok"
        until(remote, "ended")
    wait_for(lambda: not folder.exists(), "the folder's end")
    for pid in (kernel, child, keeper):
        wait_for(lambda pid=pid: not psutil.pid_exists(pid), f"the end of process {pid}")  # type: ignore[misc]
    wait_for(lambda: remote.link_state == "lost", "the end of the attachment")
    assert "shut down" in node.story(remote.kernel_id)


# ---------------------------------------------------------------------------------------------- trouble on the node


def test_no_such_python(loop: LoopThread, link: Link) -> None:
    remote = loop.kernel(link, python="/nonexistent/python")
    wait_for(lambda: remote.error, "an error")
    assert "/nonexistent/python" in str(remote.error)


def test_a_python_without_ipykernel(loop: LoopThread, link: Link, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {psutil.Process().exe()} -I -S "$@"\n')
    python.chmod(0o700)
    remote = loop.kernel(link, python=str(python))
    wait_for(lambda: remote.error, "an error")


def test_a_kernel_that_dies_at_its_start(loop: LoopThread, link: Link, tmp_path: Path) -> None:
    """The error has what it wrote; a cell that waited for the start ends."""
    (tmp_path / "ipykernel").mkdir()
    (tmp_path / "ipykernel" / "__init__.py").write_text("raise ImportError('a broken ipykernel')")
    remote = loop.kernel(link, env={"PYTHONPATH": str(tmp_path)})
    until(remote, "ended")
    assert "a broken ipykernel" in remote.status["stderr"]
    assert remote.status["returncode"] == 1


def test_the_keeper_survives_stray_signals(remote: RemoteKernel, front: Front, node: Node) -> None:
    keeper = keeper_of(remote.status["pid"])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(keeper, number)
    assert front.run("print('alive')").text == "alive\n"
    assert "SIGTERM" in wait_for(lambda: "SIGHUP" in (reported := node.story(remote.kernel_id)) and reported)
    assert keeper_of(remote.status["pid"]) == keeper


def test_attach_survives_sigterm(front: Front, node: Node) -> None:
    before = len(node.streams)
    node.streams[-1].stream.process.terminate()
    assert front.run("print('alive')").text == "alive\n"
    assert len(node.streams) == before


def test_attach_killed_in_mid_cell(front: Front, node: Node) -> None:
    request = front.client.execute("import time\nfor i in range(30): print(i, flush=True); time.sleep(0.02)")
    assert front.until_text(request, "3\n")
    before = len(node.streams)
    os.kill(node.streams[-1].stream.process.pid, signal.SIGKILL)
    cell = front.finish(request)
    assert cell.text == "".join(f"{i}\n" for i in range(4, 30))
    assert len(node.streams) == before + 1
