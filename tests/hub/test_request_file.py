"""Which requests a killed hub's successor finds: those that front ends wait for, and no other ones."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtimes import make

from jupyter_gpu_kernel.hub.front_end.delivered import Delivered, RequestFile, remove_old
from jupyter_gpu_kernel.hub.front_end.requests import SavedRequest, header_key
from jupyter_gpu_kernel.wire.messages import Channel, Message


def cell(code: str, client: int = 1) -> Message:
    return Message(Channel.SHELL, client, make("execute_request", {"code": code}))


def add(file: RequestFile, *requests: Message, mark: int = 0) -> None:
    file.write([(header_key(one), SavedRequest(mark, one)) for one in requests])


def remove(file: RequestFile, request: Message) -> None:
    file.write([(header_key(request), None)])


def saved(*requests: Message, mark: int = 0) -> list[SavedRequest]:
    return [SavedRequest(mark, one) for one in requests]


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def recall(path: Path) -> list[Message]:
    """Return what a successor would find, and leave the file to its hub."""
    copy = path.with_name("copy")
    with contextlib.suppress(FileNotFoundError):
        shutil.copy(path.with_name(f"{path.name}.requests"), path.with_name("copy.requests"))
    found = RequestFile(copy)
    messages = [one.message for one in found.recall()]
    found.replace([])
    return messages


CELLS = [cell("a"), cell("b \x00 ü", client=1 << 16), cell("c" * 100_000)]


def test_requests_without_a_reply_are_found_in_order_with_their_marks(tmp_path: Path) -> None:
    path = tmp_path / "k.requests"
    before = RequestFile(path.with_name("k"))
    for mark in (4, 2):  # a cell that waited is sent later
        add(before, *CELLS, mark=mark)
    header, parent, metadata, _ = make("execute_request", {})
    add(before, Message(Channel.SHELL, 1, (header, parent, metadata, b"no JSON")))
    remove(before, CELLS[0])
    remove(before, cell("of another kernel"))
    assert os.name == "nt" or path.stat().st_mode & 0o777 == 0o600
    after = RequestFile(path.with_name("k"))
    assert after.recall() == saved(*CELLS[1:], mark=2)
    for one in CELLS[1:]:
        assert recall(path.with_name("k"))
        after.tidy()
        remove(after, one)
    assert recall(path.with_name("k")) == []
    after.tidy()
    assert path.read_bytes() == b""


def test_requests_of_two_clients_that_use_one_msg_id_are_both_found(tmp_path: Path) -> None:
    """As the clients of one KernelManager do."""
    header = b'{"msg_id": "1", "msg_type": "execute_request", "date": "%d"}'
    requests = [Message(Channel.SHELL, 1, (header % n, b"{}", b"{}", b'{"code": "1"}')) for n in range(2)]
    file = RequestFile(tmp_path / "k")
    add(file, *requests)
    assert recall(tmp_path / "k") == requests
    remove(file, requests[0])
    assert recall(tmp_path / "k") == requests[1:]


def test_what_a_user_enters_at_a_prompt_is_never_written(tmp_path: Path) -> None:
    """It may be a password."""
    file = RequestFile(tmp_path / "k")
    add(file, Message(Channel.STDIN, 1, make("input_reply", {"value": "secret"})))
    assert list(tmp_path.iterdir()) == []
    add(file, CELLS[0], Message(Channel.STDIN, 1, make("input_reply", {"value": "secret"})))
    assert b"secret" not in (tmp_path / "k.requests").read_bytes()


@pytest.mark.parametrize("cut", [1, 4, 150])
def test_a_record_that_was_being_written_is_left_out(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "k.requests"
    before = RequestFile(path.with_name("k"))
    add(before, *CELLS[:2])
    path.write_bytes(path.read_bytes()[:-cut])
    after = RequestFile(path.with_name("k"))
    assert after.recall() == saved(*CELLS[:1])
    add(after, CELLS[2])
    assert recall(path.with_name("k")) == [CELLS[0], CELLS[2]]


@pytest.mark.parametrize("damage", [b"c\xff\xff\xff\xff", b"c\x02\x00\x00\x00ab", bytes(100), b"?"])
def test_a_damaged_file_has_what_comes_before_the_damage(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "k.requests"
    add(RequestFile(path.with_name("k")), CELLS[0])
    with path.open("ab") as file:
        file.write(damage)
    assert recall(path.with_name("k")) == CELLS[:1]


def test_the_file_of_cells_that_follow_each_other_without_a_pause_does_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "k.requests"
    cells = RequestFile(path.with_name("k"))
    waiting = [cell("x" * 50_000) for _ in range(3)]
    for one in waiting:
        add(cells, one)
    for _ in range(200):  # 10 MB
        waiting.append(cell("x" * 50_000))
        add(cells, waiting[-1])
        remove(cells, waiting.pop(0))
        assert path.stat().st_size < 1_200_000
    assert recall(path.with_name("k")) == waiting


def test_a_file_that_can_be_neither_written_nor_removed_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "k.requests"
    path.mkdir()
    (path / "file").write_text("")
    cells = RequestFile(path.with_name("k"))
    assert cells.recall() == []
    add(cells, *CELLS[:2])
    remove(cells, CELLS[0])
    cells.replace([])


def test_old_files_are_removed(tmp_path: Path) -> None:
    """Nobody has asked for the cells, which may hold secrets."""
    folder = tmp_path / "node"
    folder.mkdir()
    for name, age in (("old", 8), ("new", 6)):
        cells = RequestFile(folder / name)
        add(cells, CELLS[0])
        os.utime(folder / f"{name}.requests", (0, 1e9 - age * 86400))
    remove_old(tmp_path, now=1e9)
    assert [path.name for path in folder.iterdir()] == ["new.requests"]
    (tmp_path / "empty").mkdir()
    remove_old(tmp_path, now=1e9)
    assert list(tmp_path.iterdir()) == [folder]


def test_another_kernel_gets_the_cells(tmp_path: Path) -> None:
    """They are sent to it, and its front ends wait for it then."""
    before = Delivered(tmp_path / "node" / "one")
    add(before.requests, CELLS[0])
    before.switch("two")
    assert sorted(path.name for path in (tmp_path / "node").iterdir()) == ["two", "two.requests"]
    add(before.requests, CELLS[1])
    before.close()
    after = Delivered(tmp_path / "node" / "two")
    assert after.requests.recall() == saved(*CELLS[:2])
    after.forget()
    assert list(tmp_path.iterdir()) == []


def test_a_cell_whose_reply_cannot_be_recorded_is_not_kept(tmp_path: Path) -> None:
    """It would run a second time. The same is true of a full disk."""
    path = tmp_path / "k.requests"
    cells = RequestFile(path.with_name("k"))
    add(cells, *CELLS[:2])
    with full_disk():
        remove(cells, CELLS[0])
    add(cells, CELLS[2])
    assert not path.exists()


def test_a_file_that_is_rewritten_is_whole_at_all_times(tmp_path: Path) -> None:
    path = tmp_path / "k.requests"
    cells = RequestFile(path.with_name("k"))
    add(cells, *CELLS)
    old = tmp_path / "old.requests"
    os.link(path, old)
    cells.replace(saved(*CELLS[1:]))
    add(cells, CELLS[0])
    assert recall(tmp_path / "old") == CELLS, "only the name has changed its file"
    assert recall(path.with_name("k")) == [*CELLS[1:], CELLS[0]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k.requests", "old.requests"]


def test_cells_that_cannot_be_rewritten_are_not_kept(tmp_path: Path) -> None:
    """The file has cells that have a reply."""
    cells = RequestFile(tmp_path / "k")
    add(cells, *CELLS)
    with full_disk():
        cells.replace(saved(*CELLS[1:]))
    assert recall(tmp_path / "k") == []
    assert list(tmp_path.iterdir()) == []
