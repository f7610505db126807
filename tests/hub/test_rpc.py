"""The hub as a process of its own: who starts it, who may talk to it, when it ends, what it leaves in files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Client
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import psutil
import pytest
from runtimes import RUNTIME
from sshd import free_port
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.errors import ConnectError, HubError, NotAnswered, RouteError
from jupyter_gpu_kernel.hub import rpc
from jupyter_gpu_kernel.hub.app import HubApp
from jupyter_gpu_kernel.hub.client_connection import ClientConnection, prove_to_hub
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
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended by itself
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
    with Client(hub_address()) as connection, pytest.raises((AuthenticationError, EOFError, ConnectionError)):
        prove_to_hub(connection, b"not the key")
    key.write_bytes(b"another than the hub has")
    try:
        with pytest.raises(HubError):
            HubClient(start=False)
    finally:
        key.write_bytes(right)
    with HubClient(start=False) as client:
        assert client.call("hello", timeout=DEADLINE)["pid"] == hub


def test_neither_sides_proof_is_the_others() -> None:
    """A false hub that gives a client its own words back is refused."""
    ours, theirs = Pipe()
    with ours, theirs, ThreadPoolExecutor() as pool:
        client = pool.submit(prove_to_hub, theirs, b"key")
        ours.send_bytes(bytes(32))
        ours.send_bytes(ours.recv_bytes()[32:])
        with pytest.raises(AuthenticationError):
            client.result(DEADLINE)


WITHOUT_MD5 = """
import logging, sys
logging.disable()
sys.modules.update(_hashlib=None, _md5=None)
from multiprocessing import Pipe
from threading import Thread
from jupyter_gpu_kernel.hub.client_connection import accept_client, prove_to_hub
hub, client = Pipe()
other = Thread(target=accept_client, args=(hub, b"key"))
other.start()
prove_to_hub(client, b"key")
other.join()
print("both are sure")
"""


def test_a_system_that_refuses_md5() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", WITHOUT_MD5], capture_output=True, text=True, timeout=DEADLINE
    )
    assert (printed.stdout, printed.stderr) == ("both are sure\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_signals_that_hit_every_process_of_a_user(hub: int) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(hub, number)
    with HubClient(start=False) as client:
        assert client.call("hello", timeout=DEADLINE)["pid"] == hub


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM kills there")
def test_sigterm_ends_a_hub_that_nobody_uses(hubs: Path) -> None:
    with HubClient() as client:
        process = psutil.Process(client.call("hello", timeout=DEADLINE)["pid"])
        process.terminate()
        log = hubs / "XDG_RUNTIME_DIR"
        eventually(
            lambda: "signal 15 ignored: clients are connected" in reported(log), "it says why it stays"
        )

    def ended() -> bool:  # it has noticed that the client is gone
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
        return not hub_processes()

    eventually(ended, "it ends")
    assert "SIGTERM, and nothing uses the hub" in reported(log) and "hub exits" in reported(log)


def reported(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("log"))


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_nothing_that_others_could_read(hub: int) -> None:
    """A 0700 folder; the key is 0600 all the same."""
    folder = hub_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "key").stat().st_mode) == 0o600
    assert stat.S_ISSOCK((folder / "hub").stat().st_mode)


def test_a_question_to_a_client_that_has_left() -> None:
    """As after Ctrl-C while the way is walked: the walk goes on to its next question."""
    ours, theirs = Pipe()
    with ours, theirs:
        client = ClientConnection(ours)
        client.close()
        _, answer = client.new_question()
        assert answer.result(DEADLINE) is None


def test_each_question_gets_its_own_answer() -> None:
    """What is typed for one hop must not go to another, in whatever order answers come."""
    here, there = Pipe()
    with here, there:
        client = ClientConnection(here)
        (login, of_login), (gpu2, of_gpu2) = client.new_question(), client.new_question()
        client.answer_received({"answer": login, "value": "for login"})
        assert of_login.result(DEADLINE) == "for login"
        client.answer_received({"answer": login, "value": "once more"})
        assert not of_gpu2.done()
        client.answer_received({"answer": gpu2, "value": "for gpu2"})
        assert of_gpu2.result(DEADLINE) == "for gpu2"


def test_an_answer_counts_also_if_its_client_leaves_at_once(tmp_path: Path) -> None:
    """Also while the event loop is busy: who cancelled a sign-in is not said to have given no answer."""
    asked: list[Exception] = []

    def ask(call: Call) -> None:
        try:
            call.confirm_host("login", "SHA256:x", "ssh-ed25519")
        except Exception as error:
            asked.append(error)

    async def test() -> None:
        loop, left = asyncio.get_running_loop(), threading.Event()
        server = rpc.RpcServer(
            RUNTIME,
            str(tmp_path / "s"),
            b"key",
            lambda call: asyncio.to_thread(ask, call),
            logging.getLogger(),
        )

        def cancel_and_leave() -> None:
            with Client(str(tmp_path / "s")) as connection:
                prove_to_hub(connection, b"key")
                connection.send_bytes(json.dumps({"id": 1, "op": "ask"}).encode())
                question = json.loads(connection.recv_bytes())["question"]
                loop.call_soon_threadsafe(left.wait, DEADLINE)
                connection.send_bytes(json.dumps({"answer": question, "cancelled": True}).encode())
            eventually(lambda: server.count == 0, "the client has left")
            left.set()

        await asyncio.to_thread(cancel_and_leave)
        while not asked:
            await asyncio.sleep(0)
        server.close()

    asyncio.run(asyncio.wait_for(test(), DEADLINE))
    assert [type(error).__name__ for error in asked] == ["Cancelled"]


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
    assert "another hub" not in (hub_folder() / "log").read_text(), "more than one was started"
    assert psutil.Process(pids.pop()).parent() != psutil.Process(), "the hub is somebody's child"
    for client in clients:
        client.close()


def test_after_a_killed_hub_the_next_client_starts_another(hubs: Path) -> None:
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


def test_a_hub_that_is_to_end_at_once_does_not_look_all_the_time() -> None:
    class Used:
        """The operations of a hub, and its server, with a client."""

        in_use, looks = True, 0

        @property
        def count(self) -> int:
            self.looks += 1
            return 1

    async def main() -> int:
        hub, ended = Used(), asyncio.Event()
        asyncio.get_running_loop().call_later(0.3, ended.set)
        await HubApp(idle_exit=0.0)._until_idle(cast(Any, hub), cast(Any, hub), ended)
        return hub.looks

    assert asyncio.run(main()) < 10


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
    with HubClient() as first, HubClient(start=False) as second:
        assert first.call("hello", timeout=DEADLINE)["pid"] == second.call("hello", timeout=DEADLINE)["pid"]
    assert list(elsewhere.iterdir()) == [], "the hub has another folder, which its clients find"


def test_a_hub_that_cannot_start_says_why(hubs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (hubs / "sitecustomize.py").write_text("raise SystemExit('a broken installation')")
    monkeypatch.setenv("PYTHONPATH", str(hubs))
    with pytest.raises(HubError, match="a broken installation"):
        HubClient()
