"""GPUs of a practice nvidia-smi: taken by the first user cell and not before, waited for in line, given back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fronts import Cell, Front
from leases import read_leases
from streams import LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel.vscode_sessions import VSCodeSession, VSCodeSessions
from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")
PROGRAMS = Path(__file__).parent.parent / "programs"
NAMED = "__vsc_ipynb_file__ = '/home/me/of-vs-code.ipynb'"
VISIBLE = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"


class Gpus:
    """What the practice nvidia-smi shows: as many GPUs as `say` says, with UUIDs that no other test run has."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gpus.json"
        self.uuids = [f"GPU-{uuid.uuid4()}" for _ in range(4)]
        self.env = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "FAKE_NVIDIA_STATE": str(self.path)}
        self.say(4)

    def say(self, count: int, **words: Any) -> None:
        """From now on."""
        gpus = [{"uuid": name} for name in self.uuids[:count]]
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"gpus": gpus, **words}))
        new.replace(self.path)


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Gpus:
    return Gpus(tmp_path_factory.mktemp("gpus"))


@pytest.fixture(scope="module")
def node(gpus: Gpus) -> Iterator[Node]:
    with Node(**gpus.env) as node:
        yield node


@pytest.fixture(scope="module")
def loop(node: Node) -> Iterator[LoopThread]:
    with LoopThread() as loop:
        yield loop


@pytest.fixture(scope="module")
def link(node: Node, loop: LoopThread) -> Link:
    return loop.link(node)


@pytest.fixture
def stack(loop: LoopThread) -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def open_front(loop: LoopThread, remote: RemoteKernel, stack: contextlib.ExitStack) -> Front:
    """A front end; the kernel is stopped when the test ends."""
    front = stack.enter_context(Front(remote.edge.connection))

    def stop() -> None:
        loop.call(remote.command, "stop")
        wait_for(lambda: remote.ended, "the kernel's end")

    stack.callback(stop)
    return front


def test_twelve_kernels_and_four_gpus(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack
) -> None:
    """Four get one each; eight wait in the order they came, see why, and run as others end."""
    remotes = [loop.kernel(link, gpus=1) for _ in range(12)]
    fronts = [open_front(loop, remote, stack) for remote in remotes]
    assert all(remote.status["gpus"] == [] for remote in remotes), "taken before anybody asked"
    cells: list[str] = []
    for remote, front in zip(remotes, fronts, strict=True):
        cells.append(front.client.execute(VISIBLE))
        wait_for(lambda r=remote: r.status["state"] == "waiting" or r.status["gpus"], "a place in line")  # type: ignore[misc]
    first = [front.finish(cell).text.strip() for front, cell in zip(fronts[:4], cells[:4], strict=True)]
    assert sorted(first) == sorted(gpus.uuids)
    assert [remote.status["gpus"] for remote in remotes[:4]] == [[name] for name in first]
    assert [remote.status["state"] for remote in remotes[4:]] == ["waiting"] * 8

    for gone, comes in zip(range(2), range(4, 6), strict=True):
        loop.call(remotes[gone].command, "stop")
        cell = fronts[comes].finish(cells[comes])
        assert cell.text.strip() == first[gone]
        assert "Waiting for 1 GPU" in str(cell.outputs)
        assert "since" in str(cell.outputs) or "kernel" in str(cell.outputs)
        assert "Waiting" not in str(cell.shown), "the waiting text stays when the cell runs"
        assert [remote.status["state"] for remote in remotes[comes + 1 :]] == ["waiting"] * (11 - comes)
    for remote in remotes:
        loop.call(remote.command, "stop")


def test_who_blocks_himself_is_told_so(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack
) -> None:
    """Which notebook, whether its kernel is idle, and the command that frees the GPU."""
    gpus.say(1)
    holder = loop.kernel(link, gpus=1, notebook="/home/me/train.ipynb")
    assert open_front(loop, holder, stack).run(VISIBLE).text.strip() == gpus.uuids[0]
    until(holder, "idle")
    waiting = loop.kernel(link, gpus=1)
    front = open_front(loop, waiting, stack)
    cell = front.client.execute(VISIBLE)
    words = f"leased by your kernel {holder.kernel_id} (/home/me/train.ipynb, since"
    stop = f"jupyter gpu-kernel stop {holder.kernel_id}"
    shown = ""
    while not (words in shown and "idle since" in shown and stop in shown):
        message = front.client.get_iopub_msg(timeout=60)
        shown = str(message["content"].get("data", ""))
    (row,) = loop.run(link.request("gpus"))["gpus"]
    lease = row["lease"]
    assert (lease["yours"], lease["id"], lease["state"]) == (True, holder.kernel_id, "idle")
    assert words in row["reason"] and stop in row["reason"]
    loop.call(holder.command, "stop")
    assert front.finish(cell).text.strip() == gpus.uuids[0]
    gpus.say(4)


def test_a_crash_beside_a_gpu_that_fell_off_says_so(loop: LoopThread, link: Link, gpus: Gpus) -> None:
    remote = loop.kernel(link, gpus=1)
    gpus.say(1)
    with Front(remote.edge.connection) as front:
        assert front.run(VISIBLE).text.strip() == gpus.uuids[0]
        gpus.say(0, gpus=[{"uuid": gpus.uuids[0], "lost": True}, {"uuid": gpus.uuids[1]}])
        cell = front.run("os.abort()")
        assert gpus.uuids[0] in cell.reply["evalue"] and "administrators" in cell.reply["evalue"]
        loop.call(remote.command, "stop")
        gpus.say(4)


def test_meanwhile_at_the_gate(loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack) -> None:
    """Completions and internal executes pass; interrupt gives up; a later cell tries again, behind nobody."""
    gpus.say(1)
    holder = open_front(loop, loop.kernel(link, gpus=1), stack)
    assert holder.run(VISIBLE).text.strip() == gpus.uuids[0]
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    held = front.client.execute(VISIBLE)
    behind = front.client.execute("print('behind')")
    until(remote, "waiting")
    assert front.run("print('internal')", store_history=False).text == "internal\n"
    assert front.run("value = 1", silent=True).reply["status"] == "ok"
    assert front.client.complete("valu", reply=True)["content"]["matches"] == ["value"]
    assert remote.status["state"] == "waiting"

    assert front.control("interrupt_request")["status"] == "ok"
    assert front.finish(held).reply["ename"] == "KeyboardInterrupt"
    assert front.reply(behind)["status"] == "aborted"
    until(remote, "idle")
    gpus.say(2)
    assert front.run(VISIBLE).text.strip() == gpus.uuids[1]


def types(cell: Cell) -> list[str]:
    """What iopub showed of a cell: message types, of states which."""
    found = [str(m["content"].get("execution_state", m["msg_type"])) for m in cell.messages]
    wait = ("display_data", "update_display_data", "clear_output")
    return [kind for kind in found if kind not in wait]


@pytest.mark.parametrize("code", ["print('out')", "1 + 1", "1 / 0", "input()"])
def test_the_first_cell_says_what_a_later_one_says(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack, code: str
) -> None:
    """One busy, one input, one idle, although it waited for its GPU."""
    gpus.say(4)
    front = open_front(loop, loop.kernel(link, gpus=1), stack)
    first, later = (front.run(code, answers=["x"], stop_on_error=False) for _ in range(2))
    assert types(first) == types(later)
    assert types(first)[:2] == ["busy", "execute_input"] and types(first).count("idle") == 1
    assert [first.reply["execution_count"], later.reply["execution_count"]] == [1, 2]


def test_a_cell_that_gave_up_waiting_has_a_number_of_its_own(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack
) -> None:
    """It looks as if it had failed in the kernel, which does not use its number again."""
    gpus.say(1)
    holder = open_front(loop, loop.kernel(link, gpus=1), stack)
    holder.run("1")
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    held = [front.client.execute("print('held')", stop_on_error=False) for _ in range(2)]
    behind = front.client.execute("print('behind')")
    until(remote, "waiting")
    cells = []
    for cell in held:
        front.control("interrupt_request")
        cells.append(front.finish(cell))
    assert [types(cell) for cell in cells] == [["busy", "execute_input", "error", "idle"]] * 2
    assert [cell.reply["execution_count"] for cell in cells] == [1, 2]
    inputs = [m["content"] for cell in cells for m in cell.messages if m["msg_type"] == "execute_input"]
    assert inputs == [{"code": "print('held')", "execution_count": number} for number in (1, 2)]
    gpus.say(2)
    last = front.finish(behind)
    assert types(last) == ["busy", "execute_input", "stream", "idle"]
    assert last.reply["execution_count"] == 3


def test_restart_keeps_the_gpu(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    gpus.say(4)
    remote = loop.kernel(link, gpus=2)
    front = open_front(loop, remote, stack)
    before = front.run(VISIBLE + "\nx = 1").text
    assert len(before.split(",")) == 2
    loop.call(remote.command, "restart")
    until(remote, "idle")
    assert remote.status["gpus"] == before.strip().split(","), "also before a cell asks for them"
    assert remote.status["gpu_names"] == [f"GPU {n} (NVIDIA A100-SXM4-80GB)" for n in range(2)]
    assert "took GPU 0 (NVIDIA A100-SXM4-80GB), GPU 1 (" in node.story(remote.kernel_id)
    assert front.run(VISIBLE + "\nprint('x' in globals())").text == before + "False\n"
    assert front.run("import gpu_kernel; print(len(gpu_kernel.status()['gpus']))").text == "2\n"
    memory = "memory = gpu_kernel.status()['memory']; print(memory['gpu_used_mib'], memory['gpu_total_mib'])"
    assert front.run(memory).text == "2 163840\n", "of both together"


def test_no_driver(loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack) -> None:
    """The cell ends with what to do; every cell in line does."""
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    until(remote, "idle")
    gpus.say(0)
    cells = [front.client.execute(VISIBLE, stop_on_error=False) for _ in range(2)]
    try:
        for cell in map(front.finish, cells):
            assert cell.reply["ename"] == "GpuError"
            assert "--gpus 0" in cell.reply["evalue"]
    finally:
        gpus.say(4)
    assert front.run(VISIBLE).text.strip() in gpus.uuids, "the driver is back"


def test_no_nvidia_smi(tmp_path: Path, loop: LoopThread, stack: contextlib.ExitStack) -> None:
    """A machine without GPUs: the kernel starts, the first cell says what to do."""
    with Node(PATH=str(tmp_path)) as node:
        link = loop.link(node)
        with contextlib.ExitStack() as inner:
            front = open_front(loop, loop.kernel(link, gpus=1), inner)
            cell = front.run("1")
            assert cell.reply["ename"] == "GpuError"
            assert "--gpus 0" in cell.reply["evalue"]
            assert front.run("print('internal')", store_history=False).text == "internal\n"


def test_gpus_without_a_kernel(loop: LoopThread, link: Link, gpus: Gpus) -> None:
    gpus.say(3)
    rows = loop.run(link.request("gpus"))["gpus"]
    assert [row["uuid"] for row in rows] == gpus.uuids[:3]
    assert all(row["free"] for row in rows)


def test_a_restart_before_the_kernel_was_told_its_gpu(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    """The new process is born with it, and the gate is open."""
    gpus.say(4)
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    internal = front.client.execute("import time; time.sleep(600)", store_history=False)
    held = front.client.execute(VISIBLE)
    wait_for(lambda: "took GPU" in node.story(remote.kernel_id), "a GPU")
    loop.call(remote.command, "restart")
    assert front.finish(internal).reply["ename"] == "DeadKernelError"
    assert front.finish(held).reply["ename"] == "DeadKernelError"
    assert front.run(VISIBLE).text.strip() in gpus.uuids


def test_a_restart_answers_all_that_wait(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack
) -> None:
    """Also behind a cell that does not take others along when it fails."""
    gpus.say(1)
    holder = open_front(loop, loop.kernel(link, gpus=1), stack)
    holder.run("1")
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    held = [front.client.execute(VISIBLE, stop_on_error=False) for _ in range(3)]
    until(remote, "waiting")
    wait_for(lambda: not remote.endpoint.outbox.size, "the cells' arrival, which the restart would overtake")
    loop.call(remote.command, "restart")
    assert [front.finish(cell).reply["ename"] for cell in held] == ["DeadKernelError"] * 3
    gpus.say(2)
    assert front.run(VISIBLE).text.strip() == gpus.uuids[1]


def test_the_kernel_is_told_its_gpu_again_where_a_failure_took_that_along(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    """A front end's own code fails, and what is in the kernel's queue behind it is aborted."""
    gpus.say(4)
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    story = node.root / "stories" / f"{remote.kernel_id}.jsonl"
    waits = f"import time\nwhile 'took GPU' not in open({str(story)!r}).read(): time.sleep(0.01)\n"
    front.client.execute(waits + "time.sleep(0.3)\n1 / 0", store_history=False)
    assert front.run(VISIBLE, stop_on_error=False).text.strip() in gpus.uuids


def test_a_line_that_cannot_be_written_holds_up_nobody(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    """As on a full disk, when the GPUs have been watched long enough."""
    log = gpus.path.with_suffix(".log")
    log.unlink(missing_ok=True)
    gpus.say(4, log=str(log))
    front = open_front(loop, loop.kernel(link, gpus=1), stack)
    line = node.root / "line"
    shutil.rmtree(line, ignore_errors=True)
    line.touch()
    stack.callback(line.unlink)
    wait_for(lambda: log.exists() and len(log.read_text().splitlines()) == 6, "three samples")
    front.run("import time; time.sleep(0.5)", silent=True)
    assert front.run(VISIBLE).text.strip() in gpus.uuids


def test_a_gpu_is_free_before_the_cause_is_known(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    """The look at a driver that hangs takes seconds."""
    gpus.say(1)
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    front.run(VISIBLE)
    stack.callback(gpus.say, 4)
    gpus.say(1, mode="hang")
    cell = front.client.execute("os.abort()")
    wait_for(lambda: not read_leases(gpus.uuids[:1]), "the lease's end")
    assert "the kernel ended" not in node.story(remote.kernel_id)
    assert "does not answer" in front.finish(cell).reply["evalue"]


def test_who_returns_is_greeted_also_where_the_cell_waits(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    gpus.say(1)
    holder = open_front(loop, loop.kernel(link, gpus=1), stack)
    holder.run("1")
    first = loop.kernel(link, gpus=1, notebook="/home/me/greeted.ipynb")
    until(first, "idle")
    loop.call(first.close)
    wait_for(lambda: "no front end is connected" in node.story(first.kernel_id), "the front end's leaving")
    again = loop.kernel(link, gpus=1, notebook="/home/me/greeted.ipynb")
    until(again, "idle")
    assert again.kernel_id == first.kernel_id
    front = open_front(loop, again, stack)
    cell = front.client.execute(VISIBLE)
    wait_for(lambda: again.status["state"] == "waiting", "the gate")
    for message in front.iopub(cell):
        if "Waiting for" in str(message["content"]):
            break
    gpus.say(2)
    assert "Back on kernel" in str(front.finish(cell).outputs)


def test_a_restart_with_a_new_kernel_hands_the_gpu_over(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    """As in VS Code. The only GPU is in use by the kernel itself, and somebody else waits for it."""
    gpus.say(1)
    stack.callback(gpus.say, 4)
    sessions = VSCodeSessions()
    session = VSCodeSession(sessions, 1, "one")
    old = loop.kernel(link, session=session, gpus=1, name="one")
    front = stack.enter_context(Front(old.edge.connection))
    loop.call(sessions.begin, session)
    front.run(NAMED, store_history=False)
    pid = front.run(VISIBLE + "; print(os.getpid())").text.split()[1]
    gpus.say(1, gpus=[{"uuid": gpus.uuids[0], "processes": [{"pid": int(pid), "memory": 900}]}])
    other = open_front(loop, loop.kernel(link, gpus=1, name="other"), stack)
    waits = other.client.execute(VISIBLE)
    wait_for(
        lambda: "Waiting" in str(other.client.get_iopub_msg(timeout=60)["content"]),
        "the other's place in line",
    )
    busy = front.client.execute("import time\ntime.sleep(600)")
    wait_for(lambda: old.describe()["state"] == "busy", "the cell")

    next_session = VSCodeSession(sessions, 1, "one")
    new = loop.kernel(link, session=next_session, gpus=1, name="one")
    loop.call(sessions.begin, next_session)
    loop.call(sessions.end, session, old)
    loop.call(old.close)
    front = open_front(loop, new, stack)
    front.run(NAMED, store_history=False)
    cell = front.run(VISIBLE)
    assert cell.text.strip() == gpus.uuids[0] and "Waiting" not in str(cell.outputs)
    gpu = rf"(GPU 0 \(.+\)|{gpus.uuids[0]})"  # the name, if the new keeper has looked at the GPUs by then
    assert re.search(f"with {gpu}; the previous one, {old.kernel_id}, has ended", str(cell.outputs))
    assert not (node.root / "k" / old.kernel_id).exists() and busy
    assert read_leases(gpus.uuids[:1])[gpus.uuids[0]].id == new.kernel_id
    gpus.say(2)
    assert other.finish(waits).text.strip() == gpus.uuids[1]


def test_what_a_thread_prints_while_its_gpu_goes_back_is_its_cells(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack
) -> None:
    """The keeper has the kernel run something then; in some ipykernels threads print for the latest request."""
    remote = loop.kernel(link, gpus=1, gpu_timeout=1)
    front = open_front(loop, remote, stack)
    code = (
        "import threading, time\ndef count():\n    for number in range(60):\n"
        "        print(number, flush=True); time.sleep(0.1)\nthreading.Thread(target=count).start()"
    )
    request = front.client.execute(code)
    said = ""
    while "59\n" not in said:
        message = front.client.get_iopub_msg(timeout=60)
        if message["msg_type"] == "stream":
            assert message["parent_header"]["msg_id"] == request
            said += message["content"]["text"]
    assert said.split() == [str(number) for number in range(60)]
    assert not remote.status["gpus"]
