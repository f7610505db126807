"""What a killed hub's successor finds: counts and clients, also of front ends that were given another kernel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtimes import make

from jupyter_gpu_kernel.hub.front_end.delivered import Delivered, SavedRequest
from jupyter_gpu_kernel.hub.front_end.requests import header_key
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message


def test_a_successor_finds_counts_and_clients(tmp_path: Path) -> None:
    before = Delivered(tmp_path / "node" / "one")
    before.save([1, 2, 3])
    before.clients(0).add(b"first")
    before.clients(1).add(b"of another front end")
    before.close()
    after = Delivered(tmp_path / "node" / "one")
    assert (after.counts, after.front_ends) == ([1, 2, 3], [0, 1])
    assert (after.clients(0).known, after.clients(1).known) == ([b"first"], [b"of another front end"])
    after.forget()
    assert list(tmp_path.iterdir()) == []


def test_a_successor_finds_how_much_of_a_split_message_was_delivered(tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_bytes(
        b"".join(count.to_bytes(8, "little") for count in (0, 0, 6))
    )  # of a hub that did not count them
    before = Delivered(path)
    assert (before.counts, before.pieces) == ([0, 0, 6], 0)
    before.save([0, 0, 7], 2)
    before.close()
    after = Delivered(path)
    assert (after.counts, after.pieces) == ([0, 0, 7], 2)
    assert after.take_pieces(Lane.URGENT, [1, 0, 7]) == 0
    assert [after.take_pieces(Lane.ORDERED, [1, 0, count]) for count in (8, 9)] == [2, 0]
    after.pieces = 2
    assert after.take_pieces(Lane.ORDERED, [1, 0, 9]) == 0, "that message was removed"
    after.pieces = 2
    after.switch("two")
    assert after.pieces == 0
    after.forget()


def test_another_kernel_has_the_same_clients_and_nothing_was_passed_on(tmp_path: Path) -> None:
    """As when a notebook is given the kernel that it left."""
    before = Delivered(tmp_path / "one")
    before.save([1, 2, 3])
    clients = before.clients(0)
    clients.add(b"first")
    for kernel_id in ("two", "two"):  # or the same one anew
        before.switch(kernel_id)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["two", "two.0.clients"]
    clients.add(b"second")
    before.save([0, 0, 7])
    before.close()
    after = Delivered(tmp_path / "two")
    assert (after.counts, after.clients(0).known) == ([0, 0, 7], [b"first", b"second"])
    after.close()


def test_cells_go_along_to_another_kernel(tmp_path: Path) -> None:
    before = Delivered(tmp_path / "node" / "one")
    cell = Message(Channel.SHELL, 1, make("execute_request", {"code": "1"}))
    before.requests.write([(header_key(cell), SavedRequest(0, cell))])
    before.switch("two")
    before.close()
    after = Delivered(tmp_path / "node" / "two")
    assert after.requests.recall() == [SavedRequest(0, cell)]
    after.forget()


def test_a_front_end_that_has_left_is_not_expected_back(tmp_path: Path) -> None:
    before = Delivered(tmp_path / "one")
    before.clients(0)
    before.clients(1).add(b"of one that leaves")
    before.forget_front_end(1)
    before.close()
    after = Delivered(tmp_path / "one")
    assert (after.front_ends, after.clients(1).known) == ([0], [])
    after.close()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A disk without room."""
    mounted = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)]
    if sys.platform != "linux" or subprocess.run(mounted, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        with pytest.raises(OSError), open(tmp_path / "all of it", "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_costs_the_successor_the_counts_and_not_the_hub_its_life(full: Path) -> None:
    """Writing to a mapped file that the disk has no room for is a SIGBUS."""
    code = (
        "import pathlib, sys; from jupyter_gpu_kernel.hub.front_end.delivered import Delivered\n"
        "for name in ('one', 'two'):\n"
        "    here = Delivered(pathlib.Path(sys.argv[1], name)); here.save([1, 2, 3])\n"
        "    here.clients(0).add(b'first'); here.switch('other'); here.save([4, 5, 6]); here.forget()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(full)], check=True)
