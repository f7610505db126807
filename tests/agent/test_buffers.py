"""The agent's buffers cost no more per byte when they are fuller, whatever the pieces are in which bytes come."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from moves import Moves, file_bytes, lines
from outputs import Waiting, message, stream

from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.mux.attach import MAX_PENDING, KeeperLink

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the agent needs Linux"),
]
MB = 1_000_000
MIB = 1 << 20


@pytest.mark.parametrize("full", [0, MAX_PENDING // 16, MAX_PENDING - 2 * MIB])
@pytest.mark.parametrize(("size", "total"), [(1, MB // 2), (1000, 200 * MB), (MB, 200 * MB)])
def test_what_a_keeper_has_not_read(size: int, total: int, full: int) -> None:
    """So much waits for it in `attach`, and it reads as much as comes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        attachment, moves, piece = KeeperLink(1, ours), Moves(), bytes(size)
        attachment.pending += bytes(full)
        attachment.flush()
        given, taken = full, 0
        while given < full + total:
            attachment.pending += piece
            given += size
            if size >= 1000 or given % 1000 == 0:
                while given - taken > full:
                    attachment.flush()
                    taken += len(theirs.recv(4 * MIB))
            moves.note(attachment.pending, given - len(attachment.pending))
        assert moves.bytes < 10 * (total + full)


def put(waiting: Waiting, text: str, count: int) -> None:
    for number in range(count):
        waiting.put(stream(text, cell=str(number % 7)))


@pytest.mark.parametrize("text", ["x", "x\n", "x\r"])
def test_small_output_that_waits_in_memory(tmp_path: Path, text: str) -> None:
    """Each message costs the same, whatever waits."""
    few, many = (Waiting(tmp_path, KernelSettings(journal_memory_mib=64)) for _ in range(2))
    put(few, text, 70)
    put(many, text, 19_600)  # the log forgets ids beyond 20,000, which costs a line
    assert lines(put, many, text, 200) == lines(put, few, text, 200)
    few.close()
    many.close()


def test_displays_of_which_the_newest_counts(tmp_path: Path) -> None:
    def update(waiting: Waiting, count: int) -> None:
        for number in range(count):
            transient = {"display_id": str(number % 50)}
            waiting.put(message("update_display_data", data={}, metadata={}, transient=transient))

    few, many = (Waiting(tmp_path, KernelSettings(journal_memory_mib=64)) for _ in range(2))
    for waiting, size in ((few, 60), (many, 5000)):
        for number in range(size):
            waiting.put(message("display_data", data={"text/plain": str(number)}, metadata={}, transient={}))
        update(waiting, 60)
    assert lines(update, many, 100) == lines(update, few, 100)
    few.close()
    many.close()


@pytest.mark.parametrize(("size", "total"), [(1000, 12 * MB), (MB, 200 * MB)])
def test_what_waits_on_disk_is_written_and_read_once(tmp_path: Path, size: int, total: int) -> None:
    waiting = Waiting(tmp_path, KernelSettings(journal_memory_mib=1))
    before = file_bytes()
    for number in range(total // size):
        waiting.put(message("display_data", data={"text/plain": f"{number:9}" * (size // 9)}))
    taken = sum(1 for _ in waiting.drain())
    assert taken == total // size
    assert file_bytes() - before < 3.2 * total + 2500 * taken, "in the log, on disk, and read from there"
    waiting.close()


def test_what_exceeds_the_cap_is_written_and_read_a_few_times(tmp_path: Path) -> None:
    """As often with four times as much: what was left out once is not looked at again."""

    def moved(cap: int, name: str) -> float:
        (tmp_path / name).mkdir()
        settings = KernelSettings(journal_memory_mib=1, journal_cap_mib=cap)
        waiting, before, text = Waiting(tmp_path / name, settings), file_bytes(), "x" * 100_000
        for _ in range(4 * cap * 10):
            waiting.put(stream(text))
        waiting.drain()
        waiting.close()
        return (file_bytes() - before) / (4 * cap * MB)

    small, large = moved(8, "small"), moved(32, "large")
    assert small < 12 and large < 12
