"""The idle clock, on a clock of its own; the readings of /proc, on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Dict

from jupyter_gpu_kernel.agent.keeper.limits.idle_timer import IdleAdvice, IdleTimer
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.system.procfs import has_opened_gpus, tree_cpu


class Time:
    """A clock that goes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(**settings: float) -> tuple[IdleTimer, Time]:
    time = Time()
    return IdleTimer(KernelSettings(**settings), time), time


QUIET: Dict[str, Any] = {"busy": False, "attached": False, "cpu": 0.0, "has_gpu": False, "cuda_open": False}


def test_a_detached_kernel_ends_after_its_time() -> None:
    clock, time = make(idle_timeout=100)
    time.now += 99
    assert clock.advise(**QUIET) == IdleAdvice()
    time.now += 1
    assert clock.advise(**QUIET).end == "idle for 1 min 40 s without a front end"


def test_how_long_it_has_been_idle() -> None:
    clock, time = make()
    time.now += 70
    assert clock.idle_for() == 70
    clock.used()
    assert clock.idle_for() == 0


def test_a_detached_kernel_without_a_notebook_has_five_minutes() -> None:
    """Nobody comes back to it."""
    clock, time = make()
    unnamed = dict(QUIET, named=False)
    time.now += 299
    assert not clock.advise(**unnamed).end
    assert not clock.advise(**dict(unnamed, attached=True)).end
    time.now += 299
    assert not clock.advise(**unnamed).end
    time.now += 1
    assert clock.advise(**unnamed).end == "idle for 5 min without a front end"
    shorter, time = make(idle_timeout=60)
    time.now += 60
    assert shorter.advise(**unnamed).end
    never, time = make(idle_timeout=0)
    time.now += 1e6
    assert not never.advise(**unnamed).end


def test_an_attached_one_has_more_time() -> None:
    clock, time = make(idle_timeout=100, idle_timeout_attached=1000)
    time.now += 500
    assert clock.advise(**dict(QUIET, attached=True)) == IdleAdvice()
    time.now += 500
    assert "with a front end" in clock.advise(**dict(QUIET, attached=True)).end


def test_a_cell_a_user_and_a_working_tree_set_it_back() -> None:
    clock, time = make(idle_timeout=100)
    time.now += 99
    assert clock.advise(**dict(QUIET, busy=True)) == IdleAdvice()
    time.now += 99
    clock.used()
    time.now += 99
    assert not clock.advise(**QUIET).end
    time.now += 60
    assert not clock.advise(**dict(QUIET, cpu=30.0)).end, "half a processor for a minute: it trains"
    time.now += 60
    assert not clock.advise(**dict(QUIET, cpu=30.1)).end
    time.now += 41
    assert clock.advise(**dict(QUIET, cpu=30.2)).end, "a heartbeat is not work"


def test_what_a_tree_did_before_the_clock_began_is_not_work() -> None:
    """A successor's clock begins with a kernel that has run for days."""
    clock, time = make(idle_timeout=100)
    time.now += 100
    assert clock.advise(**dict(QUIET, cpu=1e6)).end


def test_a_lid_that_is_closed_ends_no_kernel_at_once() -> None:
    """However long its user had been reading."""
    clock, time = make(idle_timeout=100, idle_timeout_attached=1000)
    time.now += 500
    assert clock.advise(**dict(QUIET, attached=True)) == IdleAdvice()
    time.now += 50
    assert clock.advise(**QUIET) == IdleAdvice()
    assert clock.advise(**dict(QUIET, attached=True)) == IdleAdvice()
    time.now += 100
    assert clock.advise(**QUIET).end == "idle for 1 min 40 s without a front end"


def test_never_is_possible() -> None:
    clock, time = make(idle_timeout=0, idle_timeout_attached=0, gpu_timeout=0)
    time.now += 1e9
    for attached in (False, True):
        assert clock.advise(**dict(QUIET, attached=attached, has_gpu=True)) == IdleAdvice()
    assert clock.keeps_ended_kernel()


def test_a_kernel_that_ended_unseen_is_kept_as_long_as_an_idle_one() -> None:
    clock, time = make(idle_timeout=100)
    time.now += 99
    assert clock.keeps_ended_kernel()
    time.now += 1
    assert not clock.keeps_ended_kernel()


def test_a_gpu_goes_back_only_if_cuda_was_never_opened() -> None:
    clock, time = make(gpu_timeout=50)
    time.now += 51
    assert clock.advise(**dict(QUIET, has_gpu=True)).give_back
    assert not clock.advise(**dict(QUIET, has_gpu=True, cuda_open=True)).give_back
    assert not clock.advise(**QUIET).give_back


def test_the_cpu_of_a_tree_counts_children_and_nobody_else() -> None:
    work = "sum(i*i for i in range(4_000_000))"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}]); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        assert tree_cpu(process.pid) > 0.1
        process.stdin.close()
    assert tree_cpu(process.pid) == 0


def test_the_cpu_of_a_process_whose_parent_has_ended_counts() -> None:
    work = "sum(i*i for i in range(4_000_000)); print(1, flush=True); input()"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {work!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        process.wait()
        assert tree_cpu(process.pid) > 0.1
        process.stdin.close()


def test_the_cpu_of_a_tree_reads_no_process_of_others() -> None:
    code = f"""if True:
        import os, sys
        sys.path[:] = {sys.path!r}
        from jupyter_gpu_kernel.agent.system.procfs import tree_cpu
        opened = []
        sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
        tree_cpu(os.getpid())
        assert opened == ["/proc/%d/stat" % os.getpid()], opened
    """
    subprocess.run([sys.executable, "-c", code], check=True, start_new_session=True)


def test_cuda_is_not_open_here_and_unknown_for_other_processes() -> None:
    assert has_opened_gpus(os.getpid()) is False
    assert has_opened_gpus(2**22 + 1) is None
