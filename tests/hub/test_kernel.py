"""A real kernel behind edge, link, attach and keeper, used as front ends use one: on five local ports."""

from __future__ import annotations

import os
import re
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq
from fronts import Front
from jupyter_client.session import Session
from runtimes import RUNTIME
from shared_kernel import *  # noqa: F403 (for this file)
from streams import Breakable, LoopThread, Node
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import HubError
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.kernel.kernel_state import HubContext
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")


# ---------------------------------------------------------------------------------------------- channels


def test_a_cell(front: Front) -> None:
    cell = front.run("print('hello')\n6 * 7")
    assert cell.reply["status"] == "ok"
    assert cell.outputs == [
        ("status", "busy"),
        ("execute_input", "print('hello')\n6 * 7"),
        ("stdout", "hello\n"),
        ("execute_result", {"text/plain": "42"}),
        ("status", "idle"),
    ]


def test_input(front: Front) -> None:
    code = "print('a'); x = input('who? '); y = input(x); print('hello', x, y)"
    assert front.run(code, answers=["Ada", "Bob"]).text == "a\nhello Ada Bob\n"


def test_an_error(front: Front) -> None:
    cell = front.run("1 / 0")
    assert (cell.reply["status"], cell.reply["ename"]) == ("error", "ZeroDivisionError")
    assert ("error", ("ZeroDivisionError", "division by zero")) in cell.outputs


def test_completion_and_inspection(front: Front) -> None:
    front.run("lighthouse = 1")
    completions = front.client.complete("lightho", reply=True, timeout=DEADLINE)
    assert completions["content"]["matches"] == ["lighthouse"]
    found = front.client.inspect("lighthouse", reply=True, timeout=DEADLINE)
    assert "int" in found["content"]["data"]["text/plain"]


def test_heartbeat(front: Front) -> None:
    with zmq.Context() as context, context.socket(zmq.REQ) as beat:
        beat.connect(f"tcp://127.0.0.1:{front.client.hb_port}")
        beat.send(b"beat")
        assert beat.poll(DEADLINE * 1000)
        assert beat.recv() == b"beat"
        beat.linger = 0


def test_comms_with_buffers(front: Front) -> None:
    front.run(
        """
        def opened(comm, message):
            @comm.on_msg
            def received(message):
                comm.send(message['content']['data'], buffers=[bytes(b)[::-1] for b in message['buffers']])
        get_ipython().kernel.comm_manager.register_target('echo', opened)
        """
    )
    session = front.client.session
    opening = {"comm_id": "c1", "target_name": "echo", "data": {}}
    front.client.shell_channel.send(session.msg("comm_open", opening))
    message = session.msg("comm_msg", {"comm_id": "c1", "data": {"n": 1}})
    session.send(front.client.shell_channel.socket, message, buffers=[b"abc", os.urandom(300_000) + b"z"])
    echo = next(m for m in front.iopub(message["header"]["msg_id"]) if m["msg_type"] == "comm_msg")
    assert echo["content"]["data"] == {"n": 1}
    first, second = (bytes(buffer) for buffer in echo["buffers"])
    assert (first, second[:1], len(second)) == (b"cba", b"z", 300_001)


def test_fifty_megabytes_both_ways(front: Front) -> None:
    """There as a comm's buffer, back as a display."""
    front.run(
        """
        from IPython.display import display, HTML
        def opened(comm, message):
            display(HTML(bytes(message['buffers'][0]).decode()))
        get_ipython().kernel.comm_manager.register_target('bulk', opened)
        """
    )
    text = "0123456789abcde\n" * (50 * 65536)
    message = front.client.session.msg("comm_open", {"comm_id": "b", "target_name": "bulk", "data": {}})
    front.client.session.send(front.client.shell_channel.socket, message, buffers=[text.encode()])
    display = next(m for m in front.iopub(message["header"]["msg_id"]) if m["msg_type"] == "display_data")
    assert display["content"]["data"]["text/html"] == text


def test_a_reply_comes_after_its_own_output(front: Front) -> None:
    """nbclient drops what comes later."""
    request = front.client.execute("for i in range(3000): print(i)")
    front.reply(request)
    poller = zmq.Poller()
    poller.register(front.client.iopub_channel.socket, zmq.POLLIN)
    seen = []
    states: list[str] = []
    while "idle" not in states and poller.poll(5000):  # what came later would be missed here
        message = front.client.get_iopub_msg(timeout=1)
        if message["parent_header"].get("msg_id") == request:
            seen.append(message)
            states.append(message["content"].get("execution_state", ""))
    assert "".join(m["content"].get("text", "") for m in seen).endswith("2999\n")
    assert seen[-1]["content"] == {"execution_state": "idle"}


def test_two_clients_on_one_kernel(remote: RemoteKernel, front: Front) -> None:
    with Front(remote.edge.connection) as other:
        request = front.client.execute("shared = 'seen by both'; print(shared)")
        assert other.until_text(request, "seen by both")
        assert front.finish(request).reply["status"] == "ok"
        cell = other.run("print(shared); x = input()", answers=["from the other"])
        assert cell.text == "seen by both\n"
        assert front.run("print(x)").text == "from the other\n"


# ---------------------------------------------------------------------------------------------- interrupts


def test_interrupt_in_a_sleep(front: Front) -> None:
    request = front.client.execute("import time\nprint('asleep')\ntime.sleep(600)")
    assert front.until_text(request, "asleep")
    assert front.control("interrupt_request")["status"] == "ok"
    assert front.finish(request).reply["ename"] == "KeyboardInterrupt"


def test_a_control_request_makes_no_busy_kernel_idle(front: Front, node: Node, remote: RemoteKernel) -> None:
    """It says busy and idle of its own; idle clocks and `ps` must not take that for the cell's."""
    request = front.client.execute("print('begun', flush=True)\nimport time; time.sleep(600)")
    front.until_text(request, "begun\n")
    assert front.control("kernel_info_request")["status"] == "ok"
    (state,) = (
        one for one in node.handlers.handle({"do": "list"})["kernels"] if one["id"] == remote.kernel_id
    )
    assert state["state"] == "busy"
    assert front.control("interrupt_request")["status"] == "ok"
    front.finish(request)


def trickle(front: Front, stream: Breakable, until: Callable[[], object]) -> None:
    """A slow link, but not a silent one, which would be dialled again."""
    deadline = time.monotonic() + DEADLINE
    while not until():
        assert time.monotonic() < deadline
        stream.resume(20_000)
        front.client.control_channel.socket.poll(20)


def test_interrupt_overtakes_an_output_storm(front: Front, node: Node, tmp_path: Path) -> None:
    """Its reply comes while more than 20 MB of a cell that prints wait on the node; all of them arrive. The cell
    prints 50 MB at most, as more than can be kept would be left out."""
    stream, much = node.streams[-1], tmp_path / "much"
    code = f"""
        import time
        for n in range(50_000):
            print(n, 'x' * 1000)
            if n == 25_000: open({str(much)!r}, 'w').close()
        time.sleep(600)
        """
    try:
        stream.stall(writes=False)
        request = front.client.execute(code)
        trickle(front, stream, much.exists)
        before = stream.bytes_read
        interrupt = front.ask("control", "interrupt_request")
        trickle(front, stream, lambda: front.client.control_channel.socket.poll(0))
        assert front.control_reply(interrupt)["status"] == "ok"
        assert stream.bytes_read - before < 20e6, "its reply waited behind the output"
        assert node.streams[-1] is stream, "it was the reconnect that brought it"
    finally:
        stream.resume()
    cell = front.finish(request)
    assert cell.reply["ename"] == "KeyboardInterrupt"
    last = int(front.run("print(n)").text)
    whole = re.compile(r"(\d+) x{1000}")  # the last line may have been interrupted
    numbers = [int(match[1]) for line in cell.text.splitlines() if (match := whole.fullmatch(line))]
    assert numbers[-1] in (last, last - 1)
    assert numbers == list(range(numbers[-1] + 1))


def test_interrupt_overtakes_fifty_megabytes_that_wait(front: Front, node: Node, tmp_path: Path) -> None:
    """On a slow link it and its reply wait for what is on its way already, but not for the rest."""
    stream, flag = node.streams[-1], tmp_path / "flag"
    code = f"""
        import pathlib, time
        from IPython.display import display, HTML
        for n in range(50): display(HTML('y' * 1_000_000))
        pathlib.Path({str(flag)!r}).touch()
        time.sleep(600)
        """
    try:
        stream.stall(writes=False)
        request = front.client.execute(code)
        trickle(front, stream, flag.exists)
        before = stream.bytes_read
        interrupt = front.ask("control", "interrupt_request")
        trickle(front, stream, lambda: front.client.control_channel.socket.poll(0))
        assert front.control_reply(interrupt)["status"] == "ok"
        assert stream.bytes_read - before < 25e6
        assert node.streams[-1] is stream, "it was the reconnect that brought it"
    finally:
        stream.resume()
    cell = front.finish(request)
    assert cell.reply["ename"] == "KeyboardInterrupt"
    assert sum(kind == "display_data" for kind, _ in cell.outputs) == 50


# ---------------------------------------------------------------------------------------------- who may


def test_a_wrong_signature_is_dropped(remote: RemoteKernel, front: Front) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(f"tcp://127.0.0.1:{front.client.shell_port}")
        wrong = Session(key=b"another key")
        wrong.send(dealer, "execute_request", {"code": "stolen = 1", "silent": False})
        right = Session(key=front.client.session.key)
        for garbage in ([b""], [b"<IDS|MSG>"], [b"<IDS|MSG>", b"", b"{}", b"{}", b"{}", b"{}"]):
            dealer.send_multipart(garbage)
        right.send(dealer, "kernel_info_request", {})
        assert dealer.poll(DEADLINE * 1000)
        assert right.recv(dealer, mode=0)[1]["msg_type"] == "kernel_info_reply"
    assert front.run("'stolen' in globals()").outputs[2] == ("execute_result", {"text/plain": "False"})


def test_ports_in_use(loop: LoopThread, link: Link, remote: RemoteKernel) -> None:
    """Whoever has the link keeps it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        connection = {"ip": "127.0.0.1", "transport": "tcp", "key": "k", "iopub_port": port}
        with pytest.raises(HubError, match=str(port)):
            loop.call(
                lambda: RemoteKernel(
                    HubContext(RUNTIME, link._log),
                    uuid.uuid4().hex,
                    KernelSettings(),
                    FrontEndSpec(connection),
                    link,
                )
            )
    assert link.kernel_ids == [remote.kernel_id]
