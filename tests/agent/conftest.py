"""Fixtures of several files: kernels with the guard, folders with keepers."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Iterator

import pytest
from guarded import archive, kernel, shared, start
from keepers import Place
from outputs import waiting

__all__ = ["archive", "kernel", "place", "shared", "start", "waiting"]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    # From a checkout the agent finds its modules by PYTHONPATH, wherever its working directory is.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    monkeypatch.setattr(sys, "argv", ["agent"])
    path = Path(tempfile.mkdtemp(prefix="jgk", dir="/tmp"))  # short: sockets have short names
    monkeypatch.setenv("JUPYTER_GPU_KERNEL_ROOT", str(path))
    place = Place(path)
    yield place
    place.clear()
    shutil.rmtree(str(path))
