"""What a kernel writes waits while its keeper has too much to read. The keeper is stopped by the cell itself, which
looks at the stacks of its threads to know when they wait."""

from __future__ import annotations

import os
import socket
import struct
import threading
from pathlib import Path

import pytest
from keepers import Hub, Place
from runtimes import Clock

from jupyter_gpu_kernel.agent.in_kernel.output_window import PIECE, WINDOW, OutputWindow
from jupyter_gpu_kernel.agent.kernel_protocol import DELIMITER, add_mark, read_mark

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the agent needs Linux")
COUNT = 24
"""MiB that each writer writes: three windows."""
SET_UP = f"""
import multiprocessing, os, signal, subprocess, sys, threading, time
from IPython.display import HTML, display
COUNT, text = {COUNT}, "x" * ((1 << 20) - 1) + "\\n"

def waits(name):
    for thread in threading.enumerate():
        frame = sys._current_frames().get(thread.ident)
        if thread.name != name:
            continue
        while frame is not None:
            code = frame.f_code
            if code.co_name == "wait" and code.co_filename.endswith("output_window.py"):
                return True
            frame = frame.f_back

def until_waits(name):
    while not waits(name):
        time.sleep(0.01)

def count(write, written):
    for _ in range(COUNT):
        write(text)
        written.append(1)

def begin(write):
    'Returns how much was written until the writer waited, and its thread.'
    written = []
    thread = threading.Thread(target=count, args=(write, written), name="writer")
    thread.start()
    until_waits("writer")
    return len(written), thread

def forked(pipe):
    written, thread = begin(print_text)
    pipe.send(written)
    thread.join()
    os._exit(0)

def print_text(text):
    sys.stdout.write(text)

print_text(text)
"""
THREADS = """
os.kill(keeper, signal.SIGSTOP)
printed, printer = begin({write})
os.kill(keeper, signal.SIGCONT)
printer.join()
sys.stderr.write(f"written {{printed}}")
"""
FORKED = """
os.kill(keeper, signal.SIGSTOP)
here, there = multiprocessing.Pipe()
child = multiprocessing.get_context("fork").Process(target=forked, args=(there,))
child.start()
printed = here.recv()
os.kill(keeper, signal.SIGCONT)
child.join()
sys.stderr.write(f"written {printed}")
"""
SUBPROCESS = f"""
os.kill(keeper, signal.SIGSTOP)
program = "import os; [os.write(1, b'x' * (1 << 20)) and os.write(2, b'.') for _ in range({COUNT})]"
with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as child:
    until_waits(sys.stdout.watch_fd_thread.name)
    os.set_blocking(child.stderr.fileno(), False)
    printed = len(child.stderr.read() or b"")
    os.set_blocking(child.stderr.fileno(), True)
    os.kill(keeper, signal.SIGCONT)
    child.stderr.read()
sys.stderr.write(f"written {{printed}}")
"""
WRITERS = {
    "a thread prints": THREADS.format(write="print_text"),
    "a thread shows displays": THREADS.format(write="lambda text: display(HTML(text))"),
    "a forked child prints": FORKED,
    "a child process writes to its stdout": SUBPROCESS,
}
INTERRUPTED = """
def interrupt():
    until_waits("MainThread")
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(keeper, signal.SIGCONT)

os.kill(keeper, signal.SIGSTOP)
threading.Thread(target=interrupt).start()
try:
    count(print_text, [])
except KeyboardInterrupt:
    sys.stderr.write("written 1")
"""
INTERRUPTED_AGAIN = """
def runs_code():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and frame.f_code.co_name != "run_code":
        frame = frame.f_back
    return frame is not None

def interrupt():
    until_waits("MainThread")
    os.kill(os.getpid(), signal.SIGINT)
    while runs_code() or not waits("MainThread"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(keeper, signal.SIGCONT)

os.kill(keeper, signal.SIGSTOP)
threading.Thread(target=interrupt).start()
try:
    count(print_text, [])
except KeyboardInterrupt:
    pass
"""
KILLED = """
thread = begin(print_text)[1] if os.kill(keeper, signal.SIGSTOP) is None else None
os.kill(keeper, signal.SIGKILL)
thread.join()
"""


def test_marks_travel_beside_the_topic() -> None:
    frames = [b"stream.stdout", DELIMITER, b"signature", b"{}"]
    marked = add_mark(frames, 1234)
    assert marked[0] == b"stream.stdout" and marked[2:] == frames[1:]
    assert read_mark(marked[1]) == 1234
    assert add_mark([b"no", b"delimiter"], 1) == [b"no", b"delimiter"]
    assert [read_mark(frame) for frame in (b"stream.stdout", b"sent:x", b"sent:" + b"9" * 30)] == [None] * 3


def sent(window: OutputWindow, *frames: bytes) -> list[bytes]:
    """Have the window send these frames; return those that it has sent."""
    found: list[bytes] = []
    window.send(frames, found.extend)
    return found


def test_writers_wait_for_the_mark_before_the_window() -> None:
    window = OutputWindow()
    sent(window, b"x" * WINDOW, b"y")
    assert not window.full  # nobody has returned a mark
    window.read(0)
    assert window.full
    waiting = threading.Thread(target=window.wait)
    waiting.start()
    window.read(WINDOW + 1)
    waiting.join()
    assert not window.full
    sent(window, b"x" * (WINDOW + 1))
    assert window.full
    with window.passing():
        window.wait()


def test_what_a_killed_keeper_had_not_read_counts_until_its_successor_has_read_it() -> None:
    window = OutputWindow()
    sent(window, b"x" * (WINDOW + 1))
    assert not window.full  # nobody has returned a mark
    window.keeper_ended()
    assert window.full
    window.taken_over()
    assert window.full
    window.keeper_ended()  # that one was killed before it received anything
    window.taken_over()
    window.read(WINDOW + 1)
    window.wait()
    window.keeper_ended()
    sent(window, b"x" * (WINDOW + 1))
    assert window.full
    window.abandoned()
    window.wait()


def test_a_keeper_that_is_stopped_lets_a_piece_pass_now_and_then() -> None:
    window = OutputWindow(patience=0.0)
    window.read(0)
    sent(window, b"x" * (WINDOW + 3 * PIECE))
    window.wait()
    assert not window.full
    sent(window, b"x" * PIECE)
    assert window.full


def wait_in_threads(window: OutputWindow, count: int = 20) -> list[threading.Thread]:
    threads = [threading.Thread(target=window.wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_however_many_wait_one_piece_passes() -> None:
    clock = Clock()
    window = OutputWindow(patience=1.0, clock=clock.monotonic)
    window.read(0)
    sent(window, b"x" * (WINDOW + 8 * PIECE))
    waiting = wait_in_threads(window)
    for _ in range(3):
        clock.seconds += 1
        waiting[0].join(0.1)  # many times as long as all of them need to see that
        assert window.full
    while any(thread.is_alive() for thread in waiting):
        clock.seconds += 1
        waiting[0].join(0.01)


def test_nothing_passes_while_there_is_no_keeper() -> None:
    window = OutputWindow(patience=0.0)
    window.keeper_ended()
    sent(window, b"x" * (WINDOW + 1))
    waiting = wait_in_threads(window)
    waiting[0].join(0.1)
    assert all(thread.is_alive() for thread in waiting)
    window.taken_over()
    window.read(WINDOW + 1)
    for thread in waiting:
        thread.join()


def test_an_idle_kernel_keeps_nothing() -> None:
    window = OutputWindow()
    idle = [b'{"msg_type": "status"}', b'{"msg_id": "1"}', b"{}", b'{"execution_state": "idle"}']
    shown = [b'{"msg_type": "display_data"}', b'{"msg_id": "1"}', b"{}", b'{"data": {"text": "idle"}}']
    assert len(sent(window, DELIMITER, b"signature", *shown)) == 6
    assert read_mark(sent(window, DELIMITER, b"signature", *idle)[0])


def test_a_buffer_that_the_user_changes_is_sent_as_it_was() -> None:
    window, found, buffer = OutputWindow(), [], bytearray(b"before")  # type: ignore[var-annotated]
    window.unread.keep()
    window.unread.hold()
    window.send([b"topic", DELIMITER, memoryview(buffer)], found.extend)
    buffer[:] = b"after, and longer"  # with a view that is still in use, this would be an error
    window.taken_over()
    assert found == [b"topic", DELIMITER, b"before"]


def test_what_passed_for_a_stopped_keeper_does_not_widen_the_window_for_good() -> None:
    window = OutputWindow(patience=0.0)
    window.read(0)
    sent(window, b"x" * (WINDOW + 3 * PIECE))
    window.wait()
    window.read(WINDOW + 3 * PIECE)  # it goes on, and has read everything
    sent(window, b"x" * (WINDOW + 1))
    assert window.full


def test_a_mark_that_was_never_sent_gives_no_credit() -> None:
    window = OutputWindow()
    window.read(100 * WINDOW)
    sent(window, b"x" * (WINDOW + 1))
    assert window.full


def test_an_older_mark_takes_nothing_back() -> None:
    window = OutputWindow()
    sent(window, b"x" * (WINDOW + 1))
    window.read(WINDOW + 1)
    window.read(0)
    assert not window.full


def test_what_a_forked_child_gives_to_its_parent_is_counted_there() -> None:
    window = OutputWindow()
    window.read(0)
    frames = [b"topic", DELIMITER, b"x" * (WINDOW + 1)]
    child = os.fork()
    if not child:
        os._exit(0 if sent(window, *frames) == frames and not window.full else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not window.full
    assert len(sent(window, *frames)) == len(frames) + 1 and window.full


def set_up(hub: Hub) -> None:
    """The kernel's parent may be another process than the keeper."""
    keeper, _, _ = struct.unpack("3i", hub.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    hub.run(f"keeper = {keeper}\n{SET_UP}")


def stderr_of(hub: Hub, cell: str) -> tuple[str, int]:
    """What the cell wrote to stderr, and how many characters it published otherwise."""
    hub.reply(cell)
    text, size = "", 0
    for message in hub.got:
        if message.channel.name != "IOPUB" or message.parent().get("msg_id") != cell:
            continue
        content = message.content()
        if content.get("name") == "stderr":
            text += content["text"]
        size += len(content.get("text", "")) if content.get("name") == "stdout" else 0
        size += len(content.get("data", {}).get("text/html", ""))
    return text, size


def test_everything_that_writes_waits_and_nothing_is_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # with it ipykernel does not read file descriptors
    hub = place.start("window")
    set_up(hub)
    for name, code in WRITERS.items():
        hub.got.clear()
        printed, size = stderr_of(hub, hub.ask(code))
        assert printed.startswith("written "), (name, printed)
        assert int(printed.split()[1]) <= 2 * WINDOW >> 20, name
        assert size == COUNT << 20, name
    hub.sock.close()


def test_the_keepers_file_has_ipykernels_log_but_no_output(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    hub = place.start("window")
    hub.run("import os; os.system('echo printed'); get_ipython().kernel.log.error('logged')")
    (file,) = place.path.rglob("stderr")
    assert "logged" in file.read_text() and "printed" not in file.read_text()
    hub.sock.close()


def test_an_interrupt_ends_the_wait(place: Place) -> None:
    hub = place.start("window")
    set_up(hub)
    hub.got.clear()
    assert stderr_of(hub, hub.ask(INTERRUPTED))[0] == "written 1"
    hub.sock.close()


def test_an_interrupt_after_the_code_leaves_the_cell_its_reply(place: Place) -> None:
    hub = place.start("window")
    set_up(hub)
    assert hub.reply(hub.ask(INTERRUPTED_AGAIN)).content()["status"] == "ok"
    hub.sock.close()


def test_a_killed_keeper_holds_no_writer_up(place: Place, tmp_path: Path) -> None:
    hub = place.start("window")
    set_up(hub)
    done = tmp_path / "done"
    os.mkfifo(done)
    hub.ask(KILLED + f"open({str(done)!r}, 'w').write('done')")
    with open(done) as printed:
        assert printed.read() == "done"
    hub.sock.close()
