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
