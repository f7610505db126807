"""A Python environment without kernelspecs: those in the environment that runs the tests must not count. The fixtures
`environment`, for programs, and `no_environment`, for this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jupyter_core.paths
import pytest

import jupyter_gpu_kernel


class Environment:
    """A virtual environment made of links, whose Python imports what this one does. Windows allows no links: there it
    is the environment that runs the tests."""

    def __init__(self, folder: Path) -> None:
        self.prefix, self.python = Path(sys.prefix), Path(sys.executable)
        self.variables: dict[str, str] = {}
        if sys.platform != "win32":
            self._make(folder)

    def _make(self, folder: Path) -> None:
        self.prefix, self.python = folder, folder / "bin" / "python"
        self.python.parent.mkdir(parents=True)
        self.python.symlink_to(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
        program = folder / "bin" / "jupyter-gpu-kernel"
        program.write_text("")
        program.chmod(0o755)
        (folder / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
        sites = [path for path in sys.path if path.endswith("site-packages")]
        root = str(Path(jupyter_gpu_kernel.__file__).parents[1])
        self.variables["PYTHONPATH"] = os.pathsep.join([root, *sites])


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment")


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jupyter_core.paths, "ENV_JUPYTER_PATH", [])
