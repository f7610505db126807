"""The guard in real kernels that are in use: SIGTERM by real processes does not end them."""

from __future__ import annotations

import os
import signal

import pytest
from guarded import ROOT, USER, WAIT_FOR_FILE, Term, needs_root
from waiting import DEADLINE, eventually


@needs_root
def test_a_cell_survives_root_and_says_so(kernel, tmp_path):
    stop = kernel.folder / "stop-1"
    request = kernel.start(WAIT_FOR_FILE.format(str(stop)))
    kernel.wait_for(request, "started")
    for number in (1, 2, 3):
        with Term(tmp_path, kernel) as pid:
            kernel.wait_for(request, "the cell goes on.", number)
            assert f"SIGTERM from root (pid {pid}, reaper) at " in kernel.text(request)
            event = kernel.event()
        assert (event["pid"], event["uid"], event["user"], event["command"]) == (pid, 0, "root", "reaper")
        assert (event["event"], event["in_use"], event["action"]) == ("sigterm", True, "survived")
    stop.touch()
    assert kernel.finish(request)["status"] == "ok"
    assert kernel.text(request).endswith("the end\n")


@needs_root
@pytest.mark.parametrize(
    ("how", "sender", "kind", "expected"),
    [
        ({}, {"uid": 61235, "caps": "+dac_read_search,+kill"}, "other", "SIGTERM from uid 61235 (pid "),
        ({"space": True}, {}, "container", "SIGTERM from outside of this container at "),
        ({"uid": 0}, {}, "root", "SIGTERM from root (pid "),
    ],
)
def test_any_sender_any_number(start, tmp_path, how, sender, kind, expected):
    """A third user, one outside of the kernel's process namespace, root where the kernel is root's, too."""
    kernel = start(**how)
    stop = kernel.folder / "stop"
    request = kernel.start(WAIT_FOR_FILE.format(str(stop)))
    kernel.wait_for(request, "started")
    for number in (1, 2, 3):
        with Term(tmp_path, kernel, **sender):
            kernel.wait_for(request, "cell goes on", number)
            event = kernel.event()
            assert (event["kind"], event["action"]) == (kind, "survived")
    assert kernel.text(request).count(expected) == 3
    stop.touch()
    assert kernel.finish(request)["status"] == "ok"


@needs_root
def test_reported_at_once_in_a_long_call(kernel, tmp_path):
    begun = kernel.folder / "begun"
    request = kernel.start(
        f"import time\nprint('before'); open({str(begun)!r}, 'w').close(); time.sleep(600)"
    )
    eventually(begun.exists, "the cell's begin")
    with Term(tmp_path, kernel):
        text = kernel.wait_for(request, "the cell goes on.")
    assert text.index("before") < text.index("SIGTERM from")
    os.kill(kernel.process.pid, signal.SIGINT)
    assert kernel.finish(request)["status"] == "error"


@needs_root
def test_an_asynchronous_cell_is_reported(kernel, tmp_path):
    stop = kernel.folder / "stop-async"
    code = WAIT_FOR_FILE.format(str(stop)).replace("time.sleep", "await asyncio.sleep")
    handler = "asyncio.get_running_loop().{}_signal_handler(15{})\n"
    begin = "import asyncio\n" + handler.format("add", ", print, 'from the loop'")
    request = kernel.start(begin + code + "\n" + handler.format("remove", "") + "print('the end')")
    kernel.wait_for(request, "started")
    with Term(tmp_path, kernel):
        kernel.wait_for(request, "the cell goes on.")
        kernel.wait_for(request, "from the loop")
    stop.touch()
    assert kernel.finish(request)["status"] == "ok" and kernel.text(request).endswith("the end\n")


def test_hooks_and_handlers_run_on_the_main_thread(kernel, tmp_path):
    kernel.run(
        "import gpu_kernel, signal, threading\n"
        "@gpu_kernel.on_sigterm\ndef save():\n    print('saved', threading.current_thread().name)\n"
        "@gpu_kernel.on_sigterm\ndef bad():\n    raise ValueError('no disk')\n"
        "def handler(number, frame):\n    print('mine', number); raise SystemExit(3)\n"
        "before = signal.signal(signal.SIGTERM, handler)"
    )
    stop = kernel.folder / "stop-2"
    request = kernel.start(WAIT_FOR_FILE.format(str(stop)))
    kernel.wait_for(request, "started")
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        kernel.wait_for(request, "SystemExit: 3")
    stop.touch()
    assert kernel.finish(request)["status"] == "ok"
    text = kernel.text(request)
    assert "saved MainThread" in text and "ValueError: no disk" in text and "mine 15" in text
    assert text.endswith("the end\n")
    kernel.run("signal.signal(signal.SIGTERM, before); gpu_kernel._guard.hooks.functions.clear()")


def test_a_librarys_handler_that_calls_the_one_before(kernel, tmp_path):
    """As Lightning's does, which looks for one, and keeps it: ours, here."""
    kernel.run(
        "import signal, types\nbefore = signal.getsignal(signal.SIGTERM)\n"
        "def handler(number, frame):\n"
        "    print('library', isinstance(frame, types.FrameType))\n"
        "    if callable(before): before(number, frame)\n"
        "signal.signal(signal.SIGTERM, handler)"
    )
    stop = kernel.folder / "stop-5"
    request = kernel.start(WAIT_FOR_FILE.format(str(stop)))
    kernel.wait_for(request, "started")
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        kernel.wait_for(request, "library True")
    seen = kernel.event()
    stop.touch()
    kernel.finish(request)
    assert (seen["action"], kernel.text(request).count("library"), kernel.text(request).count("SIGTERM")) == (
        "survived",
        1,
        1,
    )
    kernel.run("signal.signal(signal.SIGTERM, before)")
    assert kernel.run("import gpu_kernel; print(gpu_kernel._guard.last)").count("unknown") == 0


def test_a_thread_without_the_block_ends_nothing(kernel, tmp_path):
    stop = kernel.folder / "stop-4"
    unblock = "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])"
    request = kernel.start(
        f"import signal, threading, os\n{unblock}\n"
        f"def other():\n    {unblock}\n    ready.set(); leave.wait()\n"
        "ready, leave = threading.Event(), threading.Event()\n"
        "threading.Thread(target=other).start(); ready.wait()\n"
        + WAIT_FOR_FILE.format(str(stop))
        + "\nleave.set()"
    )
    kernel.wait_for(request, "started")
    for number in range(1, 4 if ROOT else 2):  # two of the owner's would end it
        with Term(tmp_path, kernel, 0 if ROOT else USER):
            kernel.wait_for(request, "the cell goes on", number)
    stop.touch()
    assert kernel.finish(request)["status"] == "ok"


def test_what_a_thread_without_the_block_gets_is_handed_to_the_guard(kernel):
    """A signal to that very thread: one for the process may as well go to the guard's, and has a sender then."""
    stop = kernel.folder / "stop-stray"
    request = kernel.start(
        "import signal\nsignal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])\n"
        "signal.raise_signal(signal.SIGTERM)\n" + WAIT_FOR_FILE.format(str(stop))
    )
    assert "SIGTERM from an unknown sender" in kernel.wait_for(request, "the cell goes on")
    stop.touch()
    assert kernel.finish(request)["status"] == "ok"


def test_a_subshell_is_a_cell_too(start, tmp_path):
    kernel = start(LINGER=0)
    info = kernel.client.kernel_info(reply=True, timeout=DEADLINE)["content"]
    if "kernel subshells" not in info.get("supported_features", []):
        pytest.skip("this ipykernel has no subshells")
    session = kernel.client.session
    kernel.client.control_channel.send(session.msg("create_subshell_request"))
    subshell = kernel.client.get_control_msg(timeout=DEADLINE)["content"]["subshell_id"]
    stop = kernel.folder / "stop"
    content = {"code": WAIT_FOR_FILE.format(str(stop)), "silent": False, "store_history": True}
    message = session.msg("execute_request", content)
    message["header"]["subshell_id"] = subshell
    kernel.client.shell_channel.send(message)
    request = message["header"]["msg_id"]
    kernel.wait_for(request, "started")
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        kernel.wait_for(request, "the cell goes on")
    stop.touch()
    kernel.pump(lambda: request in kernel.idle)
    assert kernel.text(request).endswith("the end\n")
