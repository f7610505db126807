"""Which cells a killed hub's successor finds: those that front ends wait for, and no other ones."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from runtimes import make

from jupyter_gpu_kernel.hub.front_end.delivered import Delivered
from jupyter_gpu_kernel.hub.front_end.unanswered import UnansweredCells, remove_old
from jupyter_gpu_kernel.wire.messages import Channel, Message


def cell(code: str, client: int = 1) -> Message:
    return Message(Channel.SHELL, client, make("execute_request", {"code": code}))


CELLS = [cell("a"), cell("b \x00 ü", client=1 << 16), cell("c" * 100_000)]


def test_cells_without_a_reply_are_found_in_order(tmp_path: Path) -> None:
    path = tmp_path / "k.cells"
    before = UnansweredCells(path.with_name("k"))
    for one in (*CELLS, *CELLS):  # a cell that waited is sent later
        before.add(one)
    before.add(Message(Channel.SHELL, 1, make("complete_request", {})))
    before.add(Message(Channel.CONTROL, 1, make("execute_request", {"code": "of no cell"})))
    header, parent, metadata, _ = make("execute_request", {})
    before.add(Message(Channel.SHELL, 1, (header, parent, metadata, b"no JSON")))
    before.remove(CELLS[0].msg_id)
    before.remove("of another kernel")
    assert os.name == "nt" or path.stat().st_mode & 0o777 == 0o600
    after = UnansweredCells(path.with_name("k"))
    assert after.recall() == CELLS[1:]
    for one in CELLS[1:]:
        after.remove(one.msg_id)
    assert path.stat().st_size == 0 and UnansweredCells(path.with_name("k")).recall() == []


@pytest.mark.parametrize("cut", [1, 4, 150])
def test_a_record_that_was_being_written_is_left_out(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "k.cells"
    before = UnansweredCells(path.with_name("k"))
    for one in CELLS[:2]:
        before.add(one)
    path.write_bytes(path.read_bytes()[:-cut])
    after = UnansweredCells(path.with_name("k"))
    assert after.recall() == CELLS[:1]
    after.add(CELLS[2])
    assert UnansweredCells(path.with_name("k")).recall() == [CELLS[0], CELLS[2]]


@pytest.mark.parametrize("damage", [b"c\xff\xff\xff\xff", b"c\x02\x00\x00\x00ab", bytes(100), b"?"])
def test_a_damaged_file_has_what_comes_before_the_damage(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "k.cells"
    UnansweredCells(path.with_name("k")).add(CELLS[0])
    with path.open("ab") as file:
        file.write(damage)
    assert UnansweredCells(path.with_name("k")).recall() == CELLS[:1]


def test_the_file_of_cells_that_follow_each_other_without_a_pause_does_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "k.cells"
    cells = UnansweredCells(path.with_name("k"))
    waiting = [cell("x" * 50_000) for _ in range(3)]
    for one in waiting:
        cells.add(one)
    for _ in range(200):  # 10 MB
        waiting.append(cell("x" * 50_000))
        cells.add(waiting[-1])
        cells.remove(waiting.pop(0).msg_id)
        assert path.stat().st_size < 1_200_000
    assert UnansweredCells(path.with_name("k")).recall() == waiting


def test_a_file_that_can_be_neither_written_nor_removed_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "k.cells"
    path.mkdir()
    (path / "file").write_text("")
    cells = UnansweredCells(path.with_name("k"))
    assert cells.recall() == []
    for one in CELLS[:2]:
        cells.add(one)
    cells.remove(CELLS[0].msg_id)
    cells.replace([])


def test_old_files_are_removed(tmp_path: Path) -> None:
    """Nobody has asked for the cells, which may hold secrets."""
    folder = tmp_path / "node"
    folder.mkdir()
    for name, age in (("old", 8), ("new", 6)):
        cells = UnansweredCells(folder / name)
        cells.add(CELLS[0])
        cells.close()
        os.utime(folder / f"{name}.cells", (0, 1e9 - age * 86400))
    remove_old(tmp_path, now=1e9)
    assert [path.name for path in folder.iterdir()] == ["new.cells"]
    (tmp_path / "empty").mkdir()
    remove_old(tmp_path, now=1e9)
    assert list(tmp_path.iterdir()) == [folder]


def test_another_kernel_gets_the_cells(tmp_path: Path) -> None:
    """They are sent to it, and its front ends wait for it then."""
    before = Delivered(tmp_path / "node" / "one")
    before.cells.add(CELLS[0])
    before.switch("two")
    assert sorted(path.name for path in (tmp_path / "node").iterdir()) == ["two", "two.cells"]
    before.cells.add(CELLS[1])
    before.close()
    after = Delivered(tmp_path / "node" / "two")
    assert after.cells.recall() == CELLS[:2]
    after.forget()
    assert list(tmp_path.iterdir()) == []


def test_a_cell_whose_reply_cannot_be_recorded_is_not_kept(tmp_path: Path) -> None:
    """It would run a second time. The same is true of a full disk."""
    path = tmp_path / "k.cells"
    cells = UnansweredCells(path.with_name("k"))
    for one in CELLS[:2]:
        cells.add(one)
    descriptor = os.open(path, os.O_RDONLY)
    os.dup2(descriptor, cells._fd)  # which takes no more
    os.close(descriptor)
    cells.remove(CELLS[0].msg_id)
    cells.add(CELLS[2])
    assert not path.exists()
    cells.close()


def test_a_file_that_is_rewritten_is_whole_at_all_times(tmp_path: Path) -> None:
    path = tmp_path / "k.cells"
    cells = UnansweredCells(path.with_name("k"))
    for one in CELLS:
        cells.add(one)
    old = tmp_path / "old.cells"
    os.link(path, old)
    cells.replace(CELLS[1:])
    cells.add(CELLS[0])
    assert UnansweredCells(tmp_path / "old").recall() == CELLS, "only the name has changed its file"
    assert UnansweredCells(path.with_name("k")).recall() == [*CELLS[1:], CELLS[0]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k.cells", "old.cells"]


def test_cells_that_cannot_be_rewritten_are_not_kept(tmp_path: Path) -> None:
    """The file has cells that have a reply."""
    cells = UnansweredCells(tmp_path / "k")
    for one in CELLS:
        cells.add(one)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))  # as on a full disk
    try:
        cells.replace(CELLS[1:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert UnansweredCells(tmp_path / "k").recall() == []
    assert list(tmp_path.iterdir()) == []
