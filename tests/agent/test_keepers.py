"""Keepers that do not answer, and ids that are none, as attach meets them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import pytest
from keepers import Hub, Place
from runtimes import RUNTIME
from waiting import eventually

from jupyter_gpu_kernel.agent.exit import leftovers
from jupyter_gpu_kernel.agent.in_kernel.keeper_watch import MAX_STARTS, START_TIMEOUT
from jupyter_gpu_kernel.agent.keeper.client import KeeperTimeout, ask_keeper
from jupyter_gpu_kernel.agent.mux.handlers import RequestHandlers
from jupyter_gpu_kernel.agent.mux.keepers import SUCCESSOR_TIMEOUT
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.refused import Refused
from jupyter_gpu_kernel.agent.story import Story
from jupyter_gpu_kernel.hub.node.attachments import MAX_UNGREETED

NOTEBOOK = {"name": "gpu", "notebook": "/home/me/a.ipynb"}


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_keeper_that_does_not_answer_is_there(place: Place) -> None:
    """It is listed, its notebook gets no second kernel, and others get theirs; it stops when it goes on."""
    hub = place.start("k1", **NOTEBOOK)
    pid, keeper = hub.run("x = 1; import os; print(os.getpid())"), hub.keeper
    hub.sock.close()
    handlers = RequestHandlers(RUNTIME, place.handlers.root, timeout=0.3)
    with stopped(keeper):
        (row,) = handlers.handle({"do": "list"})["kernels"]
        expected = {"id": "k1", "state": "unresponsive", "pid": int(pid), "gpus": [], **NOTEBOOK}
        assert {key: row[key] for key in expected} == expected
        assert row.keys() >= {"node", "attached", "since"}
        with pytest.raises(Refused, match=f"process {keeper}") as refused:
            handlers.open("k2", {"create": dict(NOTEBOOK, gpus=0)})
        assert refused.value.code == "unresponsive"
        with pytest.raises(Refused, match="does not answer"):
            handlers.handle({"do": "journal", "kernel": "k1"})
        assert place.handlers.root.kernels() == ["k1"]
        handlers.open("k3", {"create": {"gpus": 0, "name": "gpu", "notebook": "/home/me/b.ipynb"}})[1].close()
    kernel_id, sock = place.handlers.open("k4", {"create": dict(NOTEBOOK, gpus=0)})
    assert kernel_id == "k1"
    with stopped(keeper), pytest.raises(Refused, match="will stop when it answers"):
        handlers.handle({"do": "stop", "kernel": "k1"})
    while sock.recv(1 << 16):  # until the keeper, which goes on now, has ended
        pass
    sock.close()


def accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0


def test_a_sigterm_while_the_python_starts_waits_for_the_guard(place: Place, tmp_path: Path) -> None:
    held, python = tmp_path / "held", tmp_path / "python"
    wait = f"while 'ipykernel' in sys.argv and os.path.exists({str(held)!r}): time.sleep(0.01)"
    go_on = f"os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])"
    python.write_text(f"#!{sys.executable}\nimport os, sys, time\n{wait}\n{go_on}\n")
    python.chmod(0o700)
    held.touch()
    hub = place.start("k1", python=str(python))
    eventually(lambda: place.story("k1", "start"), "a process")
    os.kill(place.story("k1", "start")[0]["pid"], signal.SIGTERM)
    held.unlink()
    assert hub.run("print(1)") == "1\n"
    assert [one["action"] for one in place.story("k1", "sigterm")] == ["survived"]
    hub.sock.close()


def test_a_kernel_whose_next_keeper_takes_long_is_not_gone(place: Place, tmp_path: Path) -> None:
    held, python = tmp_path / "held", tmp_path / "python"
    wait = f'case "$*" in *succeed*) while [ -e {held} ]; do sleep 0.05; done;; esac'
    python.write_text(f'#!/bin/sh\n{wait}\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o700)
    hub = place.start("k1", python=str(python), **NOTEBOOK)
    hub.run("x = 1")
    held.touch()
    os.kill(hub.keeper, signal.SIGKILL)
    hub.sock.close()
    eventually(lambda: not accepts(place.folder("k1") / "keeper"), "the end of the keeper and its threads")
    handlers = RequestHandlers(RUNTIME, place.handlers.root, successor_timeout=0.1)
    for _ in range(2):
        with pytest.raises(Refused, match="no other one has taken over") as refused:
            handlers.open("k1", {})
        assert refused.value.code == "unresponsive", "the hub tries again"
    assert [one["state"] for one in handlers.handle({"do": "list"})["kernels"]] == ["starting"]
    with pytest.raises(Refused, match="no other one has taken over"):
        handlers.open("k2", {"create": dict(NOTEBOOK, gpus=0)})
    held.unlink()
    kernel_id, sock = place.handlers.open("k2", {"create": dict(NOTEBOOK, gpus=0)})
    assert kernel_id == "k1"
    assert Hub(sock).run("print(x)").startswith("1\n")
    sock.close()


def test_a_hub_asks_as_long_as_a_kernel_may_start_keepers() -> None:
    assert MAX_UNGREETED * SUCCESSOR_TIMEOUT >= MAX_STARTS * START_TIMEOUT


@pytest.fixture
def core_limit() -> Iterator[Tuple[int, int]]:
    """What processes that a test starts may write, if the system lets us."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    yield (before[1], before[1])
    resource.setrlimit(resource.RLIMIT_CORE, before)


def test_a_keeper_leaves_no_core_file_and_its_kernel_may(core_limit: Tuple[int, int], place: Place) -> None:
    """A keeper holds the kernel's key and environment."""
    hub = place.start("k1")
    limits = hub.run("import os, resource; print(*resource.getrlimit(resource.RLIMIT_CORE))")
    assert tuple(map(int, limits.split())) == core_limit
    assert resource.prlimit(hub.keeper, resource.RLIMIT_CORE)[0] == 0
    hub.sock.close()


def test_a_keeper_whose_queue_is_full_is_there(tmp_path: Path) -> None:
    """As many have asked as its socket takes; it accepts nobody."""
    folder = Root(tmp_path).make_kernel("k1")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(str(folder / "keeper"))
        listener.listen(1)
        while True:
            asker = stack.enter_context(socket.socket(socket.AF_UNIX))
            asker.setblocking(False)
            if asker.connect_ex(str(folder / "keeper")):
                break
        with pytest.raises(KeeperTimeout):
            ask_keeper(str(folder / "keeper"), {"do": "status"})
        assert leftovers.has_keeper(folder)
    assert ask_keeper(str(folder / "keeper"), {"do": "status"}) is None
    assert ask_keeper(str(tmp_path / "none"), {"do": "status"}) is None


BAD_IDS = ["", "..", "../x", "a/b", "*", "a\nb", "-a", "x" * 65, "é", "１", 7, None, ["k1"]]


@pytest.mark.parametrize("kernel_id", BAD_IDS)
def test_what_is_no_id_names_no_file(tmp_path: Path, kernel_id: Any) -> None:
    root = Root(tmp_path)
    (tmp_path / "x").mkdir()
    handlers = Place(tmp_path).handlers
    requests: Dict[str, Dict[str, Any]] = {
        do: {"do": do, "kernel": kernel_id} for do in ("story", "stories", "stop", "journal")
    }
    for request in requests.values():
        with pytest.raises(Refused, match="is not the id of a kernel") as refused:
            handlers.handle(request)
        assert refused.value.code == "gone" and len(str(refused.value)) < 200
    with pytest.raises(Refused, match="is not the id of a kernel"):
        handlers.open(kernel_id, {"create": {"gpus": 0}})
    assert [path.name for path in tmp_path.iterdir()] == ["x"] and root.kernels() == []


def test_folders_with_names_that_are_no_ids_are_no_kernels(tmp_path: Path) -> None:
    root = Root(tmp_path)
    root.make_kernel("k1")
    for name in (".x", "a b", "k\n2", "x" * 200):
        (tmp_path / "k" / name).mkdir()
    assert root.kernels() == ["k1"]


@pytest.mark.parametrize("wanted", [[{}], [{"pid": "x", "start": [1], "boot": 1}], [{"boot": ""}]])
def test_leftovers_that_are_none_end_nothing(tmp_path: Path, wanted: Any) -> None:
    assert Place(tmp_path).handlers.handle({"do": "end_leftovers", "leftovers": wanted})["ended"] == []


def test_attach_needs_no_pyzmq() -> None:
    code = "import sys; sys.modules['zmq'] = None; import jupyter_gpu_kernel.agent.mux.attach"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=str(Path(__file__).parents[2]))


def test_a_kernel_whose_keeper_is_about_to_exit_is_not_listed_as_one_that_starts(tmp_path: Path) -> None:
    """The keeper closes its socket before it unlocks the folder."""
    root = Root(tmp_path)
    lock = os.open(str(root.make_kernel("k1") / "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    story, handlers = Story(root.story("k1"), time.time), RequestHandlers(RUNTIME, root)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for event, states in (("start", ["starting"]), ("end", []), ("start", ["starting"])):
            story.tell(event, "as its keeper tells it")
            assert [row["state"] for row in handlers.handle({"do": "list"})["kernels"]] == states
    finally:
        os.close(lock)
