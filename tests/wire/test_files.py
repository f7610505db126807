"""Files that are written as a whole."""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_kernel.wire.files import create_file, private, replace_file


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file can be longer than one byte."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        create_file(tmp_path / "new", b"1")
        replace_file(tmp_path / "replaced", b"2")
        replace_file(tmp_path / "program", b"3", 0o700)
        open(tmp_path / "log", "wb", opener=private).close()
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"new": 0o600, "replaced": 0o600, "program": 0o700, "log": 0o600}


def test_a_file_that_exists_is_not_created_again(tmp_path: Path) -> None:
    create_file(tmp_path / "file", b"old")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"


def test_who_has_the_old_file_open_reads_the_old_content(tmp_path: Path) -> None:
    replace_file(tmp_path / "file", b"old")
    left = tmp_path / f".{os.getpid()}-{threading.get_ident()}.file"
    left.write_bytes(b"a process that was killed has left this, and it is longer")
    with open(tmp_path / "file", "rb") as file:
        replace_file(tmp_path / "file", b"new")
        assert file.read() == b"old"
    assert (tmp_path / "file").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_leaves_the_old_file_alone(tmp_path: Path, full_disk: None) -> None:
    replace_file(tmp_path / "file", b"1")
    for write in (
        lambda: replace_file(tmp_path / "file", b"22"),
        lambda: create_file(tmp_path / "new", b"22"),
    ):
        with pytest.raises(OSError) as error:
            write()
        assert error.value.errno == errno.EFBIG
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_bytes() == b"1"


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        replace_file(tmp_path / "folder", b"1")
    assert os.listdir(tmp_path) == ["folder"]
