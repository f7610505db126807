"""The spare interpreter: kernels that are forked from it, and when there is none."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pytest
from keepers import Hub, Place, keeper_of
from runtimes import RUNTIME, make
from waiting import eventually

from jupyter_gpu_kernel.agent.exit.descendants import TAG, find_descendants
from jupyter_gpu_kernel.agent.process.adopted_process import AdoptedProcess
from jupyter_gpu_kernel.agent.spare.places import (
    SOCKET_TYPE,
    SparePlace,
    retire_all,
    spares_running,
)
from jupyter_gpu_kernel.agent.system import procfs
from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.wire.messages import Channel, Message

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the agent needs Linux"),
]


class Forks(Place):
    """A place whose kernels are forked."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._hubs: List[Hub] = []

    def start(self, kernel_id: str = "", **settings: Any) -> Hub:
        hub = super().start(kernel_id, **settings)
        self._hubs.append(hub)
        return hub

    def end(self) -> None:
        """End the kernels and the spare interpreters."""
        for hub in self._hubs:
            hub.sock.close()
        self.clear()
        left = spares(self)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):  # they retire
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(map(procfs.start_ticks, left)), "their end")


@pytest.fixture
def forking(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forks]:
    monkeypatch.setenv("JUPYTER_GPU_KERNEL_SPARE", "wait")
    monkeypatch.setenv("JUPYTER_GPU_KERNEL_SPARE_IDLE", "600")
    forks = Forks(place.path)
    yield forks
    forks.end()


def spares(place: Place) -> List[int]:
    """The spare interpreters of this place."""
    found = [pid for pid in procfs.pids() if procfs.arguments(pid)[-3:-2] == ["spare"]]
    return [pid for pid in found if procfs.environment(pid).get("JUPYTER_GPU_KERNEL_ROOT") == str(place.path)]


def sockets(pid: int) -> Set[str]:
    """The sockets that a process has open."""
    files = [os.readlink(str(path)) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return {file for file in files if file.startswith("socket:")}


def spare_of(place: Place) -> int:
    """The only one. A process that it has just forked looks as itself for a moment."""
    return eventually(lambda: found[0] if len(found := spares(place)) == 1 else 0, "one spare interpreter")


def is_forked(place: Place, kernel_id: str) -> bool:
    story = eventually(lambda: place.story(kernel_id, "start"), "the start")
    return str(story[-1]["text"]).endswith("forked")


def pid_of(hub: Hub) -> int:
    return int(hub.run("import os; print(os.getpid())"))


def test_a_forked_kernel_shows_itself_as_a_started_one(
    forking: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import json, os, sys, signal, threading\n"
        "print(json.dumps([sys.argv[1:], sys.orig_argv, sys.path, os.getcwd(), sorted(os.environ), "
        "os.getpgrp() == os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGINT).__name__, "
        "threading.main_thread().name, sys.stdin.isatty(), str(sys.modules['__main__'].__spec__)]))"
    )
    forked = forking.start("k1", env={"A": "1"})
    monkeypatch.setenv("JUPYTER_GPU_KERNEL_SPARE", "off")
    started = forking.start("k2", env={"A": "1"})
    assert is_forked(forking, "k1") and not is_forked(forking, "k2")
    assert forked.run(code).replace("/k1/", "/k2/") == started.run(code)
    pids = [pid_of(forked), pid_of(started)]
    commands = [" ".join(procfs.arguments(pid)).replace("/k1/", "/k2/") for pid in pids]
    assert commands[0] == commands[1] and "ipykernel -f" in commands[0]
    assert [procfs.environment(pid)[TAG] for pid in pids] == ["k1", "k2"]
    assert len({procfs.environment(pid)["CUDA_VISIBLE_DEVICES"] for pid in pids}) == 1


def test_its_processes_are_found_also_those_that_it_forks(forking: Forks) -> None:
    hub = forking.start("k1")
    code = (
        "import os, time\nchild = os.fork()\nif child == 0:\n    time.sleep(600)\nprint(os.getpid(), child)"
    )
    kernel, child = map(int, hub.run(code).split())
    found = {process.pid for process in find_descendants("k1", root=str(forking.path))}
    assert {kernel, child} <= found and not found & set(spares(forking))


def test_two_kernels_of_one_spare_interpreter_have_nothing_in_common(forking: Forks) -> None:
    first, second = forking.start("k1", env={"A": "1"}), forking.start("k2", env={"A": "1"})
    assert is_forked(forking, "k1") and is_forked(forking, "k2")
    spare = spare_of(forking)
    code = (
        "import multiprocessing, random, uuid, tempfile\n"
        "print(random.random(), uuid.uuid4(), tempfile.mktemp(), multiprocessing.current_process().authkey.hex())"
    )
    assert not set(first.run(code).split()) & set(second.run(code).split())
    kernels = [pid_of(first), pid_of(second)]
    assert not sockets(kernels[1]) & sockets(spare), "the connections to keepers"
    os.kill(kernels[0], signal.SIGKILL)
    eventually(lambda: forking.story("k1", "end"), "the end of the first")
    assert second.run("print(6 * 7)") == "42\n"


@pytest.mark.parametrize(("ends", "code"), [("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", -9)])
def test_the_keeper_learns_how_the_kernel_ended(forking: Forks, ends: str, code: int) -> None:
    hub = forking.start("k1")
    pid = pid_of(hub)
    hub.ask(f"import os; {ends}")
    eventually(lambda: forking.story("k1", "end"), "the end")
    assert forking.story("k1", "end")[0]["returncode"] == code
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the zombie")


def test_a_kernel_outlives_its_spare_interpreter(forking: Forks) -> None:
    hub = forking.start("k1")
    assert is_forked(forking, "k1")
    spare = spare_of(forking)
    os.kill(spare, signal.SIGKILL)
    eventually(lambda: not procfs.start_ticks(spare), "its end")
    pid = int(hub.run("import os; print(os.getpid())"))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: forking.story("k1", "end"), "the end")


def test_the_end_is_noticed_without_process_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with Python 3.8, or Linux before 5.3."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    loop, ours_and_parents = Loop(RUNTIME), socket.socketpair(socket.AF_UNIX, SOCKET_TYPE)
    with subprocess.Popen(["sleep", "600"]) as process, ours_and_parents[1] as parent:
        forked = AdoptedProcess(loop, process.pid, loop.stop, ours_and_parents[0])
        assert forked.poll() is None
        parent.close()  # the spare interpreter is killed
        process.kill()
        loop.later(60, loop.stop)
        loop.run()
        assert forked.poll() == -signal.SIGKILL


def test_a_kernel_outlives_its_keeper(forking: Forks) -> None:
    hub = forking.start("k1")
    kernel = int(hub.run("x = 5; import os; print(os.getpid())"))
    os.kill(keeper_of(kernel), signal.SIGKILL)
    hub.sock.close()
    eventually(lambda: forking.story("k1", "succession"), "a successor")
    hub = Hub(forking.handlers.open("k1", {})[1])
    assert hub.run("print(x, os.getpid())") == f"5 {kernel}\n"
    hub.ask("os._exit(3)")
    eventually(lambda: forking.story("k1", "end"), "the end")
    assert forking.story("k1", "end")[0]["returncode"] == 3
    hub.sock.close()


def test_a_stopped_spare_interpreter_holds_up_no_start(forking: Forks) -> None:
    """The kernel is started without it, and the spare interpreter forks none later."""
    forking.start("k1").sock.close()
    assert is_forked(forking, "k1")
    spare = spare_of(forking)
    os.kill(spare, signal.SIGSTOP)
    hub = forking.start("k2")
    assert not is_forked(forking, "k2")
    os.kill(spare, signal.SIGCONT)
    hub.sock.close()
    forking.start("k3").sock.close()
    assert is_forked(forking, "k3")

    def kernels() -> int:
        found = find_descendants("k2", root=str(forking.path))
        return sum(" ipykernel " in process.command for process in found)

    eventually(lambda: kernels() == 1, "one kernel")  # besides what it starts itself, for a moment


def test_a_changed_environment_discards_it(
    forking: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package was installed: its folder has another time."""
    packages = tmp_path / "packages"
    packages.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(packages), os.environ["PYTHONPATH"]]))
    forking.start("k1").sock.close()
    assert is_forked(forking, "k1")
    before = spare_of(forking)
    (packages / "new.py").write_text("")
    forking.start("k2").sock.close()
    assert not is_forked(forking, "k2")
    forking.start("k3").sock.close()
    assert is_forked(forking, "k3") and set(spares(forking)) > {before}


@pytest.mark.parametrize("settings", [{"spare": "off"}, {"env": {"SLURM_JOB_ID": "7"}}])
def test_where_there_is_none(forking: Forks, settings: Dict[str, object]) -> None:
    forking.start("k1", **settings).sock.close()
    assert not is_forked(forking, "k1") and not spares(forking)


def test_it_retires_when_nothing_starts(forking: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    """It forks no more kernels, and ends with the last one, whose exit status its keeper learns."""
    monkeypatch.setenv("JUPYTER_GPU_KERNEL_SPARE_IDLE", "0.2")
    hub = forking.start("k1")
    assert is_forked(forking, "k1")
    eventually(lambda: not spares_running(forking.path), "its retirement")
    spare_of(forking)
    hub.run("pass")
    hub.ask("import os; os._exit(3)")
    eventually(lambda: forking.story("k1", "end"), "the end")
    assert forking.story("k1", "end")[0]["returncode"] == 3
    eventually(lambda: not spares(forking), "its end")


def test_it_ends_when_the_last_kernel_is_stopped(forking: Forks) -> None:
    for kernel_id in ("k1", "k2"):
        forking.start(kernel_id).sock.close()
        assert is_forked(forking, kernel_id)
    forking.handlers.handle({"do": "stop", "kernel": "k1"})
    assert spares_running(forking.path) == 1
    forking.handlers.handle({"do": "stop", "kernel": "k2"})
    eventually(lambda: not spares(forking), "its end")
    assert not spares_running(forking.path)


def test_it_ends_when_all_is_stopped_after_its_last_kernel(forking: Forks) -> None:
    hub = forking.start("k1")
    assert is_forked(forking, "k1")
    nothing: Dict[str, Any] = {"do": "end_leftovers", "leftovers": [], "code": []}
    forking.handlers.handle(nothing)
    assert spares_running(forking.path) == 1  # a kernel runs
    stop_by_shutdown(hub)
    hub.leave()
    eventually(lambda: not forking.folder("k1").exists(), "the end")
    assert spares(forking)
    forking.handlers.handle(nothing)
    eventually(lambda: not spares(forking), "its end")


def test_one_that_does_not_listen_yet_loses_its_place(tmp_path: Path) -> None:
    place = SparePlace(tmp_path, "key")
    before = place.lock()
    assert before is not None and place.is_ours(before)
    retire_all(tmp_path)
    assert not place.is_ours(before) and not spares_running(tmp_path)
    after = place.lock()
    assert after is not None and place.is_ours(after) and not place.is_ours(before)
    os.close(before)
    os.close(after)


def test_a_kernel_that_is_ready_has_the_next_start_prepared(
    forking: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUPYTER_GPU_KERNEL_SPARE")
    forking.start("k1")
    assert not is_forked(forking, "k1")
    eventually(lambda: list((forking.path / "spare").glob("*.sock")), "a spare interpreter")
    forking.start("k2").sock.close()
    assert is_forked(forking, "k2")


def stop_by_shutdown(hub: Hub) -> None:
    hub.tell(Message(Channel.CONTROL, 1, make("shutdown_request", {"restart": False})))
