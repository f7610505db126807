"""Leases between real processes: one holder each, freed by death, never inherited, seen by all."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import sys
import textwrap
import threading
import uuid
from pathlib import Path
from typing import Iterator, List

import pytest

from jupyter_gpu_kernel.agent.gpus.lease import Lease, read_leases, take_all

ROOT = str(Path(__file__).parents[2])
WHO = {"id": "ab12"}


@pytest.fixture
def gpus() -> List[str]:
    """Four UUIDs that no other test run has."""
    return [f"GPU-{uuid.uuid4()}" for _ in range(4)]


class Taker:
    """A process that takes what it can get of `uuids` at the word "go", and keeps it until its end."""

    CODE = textwrap.dedent("""
        import sys
        from jupyter_gpu_kernel.agent.gpus.lease import Lease
        print("ready", flush=True)
        sys.stdin.readline()
        wanted = sys.argv[1:]
        got = next((lease for lease in (Lease.take(uuid, {"id": "t"}) for uuid in wanted) if lease), None)
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
    assert Lease.take(uuid, WHO) is None
    winner.kill()
    assert uuid not in read_leases(gpus, timeout=0.05)
    lease = Lease.take(uuid, WHO)
    assert lease is not None
    lease.release()


def answering(lease: Lease, stop: threading.Event) -> None:
    while not stop.is_set():
        lease.answer()
        stop.wait(0.01)


def test_the_holder_says_who_it_is(gpus: List[str]) -> None:
    lease = Lease.take(gpus[0], {"id": "ab12\x1b[2J", "user": "root", "pid": 1})
    assert lease is not None
    stop = threading.Event()
    thread = threading.Thread(target=answering, args=(lease, stop))
    thread.start()
    try:
        (holder,) = read_leases(gpus, timeout=30).values()
    finally:
        stop.set()
        thread.join()
        lease.release()
    assert (holder.user, holder.pid) == (getpass.getuser(), os.getpid()), "not what it claims, what it is"
    assert holder.id == "ab12?[2J" and holder.since is not None
    assert str(holder).startswith(f"leased by {getpass.getuser()} (kernel ab12")
    assert read_leases(gpus) == {}


@pytest.mark.parametrize("words", [b"", b"[1]", b"\xff{", b'{"since": 1e999, "id": 7}', b"[" * 4000])
def test_nonsense_from_a_holder_is_no_harm(gpus: List[str], words: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0jupyter-gpu-kernel/lease/" + gpus[0])
        listener.listen(1)

        def serve() -> None:
            with listener.accept()[0] as asker:
                asker.sendall(words)

        thread = threading.Thread(target=serve)
        thread.start()
        holder = read_leases([gpus[0]], timeout=30)[gpus[0]]
        thread.join()
    assert (holder.pid, holder.id, holder.since) == (os.getpid(), "?", None)


def test_a_full_queue_counts_as_leased(gpus: List[str]) -> None:
    lease = Lease.take(gpus[0], WHO)
    assert lease is not None
    askers = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) for _ in range(64)]
    name = "\0jupyter-gpu-kernel/lease/" + gpus[0]
    assert any(asker.connect_ex(name) for asker in askers), "the queue is not full"
    assert read_leases([gpus[0]], timeout=0.05)[gpus[0]].user == "?"
    for asker in askers:
        asker.close()
    lease.answer()
    lease.answer()
    lease.release()


def test_all_or_none(gpus: List[str]) -> None:
    third = Lease.take(gpus[2], WHO)
    assert third is not None
    assert take_all(gpus, WHO) is None
    assert list(read_leases(gpus, timeout=0.05)) == [gpus[2]], "nothing is kept of a part"
    third.release()
    third.release()
    leases = take_all(gpus, WHO)
    assert leases is not None and [lease.uuid for lease in leases] == gpus
    for lease in leases:
        lease.release()


def test_a_started_program_does_not_inherit_it(gpus: List[str]) -> None:
    lease = Lease.take(gpus[0], WHO)
    assert lease is not None
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        lease.release()
        again = Lease.take(gpus[0], WHO)
        assert again is not None
        again.release()
        child.communicate(b"\n")
