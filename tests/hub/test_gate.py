"""GPUs of a practice nvidia-smi: taken by the first user cell and not before, waited for in line, given back."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from fronts import Cell, Front
from leases import read_leases
from practice_gpus import *  # noqa: F403 (its fixtures)
from practice_gpus import VISIBLE, Gpus, open_front
from streams import LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.errors import AgentRefusal
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")


def row(loop: LoopThread, link: Link, remote: RemoteKernel) -> dict[str, Any]:
    """The node's row of the kernel."""
    listed = loop.run(link.request("list"))["kernels"]
    return next(one for one in listed if one["id"] == remote.kernel_id)


def test_seven_kernels_and_four_gpus(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    """Four get one each; three wait in the order they came, see why, and run as others end."""
    remotes = [loop.kernel(link, gpus=1) for _ in range(7)]
    fronts = [open_front(loop, remote, stack) for remote in remotes]
    assert all(remote.status["gpus"] == [] for remote in remotes), "taken before anybody asked"
    cells: list[str] = []
    for remote, front in zip(remotes, fronts, strict=True):
        cells.append(front.client.execute(VISIBLE))
        wait_for(lambda r=remote: r.status["gpus"] or row(loop, link, r)["place"], "a place in line")  # type: ignore[misc]
    first = [front.finish(cell).text.strip() for front, cell in zip(fronts[:4], cells[:4], strict=True)]
    assert sorted(first) == sorted(gpus.uuids)
    assert [remote.status["gpus"] for remote in remotes[:4]] == [[name] for name in first]
    assert [remote.status["state"] for remote in remotes[4:]] == ["waiting"] * 3

    for gone, comes in zip(range(2), range(4, 6), strict=True):
        before = []
        for message in fronts[comes].iopub(cells[comes]):
            before.append(message)
            if "Waiting for 1 GPU" in str(message["content"]):
                break
        loop.call(remotes[gone].command, "stop")
        cell = fronts[comes].finish(cells[comes])
        assert cell.text.strip() == first[gone]
        cell = cell._replace(messages=[*before, *cell.messages])
        assert "since" in str(cell.outputs) or "kernel" in str(cell.outputs)
        assert "Waiting" not in str(cell.shown), "the waiting text stays when the cell runs"
        story = node.story(remotes[comes].kernel_id)
        assert re.search(
            r"Waiting for 1 GPU on \S+ Position \d+ in the queue.*took GPU \d [^\n]* after \d+ s", story, re.S
        )
        assert [remote.status["state"] for remote in remotes[comes + 1 :]] == ["waiting"] * (6 - comes)
    for remote in remotes:
        loop.call(remote.command, "stop")


def test_a_kernel_whose_first_cell_has_waited_is_busy(
    loop: LoopThread, link: Link, gpus: Gpus, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """The cell's own busy status was sent while it waited, and is not sent again."""
    stack.callback(gpus.report, 4)
    gpus.report(1)
    holder = loop.kernel(link, gpus=1)
    open_front(loop, holder, stack).run(VISIBLE)
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    go_on = tmp_path / "go-on"
    cell = front.client.execute(
        f"import os, time\nprint('runs')\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)"
    )
    for message in front.iopub(cell):
        if "Waiting for 1 GPU" in str(message["content"]):
            loop.call(holder.command, "stop")
        if "runs" in str(message["content"]) and message["header"]["msg_type"] == "stream":
            break
    assert loop.call(remote.describe)["state"] == "busy"
    go_on.touch()
    front.finish(cell)
    wait_for(lambda: loop.call(remote.describe)["state"] == "idle", "the cell has ended")
    loop.call(remote.command, "stop")


def test_two_gpus_that_are_near_each_other(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack
) -> None:
    rows = [[" X ", "SYS", "NV4"], ["SYS", " X ", "SYS"], ["NV4", "SYS", " X "]]
    heads = [f"GPU{number}" for number in range(3)]
    lines = [["", *heads], *([head, *row] for head, row in zip(heads, rows, strict=True))]
    stack.callback(gpus.report, 4)
    gpus.report(3, topology="\n".join("\t".join(line) for line in lines))
    kernel = loop.kernel(link, gpus=2)
    assert open_front(loop, kernel, stack).run(VISIBLE).text.strip() == ",".join(gpus.uuids[::2][:2])
    loop.call(kernel.command, "stop")


def test_kernels_take_mig_devices(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack
) -> None:
    """Each by its own UUID, which the lease has as well."""
    uuids = [f"MIG-{name[4:]}" for name in gpus.uuids[1:3]]
    devices = [{"uuid": name, "profile": "3g.20gb"} for name in uuids]
    stack.callback(gpus.report, 4)
    gpus.show({"gpus": [{"uuid": gpus.uuids[0], "mig": "Enabled", "devices": devices}]})
    kernels = [loop.kernel(link, gpus=1) for _ in uuids]
    assert [open_front(loop, one, stack).run(VISIBLE).text.strip() for one in kernels] == uuids
    assert sorted(read_leases(uuids)) == sorted(uuids)
    assert [one.status["gpus"] for one in kernels] == [[name] for name in uuids]
    for kernel in kernels:
        loop.call(kernel.command, "stop")


def test_a_user_who_blocks_himself_gets_a_message(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack
) -> None:
    """Which notebook, whether its kernel is idle, and the command that frees the GPU."""
    gpus.report(1)
    holder = loop.kernel(link, gpus=1, notebook="/home/me/train.ipynb")
    assert open_front(loop, holder, stack).run(VISIBLE).text.strip() == gpus.uuids[0]
    until(holder, "idle")
    waiting = loop.kernel(link, gpus=1, notebook="/home/me/test.ipynb")
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
    (queued,) = row["queue"]
    expected = {"place": 1, "id": waiting.kernel_id, "gpus": 1, "priority": 0, "yours": True}
    assert {key: queued[key] for key in expected} == expected
    assert queued["notebook"] == "/home/me/test.ipynb" and 0 < queued["since"] <= time.time() + 2
    loop.call(holder.command, "stop")
    assert front.finish(cell).text.strip() == gpus.uuids[0]
    gpus.report(4)


def test_a_priority_is_changed_while_kernels_wait(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    """The last one comes first. A kernel that does not wait keeps its priority for the next time."""
    gpus.report(1)
    stack.callback(gpus.report, 4)
    remotes = [loop.kernel(link, gpus=1, priority=priority) for priority in (0, 5, 0)]
    fronts = [open_front(loop, remote, stack) for remote in remotes]
    assert fronts[0].run(VISIBLE).text.strip() == gpus.uuids[0]
    cells = [front.client.execute(VISIBLE) for front in fronts[1:]]

    def set_priority(remote: RemoteKernel, priority: int) -> Any:
        return loop.run(link.request("priority", kernel=remote.kernel_id, priority=priority))["place"]

    wait_for(lambda: row(loop, link, remotes[2])["place"] == 2, "the second place")
    assert set_priority(remotes[2], 9) == 1 and set_priority(remotes[0], -7) is None
    assert [(one["priority"], one["place"]) for one in (row(loop, link, each) for each in remotes)] == [
        (-7, None),
        (5, 2),
        (9, 1),
    ]
    assert "priority 9: the kernel is number 1 in the queue" in node.story(remotes[2].kernel_id)
    assert "priority -7: the kernel is not in the queue" in node.story(remotes[0].kernel_id)
    with pytest.raises(AgentRefusal, match="not an integer from -99 to 99"):
        set_priority(remotes[1], 100)
    loop.call(remotes[0].command, "stop")
    assert fronts[2].finish(cells[1]).text.strip() == gpus.uuids[0]
    assert remotes[1].status["state"] == "waiting"
    loop.call(remotes[2].command, "stop")
    assert fronts[1].finish(cells[0]).text.strip() == gpus.uuids[0]


def test_a_crash_beside_a_gpu_that_fell_off_says_so(loop: LoopThread, link: Link, gpus: Gpus) -> None:
    remote = loop.kernel(link, gpus=1)
    gpus.report(1)
    with Front(remote.edge.connection) as front:
        assert front.run(VISIBLE).text.strip() == gpus.uuids[0]
        gpus.report(0, gpus=[{"uuid": gpus.uuids[0], "lost": True}, {"uuid": gpus.uuids[1]}])
        cell = front.run("os.abort()")
        assert gpus.uuids[0] in cell.reply["evalue"] and "administrators" in cell.reply["evalue"]
        loop.call(remote.command, "stop")
        gpus.report(4)


def test_meanwhile_at_the_gate(loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack) -> None:
    """Completions and internal executes pass; interrupt gives up; a later cell tries again, behind nobody."""
    gpus.report(1)
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
    gpus.report(2)
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
    gpus.report(4)
    front = open_front(loop, loop.kernel(link, gpus=1), stack)
    first, later = (front.run(code, answers=["x"], stop_on_error=False) for _ in range(2))
    assert types(first) == types(later)
    assert types(first)[:2] == ["busy", "execute_input"] and types(first).count("idle") == 1
    assert [first.reply["execution_count"], later.reply["execution_count"]] == [1, 2]


def test_a_cell_that_gave_up_waiting_has_a_number_of_its_own(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack
) -> None:
    """It looks as if it had failed in the kernel, which does not use its number again."""
    gpus.report(1)
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
    gpus.report(2)
    last = front.finish(behind)
    assert types(last) == ["busy", "execute_input", "stream", "idle"]
    assert last.reply["execution_count"] == 3


def test_no_driver(loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack) -> None:
    """The cell ends with what to do; every cell in line does."""
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    until(remote, "idle")
    gpus.report(0)
    cells = [front.client.execute(VISIBLE, stop_on_error=False) for _ in range(2)]
    try:
        for cell in map(front.finish, cells):
            assert cell.reply["ename"] == "GpuError"
            assert "--gpus 0" in cell.reply["evalue"]
    finally:
        gpus.report(4)
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
    gpus.report(3)
    rows = loop.run(link.request("gpus"))["gpus"]
    assert [row["uuid"] for row in rows] == gpus.uuids[:3]
    assert all(row["free"] for row in rows)


def test_a_gpu_is_free_before_the_cause_is_known(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    """The look at a driver that hangs takes seconds."""
    gpus.report(1)
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    front.run(VISIBLE)
    stack.callback(gpus.report, 4)
    gpus.report(1, mode="hang")
    cell = front.client.execute("os.abort()")
    wait_for(lambda: not read_leases(gpus.uuids[:1]), "the lease's end")
    assert "the kernel ended" not in node.story(remote.kernel_id)
    assert "does not answer" in front.finish(cell).reply["evalue"]


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
    printed = ""
    while "59\n" not in printed:
        message = front.client.get_iopub_msg(timeout=60)
        if message["msg_type"] == "stream":
            assert message["parent_header"]["msg_id"] == request
            printed += message["content"]["text"]
    assert printed.split() == [str(number) for number in range(60)]
    wait_for(lambda: not remote.status["gpus"], "the GPU goes back")
    history = loop.run(link.request("history", seconds=3600))["history"]
    (held,) = [row for row in history if row["kernel"] == remote.kernel_id]
    assert held["to"] >= held["from"] and held["seconds_held"] >= held["seconds_busy"] >= 0
