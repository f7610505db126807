"""A cell that is asked for while the node is out of reach says so, and why, until it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fronts import Cell, Front
from runtimes import RUNTIME
from streams import QUICK, Breakable, LoopThread, Node, log, until, wait_for
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import AuthError
from jupyter_gpu_kernel.hub.kernel.core import displays
from jupyter_gpu_kernel.hub.kernel.core.events import VSCodeSeen
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel.vscode.sessions import VSCodeSession, VSCodeSessions
from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells need not wait for long until they say so."""
    monkeypatch.setattr(displays, "NOTICE_DELAY", 0.2)


@pytest.fixture(autouse=True)
def plugged(node: Node) -> Iterator[None]:
    """A test that fails in an outage must not leave the others without a link."""
    yield
    node.plugged = True


def kinds(cell: Cell) -> list[str]:
    """What the cell's messages were; the text that it waits may have changed any number of times."""
    return [one["msg_type"] for one in cell.messages if one["msg_type"] != "update_display_data"]


def sent_types(remote: RemoteKernel) -> list[str]:
    """The types of the requests that have no reply."""
    return [one.msg_type for one in remote.core.relay.table._requests.values()]


def test_the_cell_says_what_it_waits_for_and_then_is_as_ever(loop: LoopThread, node: Node) -> None:
    shut = False

    def dial(again: bool) -> Breakable:
        if shut:
            raise AuthError("it wants a code", hop="login", remedy="Run “jupyter gpu-kernel login gpu2”.")
        return node.dial(again)

    link = loop.call(lambda: Link(RUNTIME, "gpu2", dial, log, QUICK))
    remote = loop.kernel(link, program="'/a b/jupyter-gpu-kernel'")
    until(remote, "idle")
    with Front(remote.edge.connection) as front:
        shut = True
        node.streams[-1].cut()
        wait_for(lambda: remote.link_state == "away" and link.problem, "the link's end")
        asked = front.client.execute("print('here')")
        notice = next(front.iopub(asked))
        text = notice["content"]["data"]["text/plain"]
        assert (
            "gpu2 has been out of reach since" in text
            and "login: it wants a code" in text
            and "“'/a b/jupyter-gpu-kernel' login gpu2”" in text
        )
        described = remote.describe()
        assert described["link"] == "away" and not remote.ended
        since = time.strftime("%H:%M:%S", time.localtime(described["away_since"]))
        assert f"out of reach since {since}" in text
        shut = False
        loop.call(link.retry)
        loop.run(link.up())  # which does not tell the refusal of before
        cell = front.finish(asked)
        assert kinds(cell)[0] == "clear_output"
        assert [printed for printed in cell.shown if printed[0] == "stdout"] == [("stdout", "here\n")]
        assert "display_data" not in str(front.run("1").outputs)
        assert remote.describe()["away_since"] is None
    loop.run(link.close())


@pytest.mark.parametrize("shown", [False, True])
def test_it_is_gone_when_the_kernel_is(
    loop: LoopThread, node: Node, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell has ended then: it must not be told to wait, neither before nor later."""
    if not shown:
        monkeypatch.setattr(displays, "NOTICE_DELAY", DEADLINE)
    link = loop.link(node)
    remote = loop.kernel(link)
    until(remote, "idle")
    kernel = psutil.Process(remote.status["pid"])
    keeper = kernel.parent()
    assert keeper is not None
    with Front(remote.edge.connection) as front:
        node.pull()
        wait_for(lambda: remote.link_state == "away", "the link's end")
        asked = front.client.execute("print('here')")
        if shown:
            assert "out of reach" in str(next(front.iopub(asked)))
        wait_for(lambda: remote.core.relay.table.waiting, "the cell")
        keeper.kill()
        kernel.kill()
        node.plugged = True
        cell = front.finish(asked)
        answered = ["status", "execute_input", "error", "status"]  # busy first, as of every cell
        assert kinds(cell) == ["clear_output"] * shown + answered
        assert remote.core.relay.notice._cell is None


def away(loop: LoopThread, node: Node) -> RemoteKernel:
    """A kernel whose link can be pulled."""
    remote = loop.kernel(loop.link(node))
    until(remote, "idle")
    return remote


def test_a_cell_that_runs_and_has_shown_nothing_says_it_and_is_then_as_ever(
    loop: LoopThread, node: Node, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    remote = away(loop, node)
    with Front(remote.edge.connection) as front:
        asked = front.client.execute(
            f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)\nprint('here')"
        )
        wait_for(lambda: remote.describe()["state"] == "busy", "the cell")
        node.pull()
        text = ""
        while "out of reach" not in text:
            text = str(front.client.get_iopub_msg(timeout=DEADLINE)["content"])
        assert "This cell keeps running" in text
        node.plugged = True
        wait_for(lambda: remote.link_state == "up", "the link")
        end.touch()
        cell = front.finish(asked)
        assert kinds(cell)[0] == "clear_output" and cell.text == "here\n"


def test_a_cell_that_runs_and_is_to_be_interrupted_does_not_go_on(loop: LoopThread, node: Node) -> None:
    remote = away(loop, node)
    with Front(remote.edge.connection) as front:
        asked = front.client.execute("import time; time.sleep(600)")
        wait_for(lambda: remote.describe()["state"] == "busy", "the cell")
        node.pull()
        wait_for(lambda: remote.core.relay.notice._display, "the text")
        assert front.control("interrupt_request")["status"] == "ok"
        text = ""
        while "will be interrupted" not in text:
            text = str(front.client.get_iopub_msg(timeout=DEADLINE)["content"])
        assert "keeps running. This cell will be" in text
        node.plugged = True
        assert front.finish(asked).reply["ename"] == "KeyboardInterrupt"


def test_a_cell_that_has_shown_something_keeps_it(loop: LoopThread, node: Node) -> None:
    """The text becomes empty: it could not be removed without the output."""
    remote = away(loop, node)
    with Front(remote.edge.connection) as front:
        asked = front.client.execute("import time; print('begun', flush=True); time.sleep(600)")
        front.until_text(asked, "begun\n")
        node.pull()
        assert "This cell keeps running" in str(next(front.iopub(asked)))
        node.plugged = True
        wait_for(lambda: remote.link_state == "up", "the link")
        front.control("interrupt_request")
        texts = [one["content"].get("data") for one in front.finish(asked).messages]
        assert texts[0] == {"text/plain": ""} and not any(texts[1:])


@pytest.mark.parametrize("stop_on_error", [False, True])
def test_an_interrupt_cancels_what_waits_for_the_link(
    loop: LoopThread, node: Node, tmp_path: Path, stop_on_error: bool
) -> None:
    """Each request has one busy, one reply and one idle, all of them during the outage; and no cell ever runs.

    The kernel had nothing to interrupt: neither what is asked next nor its child processes get a SIGINT.
    """
    ran = tmp_path / "ran"
    remote = away(loop, node)
    with Front(remote.edge.connection) as front:
        front.run("import subprocess; child = subprocess.Popen(['sleep', '600'])")
        node.pull()
        wait_for(lambda: remote.link_state == "away", "the drop")
        how = {"stop_on_error": stop_on_error}
        cells = [front.client.execute(f"open({str(ran)!r}, 'w')", **how) for _ in range(2)]
        assert "out of reach" in str(next(front.iopub(cells[0]))["content"])
        interrupt = front.ask("control", "interrupt_request")
        assert front.control_reply(interrupt)["status"] == "ok"
        first, second = map(front.finish, cells)
        assert remote.link_state == "away"
        assert first.reply["ename"] == "KeyboardInterrupt"
        assert second.reply["status"] == ("aborted" if stop_on_error else "error")
        states = [printed for kind, printed in first.outputs if kind == "status"]
        assert states == ["busy", "idle"] and kinds(first)[0] == "clear_output"
        node.plugged = True
        after = front.run("import time; time.sleep(0.2); print(child.poll()); child.kill()")
        assert after.text == "None\n" and not ran.exists()


def test_an_interrupt_that_the_link_swallows_is_answered_once_and_still_comes(
    loop: LoopThread, node: Node
) -> None:
    """It was on its way when the link went down."""
    remote = away(loop, node)
    replies: list[str] = []

    def received(message: dict[str, Any]) -> None:
        if message["msg_type"] == "interrupt_reply":
            replies.append(message["parent_header"]["msg_id"])

    with Front(remote.edge.connection, received) as front:
        asked = front.client.execute("import time; print('begun', flush=True); time.sleep(600)")
        front.until_text(asked, "begun\n")
        node.streams[-1].stall()
        interrupt = front.ask("control", "interrupt_request")
        assert remote.link_state == "up"
        node.pull()
        assert front.control_reply(interrupt)["status"] == "ok"
        node.plugged = True
        assert front.finish(asked).reply["ename"] == "KeyboardInterrupt"
        assert front.control("kernel_info_request")["status"] == "ok"
        assert replies == [interrupt]


@pytest.mark.parametrize("noticed", [True, False])
def test_an_interrupt_in_an_outage_ends_the_cell_for_vs_code(
    loop: LoopThread, node: Node, noticed: bool
) -> None:
    """Else VS Code asks ten seconds later whether to restart the kernel. What the cell prints is shown later."""
    remote = away(loop, node)
    remote.session = session = VSCodeSession(VSCodeSessions(RUNTIME.monotonic), 1, "gpu2")
    session.from_vs_code = True
    loop.call(remote.report, VSCodeSeen())
    received: list[dict[str, Any]] = []
    with Front(remote.edge.connection, received.append) as front:
        code = "import time\ntry: print('begun', flush=True); time.sleep(600)\nexcept KeyboardInterrupt: print('late')"
        asked = front.client.execute(code)
        front.until_text(asked, "begun\n")
        if noticed:
            node.pull()
            wait_for(lambda: remote.link_state == "away", "the drop")
        else:
            node.streams[-1].stall()
        interrupt = front.ask("control", "interrupt_request")
        if not noticed:
            wait_for(lambda: "interrupt_request" in sent_types(remote), "the interrupt on its way")
            node.pull()
        assert front.control_reply(interrupt)["status"] == "ok"
        assert front.reply(asked)["ename"] == "KeyboardInterrupt"
        node.plugged = True
        assert front.run("1 + 1").reply["status"] == "ok"
    of_cell = [one for one in received if one["parent_header"].get("msg_id") == asked]
    assert [one["msg_type"] for one in of_cell].count("execute_reply") == 1
    assert [one["content"].get("execution_state") for one in of_cell].count("idle") == 1
    assert "late" in str(of_cell)


def test_an_interrupt_overtakes_a_cell_that_the_link_has_swallowed(
    loop: LoopThread, node: Node, tmp_path: Path
) -> None:
    """The cell was on its way when the link went down, and it has not come: it never runs."""
    ran = tmp_path / "ran"
    remote = away(loop, node)
    with Front(remote.edge.connection) as front:
        front.run("1")
        node.streams[-1].stall()
        asked = front.client.execute(f"open({str(ran)!r}, 'w')")
        wait_for(lambda: remote.core.relay.table.in_flight_ids, "the cell on its way")
        node.pull()
        wait_for(lambda: remote.link_state == "away", "the drop")
        assert front.control("interrupt_request")["status"] == "ok"
        node.plugged = True
        assert front.finish(asked).reply["status"] in ("error", "aborted")
        assert not ran.exists()


def test_a_cell_and_its_interrupt_that_the_link_has_swallowed(
    loop: LoopThread, node: Node, tmp_path: Path
) -> None:
    """Both were on their way. The interrupt overtakes the cell, which never runs."""
    ran = tmp_path / "ran"
    remote = away(loop, node)
    with Front(remote.edge.connection) as front:
        front.run("1")
        node.streams[-1].stall()
        asked = front.client.execute(f"open({str(ran)!r}, 'w')", stop_on_error=False)
        wait_for(lambda: remote.core.relay.table.in_flight_ids, "the cell on its way")
        interrupt = front.ask("control", "interrupt_request")
        wait_for(lambda: "interrupt_request" in sent_types(remote), "the interrupt on its way")
        assert remote.link_state == "up"
        node.pull()
        assert front.control_reply(interrupt)["status"] == "ok"
        node.plugged = True
        assert front.finish(asked).reply["status"] in ("error", "aborted")
        assert not ran.exists()


def test_an_interrupt_is_answered_while_a_notebooks_kernel_is_looked_for(
    loop: LoopThread, node: Node
) -> None:
    remote = away(loop, node)
    with Front(remote.edge.connection) as front:
        front.run("1")
        loop.call(remote.hold)
        cell = front.client.execute("1 / 0")
        wait_for(
            lambda: remote.core.relay.table.waiting, "the cell"
        )  # the interrupt has a channel of its own
        assert front.control("interrupt_request")["status"] == "ok"
        assert front.finish(cell).reply["ename"] == "KeyboardInterrupt"
        loop.call(remote.resume)
        assert "2" in str(front.run("1 + 1").outputs)


def test_the_ids_of_what_is_shown_are_known_until_it_is_removed(loop: LoopThread, node: Node) -> None:
    """The notice, too: of VS Code's next kernel they are the inheritance."""
    remote = away(loop, node)
    with Front(remote.edge.connection) as front:
        node.pull()
        wait_for(lambda: remote.link_state == "away", "the link's end")
        asked = front.client.execute("1")
        shown = next(front.iopub(asked))["content"]["transient"]["display_id"]
        assert remote.core.relay.displays.ids == [shown]
        node.plugged = True
        front.finish(asked)
        assert remote.core.relay.displays.ids == []
