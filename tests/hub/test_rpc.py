"""The hub as a process of its own: who starts it, who may talk to it, when it ends, what it leaves in files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Client
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import pytest
from sshd import free_port
from waiting import DEADLINE

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.errors import ConnectError, HubError, NotAnswered, RouteError
from jupyter_gpu_kernel.hub import rpc
from jupyter_gpu_kernel.hub.client_connection import ClientConnection
from jupyter_gpu_kernel.hub.paths import hub_address, hub_folder
from jupyter_gpu_kernel.hub.rpc import Call
from jupyter_gpu_kernel.hub.ssh import Secret

Events = SimpleQueue[dict[str, Any]]


@pytest.fixture
def hubs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Jupyter's folders and the hub's, for this test alone; a hub that still runs at the end is ended."""
    with separate_folders(monkeypatch) as folder:
        yield folder


@pytest.fixture(scope="module")
def hub() -> Iterator[int]:
    """A hub that tests share, in folders of their own: its process id."""
    with pytest.MonkeyPatch.context() as monkeypatch, separate_folders(monkeypatch), HubClient() as client:
        yield client.call("hello", timeout=DEADLINE)["pid"]


@contextlib.contextmanager
def separate_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        prefix="jgk", ignore_cleanup_errors=True
    ) as folder:  # short, for sockets
        for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "XDG_RUNTIME_DIR"):
            (Path(folder) / name).mkdir()
            monkeypatch.setenv(name, str(Path(folder) / name))
        configure(Path(folder))
        yield Path(folder)
        for process in hub_processes():
            process.kill()
            process.wait(DEADLINE)


def hub_processes() -> list[psutil.Process]:
    """Hubs that serve this test's folders."""
    return [process for process in psutil.process_iter() if _is_hub(process)]


def _is_hub(process: psutil.Process) -> bool:
    try:
        ours = process.environ().get("XDG_RUNTIME_DIR") == os.environ["XDG_RUNTIME_DIR"]
        return ours and process.cmdline()[-1:] == ["serve"]
    except psutil.Error:
        return False


def configure(folder: Path, **more: float) -> None:
    """The hubs to come: tests know them by their environment, which others must not see."""
    config = {"HubApp": {"private_memory": False, **more}}
    (folder / "JUPYTER_CONFIG_DIR" / "jupyter_gpu_kernel_config.json").write_text(json.dumps(config))


def test_a_silent_client_keeps_nobody_out(hub: int) -> None:
    with Client(hub_address()), Client(hub_address()), HubClient(start=False) as client:
        assert client.call("hello", timeout=DEADLINE)["pid"] == hub


def test_a_wrong_key_is_refused(hub: int) -> None:
    key = hub_folder() / "key"
    right = key.read_bytes()
    with pytest.raises((AuthenticationError, EOFError, ConnectionError)):
        Client(hub_address(), authkey=b"not the key")
    key.write_bytes(b"another than the hub has")
    try:
        with pytest.raises(HubError):
            HubClient(start=False)
    finally:
        key.write_bytes(right)
    with HubClient(start=False) as client:
        assert client.call("hello", timeout=DEADLINE)["pid"] == hub


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_signals_that_hit_every_process_of_a_user(hub: int) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(hub, number)
    with HubClient(start=False) as client:
        assert client.call("hello", timeout=DEADLINE)["pid"] == hub


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_nothing_that_others_could_read(hub: int) -> None:
    """A 0700 folder; the key is 0600 all the same."""
    folder = hub_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "key").stat().st_mode) == 0o600
    assert stat.S_ISSOCK((folder / "hub").stat().st_mode)


def test_a_question_to_a_face_that_has_left() -> None:
    """As after Ctrl-C while the way is walked: the walk goes on to its next question."""
    ours, theirs = Pipe()
    with ours, theirs:
        client = ClientConnection(ours)
        client.close()
        _, answers = client.new_question()
        assert answers.get(timeout=DEADLINE) is None


def test_each_question_gets_its_own_answer() -> None:
    """What is typed for one hop must not go to another, in whatever order answers come."""
    here, there = Pipe()
    with here, there:
        client = ClientConnection(here)
        (login, of_login), (gpu2, of_gpu2) = client.new_question(), client.new_question()
        client.answer_received({"answer": login, "value": "for login"})
        assert of_login.get(timeout=DEADLINE) == "for login"
        client.answer_received({"answer": login, "value": "once more"})
        assert of_gpu2.empty()
        client.answer_received({"answer": gpu2, "value": "for gpu2"})
        assert of_gpu2.get(timeout=DEADLINE) == "for gpu2"


def test_a_question_that_nobody_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that is left alone must not keep the node's other front ends waiting."""
    monkeypatch.setattr(rpc, "ANSWER_TIMEOUT", 0.01)
    ours, theirs = Pipe()
    with ours, theirs:
        client = ClientConnection(ours)
        with pytest.raises(NotAnswered):
            Call(client, {"id": 1, "op": "login"}).secret("login", "Password: ", Secret())
        assert not client._questions, "nobody waits for it any more"


def test_errors_cross_with_their_kind(hub: int) -> None:
    with HubClient(start=False) as client:
        with pytest.raises(HubError, match="no operation"):
            client.call("nonsense", timeout=DEADLINE)
        with pytest.raises(RouteError) as error:
            client.call("login", settings={"route": ["alice@"]}, timeout=DEADLINE)
        assert error.value.remedy
        assert client.call("kernels", timeout=DEADLINE) == []


class GivenUp(Future[Any]):
    """Cancelled by another thread in the moment of its answer, after everybody has looked."""

    def set_result(self, result: Any) -> None:
        self.cancel()
        super().set_result(result)


def test_a_call_given_up_in_the_moment_of_its_answer(hub: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that reads answers goes on: else no other call would ever end."""
    with HubClient(start=False) as client:
        with monkeypatch.context() as patch, pytest.raises(CancelledError):
            patch.setattr("jupyter_gpu_kernel.client.Future", GivenUp)
            client.call("hello", timeout=DEADLINE)
        assert client.call("hello", timeout=DEADLINE)["pid"] == hub


def test_many_that_start_at_once_share_one_hub(hubs: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        clients = list(pool.map(lambda _: HubClient(), range(8)))
    pids = {client.call("hello", timeout=DEADLINE)["pid"] for client in clients}
    assert len(pids) == 1
    for process in hub_processes():  # who lost ends
        if process.pid not in pids:
            process.wait(DEADLINE)
    assert psutil.Process(pids.pop()).parent() != psutil.Process(), "the hub is somebody's child"
    for client in clients:
        client.close()


def test_after_a_killed_hub_the_next_face_starts_another(hubs: Path) -> None:
    events: Events = SimpleQueue()
    with HubClient(on_event=events.put) as client:
        pid = client.call("hello", timeout=DEADLINE)["pid"]
        psutil.Process(pid).kill()
        assert events.get(timeout=DEADLINE) == {"event": "gone"}
        with pytest.raises(HubError, match="ended"):
            client.call("hello", timeout=DEADLINE)
    with HubClient() as client:
        assert client.call("hello", timeout=DEADLINE)["pid"] != pid


def test_ends_when_nobody_uses_it(hubs: Path) -> None:
    configure(hubs, idle_exit=0.2)
    with HubClient() as client:
        hub = psutil.Process(client.call("hello", timeout=DEADLINE)["pid"])
    hub.wait(DEADLINE)
    assert not Path(hub_address()).exists()
    with pytest.raises(HubError, match="no local hub"):
        HubClient(start=False)


def unreachable(**more: Any) -> dict[str, Any]:
    """What asks for a kernel where nobody listens; with a connection file's content that has its ports."""
    settings = {"route": [f"me@127.0.0.1:{free_port()}"], "config": os.devnull, "python": "/usr/bin/python3"}
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "key", **more}
    return {"settings": settings, "name": "n", "connection": connection}


def test_a_kernel_that_cannot_start_leaves_nothing(hubs: Path) -> None:
    """Also where its ports are taken; and the hub is in use no longer."""
    configure(hubs, idle_exit=0.2)
    with HubClient() as client, socket.create_server(("127.0.0.1", 0)) as taken:
        hub = psutil.Process(client.call("hello", timeout=DEADLINE)["pid"])
        with pytest.raises(ConnectError, match="connection refused"):
            client.call("start", timeout=DEADLINE, **unreachable())
        with pytest.raises(HubError, match="cannot listen"):
            client.call("start", timeout=DEADLINE, **unreachable(iopub_port=taken.getsockname()[1]))
    hub.wait(DEADLINE)
    assert [path for path in hubs.rglob("delivered/*") if path.is_file()] == []


def test_a_kernel_of_a_killed_hub_is_tried_for_until_its_node_is_back(hub: int) -> None:
    with HubClient(start=False) as client:
        asked = unreachable()
        client.call("adopt", kernel="k1", timeout=DEADLINE, **asked)
        deadline = time.monotonic() + DEADLINE
        while True:
            nodes = client.call("nodes", timeout=DEADLINE)
            (state,) = (one["state"] for one in nodes if one["node"] == asked["settings"]["route"][0])
            if state != "connecting":
                break
            assert time.monotonic() < deadline
        assert state == "away"
        client.call("release", kernel="k1", timeout=DEADLINE)


def test_whoever_comes_while_it_ends_gets_another(hubs: Path) -> None:
    """Again and again at the moment of its end: never an error, never a long wait."""
    with HubClient() as client:
        for _ in range(3):
            pid = client.call("hello", timeout=DEADLINE)["pid"]
            assert client.call("shutdown", timeout=DEADLINE) == {"ok": True}
            client.close()
            client = HubClient()
            assert client.call("hello", timeout=DEADLINE)["pid"] != pid
        client.close()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_hub_folder_that_is_a_trap(hubs: Path) -> None:
    folder = hub_folder()
    folder.rmdir()
    elsewhere = hubs / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(HubError, match="another user") as error:
        HubClient()
    assert "XDG_RUNTIME_DIR" in error.value.remedy
    assert list(elsewhere.iterdir()) == []


def test_a_hub_that_cannot_start_says_why(hubs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (hubs / "sitecustomize.py").write_text("raise SystemExit('a broken installation')")
    monkeypatch.setenv("PYTHONPATH", str(hubs))
    with pytest.raises(HubError, match="a broken installation"):
        HubClient()
