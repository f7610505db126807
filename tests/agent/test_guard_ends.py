"""What ends a guarded kernel, and what runs before."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from guarded import ROOT, USER, Term
from runtimes import Clock
from waiting import eventually

from jupyter_gpu_kernel.agent.in_kernel import hooks

pytestmark = pytest.mark.full
WITHOUT_SIGNALFD = """
import os, resource, signal
from jupyter_gpu_kernel.agent.in_kernel.main import create_guard
from jupyter_gpu_kernel.agent.in_kernel.output_window import OutputWindow

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # as a kernel's process inherits it
window, most = OutputWindow(), os.dup(0)
os.close(most)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
assert not create_guard(window).installed
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_without_a_guard_sigterm_ends_it():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SIGNALFD], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert "no guard against SIGTERM" in done.stderr


def test_the_owner_ends_it_by_two(start, tmp_path):
    kernel = start()
    assert "guard off" in kernel.run("%gpu guard off") and kernel.run("%gpu guard on") == "guard on\n"
    assert [kernel.event()["text"], kernel.event()["on"]] == ["the guard was switched off", True]
    request = kernel.start("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    kernel.wait_for(request, "begun")
    with Term(tmp_path, kernel, USER, "first"):
        kernel.wait_for(request, "A second" if USER else "the kernel stays")
    if USER == 0:
        pytest.skip("run as root without another user: root never counts as owner")
    with Term(tmp_path, kernel, USER, "second"):
        assert kernel.ended() == -signal.SIGTERM
    kernel.wait_for(request, "the kernel ends.")
    assert [kernel.event()["action"], kernel.event()["action"]] == ["survived", "ended"]


def test_not_in_use_it_ends_after_its_hooks(start, tmp_path):
    kernel = start(LINGER=0)
    saved = kernel.folder / "saved"
    kernel.run(
        "import gpu_kernel, pathlib\n"
        f"@gpu_kernel.on_sigterm\ndef save():\n    print('saving'); pathlib.Path({str(saved)!r}).touch()\n"
        "hold = gpu_kernel.hold(); hold.__enter__()"
    )
    with Term(tmp_path, kernel, 0 if ROOT else USER):  # held, with no cell to tell: the story alone has it
        event = kernel.event()
        assert (event["event"], event["in_use"], event["action"]) == ("sigterm", True, "survived")
        assert (kernel.event()["event"], kernel.story[-1]["text"]) == ("hook", "saving\n")
    kernel.run("hold.__exit__(None, None, None)")
    assert "saving" not in "".join(kernel.texts.values()) and "SIGTERM" not in "".join(kernel.texts.values())
    saved.unlink()
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        assert kernel.ended() == -signal.SIGTERM
    assert saved.exists()
    assert (kernel.event()["in_use"], kernel.story[-1]["action"]) == (False, "ended")


def test_a_hook_that_does_not_end_is_not_waited_for_for_ever(start, tmp_path):
    kernel = start(LINGER=0, HOOK_TIMEOUT=0.5)
    begun = kernel.folder / "begun"
    kernel.run(
        "import gpu_kernel, pathlib, time\n@gpu_kernel.on_sigterm\n"
        f"def endless():\n    pathlib.Path({str(begun)!r}).touch()\n    time.sleep(600)"
    )
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        eventually(begun.exists, "the function's begin")
        assert kernel.process.poll() is None
        assert kernel.ended() == -signal.SIGTERM


def ends_once_it_is_quiet(kernel, tmp_path):
    """On a crowded machine the kernel itself may still have something to do."""
    while (action := action_at_sigterm(kernel, tmp_path)) == "survived":
        pass
    assert action == "ended" and kernel.ended() == -signal.SIGTERM


def action_at_sigterm(kernel, tmp_path):
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        return kernel.event()["action"]


def test_a_working_process_tree_is_in_use(start, tmp_path):
    kernel = start(LINGER=0)
    kernel.run(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'print(1, flush=True)\\nwhile True: pass'],"
        " stdout=subprocess.PIPE)\nchild.stdout.readline()"
    )
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        assert (kernel.event()["in_use"], kernel.story[-1]["action"]) == (True, "survived")
    kernel.run("child.terminate(); print(child.wait())")
    ends_once_it_is_quiet(kernel, tmp_path)


def test_a_process_that_waits_for_a_cpu_is_in_use(start, tmp_path):
    """On a crowded node what computes may get a twentieth of a CPU."""
    kernel = start(LINGER=0)
    cpu = min(os.sched_getaffinity(0))
    endless = "import os; os.sched_setaffinity(0, {%d}); print(1, flush=True)\nwhile True: pass" % cpu
    with contextlib.ExitStack() as stack:
        for _ in range(25):  # each a session: the system may share CPUs out among those
            command = [sys.executable, "-c", endless]
            crowd = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
            stack.callback(stack.enter_context(crowd).kill)
            assert crowd.stdout.readline()
        kernel.run(
            "import subprocess, sys\n"
            f"child = subprocess.Popen(['nice', '-n', '19', sys.executable, '-c', {endless!r}],"
            " stdout=subprocess.PIPE)\nchild.stdout.readline()"
        )
        with Term(tmp_path, kernel, 0 if ROOT else USER):
            assert (kernel.event()["in_use"], kernel.story[-1]["action"]) == (True, "survived")
    kernel.run("child.kill(); print(child.wait())")
    ends_once_it_is_quiet(kernel, tmp_path)


def write_scontrol(folder, seconds):
    """Slurm's program, which says after how many seconds SIGKILL follows."""
    program = folder / "scontrol"
    program.write_text(
        f"#!/bin/sh\n[ \"$*\" = 'show config' ] && echo 'KillWait                = {seconds} sec'\n"
    )
    program.chmod(0o755)


def test_the_time_until_sigkill_is_counted_down(tmp_path, monkeypatch):
    write_scontrol(tmp_path, 62)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("PATH", str(tmp_path))
    clock, printed = Clock(), []
    monkeypatch.setattr(hooks, "time", clock)
    begin = clock.seconds
    hooks.Countdown(lambda line: printed.append((clock.seconds - begin, line)))._count(begin)
    assert printed == [(62.0 - left, f"SIGKILL in about {left} s.") for left in (60, 30, 20, 10, 5, 2)]


def test_a_scheduler_s_sigterm_is_counted_down_to_its_sigkill(start, tmp_path):
    write_scontrol(tmp_path, 11)
    kernel = start()
    kernel.run(f"import os; os.environ.update(SLURM_JOB_ID='1', PATH='{tmp_path}:' + os.environ['PATH'])")
    request = kernel.start("import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.1)")
    kernel.wait_for(request, "begun")
    with Term(tmp_path, kernel, 0 if ROOT else USER, "slurmstepd"):
        printed = kernel.wait_for(request, "SIGKILL in about ")
    assert printed.index("SIGKILL usually follows") < printed.index("SIGKILL in about ")
    os.kill(kernel.process.pid, signal.SIGINT)
    assert kernel.finish(request)["ename"] == "KeyboardInterrupt"


def test_memory_pressure_interrupts_first(start, tmp_path):
    kernel = start()
    (kernel.folder / "story").unlink()  # a keeper that is gone changes nothing
    request = kernel.start("import time\nx = 1\nprint('begun', flush=True)\ntime.sleep(600)")
    kernel.wait_for(request, "begun")
    with Term(tmp_path, kernel, USER, "earlyoom"):
        reply = kernel.finish(request)
    assert reply["ename"] == "KeyboardInterrupt" and "memory is short" in kernel.text(request)
    assert kernel.run("print(x)") == "1\n"
    with Term(tmp_path, kernel, USER, "earlyoom"):
        assert kernel.ended() == -signal.SIGTERM


def test_memory_pressure_frees_what_torch_holds(start, tmp_path):
    """torch itself is too large for this: a module of its name that says what it is asked for."""
    kernel = start()
    kernel.run(
        "import sys, types\ntorch = sys.modules['torch'] = types.ModuleType('torch')\nasked = []\n"
        "torch.cuda = types.SimpleNamespace(is_initialized=lambda: True, empty_cache=lambda: asked.append('freed'))"
    )
    request = kernel.start("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    kernel.wait_for(request, "begun")
    with Term(tmp_path, kernel, USER, "earlyoom"):
        assert kernel.finish(request)["ename"] == "KeyboardInterrupt"
    assert kernel.run("print(asked)") == "['freed']\n"


def test_without_the_guard_sigterm_is_as_ever(start, tmp_path):
    kernel = start(SIGTERM="default")
    assert "without the guard" in kernel.run("%gpu guard on")
    assert "no effect" in kernel.run("import gpu_kernel; gpu_kernel.on_sigterm(print);")
    request = kernel.start("import time\nprint(gpu_kernel.status()['guard'], flush=True)\ntime.sleep(600)")
    kernel.wait_for(request, "off")
    os.kill(kernel.process.pid, signal.SIGTERM)
    assert kernel.ended() == -signal.SIGTERM


def test_switched_off_sigterm_is_as_ever(start):
    kernel = start()
    kernel.run("%gpu guard off")
    os.kill(kernel.process.pid, signal.SIGTERM)
    assert kernel.ended() == -signal.SIGTERM


def test_shutdown_passes_by_the_guard(start):
    kernel = start()
    kernel.client.shutdown()
    assert kernel.ended() == 0
