"""Where the local side keeps its things, on machines that make that hard."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtimes import RUNTIME

from jupyter_gpu_kernel.errors import HubError
from jupyter_gpu_kernel.hub.paths import data_folder, hub_address, hub_folder, owner


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="jgk") as name:
        for place in ("JUPYTER_DATA_DIR", "XDG_RUNTIME_DIR"):
            (Path(name) / place).mkdir()
            monkeypatch.setenv(place, str(Path(name) / place))
        yield Path(name)


def test_every_hub_has_a_mark_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where two of them share a home: in two sessions, or on two machines."""
    here = owner(RUNTIME)
    assert here == owner(RUNTIME) and here["by"].endswith(f"@{socket.gethostname()}")
    (folder / "another").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "another"))
    assert owner(RUNTIME)["owner"] != here["owner"]


def test_a_mark_that_a_full_disk_cut_off_is_made_anew(folder: Path) -> None:
    (data_folder() / "owner").touch()
    assert owner(RUNTIME) == owner(RUNTIME)
    assert (data_folder() / "owner").read_text()
    assert [path.name for path in data_folder().iterdir()] == ["owner"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
@pytest.mark.parametrize("taken", ["file", "link", "folder of another user"])
def test_a_name_that_another_user_has_taken_is_replaced_by_a_random_one(folder: Path, taken: str) -> None:
    usual, here = hub_folder(), owner(RUNTIME)
    usual.rmdir()
    if taken == "file":
        usual.touch()
    elif taken == "link":
        usual.symlink_to(folder)
    elif os.getuid() == 0:
        usual.mkdir()
        os.chown(usual, 12345, -1)
    else:
        pytest.skip("only root can give a folder to another user")
    other = hub_folder()
    assert other != usual and other.stat().st_mode & 0o777 == 0o700 and other.parent == usual.parent
    usual.unlink() if taken != "folder of another user" else usual.rmdir()
    assert hub_folder() == other, "a hub may run there"
    assert owner(RUNTIME) == here, "nodes know this computer by it"
    other.rmdir()
    assert hub_folder() == usual and hub_folder().is_dir()


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe has no folder")
def test_a_long_path_is_no_place_for_a_socket(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = folder / ("ä" * 50)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    try:
        assert len(os.fsencode(hub_address())) <= 103
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(hub_address())
    finally:
        Path(hub_address()).unlink(missing_ok=True)
        hub_folder().rmdir()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("place", ["JUPYTER_DATA_DIR", "XDG_RUNTIME_DIR"])
def test_a_place_where_nothing_can_be_made(folder: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv(place, "/proc/1")
    with pytest.raises(HubError, match="cannot be created") as error:
        data_folder(), hub_folder()
    assert place in error.value.remedy
