"""Whatever connects to a spare interpreter: it goes on, keeps no descriptor of theirs, and forks the next kernel."""

from __future__ import annotations

import array
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.agent.spare.places import (
    MAX_FDS,
    MAX_SPARES,
    SOCKET_TYPE,
    KernelStart,
    SparePlace,
    is_own,
    is_short,
    receive_packet,
    send_packet,
)
from jupyter_gpu_kernel.agent.spare.proc_title import reserve, reserved_variable
from jupyter_gpu_kernel.agent.system import procfs
from jupyter_gpu_kernel.wire.fields import FieldError

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the agent needs Linux"),
]
MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS = st.one_of(st.text(max_size=9), st.sampled_from(["\ud800", "\0", "é", "\udcff"]))
LISTS = st.lists(WORDS, max_size=5)
VALUES = st.one_of(
    st.none(), st.integers(), WORDS, LISTS, st.dictionaries(WORDS, st.integers() | WORDS, max_size=3)
)


def command(root: Path, **variables: str) -> Tuple[List[str], Dict[str, str]]:
    """How a spare interpreter is started, and its environment."""
    env = {**os.environ, "JUPYTER_GPU_KERNEL_ROOT": str(root), **reserved_variable(), **variables}
    return [sys.executable, "-m", "jupyter_gpu_kernel.agent", "spare", "key", "-" * 200], env


class Spare:
    """A spare interpreter, and what connects to it."""

    def __init__(self, root: Path) -> None:
        words, env = command(root)
        self.folder = root
        self.place = SparePlace(root, "key")
        self.process = subprocess.Popen(words, env=env, cwd=str(root), stdin=subprocess.DEVNULL)
        eventually(lambda: self.place.listens() or self.process.poll() is not None, "the socket")

    def connect(self) -> socket.socket:
        def connected() -> Any:
            assert self.process.poll() is None, "it has ended"
            return self.place.connect(DEADLINE)

        sock: socket.socket = eventually(connected, "a connection")
        return sock

    def request(self, **changes: Any) -> Dict[str, Any]:
        words = [sys.executable, "-m", "x", "ipykernel", "-f", "none.json"]
        env = {"A": "1", "JUPYTER_GPU_KERNEL_ID": "k"}
        return {**KernelStart(words, 4, str(self.folder), env, 0, {}).request(), **changes}

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def forks(self) -> bool:
        """Whether it forks a kernel, which ends when its keeper has gone before it wanted it."""
        with self.connect() as sock:
            send_packet(sock, self.request(), [2])
            pid = int(receive_packet(sock)[0]["pid"])
            assert procfs.start_ticks(pid)
        eventually(lambda: not procfs.start_ticks(pid), "the end of the forked process")
        return True

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[Spare]:
    if is_short():
        pytest.skip("this machine is short of memory: there are no spare interpreters")
    spare = Spare(tmp_path)
    yield spare
    spare.end()


def test_packets(spare: Spare) -> None:
    before = spare.descriptors()

    @MANY
    @given(st.binary(max_size=40), st.integers(0, 2 * MAX_FDS))
    @example(b"{}", 0)
    def send(data: bytes, fds: int) -> None:
        with spare.connect() as sock:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [2] * fds))] if fds else []
            sock.sendmsg([data or b"\0"], rights)
            with contextlib.suppress(EOFError, OSError):
                assert set(receive_packet(sock)[0]) == {"refused"}  # as {} is a packet

    send()
    assert spare.forks()
    eventually(lambda: spare.descriptors() == before, "the descriptors are closed")


def test_requests(spare: Spare) -> None:
    before = spare.descriptors()

    @MANY
    @given(st.sampled_from(sorted(spare.request())), VALUES, st.integers(0, MAX_FDS))
    def ask(key: str, value: Any, fds: int) -> None:
        with spare.connect() as sock:
            send_packet(sock, spare.request(**{key: value}), [2] * fds)
            answer = receive_packet(sock)[0]
            assert set(answer) in ({"refused"}, {"pid"})

    ask()
    assert spare.forks()
    eventually(lambda: spare.descriptors() == before, "the descriptors are closed")


@pytest.mark.parametrize(
    "changes",
    [
        {"env": {"JUPYTER_GPU_KERNEL_ID": "\ud800"}}, {"env": {"JUPYTER_GPU_KERNEL_ID": "x" * 3000}}, {"env": None},
        {"cwd": "\ud800"}, {"cwd": "/nowhere"}, {"cwd": None}, {"fds": None}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_request_that_is_refused(spare: Spare, changes: Dict[str, Any]) -> None:
    with spare.connect() as sock:
        send_packet(sock, spare.request(**changes), [2])
        assert set(receive_packet(sock)[0]) == {"refused"}
    assert spare.forks()


@pytest.mark.parametrize(
    "changes", [{"env": {"A": "\0"}}, {"env": {"A": 1}}, {"command": ["\ud800"] * 5}, {"skip": None}], ids=str
)
def test_a_request_that_only_the_forked_process_fails_at(spare: Spare, changes: Dict[str, Any]) -> None:
    with spare.connect() as sock:
        send_packet(sock, spare.request(**changes), [2])
        pid = int(receive_packet(sock)[0]["pid"])
        send_packet(sock, {"go": True})
        eventually(lambda: not procfs.start_ticks(pid), "the end of the forked process")
    assert spare.forks()


def test_connections_that_say_nothing_end(spare: Spare) -> None:
    """Those who ask meanwhile start their kernels without it, or wait for a moment."""
    silent = [spare.connect() for _ in range(3)]
    for sock in silent:
        with pytest.raises((EOFError, OSError, FieldError)):
            assert set(receive_packet(sock)[0]) == {"refused"}
            receive_packet(sock)
        sock.close()
    assert spare.forks()


def test_only_its_user_reaches_it(spare: Spare) -> None:
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in (spare.folder / "spare").iterdir()}
    assert modes[".sock"] == modes[".lock"] == 0o600
    assert (spare.folder / "spare").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize(("user", "own"), [(0, True), (65534, False)])
def test_a_process_of_another_user_is_distinguished_from_ours(user: int, own: bool) -> None:
    """Should the modes of the files not keep it out."""
    name = f"\0jupyter-gpu-kernel-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, SOCKET_TYPE) as listener:
        listener.bind(name)
        listener.listen()
        code = (
            f"import os, socket; os.setuid({user}); s = socket.socket(socket.AF_UNIX, {int(SOCKET_TYPE)}); "
        )
        connect = [sys.executable, "-c", code + f"s.connect({name!r}); s.recv(1)"]
        with subprocess.Popen(connect), listener.accept()[0] as sock:
            assert is_own(sock) is own


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize(("user", "own"), [(0, True), (65534, False)])
def test_no_kernel_is_asked_of_another_users_process(tmp_path: Path, user: int, own: bool) -> None:
    """It would get the kernel's environment, and could read its connection file."""
    path = SparePlace(tmp_path, "key")._socket
    code = (
        f"import os, socket, sys; s = socket.socket(socket.AF_UNIX, {int(SOCKET_TYPE)}); s.bind({str(path)!r}); "
        f"os.setuid({user}); s.listen(); print('listens', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout is not None and other.stdout.readline() == b"listens\n"
        sock = SparePlace(tmp_path, "key").connect(DEADLINE)
        assert (sock is not None) is own
        if sock is not None:
            sock.close()
        other.stdin.close()


def test_there_are_no_more_than_a_few(tmp_path: Path) -> None:
    """Each holds memory."""
    locks = [SparePlace(tmp_path, f"other{number}").lock() for number in range(MAX_SPARES)]
    words, env = command(tmp_path)
    with subprocess.Popen(words, env=env, cwd=str(tmp_path), stdin=subprocess.DEVNULL) as one:
        listens = SparePlace(tmp_path, "key").listens
        try:
            eventually(lambda: one.poll() is not None or listens(), "its end")
            assert one.poll() == 0
        finally:
            one.kill()
    for lock in locks:
        assert lock is not None
        os.close(lock)


def test_a_folder_whose_name_is_no_text_has_room_reserved() -> None:
    """Its bytes are not UTF-8."""
    assert len(reserve(["python"], ["python", "\udcff" * 10])) == 10


def test_signals_to_a_waiting_process_are_those_of_any(spare: Spare) -> None:
    """A SIGTERM ends it, and the next keeper starts another."""
    spare.process.send_signal(signal.SIGTERM)
    assert spare.process.wait(DEADLINE) == -signal.SIGTERM
    assert not spare.place.is_taken()
