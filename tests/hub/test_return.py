"""Leaving and coming back: the same notebook finds its kernel, hears what happened, and sees what it missed."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from pathlib import Path

import pytest
from fronts import Front
from runtimes import RUNTIME
from streams import LoopThread, Node, log, until, wait_for
from waiting import DEADLINE

from jupyter_gpu_kernel.hub.front_end.delivered import Delivered
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.kernel.kernel_state import HubContext, Origin
from jupyter_gpu_kernel.hub.kernel.logged_cells import read_logged_cells
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.link import Link, LinkTimeouts

STATUSES = "[cell['status'] for cell in gpu_kernel.missed()]"
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]


def start(loop: LoopThread, link: Link, notebook: str, name: str = "gpu2", key: str = "key") -> RemoteKernel:
    remote = loop.kernel(link, key=key, notebook=notebook, name=name)
    until(remote, "idle", "busy")
    return remote


def detached(loop: LoopThread, link: Link, kernel_id: str) -> None:
    def gone() -> bool:
        states = loop.run(link.request("list"))["kernels"]
        return any(state["id"] == kernel_id and not state["attached"] for state in states)

    wait_for(gone, "the keeper to notice that nobody is attached")


def test_a_host_offers_a_kernel_without_a_notebook_by_its_id(loop: LoopThread, link: Link) -> None:
    kernel = start(loop, link, "")
    loop.call(kernel.close)
    detached(loop, link, kernel.kernel_id)
    ids = (kernel.kernel_id, "another")
    offers = [loop.run(link.request("offer", id=kernel_id, gpus=0)) for kernel_id in ids]
    assert [bool(one.get("detached")) for one in offers] == [True, False]


def test_the_same_notebook_returns_to_its_kernel_and_reads_what_happened(
    loop: LoopThread, link: Link, node: Node
) -> None:
    first = start(loop, link, "/home/me/a.ipynb")
    with Front(first.edge.connection) as front:
        front.run("treasure = 42")
        request = front.client.execute("import time\nfor i in range(20): print(i); time.sleep(0.05)\n'done'")
        front.until_text(request, "3")
    loop.call(first.close)  # the server is gone, the cell runs on
    detached(loop, link, first.kernel_id)

    again = start(loop, link, "/home/me/a.ipynb", key="another key")
    assert again.kernel_id == first.kernel_id
    with Front(again.edge.connection) as front:
        cell = front.run("treasure")
        greeting = str(cell.outputs)
        assert f"Back on kernel {first.kernel_id}" in greeting and "42" in greeting
        assert "'Back on" not in str(front.run("1").outputs), "said once"
        front.run("import gpu_kernel")
        wait_for(lambda: "'ok'" in str(front.run(STATUSES).outputs), "the cell to end")
        shown = front.run("%gpu missed")
        numbers = [int(word) for word in shown.text.split() if word.isdigit()]
        assert numbers == list(range(numbers[0], 20)), "what was not heard before, in order and once"
        assert "'done'" in str(shown.outputs)
        assert "Nothing was missed" in front.run("%gpu missed").text
    assert "a front end returned: /home/me/a.ipynb" in node.story(first.kernel_id)


def test_a_killed_hubs_successor_finds_what_was_passed_on_of_a_kernel_that_was_found_again(
    loop: LoopThread, link: Link, tmp_path: Path
) -> None:
    """By the id that it has, not the one that was asked for: else running cells would get no reply."""
    first = start(loop, link, "/home/me/found.ipynb")
    loop.call(first.close)
    detached(loop, link, first.kernel_id)
    settings = KernelSettings(gpus=0, python=sys.executable, notebook="/home/me/found.ipynb", name="gpu2")
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "key"}
    again = loop.call(
        lambda: RemoteKernel(
            HubContext(RUNTIME, log),
            "new",
            settings,
            FrontEndSpec(connection),
            link,
            Origin(delivered=Delivered(tmp_path / "new")),
        )
    )
    until(again, "idle")
    with Front(again.edge.connection) as front:
        front.run("1")
    (number,) = (one.number for one in again.front_ends)
    files = sorted(path.name for path in tmp_path.iterdir())
    loop.call(again.close)
    files = [name for name in files if not name.endswith(".requests")]  # it is removed with the last reply
    assert files == [first.kernel_id, f"{first.kernel_id}.{number}.clients"]


def test_its_notebook_was_opened_once_more_when_it_comes_back_after_a_drop(
    loop: LoopThread, link: Link
) -> None:
    """One of them has the kernel, until the other's user runs a cell: else each would come back for ever."""
    first = start(loop, link, "/home/me/twice.ipynb")
    with Front(first.edge.connection) as one:
        loop.call(link.release, first)
        detached(loop, link, first.kernel_id)
        second = start(loop, link, "/home/me/twice.ipynb", key="another key")
        assert second.kernel_id == first.kernel_id
        with Front(second.edge.connection) as other:
            loop.call(link.attach, first)
            wait_for(lambda: second.link_state == "taken", "the second to know")
            assert "42" in str(one.run("treasure = 42; treasure").outputs)
            assert "42" in str(other.run("treasure").outputs)
            wait_for(lambda: first.link_state == "taken", "the first to know")
            assert "42" in str(one.run("treasure").outputs)


def test_a_busy_kernel_answers_whoever_returns_at_once(loop: LoopThread, link: Link) -> None:
    """Else VS Code and jupyter_server give up after a minute: neither would let its user interrupt the cell."""
    first = start(loop, link, "/home/me/busy.ipynb")
    with Front(first.edge.connection) as front:
        request = front.client.execute("import time; print('begun', flush=True); time.sleep(600)")
        front.until_text(request, "begun\n")
    loop.call(first.close)
    detached(loop, link, first.kernel_id)

    again = start(loop, link, "/home/me/busy.ipynb", key="another key")
    with Front(again.edge.connection) as front:  # its kernel_info is answered
        list(front.iopub(front.client.kernel_info()))  # to its idle: JupyterLab waits for that, too
        assert front.client.get_iopub_msg(timeout=DEADLINE)["content"] == {"execution_state": "busy"}
        internal = front.run("startup = __name__", store_history=False)
        assert internal.reply["status"] == "ok"
        assert [printed for kind, printed in internal.outputs if kind == "status"] == ["busy", "idle"]
        cell = front.client.execute("startup")
        assert front.control("interrupt_request")["status"] == "ok"
        assert "__main__" in str(front.finish(cell).outputs), "the internal code ran before the user's cell"


@pytest.mark.parametrize("word", ["restart", "kill"])
def test_a_kernel_that_ends_answers_what_waits_behind_the_cells_of_before(
    loop: LoopThread, link: Link, node: Node, word: str
) -> None:
    notebook = f"/home/me/{word}.ipynb"
    first = start(loop, link, notebook)
    with Front(first.edge.connection) as front:
        request = front.client.execute("import time; print('begun', flush=True); time.sleep(600)")
        front.until_text(request, "begun\n")
    loop.call(first.close)
    detached(loop, link, first.kernel_id)

    again = start(loop, link, notebook, key="another key")
    with Front(again.edge.connection) as front:
        cells = [front.client.execute("1", stop_on_error=False) for _ in range(2)]
        front.run("internal = 1", store_history=False)
        loop.call(again.command, word)
        assert [front.finish(cell).reply["ename"] for cell in cells] == ["DeadKernelError"] * 2
        loop.call(again.command, "revive")
        assert "False" in str(front.run("'internal' in dir()").outputs)
    assert "fault" not in node.story(first.kernel_id)


def test_a_fresh_kernel_has_no_variables_and_the_same_front_end(
    loop: LoopThread, link: Link, node: Node
) -> None:
    remote = start(loop, link, "/home/me/fresh.ipynb")
    with Front(remote.edge.connection) as front:
        front.run("import os; treasure = os.getpid()")
        assert "A new kernel starts now" in front.run("%gpu fresh").text
        cell = front.run("'treasure' in dir()")
        assert "False" in str(cell.outputs) and cell.reply["execution_count"] == 1
    assert "%gpu fresh" in node.story(remote.kernel_id)


def test_the_journal_has_the_last_cells_received_or_not(loop: LoopThread, link: Link) -> None:
    remote = start(loop, link, "/home/me/journal.ipynb")
    with Front(remote.edge.connection) as front:
        front.run("for i in range(3): print(i)\ni")
        message = front.client.session.msg(
            "execute_request", {"code": "1 / 0"}, metadata={"cellId": "the-cell"}
        )
        front.client.shell_channel.send(message)
        front.finish(message["header"]["msg_id"])
        front.run("'silent'", store_history=False)
    cells = loop.run(read_logged_cells(link, remote.kernel_id))
    assert [(cell["status"], cell["execution_count"]) for cell in cells] == [("ok", 1), ("error", 2)]
    stream, result = cells[0]["outputs"]
    assert stream == {"msg_type": "stream", "content": {"name": "stdout", "text": "0\n1\n2\n"}}
    assert result["content"]["data"] == {"text/plain": "2"}
    assert (
        loop.run(read_logged_cells(link, remote.kernel_id, "the-cell"))[0]["outputs"][0]["msg_type"]
        == "error"
    )
    assert loop.run(read_logged_cells(link, remote.kernel_id, "another cell")) == []


def test_the_journal_of_what_no_answer_can_hold(loop: LoopThread, link: Link) -> None:
    """The rest of it is there, and a line says what is not."""
    remote = start(loop, link, "/home/me/large.ipynb")
    with Front(remote.edge.connection) as front:
        front.run(
            "print('before')\ndisplay({'text/html': 'x' * 6_000_000, 'text/plain': 'a plot'}, raw=True)\n'after'"
        )
    (cell,) = loop.run(read_logged_cells(link, remote.kernel_id))
    before, display, after = (output["content"] for output in cell["outputs"])
    assert before["text"] == "before\n" and after["data"] == {"text/plain": "'after'"}
    assert "a plot" in display["data"]["text/plain"] and "6 MB" in display["data"]["text/plain"]


@pytest.mark.parametrize(
    ("notebook", "name"), [("/home/me/b.ipynb", "gpu2"), ("/home/me/a.ipynb", "other"), ("", "gpu2")]
)
def test_others_get_a_kernel_of_their_own(loop: LoopThread, link: Link, notebook: str, name: str) -> None:
    first = start(loop, link, "/home/me/a.ipynb" if notebook else "")
    loop.call(first.close)
    detached(loop, link, first.kernel_id)
    second = start(loop, link, notebook, name)
    assert second.kernel_id != first.kernel_id


def test_a_kernel_that_somebody_has_is_not_taken_over(loop: LoopThread, link: Link) -> None:
    first = start(loop, link, "/home/me/c.ipynb")
    second = start(loop, link, "/home/me/c.ipynb")
    assert second.kernel_id != first.kernel_id


def test_a_cell_that_runs_and_has_shown_nothing_is_announced(loop: LoopThread, link: Link) -> None:
    """The cell of the front end that returns waits behind it."""
    first = start(loop, link, "/home/me/silent.ipynb")
    with Front(first.edge.connection) as front:
        front.client.execute("import time; time.sleep(600)")
        wait_for(lambda: first.describe()["state"] == "busy", "the cell")
    loop.call(first.close)
    detached(loop, link, first.kernel_id)
    again = start(loop, link, "/home/me/silent.ipynb", key="another key")
    with Front(again.edge.connection) as front:
        cell = front.client.execute("1 + 1")
        greeting = next(message for message in front.iopub(cell) if message["msg_type"] == "display_data")
        assert "still running: import time; time.sleep(600)" in str(greeting["content"])
        front.control("interrupt_request")
        assert "2" in str(front.finish(cell).outputs)


def test_what_tells_of_a_moment_is_removed_before_the_front_end_leaves(loop: LoopThread, link: Link) -> None:
    """Else it would be saved with the notebook."""
    first = start(loop, link, "/home/me/moment.ipynb")
    with Front(first.edge.connection) as front:
        front.client.execute("import time; time.sleep(600)")
        wait_for(lambda: first.describe()["state"] == "busy", "the cell")
    loop.call(first.close)
    detached(loop, link, first.kernel_id)
    again = start(loop, link, "/home/me/moment.ipynb", key="another key")
    with Front(again.edge.connection) as front:
        cell = front.client.execute("1 + 1")
        messages = front.iopub(cell)
        assert any("Back on kernel" in str(message["content"]) for message in messages)
        loop.call(again.close)
        assert next(messages)["msg_type"] == "clear_output"


def owned(loop: LoopThread, link: Link, notebook: str, owner: str) -> RemoteKernel:
    """A kernel that the hub of this owner asks for."""
    settings = KernelSettings(gpus=0, python=sys.executable, notebook=notebook, name="gpu2")
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "key"}
    kernel_id = uuid.uuid4().hex[:12]
    front_end = FrontEndSpec(connection)
    remote = loop.call(
        lambda: RemoteKernel(
            HubContext(RUNTIME, log, owner={"owner": owner}), kernel_id, settings, front_end, link
        )
    )
    until(remote, "idle")
    return remote


@pytest.mark.parametrize("owner", ["me", "another computer"])
def test_a_notebook_returns_while_the_node_still_counts_its_dead_connection(
    loop: LoopThread, node: Node, owner: str
) -> None:
    """The attach process of a dead connection stays for a minute. What another computer has is not taken from it."""
    notebook = f"/home/me/{owner}.ipynb"
    first = owned(loop, loop.link(node, LinkTimeouts(retry=0.02)), notebook, "me")
    stream, alive = node.streams[-1], loop.link(node, LinkTimeouts(retry=0.02))
    loop.run(alive.up())
    with contextlib.ExitStack() as stack:
        stack.callback(stream.cut)
        stream.stall()
        states = loop.run(alive.request("list"))["kernels"]
        assert [state["attached"] for state in states if state["id"] == first.kernel_id] == [True]
        second = owned(loop, alive, notebook, owner)
        stack.callback(loop.call, second.close)
        assert (second.kernel_id == first.kernel_id) == (owner == "me")
    loop.call(first.close)


def test_an_idle_kernel_that_nobody_is_attached_to_ends_and_says_why(
    loop: LoopThread, link: Link, node: Node
) -> None:
    remote = loop.kernel(link, idle_timeout=2, idle_timeout_attached=60)
    until(remote, "idle")
    loop.call(remote.close)
    wait_for(lambda: "idle for" in node.story(remote.kernel_id), "the idle clock")
    wait_for(lambda: not (node.root / "k" / remote.kernel_id).exists(), "its end")
