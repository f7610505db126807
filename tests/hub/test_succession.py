"""A keeper is killed: another one takes its place, and a front end goes on with its kernel."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import uuid
from pathlib import Path

import psutil
import pytest
from fronts import Cell, Front
from gpu_names import new_uuid
from installed import unpack
from leases import read_leases
from processes import has_ended
from streams import LoopThread, Node, until, wait_for
from successions import *  # noqa: F403 (its fixture)
from successions import PID, Kernel, loops, started

from jupyter_gpu_kernel.agent.in_kernel.keeper_watch import MAX_STARTS
from jupyter_gpu_kernel.agent.story import read_story
from jupyter_gpu_kernel.hub.node import install
from jupyter_gpu_kernel.hub.node.link import Link, LinkTimeouts
from jupyter_gpu_kernel.wire.messages import Lane

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]
PROGRAMS = Path(__file__).parent.parent / "programs"


def test_an_idle_kernels_keeper(kernel: Kernel) -> None:
    kernel.front.run("x = 41")
    kernel.kill_keeper()
    cell = kernel.front.run("print(x + 1, os.getpid()) if 'os' in dir() else print(x + 1)")
    assert cell.text.split()[0] == "42" and cell.reply["status"] == "ok"
    until(kernel.remote, "idle")
    assert [entry["text"] for entry in kernel.story("succession")] == [
        f"the keeper was killed: process {kernel.keeper} took over"
    ]
    assert kernel.remote.kernel_id in [
        row["id"] for row in kernel.node.handlers.handle({"do": "list"})["kernels"]
    ]


def test_a_cell_that_is_sent_while_there_is_no_keeper_runs_once(kernel: Kernel) -> None:
    for turn in range(1, 4):
        os.kill(kernel.keeper, signal.SIGKILL)
        assert kernel.front.run("c = globals().get('c', 0) + 1; print(c)").text == f"{turn}\n"
        wait_for(lambda turn=turn: len(kernel.story("succession")) == turn)  # type: ignore[misc]


def test_a_cell_whose_receipt_was_lost_runs_once(loop: LoopThread, node: Node) -> None:
    """The hub never hears that it came, and sends it again: to a keeper that knows nothing of it."""
    with started(loop, loop.link(node, LinkTimeouts(retry=0.02)), node) as kernel:
        done, stream = node.root / uuid.uuid4().hex, node.streams[-1]
        stream.stall(writes=False)
        request = kernel.front.client.execute(
            f"c = globals().get('c', 0) + 1; import pathlib; pathlib.Path({str(done)!r}).touch()"
        )
        wait_for(done.exists, "the cell's end")
        os.kill(kernel.keeper, signal.SIGKILL)
        wait_for(lambda: kernel.story("succession"), "another keeper")
        stream.cut()
        assert is_whole(kernel.front.finish(request))
        assert kernel.front.run("print(c)").text == "1\n"


def is_whole(cell: Cell) -> bool:
    """Whether the cell has begun and ended once, and is whole."""
    states = [shown for kind, shown in cell.outputs if kind == "status"]
    inputs = [kind for kind, _ in cell.outputs if kind == "execute_input"]
    return (states, len(inputs), cell.reply["status"]) == (["busy", "idle"], 1, "ok")


def test_a_running_cell_goes_on(kernel: Kernel) -> None:
    code, stop = loops(kernel.node)
    request = kernel.front.client.execute(code, user_expressions={"last": "n - 1"})
    printed = kernel.front.until_text(request, "20\n")
    kernel.kill_keeper()
    stop.touch()
    cell = kernel.front.finish(request)
    *numbers, end, last = (printed + cell.text).split()
    assert (numbers, end) == (list(map(str, range(int(last)))), "end")
    assert cell.reply["user_expressions"]["last"]["data"], "it is the kernel's own reply"
    assert kernel.front.run("print(n)").text == f"{last}\n"
    until(kernel.remote, "idle")


WRITE = """
import multiprocessing, os, subprocess, sys, threading, time
from comm import create_comm

def write(name):
    n = 0
    while not os.path.exists({stop!r}):
        sys.stdout.write(f"{{name}} {{n}}\\n")
        sys.stdout.flush()
        n += 1
        time.sleep(0.002)
    sys.stdout.write(f"{{name}} end {{n}}\\n")
    sys.stdout.flush()

def both(kind):
    for one in [kind(target=write, args=(name,)) for name in "ab"]:
        one.start()
        started.append(one)
    for one in started:
        one.join()

def show():
    n, shown = 0, create_comm(target_name="shown")
    while not os.path.exists({stop!r}):
        shown.send({{"n": n}}, buffers=[bytes([n % 256]) * 3000])
        n += 1
        time.sleep(0.002)
    shown.send({{"end": n}})

started = []
program = '''
import os, time
n = 0
while not os.path.exists({stop!r}):
    print("child", n, flush=True)
    n += 1
    time.sleep(0.002)
print("child end", n, flush=True)
'''
"""
WRITERS = [
    "write('cell')",
    "both(threading.Thread)",
    "both(multiprocessing.get_context('fork').Process)",
    "subprocess.run([sys.executable, '-c', program])",
]


def run_while_keepers_are_killed(kernel: Kernel, code: str) -> Cell:
    """Run code that goes on until all keepers but the last were killed. The front end reads meanwhile, as ZeroMQ drops
    what it does not read."""
    stop = kernel.node.root / uuid.uuid4().hex

    def kill() -> None:
        try:
            for _ in range(MAX_STARTS):
                kernel.kill_keeper()
        finally:
            stop.touch()

    killer = threading.Thread(target=kill)
    request = kernel.front.client.execute(WRITE.format(stop=str(stop)) + code)
    killer.start()
    cell = kernel.front.finish(request)
    killer.join()
    assert len(kernel.story("succession")) == MAX_STARTS
    return cell


def lines_by_writer(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        found.setdefault(name, []).append(rest)
    return found


@pytest.mark.parametrize("writer", WRITERS)
def test_many_kills_lose_and_double_no_output(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # with it ipykernel does not read file descriptors
    with Node() as node, started(loop, loop.link(node), node) as kernel:
        cell = run_while_keepers_are_killed(kernel, writer)
        assert is_whole(cell)
        writers = lines_by_writer(cell.text)
        assert len(writers) == (2 if "both" in writer else 1)
        for name, lines in writers.items():
            if (
                "fork" in writer
            ):  # a forked child makes a connection for each message, and ZeroMQ orders none of them
                lines.sort(key=lambda line: (line.startswith("end"), int(line.split()[-1])))
            *numbers, end = lines
            assert numbers == list(map(str, range(len(numbers)))), name
            assert end == f"end {len(numbers)}", name
        until(kernel.remote, "idle")


def test_many_kills_lose_and_double_no_buffers(kernel: Kernel) -> None:
    cell = run_while_keepers_are_killed(kernel, "show()")
    *shown, end = [one for one in cell.messages if one["msg_type"] == "comm_msg"]
    assert [one["content"]["data"]["n"] for one in shown] == list(range(len(shown)))
    assert all(bytes(one["buffers"][0]) == bytes([n % 256]) * 3000 for n, one in enumerate(shown))
    assert is_whole(cell) and end["content"]["data"] == {"end": len(shown)}


def test_a_successor_is_killed_too_and_those_behind_are_answered(kernel: Kernel) -> None:
    code, stop = loops(kernel.node)
    request = kernel.front.client.execute(code)
    behind = [kernel.front.client.execute(f"print('behind {number}')") for number in range(3)]
    kernel.front.until_text(request, "5\n")
    kernel.kill_keeper()
    kernel.kill_keeper()
    stop.touch()
    assert kernel.front.finish(request).reply["status"] == "ok"
    for number, one in enumerate(behind):
        cell = kernel.front.finish(one)
        assert (cell.reply["status"], cell.text) == ("ok", f"behind {number}\n")
        assert cell.reply["execution_count"] > 1
    assert kernel.front.run("print(n > 0)").text == "True\n"


def test_a_running_cell_fails_and_those_behind_do_not_run(kernel: Kernel) -> None:
    code, stop = loops(kernel.node, last="1 / 0")
    request = kernel.front.client.execute(code)
    behind = [kernel.front.client.execute("z = 1") for _ in range(2)]
    kernel.front.until_text(request, "5\n")
    kernel.kill_keeper()
    stop.touch()
    assert kernel.front.finish(request).reply["ename"] == "ZeroDivisionError"
    assert [kernel.front.finish(one).reply["status"] for one in behind] == ["aborted", "aborted"]
    assert kernel.front.run("print('z' in globals())").text == "False\n"


def test_a_cell_that_ended_in_between_has_its_reply(kernel: Kernel) -> None:
    """It kills its keeper and ends before another thread of the kernel has noticed, while nobody receives the reply."""
    cell = kernel.front.run(
        "import os, signal, sys; y = globals().get('y', 0) + 1; sys.setswitchinterval(1000); print(y)\n"
        f"os.kill({kernel.keeper}, signal.SIGKILL)",
        user_expressions={"y": "7 * y"},
    )
    assert cell.reply["user_expressions"]["y"]["data"]["text/plain"] == "7"
    assert is_whole(cell) and cell.text == "1\n"
    assert kernel.front.run("print(y)").text == "1\n", "it ran once"
    until(kernel.remote, "idle")


def test_cells_that_kill_their_keeper_are_whole(kernel: Kernel) -> None:
    """They end before, while and after the next keeper takes the kernel over."""
    for turn in range(MAX_STARTS - 1):
        cell = kernel.front.run(
            "import os, signal, time\n"
            "for n in range(200):\n"
            f"    print(n, flush=True)\n    if n == 50: os.kill({kernel.keeper}, signal.SIGKILL)\n"
            f"    if n > 50: time.sleep({0.0008 * turn})"
        )
        assert cell.text.split() == list(map(str, range(200))) and is_whole(cell)
        wait_for(lambda turn=turn: len(kernel.story("succession")) > turn)  # type: ignore[misc]
        until(kernel.remote, "idle")


WITHOUT_KEEPER = """
import os, signal, sys, threading, time

def functions(name):
    (thread,) = [thread for thread in threading.enumerate() if thread.name == name]
    frame, found = sys._current_frames()[thread.ident], []
    while frame is not None:
        found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found

def kill():
    os.kill({keeper}, signal.SIGKILL)
    while "_replace_keeper" not in functions("keeper-watch"):
        time.sleep(0)

"""


def test_a_cell_that_ends_while_there_is_no_keeper_has_its_reply(kernel: Kernel) -> None:
    code = WITHOUT_KEEPER.format(keeper=kernel.keeper) + "kill()\nz = 6"
    cell = kernel.front.run(code, user_expressions={"z": "7 * z"})
    assert cell.reply["user_expressions"]["z"]["data"]["text/plain"] == "42"
    assert is_whole(cell) and cell.text == ""
    assert kernel.front.run("print(z)").text == "6\n"
    until(kernel.remote, "idle")


def test_what_is_printed_while_there_is_no_keeper_is_delivered(kernel: Kernel) -> None:
    """Also more than is held: then the cell waits."""
    text = "x" * (1 << 20)
    code = WITHOUT_KEEPER.format(keeper=kernel.keeper) + (
        f"kill()\nfor n in range(20): print(n, flush=True)\nfor n in range(24): print({text!r})"
    )
    cell = kernel.front.run(code)
    assert cell.text.split() == [str(n) for n in range(20)] + [text] * 24
    assert is_whole(cell)
    until(kernel.remote, "idle")


def test_input_is_still_answered(kernel: Kernel) -> None:
    request = kernel.front.client.execute("print(input('name? '))")
    kernel.front.client.get_stdin_msg(timeout=60)
    kernel.kill_keeper()
    kernel.front.client.input("Ada")
    assert kernel.front.finish(request).text == "Ada\n"


ASKED = """
def kill_when_asked():
    os.kill({keeper}, signal.SIGSTOP)
    threading.Thread(target=lambda: (until_asked(), os.kill({keeper}, signal.SIGKILL))).start()

def until_asked():
    while "select" not in functions("MainThread"):
        time.sleep(0)

"""


@pytest.mark.parametrize("ask", ["input('name? ')", "__import__('getpass').getpass('name? ')"])
@pytest.mark.parametrize("lose", ["kill()", "kill_when_asked()"])
def test_an_input_request_that_was_lost_is_sent_again(kernel: Kernel, lose: str, ask: str) -> None:
    """There was no keeper, or the killed one had it."""
    for _ in range(2):
        code = (WITHOUT_KEEPER + ASKED).format(keeper=kernel.keeper) + f"{lose}\nprint({ask}, {ask})"
        client, request = kernel.front.client, kernel.front.client.execute(code)
        for answer in ("Ada", "Lovelace"):
            content = client.get_stdin_msg(timeout=60)["content"]
            assert content == {"prompt": "name? ", "password": "getpass" in ask}
            client.input(answer)
        assert kernel.front.finish(request).text == "Ada Lovelace\n"
        assert not client.stdin_channel.msg_ready(), "it was asked once"
        until(kernel.remote, "idle")


def test_input_is_asked_once(kernel: Kernel) -> None:
    """The front end has the request, and has answered it when the successor gets it again, or has not."""
    client = kernel.front.client
    request = client.execute("print(input('1'), input('2'), input('3'))")
    assert client.get_stdin_msg(timeout=60)["content"]["prompt"] == "1"
    kernel.kill_keeper()
    client.input("one")
    assert client.get_stdin_msg(timeout=60)["content"]["prompt"] == "2"
    os.kill(kernel.keeper, signal.SIGSTOP)
    client.input("two")
    kernel.kill_keeper()
    assert client.get_stdin_msg(timeout=60)["content"]["prompt"] == "3"
    client.input("three")
    assert kernel.front.finish(request).text == "one two three\n"
    assert not client.stdin_channel.msg_ready()


NOT_READY = """
import ipykernel.kernelapp, os, time

def wait():
    while not os.path.exists({file!r}):
        time.sleep(0.01)

ipykernel.kernelapp.IPKernelApp.instance().control_thread.io_loop.add_callback(wait)
print(input('name? '))
"""


def test_an_answer_that_was_lost_is_sent_again(kernel: Kernel) -> None:
    """A successor has it, and is killed before the kernel is ready for it."""
    file, outbox = kernel.node.root / uuid.uuid4().hex, kernel.remote.endpoint.outbox
    client, request = kernel.front.client, kernel.front.client.execute(NOT_READY.format(file=str(file)))
    client.get_stdin_msg(timeout=60)
    kernel.kill_keeper()
    sent = outbox.serials[Lane.URGENT]
    client.input("Ada")
    wait_for(lambda: outbox.serials[Lane.URGENT] > sent and not outbox.size, "the successor has the answer")
    kernel.kill_keeper()
    file.touch()
    assert kernel.front.finish(request).text == "Ada\n"
    assert not client.stdin_channel.msg_ready(), "it was asked once"


def test_interrupt_and_restart(kernel: Kernel) -> None:
    request = kernel.front.client.execute(loops(kernel.node)[0])
    kernel.front.until_text(request, "3\n")
    kernel.kill_keeper()
    kernel.front.control("interrupt_request")
    assert kernel.front.finish(request).reply["ename"] == "KeyboardInterrupt"
    kernel.loop.call(kernel.remote.restart)
    wait_for(lambda: kernel.remote.status["state"] == "idle" and kernel.remote.status["pid"] != kernel.pid)
    wait_for(lambda: has_ended(kernel.pid), "the old kernel's end")
    kernel.pid = int(kernel.front.run(PID).text)
    kernel.kill_keeper()
    assert kernel.front.run(PID).text == f"{kernel.pid}\n", "the new kernel's keeper has a successor, too"


def test_a_death_after_it_is_told(kernel: Kernel) -> None:
    kernel.kill_keeper()
    cell = kernel.front.run("import ctypes\nctypes.string_at(1)")
    assert cell.reply["ename"] == "DeadKernelError" and "segmentation fault" in cell.reply["evalue"]
    until(kernel.remote, "ended")
    assert "segmentation fault" in kernel.story("end")[-1]["text"]


def test_a_shutdown_after_it(kernel: Kernel) -> None:
    kernel.kill_keeper()
    kernel.front.control("shutdown_request", restart=False)
    kernel.is_gone()
    assert kernel.story("end")[-1]["cause"] == "it was shut down"


def test_secrets_stay_where_they_were(loop: LoopThread, link: Link, node: Node) -> None:
    """The will goes from memory to memory; a kernel that the successor starts has them, too."""
    with started(loop, link, node, env={"SECRET": "s3cret"}) as kernel:
        kernel.kill_keeper()
        folder = node.handlers.root.kernel(kernel.remote.kernel_id)
        assert not [path for path in folder.iterdir() if path.is_file() and b"s3cret" in path.read_bytes()]
        assert "JUPYTER_GPU_KERNEL_ID" not in psutil.Process(kernel.keeper).environ()
        loop.call(kernel.remote.restart)
        wait_for(
            lambda: kernel.remote.status["state"] == "idle" and kernel.remote.status["pid"] != kernel.pid
        )
        assert kernel.front.run("import os; print(os.environ['SECRET'])").text == "s3cret\n"


# ---------------------------------------------------------------------------------------------- GPUs


def test_its_gpu_stays_its_own(tmp_path: Path, loop: LoopThread) -> None:
    gpu, state = new_uuid(), tmp_path / "gpus.json"
    state.write_text(json.dumps({"gpus": [{"uuid": gpu}]}))
    env = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "FAKE_NVIDIA_STATE": str(state)}
    with Node(**env) as node, started(loop, loop.link(node), node, gpus=1) as kernel:
        assert read_leases([gpu])[gpu].pid == kernel.keeper
        kernel.kill_keeper()
        assert read_leases([gpu])[gpu].pid == kernel.keeper
        assert kernel.front.run("print(os.environ['CUDA_VISIBLE_DEVICES'])").text == f"{gpu}\n"
        assert kernel.remote.status["gpus"] == [gpu] and not kernel.story("fault")
        kernel.stop()
        wait_for(lambda: not read_leases([gpu]), "the lease's end")


def test_no_other_kernel_gets_its_gpu_while_there_is_no_keeper(tmp_path: Path, loop: LoopThread) -> None:
    """Its kernel is stopped, so that it starts no other keeper, and has not opened the GPU: only the lease shows it."""
    gpu, state = new_uuid(), tmp_path / "gpus.json"
    state.write_text(json.dumps({"gpus": [{"uuid": gpu}]}))
    env = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "FAKE_NVIDIA_STATE": str(state)}
    with Node(**env) as node, started(loop, loop.link(node), node, gpus=1) as kernel:
        killed = kernel.keeper
        os.kill(kernel.pid, signal.SIGSTOP)
        try:
            os.kill(killed, signal.SIGKILL)
            wait_for(lambda: has_ended(killed), "the keeper's end")
            other = loop.kernel(loop.link(node), gpus=1)
            with Front(other.edge.connection) as front:
                request = front.client.execute("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
                told = node.handlers.root.story(other.kernel_id)
                decided = wait_for(
                    lambda: [one for one in read_story(told) if one["event"] in ("wait", "gpu")]
                )
                assert decided[0]["event"] == "wait"
                os.kill(kernel.pid, signal.SIGCONT)
                wait_for(lambda: kernel.story("succession"), "another keeper")
                assert read_leases([gpu])[gpu].pid == kernel.keeper
                kernel.stop()
                assert front.finish(request).text.endswith(f"{gpu}\n")
                loop.call(other.command, "stop")
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended, unless the test has failed
                os.kill(kernel.pid, signal.SIGCONT)
        wait_for(lambda: not read_leases([gpu]), "the leases' end")


def test_a_cell_that_waits_for_a_gpu_still_does(tmp_path: Path, loop: LoopThread) -> None:
    """It is in no kernel: the hub has it."""
    gpu, state = new_uuid(), tmp_path / "gpus.json"
    busy = {"uuid": gpu, "processes": [{"pid": 1, "memory": 40_000, "name": "somebody"}]}
    state.write_text(json.dumps({"gpus": [busy]}))
    env = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "FAKE_NVIDIA_STATE": str(state)}
    with Node(**env) as node:
        remote = loop.kernel(loop.link(node), gpus=1)
        with Front(remote.edge.connection) as front:
            until(remote, "idle")
            request = front.client.execute("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
            until(remote, "waiting")
            reported = read_story(node.handlers.root.story(remote.kernel_id))
            os.kill(next(entry["keeper"] for entry in reported if entry["event"] == "start"), signal.SIGKILL)
            wait_for(lambda: "took over" in node.story(remote.kernel_id), "another keeper")
            until(remote, "waiting")
            state.write_text(json.dumps({"gpus": [{"uuid": gpu}]}))
            cell = front.finish(request)
            assert cell.reply["status"] == "ok" and cell.text.endswith(f"{gpu}\n")
            loop.call(remote.command, "stop")
            wait_for(lambda: not read_leases([gpu]), "the lease's end")


def test_the_agent_as_it_is_installed(loop: LoopThread) -> None:
    """The kernel forgets where its own modules came from."""
    with Node() as node:
        package = install.pack()
        unpack(package, node.root / package.name)
        node.program = [str(node.root / package.name)]
        with started(loop, loop.link(node), node) as kernel:
            kernel.kill_keeper()
            assert package.name in " ".join(psutil.Process(kernel.keeper).cmdline())
            assert kernel.front.run(PID).text == f"{kernel.pid}\n"
            kernel.kill_keeper()
            assert kernel.front.run(PID).text == f"{kernel.pid}\n"
